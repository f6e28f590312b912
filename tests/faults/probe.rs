//! A pod whose handlers write down when they ran and with which token, and which writes to the state store behind the
//! back of the freeze, as a service does whose database is slow.
//!
//! The pod is this test program, started again: `run_if_asked` makes it one.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use atoll::base::Token;
use atoll::cli::arguments::ConfigArguments;
use atoll::pod::open_state;
use atoll::runtime::boot_time;
use atoll::services::account::{AccountEntity, use_store};
use atoll::services::echo::EchoEntity;
use atoll::stores::state::StateError;
use atoll::{Entity, EntityId, EntityOptions, Pod, Scope, StartError, StateStore};
use clap::Parser;

use crate::support::*;

/// Names the file for what handlers write down. Set only for the children of this test program.
const JOURNAL: &str = "TEST_POD_JOURNAL";
/// The flags of the pod, one a line.
const FLAGS: &str = "TEST_POD_FLAGS";
/// The test that is the pod in a child.
pub const POD_TEST: &str = "a_pod_of_these_tests";

pub fn journal(directory: &Path) -> PathBuf {
    directory.join("journal")
}

/// Makes the command of a pod.
pub fn probe_pod(directory: &Path, flags: &[String]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", POD_TEST, "--nocapture"]);
    without_atoll_variables(&mut command)
        .env(JOURNAL, journal(directory))
        .env(FLAGS, [&["--dev".to_owned()], flags].concat().join("\n"));
    command
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    config: ConfigArguments,
}

struct Place {
    journal: File,
    store: StateStore,
}

static PLACE: OnceLock<Place> = OnceLock::new();

/// Is the pod until it is told to stop, if this process is a child that should be one.
pub fn run_if_asked() {
    let (Ok(path), Ok(flags)) = (std::env::var(JOURNAL), std::env::var(FLAGS)) else { return };
    let flags = Flags::try_parse_from(["pod"].into_iter().chain(flags.lines())).unwrap();
    let config = flags.config.load().unwrap().config;
    let store = open_state(&config).unwrap();
    use_store(store.clone()).unwrap();
    let journal = OpenOptions::new().create(true).append(true).open(path).unwrap();
    assert!(PLACE.set(Place { journal, store }).is_ok());
    let started = Pod::builder()
        .config(config)
        .entity::<AccountEntity>(EntityOptions::default())
        .entity::<EchoEntity>(EntityOptions::default())
        .entity::<ProbeEntity>(EntityOptions::default())
        .start();
    let pod = match started {
        Ok(pod) => pod,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::exit(1);
        }
    };
    eprintln!("the pod serves at {} now", pod.address());
    pod.wait().unwrap();
    std::process::exit(0);
}

#[atoll::protocol]
pub trait Probe {
    /// The token of the shard, as the owner that answers has it, and when it did.
    async fn touch(&mut self) -> Vec<u64>;
    /// The same after a while.
    async fn touch_slowly(&mut self, milliseconds: u64) -> Vec<u64>;
    /// Takes the token now and writes with it later, from a thread that knows nothing of leases.
    async fn write_later(&mut self, milliseconds: u64);
}

pub struct ProbeEntity {
    id: String,
    token: u64,
}

/// Something that happened in a pod.
#[derive(Clone, Debug)]
pub struct Line {
    pub what: String,
    pub entity: String,
    pub token: u64,
    pub at_ns: u64,
}

fn note(what: &str, entity: &str, token: u64) -> u64 {
    let at_ns = boot_time().0;
    let line = format!("{what} {entity} {token} {at_ns}\n");
    // One write is one piece in a file that is opened for appending.
    (&PLACE.get().unwrap().journal).write_all(line.as_bytes()).unwrap();
    at_ns
}

/// Everything so far, in the order of time.
pub fn lines(directory: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(journal(directory)).unwrap_or_default();
    let mut lines: Vec<Line> = text
        .lines()
        .map(|line| {
            let parts: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| parts[at].parse().unwrap();
            Line { what: parts[0].to_owned(), entity: parts[1].to_owned(), token: number(2), at_ns: number(3) }
        })
        .collect();
    lines.sort_by_key(|line| line.at_ns);
    lines
}

impl Entity for ProbeEntity {
    type Protocol = ProbeProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        let token = scope.fence()?;
        let store = &PLACE.get().unwrap().store;
        store.load(&format!("probe/{}", id.as_str()), token).await?;
        Ok(ProbeEntity { id: id.as_str().to_owned(), token: token.0 })
    }
}

impl Probe for ProbeEntity {
    async fn touch(&mut self) -> Vec<u64> {
        vec![self.token, note("handler", &self.id, self.token)]
    }

    async fn touch_slowly(&mut self, milliseconds: u64) -> Vec<u64> {
        note("handler", &self.id, self.token);
        atoll::sleep(Duration::from_millis(milliseconds)).await;
        vec![self.token, note("handler", &self.id, self.token)]
    }

    async fn write_later(&mut self, milliseconds: u64) {
        let (id, token) = (self.id.clone(), self.token);
        note("handler", &id, token);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(milliseconds));
            let store = &PLACE.get().unwrap().store;
            let what = until("the store says something", || {
                match block_on(store.put(&format!("probe/{id}"), b"late", Token(token))) {
                    Ok(()) => Some("written"),
                    Err(StateError::StaleToken { .. }) => Some("refused"),
                    Err(_) => None,
                }
            });
            note(what, &id, token);
        });
    }
}
