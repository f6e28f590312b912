//! What messages allocate once everything is warm: nothing, besides what the user's own types need.
//!
//! A core counts all that its thread allocates, its loop included, while an asker sends in rounds of [`ROUND`] asks.
//! Whatever a message allocates shows in every round. What does not belong to messages (the executor looks at its own
//! timers each few milliseconds, a sleeping core reads its bell) shows in some, so the smallest round is the one that
//! counts. For there to be a round without any, the cores spin, the tests run one after another ([`alone`]), and with
//! many asks outstanding, where a round is long, fewer than one allocation in eight asks counts as none.
#![cfg(feature = "runtime")]

mod support;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use atoll::client::ClientOptions;
use atoll::entity::EntityRef;
use atoll::pod::config::Spin;
use atoll::runtime::{PumpOptions, Spin as RuntimeSpin};
use atoll::services::echo::{EchoEntity, EchoRef};
use atoll::services::guild::{GuildEntity, GuildRef};
use atoll::{Client, Entity, EntityId, EntityOptions, Messenger, Pod, Scope, StartError, View, ViewOf};
use support::counting::{Counting, ThreadCount};
use support::*;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Asks of one round.
const ROUND: usize = 25;
/// Rounds before it counts: 10,000 asks.
const WARM_UP: usize = 100;
/// Rounds that count: 10,000 asks.
const ROUNDS: usize = 400;
/// Entities that are asked, in turn.
const ENTITIES: usize = 100;

/// Asks in flight where many are; as many are answered in a round.
const OUTSTANDING: usize = 64;
/// Allocations of such a round that do not belong to its asks.
const OF_MANY_MAX: u64 = OUTSTANDING as u64 / 8;

/// An entity that passes messages on, and one that allocates.
#[atoll::protocol]
pub trait Relay {
    /// Asks an `echo` of that name.
    async fn pass_on(&mut self, value: u64) -> u64;
    /// Allocates once.
    async fn boxes(&mut self, value: u64) -> u64;
}

pub struct RelayEntity {
    scope: Scope<Self>,
    id: EntityId,
}

impl Entity for RelayEntity {
    type Protocol = RelayProtocol;

    async fn start(id: &EntityId, scope: Scope<Self>) -> Result<Self, StartError> {
        Ok(RelayEntity { scope, id: id.clone() })
    }
}

impl Relay for RelayEntity {
    async fn pass_on(&mut self, value: u64) -> u64 {
        let echo = self.scope.messenger::<EchoRef>().unwrap().entity(self.id.as_str());
        echo.add(value).await.unwrap()
    }

    async fn boxes(&mut self, value: u64) -> u64 {
        *std::hint::black_box(Box::new(value))
    }
}

/// An entity that reads its arguments where they lie.
#[atoll::protocol]
pub trait Summer {
    /// The sum of the bytes, at once.
    fn sum(&mut self, bytes: View<'_, Vec<u8>>) -> u64;
    /// The sum of the bytes, after an await.
    async fn sum_late(&mut self, bytes: View<'_, Vec<u8>>) -> u64;
    /// The same beside others, of numbers, which need no memory of their own.
    #[concurrent]
    async fn sum_beside(&self, numbers: View<'_, [u64; 8]>) -> u64;
}

pub struct SummerEntity;

impl Entity for SummerEntity {
    type Protocol = SummerProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(SummerEntity)
    }
}

/// Lets others run once.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

impl Summer for SummerEntity {
    fn sum(&mut self, bytes: View<'_, Vec<u8>>) -> u64 {
        sum(bytes.as_bytes())
    }

    async fn sum_late(&mut self, bytes: View<'_, Vec<u8>>) -> u64 {
        yield_once().await;
        sum(bytes.as_bytes())
    }

    async fn sum_beside(&self, numbers: View<'_, [u64; 8]>) -> u64 {
        yield_once().await;
        match numbers.get() {
            ViewOf::Owned(numbers) => numbers.iter().sum(),
            ViewOf::Archived(numbers) => numbers.iter().map(|number| number.to_native()).sum(),
        }
    }
}

/// One test at a time: spinning cores of several would share the processors, and a round that waits for its processor
/// is never short enough to be undisturbed.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pod whose cores spin.
fn pod(cores: u16) -> Pod {
    let mut config = config(cores);
    config.event_loop.spin = Spin::Always;
    Pod::builder()
        .config(config)
        .entity::<EchoEntity>(EntityOptions::default())
        .entity::<GuildEntity>(EntityOptions::default())
        .entity::<RelayEntity>(EntityOptions::default())
        .entity::<SummerEntity>(EntityOptions::default())
        .start()
        .unwrap()
}

/// A client whose core spins.
fn client(pod: &Pod) -> Client {
    let pump = PumpOptions { spin: RuntimeSpin::Always, ..PumpOptions::dev() };
    Client::connect_with([pod.address()], ClientOptions { pump, ..ClientOptions::default() }).unwrap()
}

/// Ids of entities on one core.
fn ids_on(pod: &Pod, core: u16) -> Vec<String> {
    let table = pod.assignments();
    let on_core = |id: &String| table.owner(pod.shard_of(id)).unwrap().core.0 == core;
    (0..100_000).map(|at| format!("e{at}")).filter(on_core).take(ENTITIES).collect()
}

/// The counter of a core's thread.
fn thread_of(cores: &impl Cores, core: u16) -> ThreadCount {
    run_on(cores, core, || async { ThreadCount::here() })
}

/// What a thread allocated in each round.
#[derive(Debug)]
struct Rounds(Vec<u64>);

impl Rounds {
    /// What every round allocated at least, which is what its asks allocate.
    fn per_round(&self) -> u64 {
        self.0.iter().copied().min().unwrap()
    }

    fn disturbed(&self) -> usize {
        let least = self.per_round();
        self.0.iter().filter(|count| **count > least).count()
    }
}

/// Runs `outstanding` askers on a core, each of which asks the entities in turn; one of them counts what the threads
/// allocate in each of its rounds.
fn rounds<R, F>(
    what: &str,
    asker: (&impl Cores, u16),
    messenger: Messenger<R>,
    ids: Vec<String>,
    threads: &[ThreadCount],
    outstanding: usize,
    ask: impl Fn(R) -> F + Copy + Send + 'static,
) -> Vec<Rounds>
where
    R: EntityRef + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let given = threads.to_vec();
    let counted = run_on(asker.0, asker.1, move || async move {
        let (threads, ids) = (given, Rc::new(ids));
        let stop = Rc::new(Cell::new(false));
        let ended = Rc::new(Cell::new(1));
        for asker in 1..outstanding {
            let (ids, stop, ended) = (Rc::clone(&ids), Rc::clone(&stop), Rc::clone(&ended));
            let others = async move {
                let mut at = asker;
                while !stop.get() {
                    at += 1;
                    ask(messenger.entity(&ids[at % ids.len()])).await;
                }
                ended.set(ended.get() + 1);
            };
            atoll::entity::spawn(others).unwrap();
        }
        let mut counted: Vec<_> = threads.iter().map(|_| Vec::with_capacity(ROUNDS)).collect();
        let mut before = vec![0; threads.len()];
        // The others ask as well meanwhile.
        let asks = ROUND.div_ceil(outstanding);
        for round in 0..(WARM_UP + ROUNDS) {
            for (before, thread) in before.iter_mut().zip(&threads) {
                *before = thread.get();
                thread.trace(round == WARM_UP + 3);
            }
            for at in 0..asks {
                ask(messenger.entity(&ids[at % ids.len()])).await;
            }
            for ((before, thread), counted) in before.iter().zip(&threads).zip(&mut counted) {
                thread.trace(false);
                if round >= WARM_UP {
                    counted.push(thread.get() - before);
                }
            }
        }
        stop.set(true);
        while ended.get() < outstanding {
            atoll::entity::sleep(std::time::Duration::from_millis(1)).await;
        }
        counted
    });
    let counted: Vec<_> = counted.into_iter().map(Rounds).collect();
    for (thread, rounds) in counted.iter().enumerate() {
        let (least, total) = (rounds.per_round(), rounds.0.iter().sum::<u64>());
        println!(
            "{what}, thread {thread}: {least} for {ROUND} asks, {total} in {ROUNDS} rounds, {} more",
            rounds.disturbed()
        );
    }
    counted
}

/// Asks entities of the asker's own core; what one round allocates there.
fn same_core<R, F>(what: &str, pod: &Pod, ask: impl Fn(R) -> F + Copy + Send + 'static) -> u64
where
    R: EntityRef + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let thread = thread_of(pod, 0);
    rounds(what, (pod, 0), pod.messenger(), ids_on(pod, 0), &[thread], 1, ask)[0].per_round()
}

#[test]
fn on_one_core_a_message_allocates_nothing() {
    let _alone = alone();
    let pod = pod(1);
    let add = same_core("same core, add", &pod, |echo: EchoRef| async move {
        echo.add(1).await.unwrap();
    });
    let discard = same_core("same core, tell", &pod, |echo: EchoRef| async move {
        echo.tell(1).discard().await.unwrap();
    });
    let block = same_core("same core, block", &pod, |echo: EchoRef| async move {
        echo.block([1; 8]).await.unwrap();
    });
    let yields = same_core("same core, yields", &pod, |echo: EchoRef| async move {
        echo.yields(1).await.unwrap();
    });
    let nested = same_core("same core, nested", &pod, |relay: RelayRef| async move {
        relay.pass_on(1).await.unwrap();
    });
    assert_eq!([add, discard, block, yields, nested], [0; 5]);
}

#[test]
fn on_one_core_only_the_users_own_values_allocate() {
    let _alone = alone();
    let pod = pod(1);
    // The bytes are the only allocation: they move in, and back.
    let echo = same_core("same core, echo", &pod, |echo: EchoRef| async move {
        assert_eq!(echo.echo(vec![1; 100]).await.unwrap().len(), 100);
    });
    assert_eq!(echo, ROUND as u64);
    // The argument, the list of the reply, and the one name in it.
    let join = same_core("same core, join", &pod, |guild: GuildRef| async move {
        assert_eq!(guild.join("ann".to_owned()).await.unwrap().len(), 1);
    });
    assert_eq!(join, 3 * ROUND as u64);
}

#[test]
fn the_counter_sees_an_allocation_in_a_handler() {
    let _alone = alone();
    let pod = pod(2);
    let here = same_core("same core, boxes", &pod, |relay: RelayRef| async move {
        relay.boxes(1).await.unwrap();
    });
    assert_eq!(here, ROUND as u64);
    let across = across("across cores, boxes", &pod, |relay: RelayRef| async move {
        relay.boxes(1).await.unwrap();
    });
    assert_eq!(across, [0, ROUND as u64]);
    let client = client(&pod);
    let many = over_a_link("link, boxes", &pod, &client, OUTSTANDING, |relay: RelayRef| async move {
        relay.boxes(1).await.unwrap();
    });
    assert!(many[1] > OF_MANY_MAX, "{many:?}");
}

/// Asks entities of core 0 on core 1; what one round allocates on core 1 and on core 0.
fn across<R, F>(what: &str, pod: &Pod, ask: impl Fn(R) -> F + Copy + Send + 'static) -> [u64; 2]
where
    R: EntityRef + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let threads = [thread_of(pod, 1), thread_of(pod, 0)];
    let counted = rounds(what, (pod, 1), pod.messenger(), ids_on(pod, 0), &threads, 1, ask);
    [counted[0].per_round(), counted[1].per_round()]
}

#[test]
fn across_cores_a_message_that_fits_the_slot_allocates_nothing() {
    let _alone = alone();
    let pod = pod(2);
    let add = across("across cores, add", &pod, |echo: EchoRef| async move {
        echo.add(1).await.unwrap();
    });
    let discard = across("across cores, tell", &pod, |echo: EchoRef| async move {
        echo.tell(1).discard().await.unwrap();
    });
    let yields = across("across cores, yields", &pod, |echo: EchoRef| async move {
        echo.yields(1).await.unwrap();
    });
    // What the entity asks in turn is on its own core.
    let nested = across("across cores, nested", &pod, |relay: RelayRef| async move {
        relay.pass_on(1).await.unwrap();
    });
    assert_eq!([add, discard, yields, nested], [[0; 2]; 4]);
}

#[test]
fn across_cores_the_block_of_a_larger_message_goes_home_with_an_answer() {
    let _alone = alone();
    let pod = pod(2);
    let ask = across("across cores, block", &pod, |echo: EchoRef| async move {
        echo.block([1; 8]).await.unwrap();
    });
    let discard = across("across cores, block told", &pod, |echo: EchoRef| async move {
        echo.block([1; 8]).discard().await.unwrap();
    });
    assert_eq!([ask, discard], [[0; 2]; 2]);
}

/// Asks entities of a pod of one core by a client; what one round allocates at the client and at the pod.
fn over_a_link<R, F>(
    what: &str,
    pod: &Pod,
    client: &Client,
    outstanding: usize,
    ask: impl Fn(R) -> F + Copy + Send + 'static,
) -> [u64; 2]
where
    R: EntityRef + Send + 'static,
    F: Future<Output = ()> + 'static,
{
    let threads = [thread_of(client, 0), thread_of(pod, 0)];
    let counted = rounds(what, (client, 0), client.messenger(), ids_on(pod, 0), &threads, outstanding, ask);
    [counted[0].per_round(), counted[1].per_round()]
}

#[test]
fn over_a_warm_link_a_message_allocates_nothing() {
    let _alone = alone();
    let pod = pod(1);
    let client = client(&pod);
    let add = |outstanding| {
        over_a_link("link, add", &pod, &client, outstanding, |echo: EchoRef| async move {
            echo.add(1).await.unwrap();
        })
    };
    // The buffers grow to what many outstanding asks need.
    add(1000);
    assert_eq!(add(1), [0; 2]);
    let many = add(OUTSTANDING);
    assert!(many.iter().all(|count| *count <= OF_MANY_MAX), "{many:?}");
    let discard = over_a_link("link, tell", &pod, &client, 1, |echo: EchoRef| async move {
        echo.tell(1).discard().await.unwrap();
    });
    let yields = over_a_link("link, yields", &pod, &client, 1, |echo: EchoRef| async move {
        echo.yields(1).await.unwrap();
    });
    let block = over_a_link("link, block", &pod, &client, 1, |echo: EchoRef| async move {
        echo.block([1; 8]).await.unwrap();
    });
    assert_eq!([discard, yields, block], [[0; 2]; 3]);
    // The bytes that are sent and those that come back; the argument, which is the reply.
    let echo = over_a_link("link, echo", &pod, &client, 1, |echo: EchoRef| async move {
        assert_eq!(echo.echo(vec![1; 100]).await.unwrap().len(), 100);
    });
    assert_eq!(echo, [2 * ROUND as u64, ROUND as u64]);
}

/// The bytes are made by the sender: one allocation. Nobody copies them into memory of their own.
#[test]
fn a_view_allocates_nothing_where_it_is_read() {
    let _alone = alone();
    let ask_plain = |summer: SummerRef| async move {
        assert_eq!(summer.sum(vec![1; 200]).await.unwrap(), 200);
    };
    let ask_late = |summer: SummerRef| async move {
        assert_eq!(summer.sum_late(vec![1; 200]).await.unwrap(), 200);
    };
    let ask_beside = |summer: SummerRef| async move {
        assert_eq!(summer.sum_beside([2; 8]).await.unwrap(), 16);
    };
    let of_sender = ROUND as u64;
    {
        let pod = pod(2);
        let here = [
            same_core("same core, view", &pod, ask_plain),
            same_core("same core, view after an await", &pod, ask_late),
            same_core("same core, view beside", &pod, ask_beside),
        ];
        assert_eq!(here, [of_sender, of_sender, 0]);
        let across = [
            across("across cores, view", &pod, ask_plain),
            across("across cores, view after an await", &pod, ask_late),
            across("across cores, view beside", &pod, ask_beside),
        ];
        assert_eq!(across, [[of_sender, 0], [of_sender, 0], [0, 0]]);
    }
    let pod = pod(1);
    let client = client(&pod);
    // The buffers grow to what many outstanding asks need.
    over_a_link("link, view after an await", &pod, &client, 100, ask_late);
    let link = [
        over_a_link("link, view", &pod, &client, 1, ask_plain),
        over_a_link("link, view after an await", &pod, &client, 1, ask_late),
        over_a_link("link, view beside", &pod, &client, 1, ask_beside),
    ];
    assert_eq!(link, [[of_sender, 0], [of_sender, 0], [0, 0]]);
    // With many outstanding some wait for their entity.
    let many = over_a_link("link, view after an await", &pod, &client, OUTSTANDING, ask_late);
    assert!(many[1] <= OF_MANY_MAX, "{many:?}");
}
