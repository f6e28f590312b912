//! How two cores come to an agreement, and what they tell each other afterwards besides messages.
//!
//! The dialer says hello (64 bytes, which only name the core it wants), then introduces itself; the acceptor welcomes it
//! with what it serves, or refuses it with a reason. Called by `core` and `frames`. Invariant: a link is `Open` only
//! after both sides named the same cluster.

use std::rc::Rc;
use std::sync::Arc;

use super::core::{Core, Question};
use super::counters::EngineCounters;
use super::link::{Link, Peer, Phase};
use super::parcel::{AcceptedSocket, Notice};
use super::routes::LinkCommand;
use crate::base::hash::{ENTITY_HASH_NAME, stable_hash};
use crate::base::limits::LINK_QUESTIONS_MAX;
use crate::base::{CoreIndex, Epoch, Nanos, PodIndex, PodUid, Token};
use crate::entity::PendingKey;
use crate::entity::reply::hand_over;
use crate::sharding::{Owner, PodRecord, ShardTable, TableParts};
use crate::wire::control::{Introduce, LaneLimits, OwnerEntry, PodEntry, SchemaOfTag, Table, Welcome};
use crate::wire::{
    ANY_CORE, ControlMessage, HELLO_BYTES, Hello, Inspect, LANES_VERSION, Lane, PROTOCOL_VERSIONS, negotiate,
};

impl Core {
    /// A connection was accepted on this core, and this is its hello.
    pub fn accepted(&self, hello: &[u8; HELLO_BYTES], descriptor: i32) {
        let hello = match Hello::decode(hello) {
            Ok(hello) => hello,
            Err(error) => {
                self.routes.counters.refuse(error.name());
                tracing::warn!(%error, "refusing a connection");
                self.routes.commands.borrow_mut().push(LinkCommand::Discard { descriptor });
                return;
            }
        };
        let socket = AcceptedSocket { hello, descriptor };
        let wanted = if hello.target_core == ANY_CORE { self.routes.identity.core } else { hello.target_core };
        if wanted == self.routes.identity.core || wanted.0 >= self.routes.identity.cores {
            self.adopt(socket);
        } else {
            self.routes.notify(wanted, Notice::Socket(Box::new(socket)));
        }
    }

    /// Makes a link of an accepted connection.
    pub(super) fn adopt(&self, socket: AcceptedSocket) {
        let (hello, descriptor) = (socket.hello, socket.descriptor);
        let added = self.routes.add_link(Peer::Dialer(hello.sender_uid), Phase::Greeting, self.host.now());
        let Some(link) = added else {
            self.routes.counters.refuse("links_max");
            self.routes.commands.borrow_mut().push(LinkCommand::Discard { descriptor });
            return;
        };
        self.routes.commands.borrow_mut().push(LinkCommand::Adopt { link: link.id, descriptor });
        let identity = &self.routes.identity;
        if hello.target_core != ANY_CORE && hello.target_core.0 >= identity.cores {
            let reason = format!("this pod has {} cores, core {} is not one", identity.cores, hello.target_core.0);
            return self.refuse(&link, "core_unknown", reason);
        }
        match negotiate(PROTOCOL_VERSIONS, hello.versions) {
            Ok(version) => link.version.set(version),
            Err(error) => return self.refuse(&link, "version", error.to_string()),
        }
        if hello.cluster_name_hash != stable_hash(&identity.cluster_name) {
            let reason = format!("this pod belongs to the cluster `{}`, the dialer does not", identity.cluster_name);
            self.refuse(&link, "cluster_name", reason);
        }
    }

    fn refuse(&self, link: &Link, counted_as: &'static str, reason: String) {
        tracing::warn!(reason, "refusing a link");
        self.routes.write_control(link, 0, &ControlMessage::Refused { reason });
        self.close_link(link, counted_as);
    }

    /// Our connection is made: we introduce ourselves.
    pub fn connected(&self, id: crate::base::LinkId, now: Nanos) {
        self.host.set_now(now);
        let Some(link) = self.routes.link(id) else { return };
        link.phase.set(Phase::Greeting);
        let identity = &self.routes.identity;
        let introduce = Introduce {
            cluster_name: identity.cluster_name.clone(),
            uid: self.routes.uid.get().0,
            role: identity.role.clone(),
            version: identity.version.clone(),
            is_pod: identity.is_pod,
            schemas: self.schemas(),
        };
        self.routes.write_control(&link, 0, &ControlMessage::Introduce(introduce));
    }

    fn schemas(&self) -> Vec<SchemaOfTag> {
        let methods = self.host.types().iter().flat_map(|kind| kind.methods());
        methods.map(|method| (method.message.tag, method.message.schema)).collect()
    }

    /// A connection ended or could not be made.
    pub fn closed(&self, id: crate::base::LinkId, now: Nanos) {
        let _entered = self.host.enter();
        self.host.set_now(now);
        let Some(link) = self.routes.remove_link(id) else { return };
        if link.is_open() {
            EngineCounters::add(&self.routes.counters.links_open, u64::MAX);
        } else {
            self.routes.mark_unreachable(&link.peer, now);
        }
        if self.routes.is_lost() {
            self.routes.table_in_doubt.set(true);
        }
        self.host.cancel_callers_of(id);
        self.routes.forget_calls_of(id);
        self.held.forget_link(id);
        // What was not answered is sent again, once there is a way; its own timeout bounds that.
        self.routes.unroute_link(&self.host, &link);
        // An address that answers nothing is followed by the next at once; each is tried once before the next check.
        self.look_for_pods(now);
        self.settle();
    }

    /// Why a link is about to be [closed](Core::closed), for whoever waits for the first table.
    pub fn closing(&self, id: crate::base::LinkId, why: &dyn core::fmt::Display) {
        let Some(link) = self.routes.link(id) else { return };
        let Peer::Bootstrap(address) = &link.peer else { return };
        let outcome = match link.phase.get() {
            Phase::Connecting => format!("{address}: {why}"),
            Phase::Greeting => format!("{address} took the connection and ended it: {why}"),
            // Known to whoever closed it.
            Phase::Open | Phase::Closing => return,
        };
        *self.dial_outcome.borrow_mut() = Some(outcome);
    }

    /// What is known of why no table came from the addresses that were dialed.
    pub fn dial_outcome(&self) -> Option<String> {
        if let Some(outcome) = self.dial_outcome.borrow().clone() {
            return Some(outcome);
        }
        let silent = self.routes.all_links().into_iter().find_map(|link| match &link.peer {
            Peer::Bootstrap(address) if link.phase.get() == Phase::Greeting => Some(address.clone()),
            _ => None,
        });
        silent.map(|address| format!("{address} took the connection and says nothing"))
    }

    /// A control message.
    pub(super) fn control(&self, link: &Link, correlation: u64, message: ControlMessage) {
        let dialed = !matches!(link.peer, Peer::Dialer(_));
        match message {
            ControlMessage::Introduce(introduce) if !dialed && link.phase.get() == Phase::Greeting => {
                self.introduced(link, introduce);
            }
            ControlMessage::Welcome(welcome) if dialed && link.phase.get() == Phase::Greeting => {
                self.welcomed(link, &welcome);
            }
            ControlMessage::Refused { reason } => {
                tracing::error!(reason, "the peer refused the link");
                *self.refused.borrow_mut() = Some(reason);
                self.close_link(link, "refused_by_peer");
            }
            ControlMessage::Goodbye { .. } => self.close_link(link, "goodbye"),
            // From the acceptor just before its welcome, from the dialer just after.
            ControlMessage::Lanes(lanes) if link.phase.get() == if dialed { Phase::Greeting } else { Phase::Open } => {
                link.peer_takes(&lanes);
            }
            _ if !link.is_open() => self.close_link(link, "control_before_handshake"),
            ControlMessage::TableRequest { role, known_epoch } => self.table_requested(link, &role, known_epoch),
            ControlMessage::Table(table) => self.table_received(link, table),
            ControlMessage::Ping { nonce } => {
                self.routes.write_control(link, correlation, &ControlMessage::Pong { nonce });
            }
            ControlMessage::Pong { .. } => {}
            ControlMessage::JsonCall(call) => self.json_call(link, correlation, &call),
            ControlMessage::JsonResult { outcome } => {
                self.routes.question_answered(link);
                let key = PendingKey::from_number(correlation);
                if self.host.is_at_link(key, link.id) {
                    hand_over(&self.host, key, outcome);
                }
            }
            ControlMessage::InspectRequest { question } => self.inspect(link, correlation, question),
            ControlMessage::InspectReply { json } => {
                self.routes.question_answered(link);
                let key = PendingKey::from_number(correlation);
                if self.host.is_at_link(key, link.id) {
                    hand_over(&self.host, key, json);
                }
            }
            ControlMessage::Introduce(_) | ControlMessage::Welcome(_) | ControlMessage::Lanes(_) => {
                self.close_link(link, "second_handshake");
            }
        }
    }

    fn inspect(&self, link: &Link, correlation: u64, question: Inspect) {
        let Some(inspect) = &self.inspector else { return self.close_link(link, "inspect_of_client") };
        if link.questions.get() >= LINK_QUESTIONS_MAX {
            return self.close_link(link, "questions_max");
        }
        let core = self.routes.identity.core;
        if inspect(Question { question, core, link: link.id, correlation }) {
            link.questions.set(link.questions.get() + 1);
        } else {
            let json = r#"{"error":"too many questions wait for this pod already; ask again later"}"#.to_owned();
            self.routes.write_control(link, correlation, &ControlMessage::InspectReply { json });
        }
    }

    fn introduced(&self, link: &Link, introduce: Introduce) {
        let identity = &self.routes.identity;
        if introduce.cluster_name != identity.cluster_name {
            let reason = format!(
                "this pod belongs to the cluster `{}`, the dialer to `{}`",
                identity.cluster_name, introduce.cluster_name
            );
            return self.refuse(link, "cluster_name", reason);
        }
        let table = self.routes.table.borrow().clone();
        let welcome = Welcome {
            version: link.version.get(),
            cluster_name: identity.cluster_name.clone(),
            pod_uid: self.routes.uid.get().0,
            role: identity.role.clone(),
            entity_hash_name: ENTITY_HASH_NAME.to_owned(),
            hash_seed: self.host.hash_seed(),
            number_of_shards: table.map_or(self.host.number_of_shards(), |table| table.number_of_shards()),
            core: identity.core.0,
            cores: identity.cores,
            frame_bytes_max: self.routes.limits.frame_bytes_max,
            credit_bytes: self.routes.limits.credit_bytes,
            schemas: self.schemas(),
        };
        self.announce_lanes(link);
        self.routes.write_control(link, 0, &ControlMessage::Welcome(welcome));
        // Requests go from dialer to acceptor: what the dialer knows of messages matters only to itself.
        self.opened(link, &[]);
    }

    fn welcomed(&self, link: &Link, welcome: &Welcome) {
        if welcome.entity_hash_name != ENTITY_HASH_NAME || welcome.cluster_name != self.routes.identity.cluster_name {
            return self.close_link(link, "welcome_of_another_cluster");
        }
        if let Peer::Pod(uid, _) = link.peer
            && uid.0 != welcome.pod_uid
        {
            // Another process has its address now: the table that named it is old.
            return self.close_link(link, "another_pod");
        }
        link.peer_uid.set(Some(PodUid(welcome.pod_uid)));
        link.version.set(welcome.version);
        link.peer_takes_frames(welcome.frame_bytes_max);
        link.outgoing(Lane::Messages).grant(u64::from(welcome.credit_bytes));
        self.announce_lanes(link);
        self.opened(link, &welcome.schemas);
        self.routes.ask_for_table(link);
        self.routes.wake_due.set(true);
    }

    /// Says what this side takes, to a peer that understands it.
    fn announce_lanes(&self, link: &Link) {
        if link.version.get() < LANES_VERSION {
            return;
        }
        let limits = &self.routes.limits;
        let lanes = LaneLimits {
            frame_bytes_max: limits.frame_bytes_max,
            body_bytes_max: limits.body_bytes_max,
            streams_credit_bytes: limits.streams_credit_bytes,
            bulk_credit_bytes: limits.bulk_credit_bytes,
        };
        self.routes.write_control(link, 0, &ControlMessage::Lanes(lanes));
    }

    fn opened(&self, link: &Link, schemas: &[SchemaOfTag]) {
        *link.schemas.borrow_mut() = schemas.iter().copied().collect();
        link.agreed.set(None);
        link.phase.set(Phase::Open);
        EngineCounters::add(&self.routes.counters.links_open, 1);
    }

    fn table_requested(&self, link: &Link, role: &str, known_epoch: u64) {
        link.wants_tables.set(true);
        let table = self.routes.table.borrow().clone();
        if let Some(table) = table.filter(|table| table.role() == role && table.epoch().0 > known_epoch) {
            self.routes.write_control(link, 0, &ControlMessage::Table(table_to_wire(&table)));
        }
    }

    fn table_received(&self, link: &Link, table: Table) {
        if self.routes.identity.is_pod {
            return;
        }
        match table_from_wire(table) {
            Ok(table) => {
                if self.routes.table_in_doubt.replace(false) {
                    // Epochs compare only within one store; that of the pods we lost may have begun anew.
                    self.routes.forget_table();
                }
                self.set_table(Arc::new(table));
                self.look_for_pods(self.host.now());
            }
            Err(error) => {
                tracing::warn!(%error, "a pod sent a table that makes no sense");
                self.close_link(link, "table");
            }
        }
    }

    /// Tells everyone who asked for it the new table.
    pub(super) fn spread_table(&self, table: &ShardTable) {
        let wanting: Vec<Rc<Link>> =
            self.routes.all_links().into_iter().filter(|link| link.is_open() && link.wants_tables.get()).collect();
        for link in wanting {
            self.routes.write_control(&link, 0, &ControlMessage::Table(table_to_wire(table)));
        }
    }
}

fn table_to_wire(table: &ShardTable) -> Table {
    let pods = table.pods().iter().map(|pod| PodEntry {
        uid: pod.uid.0,
        address: pod.address.clone(),
        cores: pod.cores,
        version: pod.version.clone(),
        role: pod.role.clone(),
    });
    let owners =
        table.owners().iter().map(|owner| OwnerEntry { pod: owner.pod.0, core: owner.core.0, token: owner.token.0 });
    Table {
        role: table.role().to_owned(),
        epoch: table.epoch().0,
        hash_seed: table.hash_seed(),
        number_of_shards: table.number_of_shards(),
        pods: pods.collect(),
        owners: owners.collect(),
    }
}

fn table_from_wire(table: Table) -> Result<ShardTable, crate::sharding::InvalidTable> {
    let pods = table.pods.into_iter().map(|pod| PodRecord {
        uid: PodUid(pod.uid),
        address: pod.address,
        cores: pod.cores,
        version: pod.version,
        role: pod.role,
    });
    let owners = table.owners.into_iter().map(|owner| Owner {
        pod: PodIndex(owner.pod),
        core: CoreIndex(owner.core),
        token: Token(owner.token),
    });
    ShardTable::from_parts(TableParts {
        role: table.role,
        epoch: Epoch(table.epoch),
        hash_seed: table.hash_seed,
        number_of_shards: table.number_of_shards,
        pods: pods.collect(),
        owners: owners.collect(),
    })
}
