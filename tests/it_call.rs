//! One line of user code, wherever it is written: on the entity's core, on another, on a plain thread, in a client.
#![cfg(feature = "runtime")]

mod support;

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use atoll::entity::EntityRef as _;
use atoll::services::echo::{EchoEntity, EchoRef};
use atoll::services::guild::{GuildEntity, GuildFull, GuildRef, MEMBERS_MAX, PayError};
use atoll::{Client, ClusterError, Entity, EntityId, EntityOptions, Messenger, Pod, Scope, SendError, StartError};
use support::*;

/// A service of this test: replies as large as is asked for.
#[atoll::protocol]
pub trait Blob {
    async fn zeros(&mut self, bytes: u64) -> Vec<u8>;
}

pub struct BlobEntity;

impl Entity for BlobEntity {
    type Protocol = BlobProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(BlobEntity)
    }
}

impl Blob for BlobEntity {
    async fn zeros(&mut self, bytes: u64) -> Vec<u8> {
        vec![0; bytes as usize]
    }
}

fn pod(cores: u16) -> Pod {
    Pod::builder()
        .config(config(cores))
        .entity::<EchoEntity>(EntityOptions::default())
        .entity::<GuildEntity>(EntityOptions::default())
        .entity::<BlobEntity>(EntityOptions::default())
        .start()
        .unwrap()
}

/// What a user writes; the same wherever it runs.
async fn visit(guilds: Messenger<GuildRef>, id: String) {
    let guild = guilds.entity(&id);
    assert_eq!(guild.join("ann".into()).await, Ok(vec!["ann".to_owned()]));
    assert_eq!(guild.pay("bob".into(), 1).await, Err(SendError::Declared(PayError::NotAMember)));
    assert_eq!(guild.pay("ann".into(), 5).timeout(PATIENCE).await, Ok(5));
    assert_eq!(guild.leave("ann".into()).discard().await, Ok(()));
    assert_eq!(guild.members().await, Ok(Vec::new()));
    for n in 0..MEMBERS_MAX {
        guild.join(n.to_string()).discard().await.unwrap();
    }
    assert_eq!(guild.join("one more".into()).await, Err(SendError::Declared(GuildFull { max: MEMBERS_MAX })));
}

/// Runs the same code at every place from which an entity can be reached.
fn from_everywhere<F>(visit: impl Fn(Messenger<GuildRef>, Messenger<EchoRef>, String) -> F + Copy + Send + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let pod = pod(2);
    let (guilds, echoes) = (pod.messenger::<GuildRef>(), pod.messenger::<EchoRef>());
    for (n, (asker, owner)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
        let id = id_on(&pod, owner, n);
        run_on(&pod, asker, move || visit(guilds, echoes, id));
    }
    block_on(visit(guilds, echoes, id_on(&pod, 0, 10)));
    block_on(visit(guilds, echoes, id_on(&pod, 1, 10)));
    let client = Client::connect([pod.address()]).unwrap();
    let (guilds, echoes) = (client.messenger::<GuildRef>(), client.messenger::<EchoRef>());
    for owner in [0, 1] {
        block_on(visit(guilds, echoes, id_on(&pod, owner, 20)));
        let id = id_on(&pod, owner, 21);
        run_on(&client, 0, move || visit(guilds, echoes, id));
    }
}

#[test]
fn the_same_line_works_on_the_same_core_another_core_a_thread_and_a_client() {
    from_everywhere(|guilds, _, id| visit(guilds, id));
}

#[test]
fn the_same_line_reaches_another_process() {
    let pod = PodProcess::start(&[]);
    let client = Client::connect([pod.address]).unwrap();
    let guilds = client.messenger::<GuildRef>();
    block_on(visit(guilds, "g1".into()));
    run_on(&client, 0, move || visit(guilds, "g2".into()));
}

#[test]
fn a_timeout_is_a_typed_error_and_interrupts_the_handler() {
    from_everywhere(|_, echoes, id| async move {
        let echo = echoes.entity(&id);
        let late = echo.sleep(3_600_000).timeout(Duration::from_millis(50)).await;
        assert_eq!(late, Err(SendError::Cluster(ClusterError::SendTimeout)));
        assert_eq!(echo.add(1).await, Ok(1), "the handler that nobody waits for is gone");
        let late = echoes.timeout(Duration::from_millis(50)).entity(&id).sleep(3_600_000).await;
        assert_eq!(late, Err(SendError::Cluster(ClusterError::SendTimeout)));
        assert_eq!(echo.add(1).no_timeout().await, Ok(2));
    });
}

#[test]
fn a_sleeping_handler_ends_when_its_asker_drops_the_future() {
    from_everywhere(|_, echoes, id| async move {
        let echo = echoes.entity(&id);
        // An ask that has no link yet waits for it in its future; this one makes the link.
        assert_eq!(echo.total().await, Ok(0));
        {
            let (mut asleep, mut behind) = (pin!(echo.sleep(3_600_000).no_timeout()), pin!(echo.add(5)));
            assert!(started(asleep.as_mut()).await.is_none());
            assert!(started(behind.as_mut()).await.is_none());
        }
        assert_eq!(echo.add(1).await, Ok(1), "neither the sleeper nor the dropped one behind it is left");
    });
}

#[test]
fn a_panic_is_a_defect_and_the_next_message_starts_anew() {
    from_everywhere(|_, echoes, id| async move {
        let echo = echoes.entity(&id);
        assert_eq!(echo.add(7).await, Ok(7));
        let panicked = echo.panic("this text is part of a test".into()).await;
        assert_eq!(panicked, Err(SendError::Cluster(ClusterError::EntityDefect)));
        assert_eq!(echo.add(1).await, Ok(1), "a new one");
    });
}

#[test]
fn an_invalid_id_is_a_typed_error() {
    from_everywhere(|guilds, echoes, _| async move {
        let long = "x".repeat(256);
        for id in ["", &long] {
            assert_eq!(echoes.entity(id).add(1).await, Err(SendError::Cluster(ClusterError::InvalidEntityId)));
            let guild = guilds.entity(id);
            assert_eq!(guild.members().await, Err(SendError::Cluster(ClusterError::InvalidEntityId)));
            assert_eq!(guild.leave("ann".into()).discard().await, Err(ClusterError::InvalidEntityId));
        }
        assert_eq!(echoes.entity(&"x".repeat(255)).total().await, Ok(0));
    });
}

#[test]
fn a_type_that_is_not_registered_is_not_served() {
    let pod = Pod::builder().config(config(2)).entity::<EchoEntity>(EntityOptions::default()).start().unwrap();
    let client = Client::connect([pod.address()]).unwrap();
    let not_served = Err(SendError::Cluster(ClusterError::NotServed));
    for guilds in [pod.messenger::<GuildRef>(), client.messenger::<GuildRef>()] {
        for owner in [0, 1] {
            let guild = guilds.entity(&id_on(&pod, owner, 0));
            assert_eq!(block_on(guild.members()), not_served);
            assert_eq!(block_on(guild.leave("ann".into()).discard()), Err(ClusterError::NotServed));
        }
    }
    for (asker, owner) in [(0, 0), (0, 1)] {
        let guild = pod.messenger::<GuildRef>().entity(&id_on(&pod, owner, 0));
        assert_eq!(run_on(&pod, asker, move || async move { guild.members().await }), not_served);
    }
    assert_eq!(block_on(client.messenger::<EchoRef>().entity("e").add(1)), Ok(1), "what is registered is served");
}

#[test]
fn messages_of_one_sender_keep_their_order() {
    from_everywhere(|_, echoes, id| async move {
        let echo = echoes.entity(&id);
        // Those that yield once must not be passed by those that do not.
        let asks = (1..=300_u64).map(|n| {
            let echo = echo.clone();
            async move { if n % 3 == 0 { echo.yields(1).await } else { echo.add(1).await } }
        });
        let sums: Vec<u64> = all(asks).await.into_iter().map(Result::unwrap).collect();
        assert_eq!(sums, (1..=300).collect::<Vec<u64>>());
    });
}

#[test]
fn messages_keep_their_order_when_the_link_takes_only_some_at_a_time() {
    let pod = pod(1);
    let mut options = atoll::client::ClientOptions::default();
    options.limits.in_flight_max = 8;
    let client = Client::connect_with([pod.address()], options).unwrap();
    let echoes = client.messenger::<EchoRef>();
    let ask = async move |n: usize| echoes.entity("slow").yields(n as u64 & 1).await.unwrap();
    let sums = async move || {
        let before = ask(0).await;
        all((0..400).map(|_| ask(1))).await.into_iter().map(|sum| sum - before).collect::<Vec<_>>()
    };
    let expected: Vec<u64> = (1..=400).collect();
    assert_eq!(block_on(sums()), expected);
    assert_eq!(run_on(&client, 0, move || async move { sums().await }), expected);
}

#[test]
fn a_discard_is_before_what_the_same_sender_sends_afterwards() {
    from_everywhere(|_, echoes, id| async move {
        let echo = echoes.entity(&id);
        for n in 1..=50 {
            echo.tell(1).discard().await.unwrap();
            assert_eq!(echo.total().await, Ok(n));
        }
    });
}

#[test]
fn a_thousand_asks_at_once_are_all_answered() {
    let pod = pod(2);
    let client = Client::connect([pod.address()]).unwrap();
    let echoes = client.messenger::<EchoRef>();
    let sum = async move |base: u64| {
        let asks = (0..1000_u64).map(|n| {
            let echo = echoes.entity(&format!("many{}", n % 100));
            async move { echo.echo((base + n).to_le_bytes().to_vec()).await }
        });
        all(asks).await.into_iter().map(|reply| reply.unwrap()).collect::<Vec<_>>()
    };
    let expected = |base: u64| (0..1000).map(|n| (base + n).to_le_bytes().to_vec()).collect::<Vec<_>>();
    assert_eq!(block_on(sum(0)), expected(0));
    assert_eq!(run_on(&client, 0, move || async move { sum(5000).await }), expected(5000));
}

#[test]
fn a_full_mailbox_refuses_over_a_link_and_recovers() {
    let mut config = config(1);
    config.entities.mailbox_capacity = 4;
    let pod = Pod::builder().config(config).entity::<EchoEntity>(EntityOptions::default()).start().unwrap();
    let client = Client::connect([pod.address()]).unwrap();
    let echoes = client.messenger::<EchoRef>();
    let outcomes = run_on(&client, 0, move || async move {
        let echo = echoes.entity("full");
        // An ask that has no link yet waits for it in its future; this one makes the link.
        echo.total().await.unwrap();
        let mut asleep = Box::pin(echo.sleep(3_600_000));
        assert!(started(asleep.as_mut()).await.is_none());
        let mut waiting: Vec<_> = (0..3).map(|_| Box::pin(echo.add(1))).collect();
        for ask in &mut waiting {
            assert!(started(ask.as_mut()).await.is_none());
        }
        let refused = all((0..7).map(|_| echo.add(100))).await;
        assert_eq!(echo.tell(100).discard().await, Err(ClusterError::MailboxFull));
        drop(asleep);
        (refused, all(waiting).await)
    });
    assert_eq!(outcomes.0, vec![Err(SendError::Cluster(ClusterError::MailboxFull)); 7]);
    assert_eq!(outcomes.1, vec![Ok(1), Ok(2), Ok(3)]);
}

#[test]
fn large_payloads_come_back_whole_and_too_large_ones_are_refused() {
    let pod = pod(2);
    let client = Client::connect([pod.address()]).unwrap();
    for owner in [0, 1] {
        let echo = client.messenger::<EchoRef>().entity(&id_on(&pod, owner, 0));
        for length in [0, 1, 4096, 16_384, 65_536, 500_000, 512 * 1024] {
            let payload: Vec<u8> = (0..length).map(|at| ((at * 31) >> 3) as u8).collect();
            assert!(block_on(echo.echo(payload.clone())).unwrap() == payload, "{length} bytes");
        }
        let most = atoll::base::limits::LINK_BODY_BYTES_MAX as usize;
        assert_eq!(block_on(echo.echo(vec![1; most - 300])), Ok(Vec::new()), "it fits, echo wants less");
        for length in [most, 3 * most] {
            let refused = block_on(echo.echo(vec![1; length]));
            assert_eq!(refused, Err(SendError::Cluster(ClusterError::PayloadTooLarge)), "{length} bytes");
            assert_eq!(block_on(echo.echo(vec![2; 10])), Ok(vec![2; 10]), "the link goes on");
        }
        let blob = client.messenger::<BlobRef>().entity(&id_on(&pod, owner, 0));
        assert_eq!(block_on(blob.zeros(2_000_000)).unwrap().len(), 2_000_000);
        let refused = block_on(blob.zeros(most as u64));
        assert_eq!(refused, Err(SendError::Cluster(ClusterError::PayloadTooLarge)), "a reply has the same limit");
        assert_eq!(block_on(blob.zeros(3)), Ok(vec![0; 3]));
    }
}

#[test]
fn many_large_payloads_at_once_keep_their_bytes_apart() {
    let pod = pod(2);
    let client = Client::connect([pod.address()]).unwrap();
    let echoes = client.messenger::<EchoRef>();
    let asks = (0..60_u64).map(|n| {
        let echo = echoes.entity(&format!("large{n}"));
        async move { echo.echo(vec![n as u8; 200_000 + n as usize]).await }
    });
    for (n, reply) in block_on(all(asks)).into_iter().enumerate() {
        assert!(reply.unwrap() == vec![n as u8; 200_000 + n], "{n}");
    }
}

#[test]
fn every_core_of_a_client_has_its_own_links() {
    let pod = pod(2);
    let options = atoll::client::ClientOptions {
        placement: atoll::runtime::CorePlacement::Unpinned(2),
        ..atoll::client::ClientOptions::default()
    };
    let client = Client::connect_with([pod.address()], options).unwrap();
    let echoes = client.messenger::<EchoRef>();
    for core in [0, 1] {
        for owner in [0, 1] {
            let id = id_on(&pod, owner, 30 + usize::from(core));
            assert_eq!(run_on(&client, core, move || async move { echoes.entity(&id).add(3).await }), Ok(3));
        }
    }
}

#[test]
fn a_messenger_outlives_its_pod_and_says_so() {
    let pod = pod(1);
    let echoes = pod.messenger::<EchoRef>();
    let client = Client::connect([pod.address()]).unwrap();
    let far = client.messenger::<EchoRef>();
    assert_eq!(block_on(echoes.entity("e").add(1)), Ok(1));
    pod.stop();
    assert_eq!(block_on(echoes.entity("e").add(1)), Err(SendError::Cluster(ClusterError::Stopped)));
    drop(client);
    assert_eq!(block_on(far.entity("e").add(1)), Err(SendError::Cluster(ClusterError::Stopped)));
}

#[test]
fn what_runs_can_be_listed() {
    let pod = pod(2);
    let echoes = pod.messenger::<EchoRef>();
    let ids: BTreeSet<String> = (0..20).map(|n| id_on(&pod, n % 2, n as usize)).collect();
    for id in &ids {
        block_on(echoes.entity(id).add(1)).unwrap();
    }
    let listed = pod.local_entities("echo", 1000).unwrap();
    assert_eq!(listed.iter().map(|id| id.as_str().to_owned()).collect::<BTreeSet<_>>(), ids);
    assert_eq!(pod.local_entities("guild", 1000).unwrap(), []);
    assert_eq!(echoes.entity("e").target().id().as_str(), "e");
}
