//! From configuration and entity types to a running pod.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::cluster::{Shared, registered_pods};
use super::config::{Config, Cores, Spin, Store as StoreKind};
use super::control_port::ControlPort;
use super::control_thread::start_control;
use super::{Inner, Pod};
use crate::base::Nanos;
use crate::base::limits::LINK_BODY_BYTES_MAX;
use crate::client::node::{Node, NodeOptions, TypeMaker, fresh_uid};
use crate::control::store_state::LeaseMode;
use crate::control::{ControlConfig, ControlDriver, PodControl, Refusal, Store};
use crate::engine::{Command, LinkLimits};
use crate::entity::{Access, AnyInterceptor, Entity, EntityDefaults, EntityOptions, MethodInfo, Protocol, TypeHost};
use crate::runtime::{CorePlacement, CoresOptions, PumpOptions, prepare};
use crate::stores::served::ConnectError;
use crate::stores::{EmbeddedStore, MemoryStore, OpenError, ServedStore};

/// Longest time that a pod waits for its shards when it starts.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time that a pod waits for its manager when it starts.
const MANAGER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a pod did not start. Each message says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Two entity types have the same name.
    #[error("two entity types are named `{0}`; give one of them another name in #[atoll::protocol(name = \"..\")]")]
    DuplicateType(&'static str),
    /// Two messages have the same tag.
    #[error("the messages `{0}` and `{1}` have the same tag; give one of them another with #[tag(..)]")]
    DuplicateTag(String, String),
    /// More than one permit for a protocol that cannot use it.
    #[error(
        "the entity type `{0}` has `concurrency` above 1, but all its messages take `&mut self` and exclude each other; \
         use `&self` handlers or leave concurrency at 1"
    )]
    UselessConcurrency(&'static str),
    /// The cores could not start.
    #[error(transparent)]
    Cores(#[from] crate::runtime::StartError),
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// There is no manager that serves the store.
    #[error(transparent)]
    Manager(#[from] ConnectError),
    /// The cluster's records do not fit this pod.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The pod did not get its shards.
    #[error(transparent)]
    Control(#[from] crate::control::StartError),
    /// A thread could not be made.
    #[error("a thread could not be started: {0}; check `ulimit -u`")]
    Thread(#[from] std::io::Error),
}

/// Makes the type with the interceptor of the pod, which may be set after it.
type MakeType = Box<dyn FnOnce(Option<Arc<dyn AnyInterceptor>>) -> TypeMaker>;

struct Registration {
    name: &'static str,
    methods: &'static [MethodInfo],
    concurrency: u16,
    make: MakeType,
}

/// A pod to be started.
#[derive(Default)]
pub struct PodBuilder {
    config: Config,
    types: Vec<Registration>,
    processors: Option<Vec<usize>>,
    interceptor: Option<Arc<dyn AnyInterceptor>>,
}

impl PodBuilder {
    /// The configuration; without it the defaults.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Hosts entities of the type `E`.
    #[must_use]
    pub fn entity<E: Entity>(mut self, options: EntityOptions<E::Protocol>) -> Self {
        self.types.push(Registration {
            name: <E::Protocol as Protocol>::NAME,
            methods: <E::Protocol as Protocol>::METHODS,
            concurrency: options.concurrency,
            make: Box::new(move |interceptor| {
                let options = match interceptor {
                    Some(interceptor) => options.any_interceptor(interceptor),
                    None => options,
                };
                Arc::new(move |index, defaults| TypeHost::new::<E>(index, options.clone(), defaults))
            }),
        });
        self
    }

    /// Wraps the entities of every type, around the interceptor of the type itself. A second one lies inside the first.
    #[must_use]
    pub fn interceptor(mut self, interceptor: impl AnyInterceptor) -> Self {
        self.interceptor = Some(match self.interceptor {
            Some(outer) => Arc::new(outer.and(interceptor)),
            None => Arc::new(interceptor),
        });
        self
    }

    /// Pins the cores to these processors, one each, whatever the configuration says.
    #[must_use]
    pub fn processors(mut self, processors: Vec<usize>) -> Self {
        self.processors = Some(processors);
        self
    }

    /// Starts the pod: when this returns it owns its shards and its cores run.
    ///
    /// # Errors
    /// If something about the types, the configuration or the host does not fit; nothing runs then.
    pub fn start(self) -> Result<Pod, StartError> {
        self.check_types()?;
        let config = &self.config;
        let plan = prepare(CoresOptions {
            placement: self.placement(),
            listen: Some(config.pod.listen),
            pump: pump_options(config),
        })?;
        let cores = plan.bells().len() as u16;
        let address = plan.listen_address().unwrap_or(config.pod.listen);
        let advertised = config.pod.advertise.unwrap_or(address);
        let uid = fresh_uid();
        let clock = plan.clock();
        let (port, received) = ControlPort::new();
        let mut driver = ControlDriver::new(
            PodControl::new(control_config(config, uid, &advertised.to_string(), cores, clock.now()))?,
            open_store(config)?,
        );
        let mut now = || clock.now();
        let mut pause = |until: Nanos| std::thread::sleep(until.since(clock.now()));
        let table = driver.start(&mut now, &mut pause, clock.now() + START_TIMEOUT)?;

        let validity = Arc::new(AtomicU64::new(driver.control().valid_until().0));
        let node = Node::start(
            plan,
            NodeOptions {
                uid,
                validity: Arc::clone(&validity),
                released: port.released(),
                cluster_name: config.pod.cluster_name.clone(),
                role: config.pod.role.clone(),
                version: config.pod.version.clone(),
                is_pod: true,
                hash_seed: table.hash_seed(),
                number_of_shards: table.number_of_shards(),
                limits: link_limits(config),
                defaults: EntityDefaults {
                    max_idle: config.entities.max_idle,
                    termination_timeout: config.entities.termination_timeout,
                    mailbox_capacity: config.entities.mailbox_capacity,
                    send_timeout: config.entities.send_timeout,
                },
                types: self.types.into_iter().map(|kind| (kind.name, (kind.make)(self.interceptor.clone()))).collect(),
                inspector: Some(port.inspector()),
                bootstrap: Vec::new(),
                stall: config.event_loop.stall,
            },
        )?;
        let node = Arc::new(node);
        node.command_all(|| Command::Table(Arc::clone(&table)));
        let hash_seed = table.hash_seed();
        let shared = Arc::new(Shared {
            uid: Mutex::new(uid),
            table: Mutex::new(table),
            registered: Mutex::new(Arc::new(registered_pods(driver.control().view()))),
            validity,
        });
        let control = start_control(port, received, driver, clock, Arc::clone(&node), Arc::clone(&shared))?;
        Ok(Pod {
            inner: Arc::new(Inner {
                node,
                control,
                shared,
                address,
                hash_seed,
                drain_timeout: config.pod.drain_timeout,
            }),
        })
    }

    fn check_types(&self) -> Result<(), StartError> {
        let mut tags = HashMap::new();
        for (at, kind) in self.types.iter().enumerate() {
            if self.types[..at].iter().any(|other| other.name == kind.name) {
                return Err(StartError::DuplicateType(kind.name));
            }
            if kind.concurrency > 1 && kind.methods.iter().all(|method| method.access == Access::Exclusive) {
                return Err(StartError::UselessConcurrency(kind.name));
            }
            for method in kind.methods {
                let full = format!("{}::{}", kind.name, method.name);
                if let Some(other) = tags.insert(method.tag, full.clone()) {
                    return Err(StartError::DuplicateTag(other, full));
                }
            }
        }
        Ok(())
    }

    fn placement(&self) -> CorePlacement {
        if let Some(processors) = &self.processors {
            return CorePlacement::Pinned(processors.clone());
        }
        let cores = self.config.cores();
        if !self.config.pod.pin {
            return CorePlacement::Unpinned(cores);
        }
        let usable = crate::runtime::usable_processors();
        match self.config.pod.cores {
            Cores::All => CorePlacement::Pinned(usable),
            Cores::Count(_) if cores <= usable.len() => CorePlacement::Pinned(usable[..cores].to_vec()),
            Cores::Count(_) => CorePlacement::Unpinned(cores),
        }
    }
}

fn open_store(config: &Config) -> Result<Box<dyn Store + Send>, StartError> {
    if config.control.store == StoreKind::Served {
        // A third of the lease: after one request without an answer there is time for another before the pod freezes.
        let store = ServedStore::start(config.control.address, config.control.lease_ttl / 3)?;
        store.wait_connected(MANAGER_TIMEOUT)?;
        return Ok(Box::new(store));
    }
    match &config.pod.data_dir {
        Some(directory) => Ok(Box::new(EmbeddedStore::open(directory)?)),
        None => Ok(Box::new(MemoryStore::new(LeaseMode::WhileOpen))),
    }
}

fn pump_options(config: &Config) -> PumpOptions {
    let mut options = PumpOptions {
        spin: match config.event_loop.spin {
            Spin::Always => crate::runtime::Spin::Always,
            Spin::For(duration) => crate::runtime::Spin::Micros(duration.as_micros() as u64),
        },
        slice_us: config.event_loop.slice.as_micros() as u64,
        receive_buffers: config.event_loop.receive_buffers,
        receive_buffer_bytes: config.event_loop.receive_buffer_bytes as u32,
        ..PumpOptions::default()
    };
    options.limits.hello_timeout = config.links.hello_timeout;
    options
}

fn link_limits(config: &Config) -> LinkLimits {
    // Who raises the length of a frame wants to send that much.
    let body_bytes_max = LINK_BODY_BYTES_MAX.max(config.links.frame_bytes_max as u32);
    LinkLimits {
        frame_bytes_max: config.links.frame_bytes_max as u32,
        body_bytes_max,
        bulk_credit_bytes: 2 * body_bytes_max,
        in_flight_max: config.links.in_flight_max,
        send_bytes_max: config.links.send_bytes_max,
        body_checksum: config.links.body_checksum,
        hello_timeout: config.links.hello_timeout,
        ..LinkLimits::default()
    }
}

fn control_config(config: &Config, uid: crate::base::PodUid, address: &str, cores: u16, now: Nanos) -> ControlConfig {
    let unix_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64);
    ControlConfig {
        cluster: config.pod.cluster_name.clone(),
        role: config.pod.role.clone(),
        number_of_shards: config.sharding.number_of_shards,
        hash_seed: config.sharding.hash_seed,
        version: config.pod.version.clone(),
        lease_ttl: config.control.lease_ttl,
        settle: config.control.settle,
        rebalance_interval: config.control.rebalance_interval,
        rebalance_rate_per_mille: config.control.rebalance_rate_per_mille,
        unix_ms_at_origin: unix_ms.saturating_sub(now.0 / 1_000_000),
        ..ControlConfig::new(uid, address, cores)
    }
}
