//! The thin part that touches the process: reads the file, the environment and the cores it may run on.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use super::keys::Config;
use super::problem::{ConfigError, Place, Problem};
use super::sources::{FileText, Flag, Loaded, Sources};

/// Largest configuration file that is read: far above any real one, and a wrong path does not fill the memory.
const FILE_BYTES_MAX: u64 = 1 << 20;

impl Config {
    /// Loads the file that `ATOLL_CONFIG` names (none if it is not set) and the environment: what a program that embeds
    /// a pod calls first.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place and what to do.
    pub fn load() -> Result<Config, ConfigError> {
        let path = std::env::var_os("ATOLL_CONFIG");
        Config::load_from(path.as_deref().map(Path::new), &[]).map(|loaded| loaded.config)
    }

    /// Loads a file (or none), the environment and the flags of a command line.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place and what to do.
    pub fn load_from(path: Option<&Path>, flags: &[Flag]) -> Result<Loaded, ConfigError> {
        Config::load_for(path, flags, Some(cores_available()))
    }

    /// As [`load_from`](Config::load_from), for a machine with that many cores; `None` leaves `pod.cores` unchecked.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place and what to do.
    pub fn load_for(
        path: Option<&Path>,
        flags: &[Flag],
        cores_available: Option<usize>,
    ) -> Result<Loaded, ConfigError> {
        let environment = environment()?;
        let text = path.map(read).transpose()?;
        let shown = path.map(|path| path.display().to_string()).unwrap_or_default();
        let file = text.as_deref().map(|text| FileText { path: &shown, text });
        Config::resolve(&Sources { file, environment: &environment, flags, cores_available })
    }

    /// Checks one file alone: not the environment, and not against this machine.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place and what to do.
    pub fn load_file(path: &Path) -> Result<Loaded, ConfigError> {
        let text = read(path)?;
        let shown = path.display().to_string();
        Config::resolve(&Sources { file: Some(FileText { path: &shown, text: &text }), ..Sources::default() })
    }

    /// The number of cores that the pod will use on this machine.
    #[must_use]
    pub fn cores(&self) -> usize {
        self.pod.cores.count(cores_available())
    }
}

/// Cores that this process may run on: its CPU set, which a container or `taskset` may have narrowed.
#[must_use]
pub fn cores_available() -> usize {
    let listed = std::fs::read_to_string("/proc/self/status").ok().and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        count_cpu_list(line.trim())
    });
    listed.or_else(|| std::thread::available_parallelism().ok().map(usize::from)).unwrap_or(1)
}

/// Members of a list such as `0-3,8,10-11`.
fn count_cpu_list(list: &str) -> Option<usize> {
    list.split(',').try_fold(0_usize, |total, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        total.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

fn read(path: &Path) -> Result<String, ConfigError> {
    let failed = |message: String| ConfigError {
        problems: vec![Problem { place: Place::File { path: path.display().to_string(), line: None }, message }],
    };
    let mut text = String::new();
    // Counted while reading: a device or a pipe does not say how much it has.
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Ok(bytes) if bytes as u64 > FILE_BYTES_MAX => {
            Err(failed("this is larger than 1 MiB, which no configuration is; give another path".to_owned()))
        }
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(failed(
            "there is no such file; give another path, or start one with `atoll config reference > FILE`".to_owned(),
        )),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            Err(failed("this is not text in UTF-8; give another path".to_owned()))
        }
        Err(error) => Err(failed(format!("cannot be read ({error}); check the path and its permissions"))),
    }
}

fn environment() -> Result<Vec<(String, String)>, ConfigError> {
    let mut pairs = Vec::new();
    let mut problems = Vec::new();
    for (name, value) in std::env::vars_os() {
        // A name that is not UTF-8 cannot start a key of ours; the value of one of ours can.
        let Some(name) = name.to_str().filter(|name| name.starts_with("ATOLL_")) else { continue };
        match value.into_string() {
            Ok(value) => pairs.push((name.to_owned(), value)),
            Err(_) => problems.push(Problem {
                place: Place::Environment(name.to_owned()),
                message: "is not UTF-8; set it to plain text".to_owned(),
            }),
        }
    }
    pairs.sort();
    if problems.is_empty() { Ok(pairs) } else { Err(ConfigError { problems }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_counted() {
        for (list, expected) in
            [("0", Some(1)), ("0-1", Some(2)), ("0-3,8,10-11", Some(7)), ("", None), ("3-1", None), ("a", None)]
        {
            assert_eq!(count_cpu_list(list), expected, "{list}");
        }
    }
}
