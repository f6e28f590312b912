//! The file of the control records: what of a store outlives a restart.
//!
//! Called by the embedded store, which writes before it answers, and by the served one, whose disk thread writes what
//! the other thread has queued. The lock on the file is what makes its user the only one.
//!
//! Invariants: a revision is never used again, over any restart: the file says up to where revisions are reserved, a
//! new block is reserved with the first of its revisions, and the next run begins after the block.

use std::fs;
use std::path::{Path, PathBuf};

use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition};

use crate::control::store::{KeyValue, LeaseId, Revision};
use crate::control::store_state::{LeaseMode, StoreState, Write};

/// Name of the file in the data directory.
pub const FILE_NAME: &str = "control.redb";
/// Version of the layout of the file.
const FORMAT: u64 = 1;
/// Revisions that are reserved at a time: one more write to the disk for a million changes.
const REVISION_BLOCK: u64 = 1 << 20;
/// Memory for the pages of the file; it is small and read once.
const CACHE_BYTES: usize = 4 << 20;

/// Key → create revision, mod revision, lease (0: none) as 8 bytes each, little-endian, then the value.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
/// Lease → time to live in milliseconds.
const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");
/// `format`, and `revisions`: the last reserved revision.
const COUNTERS: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");

const HEADER_BYTES: usize = 24;

/// Why a data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("another process uses {}; stop it or pass another --data-dir", directory.display())]
    InUse {
        /// The data directory.
        directory: PathBuf,
    },
    /// It cannot be created or written.
    #[error("the data directory {} cannot be used: {error}; pass another --data-dir", directory.display())]
    Directory {
        /// The data directory.
        directory: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A later version wrote it.
    #[error("{} was written by a newer atoll (format {format}, this one knows {FORMAT}); use that", file.display())]
    LaterFormat {
        /// The file.
        file: PathBuf,
        /// Its format.
        format: u64,
    },
    /// A thread could not be made.
    #[error("a thread could not be started: {0}; check `ulimit -u`")]
    Thread(std::io::Error),
    /// The file is damaged, or not ours.
    #[error("{} cannot be read: {reason}; restore it from a backup or pass another --data-dir", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// The open file. Dropping it frees the data directory.
#[derive(Debug)]
pub struct ControlFile {
    database: Database,
    mode: LeaseMode,
    reserved: u64,
}

impl ControlFile {
    /// Opens a data directory for this process alone, creating it if it does not exist, and reads what it holds.
    ///
    /// # Errors
    /// If another process uses the directory, or it cannot be used.
    pub fn open(directory: &Path, mode: LeaseMode) -> Result<(ControlFile, StoreState), OpenError> {
        let (file, database) = open_database(directory, FILE_NAME)?;
        let damaged = |error: redb::Error| OpenError::Damaged { file: file.clone(), reason: error.to_string() };
        prepare(&database, mode).map_err(damaged)?;
        let format = counter(&database, "format").map_err(damaged)?.unwrap_or(FORMAT);
        if format != FORMAT {
            return Err(OpenError::LaterFormat { file, format });
        }
        let reserved = counter(&database, "revisions").map_err(damaged)?.unwrap_or(0);
        let mut state = StoreState::new(mode, Revision(reserved));
        restore(&database, &mut state)
            .map_err(damaged)?
            .map_err(|key| OpenError::Damaged { file: file.clone(), reason: format!("the record {key} is damaged") })?;
        Ok((ControlFile { database, mode, reserved }, state))
    }

    /// Writes changes in their order, and reserves revisions if `revision`, the present one, needs it. They are on the
    /// disk when it returns.
    ///
    /// # Errors
    /// If the disk fails. What is on it is then unknown: nothing that depends on it may be answered any more.
    pub fn persist(&mut self, writes: &[Write], revision: Revision) -> Result<(), redb::Error> {
        let mut writes = writes.iter().filter(|write| outlives_run(write, self.mode)).peekable();
        let revision = revision.0;
        let reserved = if revision > self.reserved { revision.saturating_add(REVISION_BLOCK) } else { self.reserved };
        if writes.peek().is_none() && reserved == self.reserved {
            return Ok(());
        }
        let transaction = self.database.begin_write()?;
        {
            let mut records = transaction.open_table(RECORDS)?;
            let mut leases = transaction.open_table(LEASES)?;
            for write in writes {
                match write {
                    Write::Put { record, .. } if self.mode == LeaseMode::WhileOpen && record.lease.is_some() => {
                        records.remove(record.key.as_str())?;
                    }
                    Write::Put { record, .. } => {
                        records.insert(record.key.as_str(), encode(record).as_slice())?;
                    }
                    Write::Deleted { key, .. } => {
                        records.remove(key.as_str())?;
                    }
                    Write::LeaseGranted { lease, ttl } => {
                        let ttl_ms = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
                        leases.insert(lease.0, ttl_ms)?;
                    }
                    Write::LeaseEnded { lease } => {
                        leases.remove(lease.0)?;
                    }
                }
            }
            let mut counters = transaction.open_table(COUNTERS)?;
            counters.insert("revisions", reserved)?;
        }
        transaction.commit()?;
        self.reserved = reserved;
        Ok(())
    }
}

/// Opens (or creates) a redb file in a data directory and locks it.
pub(crate) fn open_database(directory: &Path, name: &str) -> Result<(PathBuf, Database), OpenError> {
    let in_directory = |error| OpenError::Directory { directory: directory.to_owned(), error };
    fs::create_dir_all(directory).map_err(in_directory)?;
    let file = directory.join(name);
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let database = builder.create(&file).map_err(|error| match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { directory: directory.to_owned() },
        DatabaseError::Storage(redb::StorageError::Io(error))
            if matches!(
                error.kind(),
                std::io::ErrorKind::PermissionDenied
                    | std::io::ErrorKind::ReadOnlyFilesystem
                    | std::io::ErrorKind::StorageFull
                    | std::io::ErrorKind::IsADirectory
            ) =>
        {
            in_directory(error)
        }
        error => OpenError::Damaged { file: file.clone(), reason: error.to_string() },
    })?;
    Ok((file, database))
}

/// Whether a restart has to know of it. What is under a lease is gone then if leases end with the run.
fn outlives_run(write: &Write, mode: LeaseMode) -> bool {
    if mode == LeaseMode::Expiring {
        return true;
    }
    match write {
        Write::Put { record, replaced_unleased } => record.lease.is_none() || *replaced_unleased,
        Write::Deleted { leased, .. } => !leased,
        Write::LeaseGranted { .. } | Write::LeaseEnded { .. } => false,
    }
}

/// Creates the tables, and ends the leases of an earlier run if they end with it.
fn prepare(database: &Database, mode: LeaseMode) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut counters = transaction.open_table(COUNTERS)?;
        if counters.get("format")?.is_none() {
            counters.insert("format", FORMAT)?;
        }
        let format = counters.get("format")?.map(|format| format.value());
        let mut records = transaction.open_table(RECORDS)?;
        let mut leases = transaction.open_table(LEASES)?;
        if format == Some(FORMAT) && mode == LeaseMode::WhileOpen {
            leases.retain(|_, _| false)?;
            records.retain(|_, value| lease_of(value).is_none())?;
        }
    }
    transaction.commit()?;
    Ok(())
}

fn counter(database: &Database, name: &str) -> Result<Option<u64>, redb::Error> {
    let transaction = database.begin_read()?;
    let counters = transaction.open_table(COUNTERS)?;
    Ok(counters.get(name)?.map(|value| value.value()))
}

/// Reads everything; the inner error is the key of a damaged record.
fn restore(database: &Database, state: &mut StoreState) -> Result<Result<(), String>, redb::Error> {
    let transaction = database.begin_read()?;
    for lease in transaction.open_table(LEASES)?.iter()? {
        let (lease, ttl_ms) = lease?;
        state.restore_lease(LeaseId(lease.value()), core::time::Duration::from_millis(ttl_ms.value()));
    }
    for record in transaction.open_table(RECORDS)?.iter()? {
        let (key, value) = record?;
        let known = decode(key.value(), value.value()).is_some_and(|record| state.restore_record(record));
        if !known {
            return Ok(Err(key.value().to_owned()));
        }
    }
    Ok(Ok(()))
}

fn encode(record: &KeyValue) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_BYTES + record.value.len());
    bytes.extend_from_slice(&record.create_revision.0.to_le_bytes());
    bytes.extend_from_slice(&record.mod_revision.0.to_le_bytes());
    bytes.extend_from_slice(&record.lease.map_or(0, |lease| lease.0).to_le_bytes());
    bytes.extend_from_slice(&record.value);
    bytes
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn lease_of(bytes: &[u8]) -> Option<LeaseId> {
    number(bytes, 16).filter(|lease| *lease != 0).map(LeaseId)
}

fn decode(key: &str, bytes: &[u8]) -> Option<KeyValue> {
    let (create, changed) = (number(bytes, 0)?, number(bytes, 8)?);
    Some(KeyValue {
        key: key.to_owned(),
        value: bytes.get(HEADER_BYTES..)?.to_vec(),
        create_revision: Revision(create),
        mod_revision: Revision(changed),
        lease: lease_of(bytes),
    })
}
