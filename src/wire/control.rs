//! What pods and clients tell each other about themselves: the bodies of control frames.
//!
//! `engine` and `client` write them with [`encode_control`] and read them with [`decode_control`]; the frame kind is
//! [`Control`](super::FrameKind::Control). Bodies are rkyv archives, checked as a whole before anything is read.
//!
//! Invariants: the types hold no recursion, no maps and no shared pointers, so a body of n bytes decodes to a value of
//! a small multiple of n bytes, and n is bounded by the frame limit. The order of variants and fields is the format:
//! changing it needs a new version in [`PROTOCOL_VERSIONS`](super::PROTOCOL_VERSIONS).
// The derive makes public items without docs (the fields of its resolvers); everything written here has docs.
#![allow(missing_docs)]

use rkyv::rancor::Failure;
use rkyv::{Archive, Deserialize, Serialize};

/// As [`OwnerEntry::pod`]: nobody owns the shard at the moment.
pub const NO_POD: u16 = u16::MAX;

/// The definition of one message: its tag and the hash of its schema.
pub type SchemaOfTag = (u32, u64);

/// A message between pods, or between a client and a pod.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum ControlMessage {
    /// The acceptor's answer to the hello: who it is and how the cluster is set up.
    Welcome(Welcome),
    /// The dialer's first frame: the part of its hello that needs more than 64 bytes.
    Introduce(Introduce),
    /// The sender closes the link and says why, and what to do about it.
    Refused {
        /// A text for the operator.
        reason: String,
    },
    /// Asks for the shard table of a role.
    TableRequest {
        /// The role.
        role: String,
        /// Epoch that the asker has; an answer is wanted when there is a newer one. 0 for none.
        known_epoch: u64,
    },
    /// The shard table of a role.
    Table(Table),
    /// Asks whether the peer is still there.
    Ping {
        /// Comes back in the answer.
        nonce: u64,
    },
    /// The answer to a ping.
    Pong {
        /// As in the ping.
        nonce: u64,
    },
    /// Asks for something to look at; the answer has the same correlation.
    InspectRequest {
        /// What to look at.
        question: Inspect,
    },
    /// The answer to such a question.
    InspectReply {
        /// A JSON text.
        json: String,
    },
    /// A call with names and JSON instead of types; the result has the same correlation.
    JsonCall(JsonCall),
    /// The result of such a call.
    JsonResult {
        /// How it went.
        outcome: JsonOutcome,
    },
    /// The sender is about to close the link and answers nothing more.
    Goodbye {
        /// A text for the log.
        reason: String,
    },
    /// What the sender takes on its lanes. Since version 2: from the acceptor before its welcome, from the dialer after.
    Lanes(LaneLimits),
}

/// See [`ControlMessage::Lanes`].
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLimits {
    /// Longest frame in bytes.
    pub frame_bytes_max: u32,
    /// Longest body in bytes, in however many parts.
    pub body_bytes_max: u32,
    /// Bytes that may be sent on the lane of streams before there is new credit.
    pub streams_credit_bytes: u32,
    /// Bytes of requests that may be sent on the lane of large bodies before there is new credit.
    pub bulk_credit_bytes: u32,
}

/// See [`ControlMessage::Welcome`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Version of the protocol that was agreed on.
    pub version: u16,
    /// Name of the cluster.
    pub cluster_name: String,
    /// Which run of which pod it is.
    pub pod_uid: u128,
    /// Role of the pod.
    pub role: String,
    /// Name of the hash that maps entity ids to shards.
    pub entity_hash_name: String,
    /// Seed of that hash.
    pub hash_seed: u64,
    /// Shards of the role.
    pub number_of_shards: u32,
    /// Core that the link ends at.
    pub core: u16,
    /// Cores of the pod.
    pub cores: u16,
    /// Longest frame in bytes that the pod takes.
    pub frame_bytes_max: u32,
    /// Bytes that may be sent on the lane of messages before the pod gives new credit.
    pub credit_bytes: u32,
    /// The messages that the pod knows.
    pub schemas: Vec<SchemaOfTag>,
}

/// See [`ControlMessage::Introduce`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Introduce {
    /// Name of the cluster.
    pub cluster_name: String,
    /// Which run of which process it is.
    pub uid: u128,
    /// Role of the pod; empty for a client.
    pub role: String,
    /// Version of the pod's program, as operators name it.
    pub version: String,
    /// Whether it is a pod; else a client.
    pub is_pod: bool,
    /// The messages that it knows.
    pub schemas: Vec<SchemaOfTag>,
}

/// See [`ControlMessage::Table`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The role.
    pub role: String,
    /// Version of the table; a larger one is newer.
    pub epoch: u64,
    /// Seed of the hash that maps entity ids to shards.
    pub hash_seed: u64,
    /// Shards of the role.
    pub number_of_shards: u32,
    /// The pods; owners name them by position.
    pub pods: Vec<PodEntry>,
    /// The owner of each shard, by number of the shard.
    pub owners: Vec<OwnerEntry>,
}

/// A pod in a [`Table`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct PodEntry {
    /// Which run of which pod it is.
    pub uid: u128,
    /// Where it accepts links, as `host:port`.
    pub address: String,
    /// Number of its cores.
    pub cores: u16,
    /// Version of its program, as operators name it.
    pub version: String,
    /// Its role.
    pub role: String,
}

/// The owner of a shard in a [`Table`].
#[derive(Archive, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerEntry {
    /// Position in the table's pods, or [`NO_POD`].
    pub pod: u16,
    /// Core of that pod.
    pub core: u16,
    /// Fencing token of the ownership; 0 without an owner.
    pub token: u64,
}

/// What can be asked of a pod with [`ControlMessage::InspectRequest`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// The pods of the cluster.
    Pods,
    /// The shards and their owners.
    Shards,
    /// The running entities of a type.
    Entities {
        /// The type.
        entity_type: String,
        /// At most so many.
        limit: u32,
    },
    /// Where an entity is.
    Locate {
        /// Its type.
        entity_type: String,
        /// Its id.
        entity_id: String,
    },
    /// The counters of the pod.
    Counters,
    /// Order: the pod, named by its address or the beginning of its uid, keeps its shards and gets no further ones.
    Cordon {
        /// The pod.
        pod: String,
    },
    /// Order: the pod gives its shards to others.
    Drain {
        /// The pod.
        pod: String,
    },
    /// Order: the pod takes shards again.
    Uncordon {
        /// The pod.
        pod: String,
    },
    /// Order: a round of rebalancing of the asked pod's role.
    Rebalance {
        /// Only say what would move.
        dry_run: bool,
    },
}

/// See [`ControlMessage::JsonCall`].
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub struct JsonCall {
    /// Type of the entity.
    pub entity_type: String,
    /// Id of the entity.
    pub entity_id: String,
    /// Method of its protocol.
    pub method: String,
    /// The arguments, as a JSON text.
    pub body: String,
    /// How long the caller still waits, in milliseconds; 0 for the default of the owner. Then the message is taken out
    /// of the mailbox, or its handler is dropped, unless it is uninterruptible.
    pub timeout_ms: u32,
}

/// How a [`ControlMessage::JsonCall`] went.
#[derive(Archive, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
pub enum JsonOutcome {
    /// The reply, as a JSON text.
    Reply(String),
    /// The error that the message declares, as a JSON text.
    Declared(String),
    /// It failed in the cluster.
    Failed {
        /// Code of the cluster error.
        code: u32,
        /// A text that says what can be done.
        text: String,
    },
}

/// Why a control message could not be written or read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The message cannot be archived: it has more than the 4 GiB that an archive can address.
    #[error("a control message is too large to be archived; ask for less")]
    Encode,
    /// The bytes are not a control message of this version.
    #[error("a control frame holds no valid control message; both sides must speak the version they agreed on")]
    Decode,
}

/// Appends the archive of a message.
///
/// # Errors
/// If it cannot be archived; then nothing was appended.
pub fn encode_control(message: &ControlMessage, into: &mut Vec<u8>) -> Result<(), ControlError> {
    let start = into.len();
    match rkyv::api::high::to_bytes_in::<_, Failure>(message, &mut *into) {
        Ok(_) => Ok(()),
        Err(Failure) => {
            into.truncate(start);
            Err(ControlError::Encode)
        }
    }
}

/// Reads a message from the body of a control frame, whose length the frame limit bounds.
///
/// # Errors
/// If the bytes are not the archive of a message.
pub fn decode_control(body: &[u8]) -> Result<ControlMessage, ControlError> {
    let archived = rkyv::access::<ArchivedControlMessage, Failure>(body).map_err(|Failure| ControlError::Decode)?;
    rkyv::deserialize::<ControlMessage, Failure>(archived).map_err(|Failure| ControlError::Decode)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of_each() -> Vec<ControlMessage> {
        let text = |text: &str| text.to_owned();
        let inspect = |question| ControlMessage::InspectRequest { question };
        let result = |outcome| ControlMessage::JsonResult { outcome };
        vec![
            ControlMessage::Welcome(Welcome {
                version: 1,
                cluster_name: text("a cluster with a long name"),
                pod_uid: u128::MAX - 1,
                role: text("default"),
                entity_hash_name: text("xxh3-64"),
                hash_seed: 2,
                number_of_shards: 1024,
                core: 3,
                cores: 4,
                frame_bytes_max: 1 << 20,
                credit_bytes: 5,
                schemas: vec![(6, 7), (u32::MAX, u64::MAX)],
            }),
            ControlMessage::Introduce(Introduce {
                cluster_name: text(""),
                uid: 1,
                role: text(""),
                version: text("1.2.3"),
                is_pod: true,
                schemas: vec![],
            }),
            ControlMessage::Refused { reason: text("another cluster; set `cluster` to the same name on both sides") },
            ControlMessage::TableRequest { role: text("map"), known_epoch: u64::MAX },
            ControlMessage::Table(Table {
                role: text("map"),
                epoch: 8,
                hash_seed: 9,
                number_of_shards: 2,
                pods: vec![PodEntry {
                    uid: 10,
                    address: text("[::1]:4100"),
                    cores: 11,
                    version: text("1"),
                    role: text("map"),
                }],
                owners: vec![OwnerEntry { pod: 0, core: 12, token: 13 }, OwnerEntry { pod: NO_POD, core: 0, token: 0 }],
            }),
            ControlMessage::Ping { nonce: 14 },
            ControlMessage::Pong { nonce: 15 },
            inspect(Inspect::Pods),
            inspect(Inspect::Shards),
            inspect(Inspect::Entities { entity_type: text("guild"), limit: 16 }),
            inspect(Inspect::Locate { entity_type: text("guild"), entity_id: text("ä long enough id") }),
            inspect(Inspect::Counters),
            ControlMessage::InspectReply { json: text("{\"long enough\": true}") },
            ControlMessage::JsonCall(JsonCall {
                entity_type: text("guild"),
                entity_id: text("g1"),
                method: text("join"),
                body: text("{\"user\":\"ann\"}"),
                timeout_ms: 17,
            }),
            result(JsonOutcome::Reply(text("[]"))),
            result(JsonOutcome::Declared(text("{\"max\":3}"))),
            result(JsonOutcome::Failed { code: 18, text: text("try again later") }),
            ControlMessage::Goodbye { reason: text("drained") },
        ]
    }

    /// Came later than the others.
    fn orders() -> Vec<ControlMessage> {
        let pod = || "10.0.0.7:7400".to_owned();
        let (cordon, drain) = (Inspect::Cordon { pod: pod() }, Inspect::Drain { pod: pod() });
        let (uncordon, rebalance) = (Inspect::Uncordon { pod: pod() }, Inspect::Rebalance { dry_run: true });
        let orders = [cordon, drain, uncordon, rebalance];
        orders.into_iter().map(|question| ControlMessage::InspectRequest { question }).collect()
    }

    fn lanes() -> ControlMessage {
        ControlMessage::Lanes(LaneLimits {
            frame_bytes_max: 1 << 20,
            body_bytes_max: 16 << 20,
            streams_credit_bytes: 3,
            bulk_credit_bytes: u32::MAX,
        })
    }

    fn encoded(message: &ControlMessage) -> Vec<u8> {
        let mut body = Vec::new();
        encode_control(message, &mut body).unwrap();
        body
    }

    #[test]
    fn every_message_comes_back_as_it_was_wherever_it_lies() {
        for message in one_of_each().into_iter().chain(orders()).chain([lanes()]) {
            for offset in 0..4 {
                let mut bytes = vec![0xff; offset];
                encode_control(&message, &mut bytes).unwrap();
                assert_eq!(decode_control(&bytes[offset..]).as_ref(), Ok(&message));
            }
        }
    }

    #[test]
    fn the_format_never_changes_within_a_version() {
        // One hash over all messages: if it differs, the order or type of a variant or field has changed, and older
        // peers no longer understand this build.
        let all: Vec<u8> = one_of_each().iter().flat_map(encoded).collect();
        assert_eq!((all.len(), crc32c::crc32c(&all)), (1613, 3_182_309_837));
        let all: Vec<u8> = orders().iter().flat_map(encoded).collect();
        assert_eq!((all.len(), crc32c::crc32c(&all)), (339, 2_020_557_047));
        let lanes = encoded(&lanes());
        assert_eq!((lanes.len(), crc32c::crc32c(&lanes)), (75, 2_514_356_892));
    }

    #[test]
    fn a_body_cut_short_or_changed_is_an_error_or_some_message_and_never_a_panic() {
        for message in one_of_each().into_iter().chain(orders()).chain([lanes()]) {
            let body = encoded(&message);
            let mut refused = 0;
            for at in 0..body.len() {
                refused += usize::from(decode_control(&body[..at]).is_err());
                for value in if cfg!(miri) { &[0xff][..] } else { &[0, 1, 0x7f, 0x80, 0xff] } {
                    let mut changed = body.clone();
                    changed[at] = *value;
                    let _ = decode_control(&changed);
                }
            }
            assert!(refused > 0);
        }
        assert_eq!(decode_control(&[]), Err(ControlError::Decode));
    }
}
