//! How things are measured: a cheap clock, histograms, processor time and memory, and when a round has to be repeated.
//! Used by the floors, the drive, the rounds and the report.

pub mod clock;
mod latencies;
mod processor;
mod usage;

use core::time::Duration;

use crate::schedule::Tally;

pub use clock::Clock;
pub use latencies::{Latencies, Percentiles, Sampler, Step};
pub use processor::{check_processor, current_processor, pin_to};
pub use usage::{Mark, Usage, Watch, resident_bytes};

/// Longest [`RoundLength::settling_time`]: several times what the machine's counters take to read.
const SETTLING_MAX: Duration = Duration::from_millis(25);

/// How long one round takes: an unmeasured part, then the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundLength {
    /// Unmeasured time.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
}

impl RoundLength {
    /// Between the end of the warm-up of an open loop and the first latency that counts. Reading the counters of the
    /// machine there takes milliseconds on the core that sends: all that is due meanwhile waits for it, and what stands
    /// in line behind that.
    pub fn settling_time(&self) -> Duration {
        SETTLING_MAX.min(self.duration / 10)
    }
}

/// What one round measured.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Operations completed in the measured time.
    pub operations: u64,
    /// Operations that failed.
    pub errors: u64,
    /// The measured time.
    pub elapsed: Duration,
    /// Latencies, of all operations or of a sample of them; may be empty (tells).
    pub latencies: Latencies,
    /// Processor time of all processes that took part, and what disturbed them.
    pub usage: Usage,
    /// Time in turns of the loop that did work, if the subject counts it: under spinning, processor time says nothing.
    pub work_ns: Option<u64>,
    /// The longest time without an operation, where that matters (starts).
    pub longest_pause_ns: Option<u64>,
    /// Memory of one idle entity, if this round measured it.
    pub bytes_per_entity: Option<f64>,
    /// The sends of an open loop.
    pub sends: Option<Tally>,
    /// Time of an operation of a floor that moves the same bytes and tells no messages apart.
    pub byte_pump_ns: Option<f64>,
}

impl Sample {
    /// A sample with the obligatory parts; the rest is empty.
    pub fn new(operations: u64, elapsed: Duration, latencies: Latencies, usage: Usage) -> Self {
        Self {
            operations,
            errors: 0,
            elapsed,
            latencies,
            usage,
            work_ns: None,
            longest_pause_ns: None,
            bytes_per_entity: None,
            sends: None,
            byte_pump_ns: None,
        }
    }

    /// Operations per second.
    pub fn operations_per_second(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.operations as f64 / self.elapsed.as_secs_f64() }
    }

    /// Time of one operation at this throughput.
    pub fn ns_per_operation(&self) -> f64 {
        if self.operations == 0 { f64::INFINITY } else { self.elapsed.as_nanos() as f64 / self.operations as f64 }
    }

    /// Processor time of one operation, over all processes.
    pub fn cpu_ns_per_operation(&self) -> f64 {
        if self.operations == 0 { f64::INFINITY } else { self.usage.cpu_ns as f64 / self.operations as f64 }
    }
}
