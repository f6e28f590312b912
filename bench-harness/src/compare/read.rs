//! Reads what `--json` wrote, as far as a comparison needs it. A file is judged step by step, so that the error says what
//! is wrong with it: unreadable, no JSON, no report, another version, a report without rounds.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

use super::Origin;
use crate::report::{Machine, Provenance, ReportKind, SCHEMA_VERSION};

/// Longest file that is read. A scenario with 1,000 rounds takes half a megabyte.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Why files cannot be compared.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file cannot be read.
    #[error("cannot read {file}")]
    Unreadable {
        /// The file.
        file: String,
        /// Why.
        source: std::io::Error,
    },
    /// It is longer than any report.
    #[error("{file} is longer than {} MiB: no report is; give a file that `atoll-bench --json FILE` wrote", FILE_BYTES_MAX >> 20)]
    TooLong {
        /// The file.
        file: String,
    },
    /// It is no JSON.
    #[error("{file} is no JSON; give a file that `atoll-bench --json FILE` wrote")]
    NotJson {
        /// The file.
        file: String,
        /// Where it stops to be.
        source: serde_json::Error,
    },
    /// It is JSON of something else.
    #[error("{file} is no report of atoll-bench ({reason}); give a file that `atoll-bench --json FILE` wrote")]
    NoReport {
        /// The file.
        file: String,
        /// What is missing.
        reason: String,
    },
    /// It was written by another version of the program.
    #[error(
        "{file} has schema version {found}, and this atoll-bench reads {SCHEMA_VERSION}; measure again, or compare with \
         the atoll-bench that wrote it"
    )]
    OtherVersion {
        /// The file.
        file: String,
        /// Its version.
        found: String,
    },
    /// There are no rounds in it from which noise could be told.
    #[error("{file} reports a cluster run, which has no rounds and so no noise band; compare its figures by eye")]
    NoRounds {
        /// The file.
        file: String,
    },
    /// The two report different things.
    #[error("{first} reports {first_kind} and {second} {second_kind}; compare files of the same command")]
    OtherKind {
        /// One file.
        first: String,
        /// What it has.
        first_kind: ReportKind,
        /// The other.
        second: String,
        /// What that has.
        second_kind: ReportKind,
    },
}

/// A run, as far as a comparison needs it.
#[derive(Clone, Debug)]
pub struct RunFile {
    /// The file's name.
    pub file: String,
    /// What it has.
    pub kind: ReportKind,
    pub(super) provenance: Provenance,
    pub(super) machine: Machine,
    pub(super) rows: Vec<Measured>,
}

/// One scenario, floor or row of the stream engine.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Measured {
    pub name: String,
    /// What was measured and under what circumstances.
    pub circumstances: Vec<(String, Value)>,
    pub refused: bool,
    pub errors: u64,
    /// The floor's name, and which figure its ratio compares.
    pub floor: Option<(String, String)>,
    pub rounds: Rounds,
}

/// The figures of all rounds, each in the order of the run; empty where there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rounds {
    pub count: usize,
    pub operations_per_second: Vec<f64>,
    pub p50: Vec<f64>,
    pub p99: Vec<f64>,
    pub floor_ratio: Vec<f64>,
    pub floor_operations_per_second: Vec<f64>,
    pub floor_p50: Vec<f64>,
    pub floor_p99: Vec<f64>,
}

#[derive(Deserialize)]
struct ScenarioFile {
    #[serde(flatten)]
    headline: ScenarioJson,
    further: Vec<ScenarioJson>,
}

#[derive(Deserialize)]
struct ScenarioJson {
    scenario: String,
    parameters: serde_json::Map<String, Value>,
    setting: serde_json::Map<String, Value>,
    errors: u64,
    refused: Option<Value>,
    floor: Option<FloorJson>,
    rounds: Vec<RoundJson>,
}

#[derive(Deserialize)]
struct FloorFile {
    floors: Vec<FloorAlone>,
}

#[derive(Deserialize)]
struct FloorAlone {
    #[serde(flatten)]
    parameters: serde_json::Map<String, Value>,
}

#[derive(Deserialize)]
struct FloorJson {
    name: String,
    ratio_basis: String,
}

#[derive(Deserialize)]
struct RoundJson {
    operations_per_second: f64,
    latency_ns: LatencyJson,
    floor_operations_per_second: Option<f64>,
    floor_latency_ns: Option<LatencyJson>,
    floor_ratio: Option<f64>,
}

#[derive(Deserialize)]
struct LatencyJson {
    p50: f64,
    p99: f64,
}

#[derive(Deserialize)]
struct StreamFile {
    rows: Vec<StreamJson>,
}

#[derive(Deserialize)]
struct StreamJson {
    name: String,
    floor: String,
    rounds: Vec<StreamRoundJson>,
}

#[derive(Deserialize)]
struct StreamRoundJson {
    ns_per_element: f64,
    floor_ns: Option<f64>,
}

#[derive(Deserialize)]
struct Head {
    #[serde(flatten)]
    provenance: Provenance,
    machine: Machine,
}

impl RunFile {
    /// Reads a file.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let file = path.display().to_string();
        let unreadable = |source| ReadError::Unreadable { file: path.display().to_string(), source };
        let mut bytes = Vec::new();
        let reader = File::open(path).map_err(unreadable)?;
        reader.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ReadError::TooLong { file });
        }
        Self::parse(file, &bytes)
    }

    /// Takes the content of a file apart; `file` is its name.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub fn parse(file: String, bytes: &[u8]) -> Result<Self, ReadError> {
        let value: Value = match serde_json::from_slice(bytes) {
            Ok(value) => value,
            Err(source) => return Err(ReadError::NotJson { file, source }),
        };
        check_version(&file, &value)?;
        let Head { provenance, machine } = part(&file, &value)?;
        let rows = match provenance.kind {
            ReportKind::Scenarios => {
                let ScenarioFile { headline, further } = part(&file, &value)?;
                core::iter::once(headline).chain(further).map(Measured::from).collect()
            }
            ReportKind::Floors => {
                let FloorFile { floors } = part(&file, &value)?;
                floors.into_iter().map(|floor| floor_alone(&file, floor)).collect::<Result<_, _>>()?
            }
            ReportKind::Streams => {
                let StreamFile { rows } = part(&file, &value)?;
                rows.into_iter().map(Measured::from).collect()
            }
            ReportKind::Cluster => return Err(ReadError::NoRounds { file }),
        };
        Ok(Self { file, kind: provenance.kind, provenance, machine, rows })
    }

    pub(super) fn origin(&self) -> Origin {
        Origin {
            file: self.file.clone(),
            measured_at: self.provenance.measured_at.clone(),
            command_line: self.provenance.command_line.clone(),
            machine: self.machine.clone(),
        }
    }
}

fn check_version(file: &str, value: &Value) -> Result<(), ReadError> {
    let no_report = |reason: &str| ReadError::NoReport { file: file.to_owned(), reason: reason.to_owned() };
    let object = value.as_object().ok_or_else(|| no_report("it is no object"))?;
    let other = |found: String| ReadError::OtherVersion { file: file.to_owned(), found };
    match object.get("schema_version") {
        Some(version) if version.as_u64() == Some(SCHEMA_VERSION) => Ok(()),
        Some(version) => Err(other(version.to_string())),
        // What reports had before they had a number.
        None if object.contains_key("machine") => Err(other("none".to_owned())),
        None => Err(no_report("it has no schema_version")),
    }
}

fn part<T: DeserializeOwned>(file: &str, value: &Value) -> Result<T, ReadError> {
    T::deserialize(value).map_err(|error| ReadError::NoReport { file: file.to_owned(), reason: error.to_string() })
}

fn floor_alone(file: &str, floor: FloorAlone) -> Result<Measured, ReadError> {
    let FloorAlone { parameters } = floor;
    let value = Value::Object(parameters.clone());
    #[derive(Deserialize)]
    struct Alone {
        name: String,
        rounds: Vec<RoundJson>,
    }
    let Alone { name, rounds } = part(file, &value)?;
    // The parameters are those besides the figures.
    let figures = ["name", "ratio_basis", "operations_per_second", "ns_per_operation", "latency_ns"];
    let more = ["cpu_ns_per_operation", "bytes_per_entity", "byte_pump_ns_per_operation", "rounds"];
    let is_figure = |key: &String| figures.contains(&key.as_str()) || more.contains(&key.as_str());
    let circumstances: Vec<(String, Value)> = parameters.into_iter().filter(|(key, _)| !is_figure(key)).collect();
    // Several floors of a run have the same name: the parameters tell them apart.
    let told_apart: Vec<String> = circumstances
        .iter()
        .filter(|(_, value)| value.is_number())
        .map(|(key, value)| format!("{key} {value}"))
        .collect();
    let name = format!("{}: {}", name.replace('_', " "), told_apart.join(", "));
    Ok(Measured { name, circumstances, rounds: rounds.into_iter().collect(), ..Measured::default() })
}

impl From<ScenarioJson> for Measured {
    fn from(json: ScenarioJson) -> Self {
        // More rounds are the same measurement, only finer.
        let setting = json.setting.into_iter().filter(|(key, _)| key != "rounds");
        Self {
            name: json.scenario,
            circumstances: json.parameters.into_iter().chain(setting).collect(),
            refused: json.refused.is_some_and(|refused| !refused.is_null()),
            errors: json.errors,
            floor: json.floor.map(|floor| (floor.name, floor.ratio_basis)),
            rounds: json.rounds.into_iter().collect(),
        }
    }
}

impl From<StreamJson> for Measured {
    fn from(json: StreamJson) -> Self {
        let rate = |ns: f64| 1e9 / ns;
        let ratio = |round: &StreamRoundJson| Some(round.ns_per_element / round.floor_ns?);
        let rounds = Rounds {
            count: json.rounds.len(),
            operations_per_second: json.rounds.iter().map(|round| rate(round.ns_per_element)).collect(),
            floor_ratio: json.rounds.iter().filter_map(ratio).collect(),
            floor_operations_per_second: json.rounds.iter().filter_map(|round| round.floor_ns.map(rate)).collect(),
            ..Rounds::default()
        };
        let floor = (!json.floor.is_empty()).then(|| (json.floor, "ns_per_element".to_owned()));
        Self { name: json.name, floor, rounds, ..Self::default() }
    }
}

impl FromIterator<RoundJson> for Rounds {
    fn from_iter<T: IntoIterator<Item = RoundJson>>(rounds: T) -> Self {
        let mut all = Self::default();
        for round in rounds {
            all.count += 1;
            all.operations_per_second.push(round.operations_per_second);
            all.p50.push(round.latency_ns.p50);
            all.p99.push(round.latency_ns.p99);
            all.floor_ratio.extend(round.floor_ratio);
            all.floor_operations_per_second.extend(round.floor_operations_per_second);
            all.floor_p50.extend(round.floor_latency_ns.as_ref().map(|latency| latency.p50));
            all.floor_p99.extend(round.floor_latency_ns.as_ref().map(|latency| latency.p99));
        }
        all
    }
}
