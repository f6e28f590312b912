//! Every bound of the system, in one place, with its reason.

use core::time::Duration;

/// Longest entity id in bytes: its length is one byte on the wire.
pub const ENTITY_ID_BYTES_MAX: usize = 255;
/// Longest name of a role, an entity type or a message.
pub const NAME_BYTES_MAX: usize = 64;
/// Longest call chain that a frame carries; a cycle longer than this ends by its timeout.
pub const CALL_CHAIN_MAX: usize = 8;
/// Largest frame by default: bounds what one peer can make us buffer.
pub const FRAME_BYTES_MAX: usize = 1 << 20;
/// How often a message may be passed on by pods that no longer own its shard.
pub const HOPS_MAX: u8 = 2;
/// Shards of a role by default: ten times the hundred pods of a large installation.
pub const NUMBER_OF_SHARDS: u32 = 1024;
/// Most shards of a role: the table of a core stays within a megabyte.
pub const NUMBER_OF_SHARDS_MAX: u32 = 65_536;
/// Messages that wait at or run in one entity, by default.
pub const MAILBOX_CAPACITY: u32 = 4096;
/// Elements of one cross-core queue: 128 KiB for each pair of cores.
pub const MESH_CAPACITY: usize = 1024;
/// Elements that one turn takes from one peer core, so that no core starves the others.
pub const MESH_BATCH: usize = 64;
/// Messages from foreign threads that wait for a core.
pub const FOREIGN_INBOX_CAPACITY: usize = 4096;
/// Completions that one turn takes from the ring.
pub const COMPLETIONS_PER_TURN: usize = 64;
/// Handlers that may run inside one another's poll: bounds the stack.
pub const INLINE_DEPTH_MAX: u32 = 16;
/// Asks that may complete inside one poll of a task before it has to yield once.
pub const TURN_BUDGET: u32 = 256;
/// Asks of one link that wait for their reply.
pub const LINK_IN_FLIGHT_MAX: u32 = 65_536;
/// Bytes that one link buffers for its peer before asks get back-pressure.
pub const LINK_SEND_BYTES_MAX: usize = 8 << 20;
/// How long a link lets requests gather after a send while others of it are unanswered. A send takes the processor for
/// 3 to 6 µs whatever it carries, and on loopback those of both sides delay one another: with a send every 8 µs a reply
/// takes 30 µs, with one every 12 µs it takes 20.
pub const LINK_GATHER: Duration = Duration::from_micros(12);
/// Bytes of requests that do not wait for more: some eight small ones, which cost more than their send.
pub const LINK_GATHER_BYTES: usize = 1 << 10;
/// How long a peer may take to say hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Connections whose hello is awaited; further ones wait in the kernel's backlog.
pub const HELLO_PENDING_MAX: usize = 1024;
/// Links of one core.
pub const LINKS_MAX: usize = 16_384;
/// Time to wait for a reply, by default.
pub const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// Idle time after which an entity stops, by default.
pub const ENTITY_MAX_IDLE: Duration = Duration::from_secs(60);
/// Time that a stopping entity has for the messages it received, by default.
pub const ENTITY_TERMINATION_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes of requests that a peer may send on the lane of messages before it gets new credit: about a thousand messages of
/// a kilobyte.
pub const LINK_CREDIT_BYTES: u32 = 4 << 20;
/// As [`LINK_CREDIT_BYTES`], on the lane of streams: what fills a connection of 1 Gbit/s that takes 8 ms there and back.
pub const LINK_STREAMS_CREDIT_BYTES: u32 = 1 << 20;
/// As [`LINK_CREDIT_BYTES`], on the lane of large bodies: two of the largest, so that one travels while one is handled.
pub const LINK_BULK_CREDIT_BYTES: u32 = 2 * LINK_BODY_BYTES_MAX;
/// Largest body by default: what one unfinished body may cost its receiver. Larger things are better sent as a stream.
pub const LINK_BODY_BYTES_MAX: u32 = 16 << 20;
/// Bodies above this travel on the lane of large bodies: to copy one takes as long as the send that it shares with small
/// messages costs anyway, some microseconds.
pub const BULK_BODY_BYTES: usize = 16 << 10;
/// Bytes of a large body in one frame: some ten microseconds of copying and checksum on either side, and few enough frames
/// that their headers do not count.
pub const BULK_PART_BYTES: usize = 64 << 10;
/// Bytes of large bodies that go into one send, ahead of what small messages come to it next: two parts, so that a large
/// body does not need a send for each.
pub const BULK_SEND_BYTES: usize = 2 * BULK_PART_BYTES;
/// How long the next part of a body may take: as long as who waits for it waits by default.
pub const BODY_PART_TIMEOUT: Duration = SEND_TIMEOUT;
/// Questions about the pod that one link may have unanswered: an answer may have a megabyte, and one thread gives them.
pub const LINK_QUESTIONS_MAX: u32 = 64;
/// How much longer than its sender an owner waits before it ends a handler: the sender's own timer comes first, and the
/// cancellation that it sends has this long to arrive.
pub const CALLER_GRACE: Duration = Duration::from_millis(250);
/// Longest pause before a call in JSON that was refused is sent again, unless a newer table comes first: about what a
/// planned move takes.
pub const REFUSED_CALL_PAUSE: Duration = Duration::from_millis(20);
/// Pause before a peer that could not be reached is dialed again.
pub const REDIAL_PAUSE: Duration = Duration::from_millis(200);
/// Requests that wait at a core for a shard on its way, or for the core's lease: as many as one link may have.
pub const HELD_MAX: usize = 65_536;
/// Bytes of such requests: what sixteen links may send without an answer.
pub const HELD_BYTES_MAX: usize = 64 << 20;
/// How long the link to a pod that has left stays open for its last answers.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(1);
/// How often a frozen core looks whether it may serve again.
pub const FROZEN_LOOK: Duration = Duration::from_millis(5);
/// Pods that a client keeps links to, so that it hears of new tables when one of them is lost.
pub const CLIENT_LINKS_MIN: usize = 2;

/// Blocks of another core's large messages that wait for an answer to go home with: as many as a batch of messages can
/// leave behind before the first answer goes back.
pub const HOME_BLOCKS_MAX: usize = 64;
