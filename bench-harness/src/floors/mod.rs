//! The floors: what the same work costs when it is written by hand with nothing around it. They are written to be as
//! fast as we can make them, because a slow floor would flatter the subject.
//!
//! | floor | compared with |
//! |---|---|
//! | [`bare_ring`] | remote asks: the same messages, processors and number in flight over two raw io_uring rings |
//! | [`boxed_future`] | one local ask at a time: id lookup, erased entity, boxed handler polled in place |
//! | [`mailbox_loop`] | many local asks, and tells: mailboxes, a run queue, reply cells with wakers, on one thread |
//! | [`spsc_ping_pong`] | cross-core asks: one cache line each way between two spinning threads |
//! | [`entity_start`] | starts: a hash map that takes a new id and its state |

pub mod bare_ring;
pub mod boxed_future;
pub mod entity_start;
pub mod ids;
pub mod mailbox_loop;
mod ring;
pub mod spsc_ping_pong;

use serde::Serialize;

use crate::measure::{Mark, RoundLength, Sample, Usage, Watch, pin_to};
use crate::scenario::{Operation, Pace, Place, Scenario, Setting, Spin};

/// A floor and its parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "name", rename_all = "snake_case")]
pub enum Floor {
    /// Two processes, two raw rings, TCP over loopback.
    BareRing {
        /// Bytes of a request.
        request_bytes: usize,
        /// Bytes of a reply.
        reply_bytes: usize,
        /// Requests in flight, in a closed loop.
        outstanding: u32,
        /// Requests per second, in an open loop.
        rate_per_second: Option<f64>,
        /// Processor of the answering process.
        server_cpu: usize,
        /// Processor of the asking thread.
        client_cpu: usize,
        /// How long both sides spin before they sleep.
        spin: Spin,
    },
    /// Id lookup, erased entity, boxed handler polled in place.
    BoxedFuture {
        /// Entities asked in turn.
        entities: u32,
        /// Body bytes; 0 means a bare number.
        payload_bytes: u32,
        /// Processor of the thread.
        cpu: usize,
    },
    /// Mailboxes, run queue, reply cells; asks.
    MailboxLoop {
        /// Entities asked in turn.
        entities: u32,
        /// Asks in flight.
        outstanding: u32,
        /// Body bytes; 0 means a bare number.
        payload_bytes: u32,
        /// Processor of the thread.
        cpu: usize,
    },
    /// Mailboxes and run queue; tells.
    MailboxLoopTell {
        /// Entities told in turn.
        entities: u32,
        /// Body bytes; 0 means a bare number.
        payload_bytes: u32,
        /// Processor of the thread.
        cpu: usize,
    },
    /// A hash map that takes new ids.
    EntityStart {
        /// Entities started in a round.
        entities: u32,
        /// Processor of the thread.
        cpu: usize,
    },
    /// One cache line each way between two spinning threads.
    SpscPingPong {
        /// Processors of the two threads.
        cpus: [usize; 2],
    },
}

impl Floor {
    /// The floor of a scenario. `frame_bytes` are the bytes of a request and of a reply on the wire.
    pub fn of(scenario: &Scenario, setting: &Setting, frame_bytes: (usize, usize)) -> Self {
        let cpu = setting.pod_cpu;
        let (entities, outstanding, payload_bytes) =
            (scenario.entities, scenario.outstanding(), scenario.payload_bytes);
        match (scenario.place, scenario.operation) {
            (Place::Remote, _) => Self::BareRing {
                request_bytes: frame_bytes.0.max(1),
                // A tell has no reply, but a closed loop needs one: a single byte.
                reply_bytes: frame_bytes.1.max(1),
                outstanding,
                rate_per_second: match scenario.pace {
                    Pace::Open { rate_per_second } => Some(rate_per_second),
                    Pace::Closed { .. } => None,
                },
                server_cpu: setting.pod_cpu,
                client_cpu: setting.client_cpu,
                spin: setting.spin,
            },
            (_, Operation::Start) => Self::EntityStart { entities, cpu },
            (Place::CrossCore, _) => Self::SpscPingPong { cpus: [setting.pod_cpu, setting.client_cpu] },
            (Place::Local, Operation::Tell) => Self::MailboxLoopTell { entities, payload_bytes, cpu },
            (Place::Local, Operation::Ask) if outstanding == 1 => Self::BoxedFuture { entities, payload_bytes, cpu },
            (Place::Local, Operation::Ask) => Self::MailboxLoop { entities, outstanding, payload_bytes, cpu },
        }
    }

    /// The name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Self::BareRing { .. } => "bare ring",
            Self::BoxedFuture { .. } => "boxed future",
            Self::MailboxLoop { .. } => "mailbox loop",
            Self::MailboxLoopTell { .. } => "mailbox loop, tells",
            Self::EntityStart { .. } => "entity start",
            Self::SpscPingPong { .. } => "SPSC ping-pong",
        }
    }

    /// The name with what matters of the parameters.
    pub fn title(&self) -> String {
        match self {
            Self::BareRing { request_bytes, reply_bytes, rate_per_second: Some(rate), .. } => {
                format!("bare ring, {request_bytes}+{reply_bytes} B, {rate:.0} per second")
            }
            Self::BareRing { request_bytes, reply_bytes, outstanding, .. } => {
                format!("bare ring, {request_bytes}+{reply_bytes} B, {outstanding} outstanding")
            }
            Self::BoxedFuture { entities, .. } => format!("boxed future, {entities} entities"),
            Self::MailboxLoop { entities, outstanding, .. } => {
                format!("mailbox loop, {entities} entities, {outstanding} outstanding")
            }
            Self::MailboxLoopTell { entities, .. } => format!("mailbox loop, tells, {entities} entities"),
            Self::EntityStart { entities, .. } => format!("entity start, {entities} entities"),
            Self::SpscPingPong { .. } => "SPSC ping-pong, 1 outstanding".to_owned(),
        }
    }

    /// Runs one round. The thread (or process) that works is pinned and ends with the round, so nothing of the floor
    /// is left to disturb the subject's round.
    pub fn round(&self, length: RoundLength) -> anyhow::Result<Sample> {
        match *self {
            Self::BareRing {
                request_bytes,
                reply_bytes,
                outstanding,
                rate_per_second,
                server_cpu,
                client_cpu,
                spin,
            } => {
                let shape = bare_ring::Shape {
                    request_bytes,
                    reply_bytes,
                    outstanding,
                    rate_per_second,
                    spin,
                    told_apart: true,
                };
                let mut sample = bare_ring::round(&shape, server_cpu, client_cpu, length)?;
                if outstanding > 1 {
                    // A shorter one is enough for a figure that is only printed.
                    let length = RoundLength { warm_up: length.warm_up / 2, duration: length.duration / 4 };
                    let pump = bare_ring::Shape { told_apart: false, ..shape };
                    sample.byte_pump_ns =
                        Some(bare_ring::round(&pump, server_cpu, client_cpu, length)?.ns_per_operation());
                }
                Ok(sample)
            }
            Self::BoxedFuture { entities, payload_bytes, cpu } => {
                on_processor(cpu, move || boxed_future::ask(entities, payload_bytes, length))
            }
            Self::MailboxLoop { entities, outstanding, payload_bytes, cpu } => {
                on_processor(cpu, move || mailbox_loop::ask(entities, outstanding, payload_bytes, length))
            }
            Self::MailboxLoopTell { entities, payload_bytes, cpu } => {
                on_processor(cpu, move || mailbox_loop::tell(entities, payload_bytes, length))
            }
            Self::EntityStart { entities, cpu } => on_processor(cpu, move || entity_start::start(entities)),
            Self::SpscPingPong { cpus } => spsc_ping_pong::round(cpus, length),
        }
    }
}

/// What a floor on one thread measured.
#[derive(Debug)]
pub struct Measured {
    /// Operations completed in the measured time.
    pub operations: u64,
    /// The measured time.
    pub elapsed: core::time::Duration,
    /// A sample of the latencies.
    pub latencies: crate::measure::Latencies,
    /// The longest time without an operation, where that matters.
    pub longest_pause_ns: Option<u64>,
    /// Processor time since the end of the warm-up.
    pub usage: Usage,
}

/// Runs `work` on a new thread pinned to `cpu`.
fn on_processor(
    cpu: usize,
    work: impl FnOnce() -> std::io::Result<Measured> + Send + 'static,
) -> anyhow::Result<Sample> {
    let measured = std::thread::Builder::new()
        .name("floor".into())
        .spawn(move || {
            pin_to(cpu)?;
            work()
        })?
        .join()
        .map_err(|_| anyhow::anyhow!("the floor panicked; its message is above"))??;
    let mut sample = Sample::new(measured.operations, measured.elapsed, measured.latencies, measured.usage);
    sample.longest_pause_ns = measured.longest_pause_ns;
    Ok(sample)
}

/// Marks the usage of this process and the steal of the processor that the calling thread runs on.
fn mark_here() -> std::io::Result<Mark> {
    Mark::now(&Watch { processes: Vec::new(), processors: crate::measure::current_processor().into_iter().collect() })
}
