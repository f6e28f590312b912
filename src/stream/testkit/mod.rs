//! For tests of stages: an island that is wired by hand, run step by step, and watched at its ends by probes.
//!
//! Used by the tests of the engine and by users for stages of their own. Nothing here has a clock or a thread: time is
//! what the test says, and the island runs when the test acts. Invariant: what a test does from outside is queued, as it
//! is for callbacks and timers, so it takes effect when the island runs.
//!
//! ```
//! use atoll::stream::stage::elementwise::{Elementwise, ElementwiseStage, Step};
//! use atoll::stream::stage::FlowShape;
//! use atoll::stream::testkit::InterpreterBench;
//!
//! /// The stage to be tested.
//! struct Double;
//! impl Elementwise for Double {
//!     type In = u64;
//!     type Out = u64;
//!     fn step(&mut self, element: u64) -> Step<u64> {
//!         Step::Emit(element * 2)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut bench = InterpreterBench::new();
//! let source = bench.upstream::<u64>("source");
//! let sink = bench.downstream::<u64>("sink");
//! let double = bench.stage("double", FlowShape::new(), |ports, _| ElementwiseStage::new(ports, Double));
//! bench.connect(source.outlet(), double.inlet(0));
//! bench.connect(double.outlet(0), sink.inlet());
//! bench.start()?;
//!
//! sink.pull(&mut bench)?;
//! assert_eq!(bench.events_text(), "Request source");
//! source.push(&mut bench, 21)?;
//! assert_eq!(bench.events_text(), "Next sink 42");
//! // What the rules do not allow is an error that names stage and port.
//! assert!(source.push(&mut bench, 1).is_err());
//! source.complete(&mut bench);
//! assert_eq!(bench.events_text(), "Complete sink");
//! assert!(bench.is_completed());
//! # Ok(())
//! # }
//! ```

mod bench;
mod event;
mod probe;

pub use bench::{EVENTS_MAX, InletOf, InterpreterBench, OutletOf, StageHandle};
pub use event::ProbeEvent;
pub use probe::{DownstreamProbe, UpstreamProbe};
