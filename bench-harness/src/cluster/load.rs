//! The open load of a cluster run: deposits with an id each, and asks that find out who owns each shard. Times count
//! from when an ask was due.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use anyhow::Context;
use atoll::base::CoreIndex;
use atoll::base::hash::{entity_hash, shard_of_hash};
use atoll::services::account::{AccountRef, Statement};
use atoll::{Client, SendError, StateStore};

use super::entities::OwnerRef;
use super::processes::SHARDS;
use super::wait_for;

/// Longest time that an ask waits.
pub(super) const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// One ask in so many is a deposit: each waits for a disk.
const DEPOSITS_ONE_IN: u64 = 8;
const ACCOUNTS: u64 = 64;
/// How often the schedule is looked at.
const TICK: Duration = Duration::from_micros(500);
/// How long after the end of the load the last asks may take.
const END_GRACE: Duration = Duration::from_secs(15);

/// A reply of an owner.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub shard: u32,
    pub due: Instant,
    pub replied: Instant,
    pub token: u64,
}

/// A deposit, and whether its reply arrived.
#[derive(Clone, Debug)]
pub(super) struct Deposit {
    pub account: String,
    pub id: String,
    pub amount: u64,
    pub acknowledged: bool,
}

/// Everything that was asked.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub seen: Vec<Seen>,
    pub deposits: Vec<Deposit>,
    /// Asks that failed: when they were due, and how.
    pub failed: Vec<(Instant, String)>,
    /// Deposits whose reply says that they had been booked before.
    pub repeated_replies: u64,
}

/// A load that runs.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    asked: Receiver<Asked>,
}

impl Load {
    pub fn start(client: &Client, rate_per_second: f64) -> anyhow::Result<Load> {
        let stop = Arc::new(AtomicBool::new(false));
        let (report, asked) = mpsc::channel();
        let (own, stopped) = (client.clone(), Arc::clone(&stop));
        client.spawn_on(CoreIndex(0), move || async move {
            let asked = drive(&own, rate_per_second, &stopped).await;
            // Nobody waits if the run has failed already.
            let _ = report.send(asked);
        })?;
        Ok(Load { stop, asked })
    }

    /// Ends it and waits for the last ask.
    pub fn finish(self) -> anyhow::Result<Asked> {
        self.stop.store(true, Ordering::Relaxed);
        self.asked.recv_timeout(ASK_TIMEOUT + END_GRACE).context("asks did not end within their timeout")
    }
}

struct Work {
    asked: RefCell<Asked>,
    open: Cell<u64>,
}

async fn drive(client: &Client, rate_per_second: f64, stop: &AtomicBool) -> Asked {
    let ids = id_in_each_shard();
    let interval = Duration::from_secs_f64(1.0 / rate_per_second);
    let work = Rc::new(Work { asked: RefCell::default(), open: Cell::new(0) });
    let (start, mut number) = (Instant::now(), 0_u32);
    let (mut deposits, mut owners) = (0, 0);
    while !stop.load(Ordering::Relaxed) {
        while start + interval * number <= Instant::now() {
            let due = start + interval * number;
            number += 1;
            work.open.set(work.open.get() + 1);
            let sent = if u64::from(number).is_multiple_of(DEPOSITS_ONE_IN) {
                deposits += 1;
                atoll::spawn(deposit(client.clone(), Rc::clone(&work), due, deposits))
            } else {
                owners += 1;
                let shard = owners % SHARDS;
                atoll::spawn(owner(client.clone(), Rc::clone(&work), due, shard, ids[shard as usize].clone()))
            };
            if sent.is_err() {
                return work.asked.take();
            }
        }
        atoll::sleep(TICK).await;
    }
    while work.open.get() > 0 {
        atoll::sleep(TICK).await;
    }
    work.asked.take()
}

async fn owner(client: Client, work: Rc<Work>, due: Instant, shard: u32, id: String) {
    let owner = client.messenger::<OwnerRef>().timeout(ASK_TIMEOUT).entity(&id);
    match owner.token().await {
        Ok(token) => work.asked.borrow_mut().seen.push(Seen { shard, due, replied: Instant::now(), token }),
        Err(error) => work.asked.borrow_mut().failed.push((due, error.to_string())),
    }
    work.open.set(work.open.get() - 1);
}

async fn deposit(client: Client, work: Rc<Work>, due: Instant, number: u64) {
    let (account, id, amount) = (format!("a{}", number % ACCOUNTS), format!("d{number}"), number % 10 + 1);
    let booked = {
        let accounts = client.messenger::<AccountRef>().timeout(ASK_TIMEOUT);
        accounts.entity(&account).deposit(id.clone(), amount).await
    };
    let mut asked = work.asked.borrow_mut();
    let acknowledged = match booked {
        Ok(booked) => {
            asked.repeated_replies += u64::from(booked.repeated);
            true
        }
        Err(SendError::Declared(error)) => {
            asked.failed.push((due, error.to_string()));
            false
        }
        Err(SendError::Cluster(error)) => {
            asked.failed.push((due, error.to_string()));
            false
        }
    };
    asked.deposits.push(Deposit { account, id, amount, acknowledged });
    work.open.set(work.open.get() - 1);
}

/// An id in each shard.
pub(super) fn id_in_each_shard() -> Vec<String> {
    let mut ids: BTreeMap<u32, String> = BTreeMap::new();
    for number in 0.. {
        let id = format!("s{number}");
        ids.entry(shard_of_hash(entity_hash(0, id.as_bytes()), SHARDS).0).or_insert(id);
        if ids.len() == SHARDS as usize {
            break;
        }
    }
    ids.into_values().collect()
}

/// What the state store has of the deposits.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Books {
    /// Answered and not stored.
    pub lost: u64,
    /// Came again after they had been booked.
    pub repeated: u64,
    /// Accounts whose balance is not the sum of their bookings.
    pub wrong_balances: u64,
}

/// Compares what was answered with what is stored.
pub(super) fn audit(store: &StateStore, deposits: &[Deposit]) -> anyhow::Result<Books> {
    let mut books = Books::default();
    let mut sums: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for deposit in deposits {
        let stored = wait_for(store.get(&format!("account/{}/{}", deposit.account, deposit.id)))?.is_some();
        books.lost += u64::from(deposit.acknowledged && !stored);
        let sum = sums.entry(&deposit.account).or_default();
        *sum = (sum.0 + u64::from(stored) * deposit.amount, sum.1 + u64::from(stored));
    }
    for (account, sum) in sums {
        let saved = wait_for(store.get(&format!("account/{account}")))?;
        let statement: Statement =
            saved.map_or(Ok(Statement::default()), |saved| serde_json::from_slice(&saved.value))?;
        books.repeated += statement.repeated;
        books.wrong_balances += u64::from((statement.balance, statement.entries) != sum);
    }
    Ok(books)
}
