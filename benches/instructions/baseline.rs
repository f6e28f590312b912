//! The counts that were recorded: `benches/instructions.toml`.

use std::fmt::Write;

use serde::Deserialize;

use crate::callgrind::{Counted, root};

/// The file.
pub const FILE: &str = "benches/instructions.toml";

const HEADER: &str = "\
# Instructions of one operation of the pure layers, as callgrind counts them. `.ci/instructions` compares with this
# file, `.ci/instructions --record` writes it anew and keeps tolerances and reasons; say in the commit why counts change.
# More than `tolerance_percent` (and two instructions) above is a failure. An operation may have a tolerance of its own,
# with the reason for it.
";

/// What counts depend on beside the source.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    pub rustc: String,
    pub valgrind: String,
    pub libc: String,
    pub processor: String,
}

impl Machine {
    /// What differs from another one, in words.
    pub fn differences(&self, here: &Machine) -> Vec<String> {
        let pairs = [
            (&self.rustc, &here.rustc),
            (&self.valgrind, &here.valgrind),
            (&self.libc, &here.libc),
            (&self.processor, &here.processor),
        ];
        pairs.into_iter().filter(|(then, now)| then != now).map(|(then, now)| format!("{then}, here {now}")).collect()
    }
}

/// One operation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recorded {
    pub name: String,
    pub instructions: f64,
    /// Instead of that of the file.
    pub tolerance_percent: Option<f64>,
    /// Why it has a tolerance of its own.
    pub reason: Option<String>,
}

/// The file's contents.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baseline {
    pub tolerance_percent: f64,
    pub recorded_with: Machine,
    #[serde(default, rename = "operation")]
    pub operations: Vec<Recorded>,
}

impl Baseline {
    /// Reads the file; an empty baseline if there is none.
    pub fn read() -> Result<Baseline, String> {
        match std::fs::read_to_string(root().join(FILE)) {
            Ok(text) => Baseline::parse(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                Ok(Baseline { tolerance_percent: 2.0, recorded_with: Machine::default(), operations: Vec::new() })
            }
            Err(error) => Err(format!("cannot read {FILE}: {error}")),
        }
    }

    fn parse(text: &str) -> Result<Baseline, String> {
        let baseline: Baseline = toml::from_str(text).map_err(|error| format!("{FILE}: {error}"))?;
        match baseline.operations.iter().find(|known| known.tolerance_percent.is_some() && known.reason.is_none()) {
            Some(known) => Err(format!("{FILE}: {} has a tolerance of its own: say why with `reason`", known.name)),
            None => Ok(baseline),
        }
    }

    /// Writes the file.
    pub fn write(&self) -> Result<(), String> {
        std::fs::write(root().join(FILE), self.text()).map_err(|error| format!("cannot write {FILE}: {error}"))
    }

    fn text(&self) -> String {
        let Machine { rustc, valgrind, libc, processor } = &self.recorded_with;
        let mut text = format!(
            "{HEADER}\ntolerance_percent = {:?}\n\n[recorded_with]\nrustc = {rustc:?}\nvalgrind = {valgrind:?}\n\
             libc = {libc:?}\nprocessor = {processor:?}\n",
            self.tolerance_percent
        );
        for known in &self.operations {
            let _ =
                write!(text, "\n[[operation]]\nname = {:?}\ninstructions = {:.1}\n", known.name, known.instructions);
            if let Some(percent) = known.tolerance_percent {
                let _ = writeln!(text, "tolerance_percent = {percent:?}");
            }
            if let Some(reason) = &known.reason {
                let _ = writeln!(text, "reason = {reason:?}");
            }
        }
        text
    }

    /// Takes over what was counted; `all` says that this was everything there is.
    pub fn record(&mut self, counted: &Counted, all: bool) {
        self.recorded_with = counted.machine.clone();
        let mut known = std::mem::take(&mut self.operations);
        for &(name, instructions) in &counted.operations {
            match known.iter_mut().find(|known| known.name == name) {
                Some(known) => known.instructions = instructions,
                None => {
                    let (tolerance_percent, reason) = (None, None);
                    known.push(Recorded { name: name.to_owned(), instructions, tolerance_percent, reason });
                }
            }
        }
        if all {
            known.retain(|known| counted.operations.iter().any(|(name, _)| *name == known.name));
        }
        let order = |name: &str| crate::cases::CASES.iter().position(|case| case.name == name);
        known.sort_by_key(|known| order(&known.name));
        self.operations = known;
    }
}
