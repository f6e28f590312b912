//! An open load of deposits and echoes, and what may be said about it afterwards.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use atoll::base::CoreIndex;
use atoll::services::account::{AccountRef, Statement};
use atoll::services::echo::EchoRef;
use atoll::{Client, SendError, StateStore};

use crate::support::*;

/// Time between two asks, whatever becomes of them.
const INTERVAL: Duration = Duration::from_millis(2);
/// Longest time that an ask may take.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// What a busy machine may add.
const LATE_MAX: Duration = Duration::from_secs(2);
const ACCOUNTS: u64 = 24;

#[derive(Clone, Debug)]
pub enum Asked {
    Echo,
    Deposit { account: String, id: String, amount: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Reply { repeated: bool },
    Failed(String),
}

#[derive(Clone, Debug)]
pub struct Ask {
    pub asked: Asked,
    pub took: Duration,
    pub ended: Ended,
}

/// A load that runs.
pub struct Load {
    stop: Arc<AtomicBool>,
    open: Arc<AtomicU64>,
    asks: Arc<Mutex<Vec<Ask>>>,
    thread: Option<JoinHandle<u64>>,
}

impl Load {
    pub fn start(client: &Client) -> Load {
        let (stop, open, asks) = (Arc::default(), Arc::default(), Arc::default());
        let mut load = Load { stop, open, asks, thread: None };
        let (client, stop) = (client.clone(), Arc::clone(&load.stop));
        let (open, asks) = (Arc::clone(&load.open), Arc::clone(&load.asks));
        load.thread = Some(std::thread::spawn(move || {
            let start = Instant::now();
            let mut sent = 0;
            while !stop.load(Ordering::Relaxed) {
                let due = start + INTERVAL * sent as u32;
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                open.fetch_add(1, Ordering::AcqRel);
                send(&client, sent, Arc::clone(&open), Arc::clone(&asks));
                sent += 1;
            }
            sent
        }));
        load
    }

    /// Ends it. Every ask has ended then.
    pub fn finish(mut self) -> Vec<Ask> {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.thread.take().unwrap().join().unwrap();
        until("every ask ends", || (self.open.load(Ordering::Acquire) == 0).then_some(()));
        let asks = self.asks.lock().unwrap().clone();
        assert_eq!(asks.len() as u64, sent);
        asks
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn send(client: &Client, number: u64, open: Arc<AtomicU64>, asks: Arc<Mutex<Vec<Ask>>>) {
    let started = Instant::now();
    let accounts = client.messenger::<AccountRef>().timeout(ASK_TIMEOUT);
    let echoes = client.messenger::<EchoRef>().timeout(ASK_TIMEOUT);
    let ask = move || async move {
        let (asked, ended) = if number.is_multiple_of(2) {
            let bytes = number.to_le_bytes().to_vec();
            let ended = match echoes.entity(&format!("e{}", number % 97)).echo(bytes.clone()).await {
                Ok(echoed) if echoed == bytes => Ended::Reply { repeated: false },
                Ok(other) => Ended::Failed(format!("wrong reply: {other:?}")),
                Err(error) => Ended::Failed(format!("{error:?}")),
            };
            (Asked::Echo, ended)
        } else {
            let (account, id) = (format!("a{}", number / 2 % ACCOUNTS), format!("d{number}"));
            let amount = number % 10 + 1;
            let ended = match accounts.entity(&account).deposit(id.clone(), amount).await {
                Ok(booked) => Ended::Reply { repeated: booked.repeated },
                Err(SendError::Declared(error)) => Ended::Failed(format!("{error:?}")),
                Err(SendError::Cluster(error)) => Ended::Failed(format!("{error:?}")),
            };
            (Asked::Deposit { account, id, amount }, ended)
        };
        asks.lock().unwrap().push(Ask { asked, took: started.elapsed(), ended });
        open.fetch_sub(1, Ordering::AcqRel);
    };
    client.spawn_on(CoreIndex(0), ask).expect("the client's core takes it");
}

/// What the asks and the store say together.
#[derive(Debug, Default)]
pub struct Audit {
    pub asks: usize,
    /// Deposits whose reply arrived.
    pub acknowledged: usize,
    /// Of these, the ones that are not in the store. None, ever.
    pub missing: Vec<String>,
    /// Deposits whose reply says that they were booked before.
    pub repeated_replies: usize,
    /// Applications of a deposit after its first, as the store counts them.
    pub repeated: u64,
    /// Deposits that failed and are booked all the same: nobody knew.
    pub booked_unanswered: usize,
    /// Asks that failed, by error.
    pub failed: BTreeMap<String, usize>,
    pub longest: Duration,
}

/// Compares what was answered with what is stored. Fails if a balance is not the sum of its bookings.
pub fn audit(store: &StateStore, asks: &[Ask]) -> Audit {
    let mut audit = Audit { asks: asks.len(), ..Audit::default() };
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for ask in asks {
        audit.longest = audit.longest.max(ask.took);
        if let Ended::Failed(error) = &ask.ended {
            *audit.failed.entry(error.clone()).or_default() += 1;
        }
        let Asked::Deposit { account, id, amount } = &ask.asked else { continue };
        let saved = block_on(store.get(&format!("account/{account}/{id}"))).unwrap();
        if saved.is_some() {
            let sum = sums.entry(account.clone()).or_default();
            *sum = (sum.0 + amount, sum.1 + 1);
        }
        match &ask.ended {
            Ended::Reply { repeated } => {
                audit.acknowledged += 1;
                audit.repeated_replies += usize::from(*repeated);
                if saved.is_none() {
                    audit.missing.push(format!("{account}/{id}"));
                }
            }
            Ended::Failed(_) => audit.booked_unanswered += usize::from(saved.is_some()),
        }
    }
    for (account, (balance, entries)) in sums {
        let saved = block_on(store.get(&format!("account/{account}"))).unwrap().expect("it has bookings");
        let statement: Statement = serde_json::from_slice(&saved.value).unwrap();
        assert_eq!((statement.balance, statement.entries), (balance, entries), "{account} is the sum of its bookings");
        audit.repeated += statement.repeated;
    }
    audit
}

impl Audit {
    /// What holds whatever happens to the pods.
    pub fn assert_nothing_lost(&self) {
        println!("{self:?}");
        assert!(self.acknowledged > 0);
        assert!(self.missing.is_empty(), "answered and not stored: {:?}", self.missing);
        assert!(self.longest <= ASK_TIMEOUT + LATE_MAX, "an ask took {:?}", self.longest);
        assert!(!self.failed.keys().any(|error| error.starts_with("wrong reply")), "{:?}", self.failed);
    }

    /// What holds as long as no pod is lost.
    pub fn assert_nothing_failed(&self) {
        self.assert_nothing_lost();
        assert!(self.failed.is_empty(), "{:?}", self.failed);
        assert_eq!((self.repeated, self.repeated_replies), (0, 0));
    }
}
