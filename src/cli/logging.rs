//! Sets up where log lines go and which are written, from the `[log]` section.

use core::fmt;
use std::io::{self, IsTerminal as _};
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::pod::config::{LogFormat, LogSection};

/// Starts logging to standard error, once for a process.
///
/// # Errors
/// If the level is not understood (a loaded configuration has been checked for that) or logging was started before.
pub fn start(log: &LogSection) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.level)?;
    // A line that cannot be written (a closed pipe, a full disk) is lost; reporting that would panic for the same reason.
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    let started = match log.format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.with_ansi(false).event_format(JsonLines).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logging cannot be started: {error}"))
}

/// One JSON object a line: `unix_ms`, `level`, `target`, `message` and the fields of the event under `fields`.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_millis() as u64);
        let mut line = serde_json::json!({
            "unix_ms": unix_ms,
            "level": event.metadata().level().as_str(),
            "target": event.metadata().target(),
            "message": fields.message,
        });
        if !fields.others.is_empty() {
            line["fields"] = fields.others.into();
        }
        writeln!(writer, "{line}")
    }
}

#[derive(Default)]
struct Fields {
    message: String,
    others: serde_json::Map<String, serde_json::Value>,
}

impl Fields {
    fn add(&mut self, field: &Field, value: serde_json::Value) {
        match (field.name(), value) {
            ("message", serde_json::Value::String(text)) => self.message = text,
            (name, value) => {
                self.others.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.add(field, format!("{value:?}").into());
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(field, value.into());
    }
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, value.into());
    }
    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, value.into());
    }
    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, value.into());
    }
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field, value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_line_is_one_object() {
        let buffer = Buffer::default();
        let made = buffer.clone();
        let subscriber = tracing_subscriber::fmt().event_format(JsonLines).with_writer(move || made.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::info!(shard = 7, entity = "guild", slow = true, "took \"long\"\nvery");
            tracing::warn!("plain");
        });
        let text = String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["message"], "took \"long\"\nvery");
        assert_eq!(lines[0]["fields"], serde_json::json!({ "shard": 7, "entity": "guild", "slow": true }));
        assert_eq!((&lines[1]["level"], &lines[1]["message"]), (&"WARN".into(), &"plain".into()));
    }
}
