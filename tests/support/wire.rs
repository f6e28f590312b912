//! Two processes without sockets: a client's core and a pod's core, whose bytes the test carries from one to the other.
#![allow(dead_code)]

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use atoll::base::hash::{entity_hash, shard_of_hash};
use atoll::base::{CoreIndex, Epoch, LinkId, Nanos, PodIndex, PodUid, Token};
use atoll::engine::{Core, CoreParts, CoreQueues, Identity, LinkCommand, LinkLimits};
use atoll::entity::foreign::next_node_number;
use atoll::entity::{EntityDefaults, EntityRef, HostOptions, TypeHost, WakeTarget};
use atoll::mesh::{Bell, Doorbell, ForeignInbox};
use atoll::sharding::{Owner, PodRecord, ShardTable, TableParts};
use atoll::{Entity, EntityOptions};

use crate::host::Started;

const SHARDS: u32 = 8;
const HASH_SEED: u64 = 3;
const ROLE: &str = "default";
const CLIENT: PodUid = PodUid(1);
const POD: PodUid = PodUid(2);

struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

fn core(uid: PodUid, is_pod: bool, types: Vec<TypeHost>, limits: LinkLimits) -> Core {
    let doorbell = Arc::new(Doorbell::new(NoBell));
    Core::new(CoreParts {
        identity: Identity {
            uid,
            core: CoreIndex(0),
            cores: 1,
            cluster_name: "test".to_owned(),
            role: ROLE.to_owned(),
            version: "1".to_owned(),
            is_pod,
        },
        host: HostOptions {
            node: next_node_number(),
            core: CoreIndex(0),
            hash_seed: HASH_SEED,
            number_of_shards: SHARDS,
            call_id_base: uid.0 as u64 * 1_000_000,
            defaults: EntityDefaults::default(),
            wake_target: WakeTarget::new(Arc::clone(&doorbell)),
        },
        limits,
        queues: CoreQueues { to: vec![None], from: vec![None], foreign: Arc::new(ForeignInbox::new(16, doorbell)) },
        types,
        inspector: None,
        bootstrap: Vec::new(),
        validity: Arc::new(AtomicU64::new(u64::MAX)),
        clock: Arc::new(|| Nanos(1)),
        released: Arc::new(|_, _| ()),
        streams: Vec::new(),
    })
}

fn table() -> Arc<ShardTable> {
    let pod = PodRecord {
        uid: POD,
        address: "memory:1".to_owned(),
        cores: 1,
        version: "1".to_owned(),
        role: ROLE.to_owned(),
    };
    let owner = Owner { token: Token(7), pod: PodIndex(0), core: CoreIndex(0) };
    let parts = TableParts {
        role: ROLE.to_owned(),
        epoch: Epoch(1),
        hash_seed: HASH_SEED,
        number_of_shards: SHARDS,
        pods: vec![pod],
        owners: vec![owner; SHARDS as usize],
    };
    Arc::new(ShardTable::from_parts(parts).expect("the table is sound"))
}

/// The shard of an id.
pub fn shard_of(id: &str) -> u32 {
    shard_of_hash(entity_hash(HASH_SEED, id.as_bytes()), SHARDS).0
}

/// A client and a pod.
pub struct Wire {
    /// Sends.
    pub client: Core,
    /// Hosts the entities.
    pub pod: Core,
    /// The client's and the pod's name of each link.
    links: RefCell<Vec<(LinkId, LinkId)>>,
    now: Cell<Nanos>,
    /// Bytes of one piece in which bytes arrive.
    piece_bytes: Cell<usize>,
    /// Where the last piece lay that the pod got.
    last_piece: Cell<(usize, usize)>,
}

impl Wire {
    /// A pod with one entity type.
    pub fn new<E: Entity>(options: EntityOptions<E::Protocol>) -> Wire {
        Wire::with_limits::<E>(options, LinkLimits::default())
    }

    /// A pod with one entity type, and limits of the links of both.
    pub fn with_limits<E: Entity>(options: EntityOptions<E::Protocol>, limits: LinkLimits) -> Wire {
        let types = vec![TypeHost::new::<E>(0, options, &EntityDefaults::default())];
        let wire = Wire {
            client: core(CLIENT, false, Vec::new(), limits),
            pod: core(POD, true, types, limits),
            links: RefCell::default(),
            now: Cell::new(Nanos(1)),
            piece_bytes: Cell::new(usize::MAX),
            last_piece: Cell::new((0, 0)),
        };
        wire.client.set_table(table());
        wire.pod.set_table(table());
        wire
    }

    /// From now on bytes arrive in pieces of this size.
    pub fn set_piece_bytes(&self, bytes: usize) {
        self.piece_bytes.set(bytes);
    }

    /// Whether an address lies in the last piece that the pod got.
    pub fn was_in_last_piece(&self, address: u64) -> bool {
        let (start, end) = self.last_piece.get();
        (start as u64..end as u64).contains(&address)
    }

    /// The reference of an entity, as the client has it.
    pub fn entity<R: EntityRef>(&self, id: &str) -> R {
        self.client.host().messenger::<R>().entity(id)
    }

    /// Starts something at the client; nothing travels yet.
    pub fn send<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Started<T> {
        let (started, into) = Started::new();
        self.client.host().spawn(async move {
            let output = future.await;
            into.borrow_mut().replace(output);
        });
        self.work(&self.client);
        started
    }

    /// Starts something at the client and runs both as far as it goes.
    pub fn start<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Started<T> {
        let started = self.send(future);
        self.run();
        started
    }

    /// The outcome of something that waits for nothing but the other side.
    pub fn block<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        self.start(future).take().expect("it waits for nothing else")
    }

    /// Lets time pass, in one step.
    pub fn pass(&self, time: Duration) {
        self.advance(time);
        self.run();
    }

    /// Runs what is ready at one of the two.
    pub fn work(&self, core: &Core) -> bool {
        let now = self.now.get();
        let mut any = false;
        while core.inboxes(now) | core.work(now, now + Duration::from_secs(1), &|| now, &|| false) {
            any = true;
        }
        any
    }

    /// Runs both until nothing moves.
    pub fn run(&self) {
        for _ in 0..10_000 {
            let mut moved = self.work(&self.client) | self.work(&self.pod);
            moved |= self.carry_out_commands();
            for (link, bytes) in self.take_requests() {
                moved = true;
                self.give_to_pod(link, &bytes);
            }
            for (link, bytes) in self.take_answers() {
                moved = true;
                self.give_to_client(link, &bytes);
            }
            if !moved {
                return;
            }
        }
        panic!("the two do not come to rest");
    }

    /// Makes the connections that the client wants.
    pub fn carry_out_commands(&self) -> bool {
        let (mut of_client, mut of_pod) = (Vec::new(), Vec::new());
        self.client.take_commands(&mut of_client);
        let mut any = !of_client.is_empty();
        for command in of_client {
            if let LinkCommand::Connect { link, hello, .. } = command {
                self.pod.accepted(&hello, link.index as i32);
                self.pod.take_commands(&mut of_pod);
                let adopted = of_pod.drain(..).find_map(|command| match command {
                    LinkCommand::Adopt { link, .. } => Some(link),
                    _ => None,
                });
                self.links.borrow_mut().push((link, adopted.expect("the pod takes the connection")));
                self.client.connected(link, self.now.get());
            } else {
                assert!(!matches!(command, LinkCommand::Close { .. }), "the client closes a link");
            }
        }
        self.pod.take_commands(&mut of_pod);
        any |= !of_pod.is_empty();
        assert!(!of_pod.iter().any(|command| matches!(command, LinkCommand::Close { .. })), "the pod closes a link");
        any
    }

    fn take(&self, from: &Core, ends: impl Fn((LinkId, LinkId)) -> (LinkId, LinkId)) -> Vec<(LinkId, Vec<u8>)> {
        let mut dirty = Vec::new();
        from.take_dirty(&mut dirty);
        let mut taken = Vec::new();
        for link in dirty {
            // What is given here is what the core writes to next.
            let mut bytes = Vec::with_capacity(4096);
            from.take_output(link, &mut bytes);
            let there = self.links.borrow().iter().map(|pair| ends(*pair)).find(|(here, _)| *here == link);
            taken.extend(there.map(|(_, there)| (there, bytes)));
        }
        taken
    }

    /// What the client has to send, with the pod's name of the link.
    pub fn take_requests(&self) -> Vec<(LinkId, Vec<u8>)> {
        self.take(&self.client, |pair| pair)
    }

    /// What the pod has to send, with the client's name of the link.
    pub fn take_answers(&self) -> Vec<(LinkId, Vec<u8>)> {
        self.take(&self.pod, |(client, pod)| (pod, client))
    }

    /// Brings bytes to the client.
    pub fn give_to_client(&self, link: LinkId, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece_bytes.get()) {
            self.client.received(link, piece, self.now.get());
        }
    }

    /// Lets time pass; both do what is due, and nothing that follows from it.
    pub fn advance(&self, time: Duration) {
        self.now.set(self.now.get() + time);
        self.client.advance(self.now.get());
        self.pod.advance(self.now.get());
    }

    /// Lets time pass at the pod alone, which does all that follows from it: the client hangs.
    pub fn pass_at_pod(&self, time: Duration) {
        self.now.set(self.now.get() + time);
        self.pod.advance(self.now.get());
        self.work(&self.pod);
    }

    /// Brings bytes to the pod.
    pub fn give_to_pod(&self, link: LinkId, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece_bytes.get()) {
            let start = piece.as_ptr() as usize;
            self.last_piece.set((start, start + piece.len()));
            self.pod.received(link, piece, self.now.get());
        }
    }
}
