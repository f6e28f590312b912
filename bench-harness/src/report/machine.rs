//! What the figures depend on besides the code.

use serde::{Deserialize, Serialize};

use crate::measure::Clock;

/// The machine that the figures were measured on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Whether it is a virtual machine, as far as the processor tells.
    pub virtual_machine: bool,
    /// The kernel's release.
    pub kernel: String,
    /// What one reading of our clock costs; latencies contain about one.
    pub clock_ns: f64,
    /// Whether the program was built with optimisation.
    pub optimised: bool,
}

impl Machine {
    /// This machine.
    pub fn read() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        };
        Self {
            processor: field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            virtual_machine: field("flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
            clock_ns: Clock::get().read_cost_ns(),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// One line for the head of a table.
    pub fn line(&self) -> String {
        let kind = if self.virtual_machine { "virtual" } else { "physical" };
        format!(
            "{} × {} ({kind}), Linux {}, clock {:.0} ns{}",
            self.processors,
            self.processor,
            self.kernel,
            self.clock_ns,
            if self.optimised { "" } else { ". BUILT WITHOUT OPTIMISATION: use cargo run --release" }
        )
    }
}
