//! The one table of keys: name, type, default and explanation. Structs, documentation and reference are made from it.

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::setting::{self, Cores, Given, LogFormat, Setting, Spin, Store, Written};
use crate::base::limits;

/// One key of the configuration.
pub struct Key {
    /// Its section, as in the file.
    pub section: &'static str,
    /// Its name within the section.
    pub name: &'static str,
    /// What it means, line by line.
    pub documentation: &'static [&'static str],
    /// What to write, as it follows "write" in a sentence.
    pub expected: &'static str,
    /// Reads a value into a configuration; the error says what to write instead.
    pub(super) set: fn(&mut Config, Given<'_>) -> Result<(), String>,
    /// The value in a configuration.
    pub get: fn(&Config) -> Written,
}

impl Key {
    /// `section.name`.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment variable that sets it: `ATOLL_SECTION_NAME`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("ATOLL_{}_{}", self.section, self.name).to_ascii_uppercase()
    }
}

/// One section of the configuration.
pub struct SectionInfo {
    /// Its name in the file.
    pub name: &'static str,
    /// What it is about, line by line.
    pub documentation: &'static [&'static str],
}

macro_rules! sections {
    ($(
        $(#[doc = $section_doc:literal])+
        $section:ident $text:literal $kind:ident {
            $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $default:expr;)+
        }
    )+) => {
        $(
            $(#[doc = $section_doc])+
            #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
            #[serde(deny_unknown_fields, default)]
            pub struct $kind {
                $(
                    $(#[doc = $doc])+
                    #[serde(serialize_with = "setting::serialize", deserialize_with = "setting::deserialize")]
                    pub $field: $type,
                )+
            }

            impl Default for $kind {
                fn default() -> Self {
                    $kind { $($field: $default),+ }
                }
            }
        )+

        /// The configuration of a pod. `Default` is what an empty file means.
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields, default)]
        pub struct Config {
            $(
                $(#[doc = $section_doc])+
                #[serde(rename = $text)]
                pub $section: $kind,
            )+
        }

        impl Config {
            /// Every section, in the order of the reference.
            pub const SECTIONS: &'static [SectionInfo] = &[$(
                SectionInfo { name: $text, documentation: &[$($section_doc),+] },
            )+];

            /// Every key, in the order of the reference.
            pub const KEYS: &'static [Key] = &[$($(
                Key {
                    section: $text,
                    name: stringify!($field),
                    documentation: &[$($doc),+],
                    expected: <$type as Setting>::EXPECTED,
                    set: |config, given| {
                        config.$section.$field = Setting::read(given)?;
                        Ok(())
                    },
                    get: |config| config.$section.$field.write(),
                },
            )+)+];
        }
    };
}

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Where an `atoll manager` listens by default.
pub const MANAGER_PORT: u16 = 7350;

sections! {
    /// The pod itself: who it is, where it listens, what of the machine it takes.
    pod "pod" PodSection {
        /// Address at which pods and clients connect. Port 0 takes a free one and logs it.
        listen: SocketAddr = SocketAddr::new(LOOPBACK, 7400);
        /// Address that the pod tells others to use; "listen" means the address above. Needed when `listen` is `0.0.0.0`
        /// or `[::]`, or behind a translated address.
        advertise: Option<SocketAddr> = None;
        /// Name of the cluster. Connections between clusters of different names are refused.
        cluster_name: String = "atoll".to_owned();
        /// Pool of shards that this pod serves.
        role: String = "default".to_owned();
        /// Version of what this pod serves, numbers with dots. During a rolling update shards go to the newest only.
        version: String = "1.0.0".to_owned();
        /// Cores to use: a number, or "all" that the process may run on.
        cores: Cores = Cores::All;
        /// Pin one thread to each core. Without it the kernel places them, which costs latency.
        pin: bool = true;
        /// Folder of the embedded store; "memory" keeps nothing over a restart.
        data_dir: Option<PathBuf> = None;
        /// How long a stopping pod may take to hand off its shards and answer what it received.
        drain_timeout: Duration = Duration::from_secs(30);
        /// Development: one unpinned core that does not spin, kind to a laptop. Changes the defaults only; whatever is
        /// set explicitly stays.
        dev: bool = false;
    }

    /// How entities are spread over shards. Fixed for the life of a cluster: a pod that disagrees is refused.
    sharding "sharding" ShardingSection {
        /// Shards of the role, 1 to 65536: about ten for each pod that the cluster may ever have.
        number_of_shards: u32 = limits::NUMBER_OF_SHARDS;
        /// Seed of the hash from entity id to shard.
        hash_seed: u64 = 0;
    }

    /// Defaults of entity types; code can override them for each type.
    entities "entities" EntitiesSection {
        /// An entity that had nothing to do for this long is stopped.
        max_idle: Duration = limits::ENTITY_MAX_IDLE;
        /// Time that a stopping entity has for the messages it received before they are interrupted.
        termination_timeout: Duration = limits::ENTITY_TERMINATION_TIMEOUT;
        /// Messages that wait at or run in one entity, 1 to 1048576; a further one gets `MailboxFull`.
        mailbox_capacity: u32 = limits::MAILBOX_CAPACITY;
        /// Time to wait for a reply. With several pods at least `control.lease_ttl` + 3s, or no message survives a crash.
        send_timeout: Duration = limits::SEND_TIMEOUT;
    }

    /// Connections between pods and from clients.
    links "links" LinksSection {
        /// Largest frame that is sent or accepted, 4KiB to 64MiB; bounds what one peer can make a pod buffer.
        frame_bytes_max: usize = limits::FRAME_BYTES_MAX;
        /// Asks of one link that wait for their reply, 1 to 1048576.
        in_flight_max: u32 = limits::LINK_IN_FLIGHT_MAX;
        /// Bytes that one link buffers for its peer before senders get back-pressure.
        send_bytes_max: usize = limits::LINK_SEND_BYTES_MAX;
        /// Protect message bodies with a checksum (headers always have one).
        body_checksum: bool = true;
        /// How long a new connection may take to say hello.
        hello_timeout: Duration = limits::HELLO_TIMEOUT;
    }

    /// The loop that each core runs.
    event_loop "loop" LoopSection {
        /// How long an idle core looks for work before it sleeps. "always" for cores that do nothing else; "0us" to sleep
        /// at once, which adds 25 to 40 microseconds to the next message.
        spin: Spin = Spin::For(Duration::from_micros(50));
        /// Time for handlers and streams in one turn before the ring is looked at again.
        slice: Duration = Duration::from_micros(20);
        /// Receive buffers of each core: a power of two, 2 to 32768.
        receive_buffers: u16 = 256;
        /// Size of one receive buffer: a power of two, 4KiB to 1MiB.
        receive_buffer_bytes: usize = 16 << 10;
        /// A handler that keeps its core for longer is logged with its entity type.
        stall: Duration = Duration::from_millis(100);
    }

    /// Who owns a shard, and how that is agreed.
    control "control" ControlSection {
        /// Where the records of the cluster are kept: "embedded" is in the pod itself, for a cluster of one pod; "served" is
        /// at an `atoll manager`, for several.
        store: Store = Store::Embedded;
        /// Address of the manager, if the store is "served".
        address: SocketAddr = SocketAddr::new(LOOPBACK, MANAGER_PORT);
        /// A pod that does not renew its lease for this long loses its shards; 2s to 1m.
        lease_ttl: Duration = Duration::from_secs(5);
        /// How long the planner waits after a change before it moves shards.
        settle: Duration = Duration::from_millis(500);
        /// Time between two rounds in which shards move to pods that have fewer; 100ms to 1h. Shards without a pod do not
        /// wait for a round. That of the pod which manages the cluster counts.
        rebalance_interval: Duration = Duration::from_secs(20);
        /// Thousandths of all shards that one pod may gain in a round, 1 to 1000. Shards without a pod have no limit.
        rebalance_rate_per_mille: u32 = 20;
    }

    /// What is logged, to standard error.
    log "log" LogSection {
        /// "error", "warn", "info", "debug" or "trace", also by module: "info,atoll::control=debug".
        level: String = "info".to_owned();
        /// "text" for people, "json" for machines.
        format: LogFormat = LogFormat::Text;
    }
}

impl Config {
    /// What an empty file means with `pod.dev = true`: one unpinned core that sleeps as soon as it has nothing to do.
    #[must_use]
    pub fn dev() -> Config {
        let mut config = Config::default();
        config.pod.dev = true;
        config.pod.pin = false;
        config.pod.cores = Cores::Count(1);
        config.event_loop.spin = Spin::For(Duration::ZERO);
        config
    }
}
