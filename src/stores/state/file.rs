//! The file of saved state: one redb table, in which each value has the token of its writer.
//!
//! Called by [`super::worker`], on its own thread. Invariants: the token of a key only grows (until the key is
//! forgotten); a request changes everything or nothing; several requests become durable together, and none is answered
//! before it is.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, Table, TableDefinition};

use super::model::{
    Applied, Apply, Saved, StateAnswer, StateChange, StateCompare, StateError, StateRequest, StateStatistics,
};
use crate::stores::control_file::{OpenError, open_database};

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "state.redb";
/// Version of the layout of the file.
const FORMAT: u64 = 1;

/// Key → token as 8 bytes, little-endian, then 1 and the value, or 0 if there is only the token.
const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");
/// `format` and the statistics.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

/// The result of one request.
pub(crate) type Outcome = Result<StateAnswer, StateError>;

/// The open file.
#[derive(Debug)]
pub(crate) struct StateFile {
    database: Database,
    statistics: StateStatistics,
}

impl StateFile {
    /// Opens the file in a data directory for this process alone.
    pub fn open(directory: &Path) -> Result<StateFile, OpenError> {
        let (file, database) = open_database(directory, FILE_NAME)?;
        StateFile::prepare(database)
            .map_err(|error| OpenError::Damaged { file: file.clone(), reason: error.to_string() })?
            .map_err(|format| OpenError::LaterFormat { file, format })
    }

    /// A file in memory, which is gone when it is dropped.
    pub fn in_memory() -> Result<StateFile, redb::Error> {
        let database = Database::builder().create_with_backend(redb::backends::InMemoryBackend::new())?;
        StateFile::prepare(database)?.map_err(|_| redb::Error::Corrupted("a new file has a format".to_owned()))
    }

    fn prepare(database: Database) -> Result<Result<StateFile, u64>, redb::Error> {
        let transaction = database.begin_write()?;
        let mut statistics = StateStatistics::default();
        {
            let mut counters = transaction.open_table(COUNTERS)?;
            let format = counters.get("format")?.map_or(FORMAT, |format| format.value());
            if format != FORMAT {
                return Ok(Err(format));
            }
            counters.insert("format", FORMAT)?;
            let count = |name: &str| Ok::<u64, redb::Error>(counters.get(name)?.map_or(0, |count| count.value()));
            statistics.puts = count("puts")?;
            statistics.stale_rejections = count("stale_rejections")?;
            statistics.unmet_compares = count("unmet_compares")?;
            transaction.open_table(VALUES)?;
        }
        transaction.commit()?;
        Ok(Ok(StateFile { database, statistics }))
    }

    /// Does requests in their order. What they changed is durable when this returns.
    pub fn run(&mut self, requests: &[StateRequest]) -> Result<Vec<Outcome>, redb::Error> {
        let reads = |request: &StateRequest| matches!(request, StateRequest::Get { .. } | StateRequest::Statistics);
        if requests.iter().all(reads) {
            return self.read(requests);
        }
        let before = self.statistics;
        let transaction = self.database.begin_write()?;
        let mut outcomes = Vec::with_capacity(requests.len());
        {
            let mut values = transaction.open_table(VALUES)?;
            for request in requests {
                outcomes.push(step(&mut values, &mut self.statistics, request)?);
            }
            if before != self.statistics {
                let mut counters = transaction.open_table(COUNTERS)?;
                counters.insert("puts", self.statistics.puts)?;
                counters.insert("stale_rejections", self.statistics.stale_rejections)?;
                counters.insert("unmet_compares", self.statistics.unmet_compares)?;
            }
        }
        transaction.commit()?;
        Ok(outcomes)
    }

    fn read(&self, requests: &[StateRequest]) -> Result<Vec<Outcome>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let values = transaction.open_table(VALUES)?;
        let one = |request: &StateRequest| match request {
            StateRequest::Get { key } => Ok(Ok(StateAnswer::Value(get(&values, key)?.and_then(Entry::saved)))),
            _ => Ok(Ok(StateAnswer::Statistics(self.statistics))),
        };
        requests.iter().map(one).collect()
    }
}

struct Entry {
    token: u64,
    value: Option<Vec<u8>>,
}

impl Entry {
    fn saved(self) -> Option<Saved> {
        let token = self.token;
        self.value.map(|value| Saved { value, token })
    }
}

fn get(values: &impl ReadableTable<&'static str, &'static [u8]>, key: &str) -> Result<Option<Entry>, redb::Error> {
    let Some(stored) = values.get(key)? else { return Ok(None) };
    let bytes = stored.value();
    let Some((token, rest)) = bytes.split_first_chunk::<8>() else {
        return Err(redb::Error::Corrupted(format!("the value of {key} is damaged")));
    };
    let value = rest.split_first().filter(|(has_value, _)| **has_value == 1).map(|(_, value)| value.to_vec());
    Ok(Some(Entry { token: u64::from_le_bytes(*token), value }))
}

fn put(values: &mut Table<'_, &str, &[u8]>, key: &str, token: u64, value: Option<&[u8]>) -> Result<(), redb::Error> {
    let mut bytes = Vec::with_capacity(9 + value.map_or(0, <[u8]>::len));
    bytes.extend_from_slice(&token.to_le_bytes());
    bytes.push(u8::from(value.is_some()));
    bytes.extend_from_slice(value.unwrap_or_default());
    values.insert(key, bytes.as_slice())?;
    Ok(())
}

/// Does one request; the outer error is the disk's.
fn step(
    values: &mut Table<'_, &str, &[u8]>,
    statistics: &mut StateStatistics,
    request: &StateRequest,
) -> Result<Outcome, redb::Error> {
    if let Err(error) = request.check() {
        return Ok(Err(error));
    }
    Ok(match request {
        StateRequest::Statistics => Ok(StateAnswer::Statistics(*statistics)),
        StateRequest::Get { key } => Ok(StateAnswer::Value(get(values, key)?.and_then(Entry::saved))),
        StateRequest::Load { key, token } => {
            let entry = get(values, key)?;
            let stored = entry.as_ref().map_or(0, |entry| entry.token);
            if stored > *token {
                statistics.stale_rejections += 1;
                return Ok(Err(StateError::StaleToken { stored }));
            }
            let value = entry.and_then(|entry| entry.value);
            if stored < *token {
                put(values, key, *token, value.as_deref())?;
            }
            Ok(StateAnswer::Value(value.map(|value| Saved { value, token: *token })))
        }
        StateRequest::Apply(request) => apply(values, statistics, request)?.map(StateAnswer::Applied),
    })
}

fn apply(
    values: &mut Table<'_, &str, &[u8]>,
    statistics: &mut StateStatistics,
    request: &Apply,
) -> Result<Result<Applied, StateError>, redb::Error> {
    let keys = request.compares.iter().map(StateCompare::key).chain(request.changes.iter().map(StateChange::key));
    for key in keys {
        let stored = get(values, key)?.map_or(0, |entry| entry.token);
        if stored > request.token {
            statistics.stale_rejections += 1;
            return Ok(Err(StateError::StaleToken { stored }));
        }
    }
    for (at, compare) in (0_u32..).zip(&request.compares) {
        let value = get(values, compare.key())?.and_then(|entry| entry.value);
        let holds = match compare {
            StateCompare::Absent(_) => value.is_none(),
            StateCompare::Present(_) => value.is_some(),
            StateCompare::Equals { value: expected, .. } => value.as_ref() == Some(expected),
        };
        if !holds {
            statistics.unmet_compares += 1;
            return Ok(Ok(Applied::Unmet { compare: at }));
        }
    }
    for change in &request.changes {
        match change {
            StateChange::Put { key, value } => put(values, key, request.token, Some(value))?,
            StateChange::Delete(key) => put(values, key, request.token, None)?,
            StateChange::Forget(key) => {
                values.remove(key.as_str())?;
            }
        }
    }
    statistics.puts += 1;
    Ok(Ok(Applied::Done))
}
