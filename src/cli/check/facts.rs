//! What this machine is, read from `/proc` and `/sys`; judges nothing. A fact that cannot be read is `None`.

use std::fs;

use super::ring::{self, RingFacts};
use crate::pod::config::cores_available;

/// A resource limit of the process; `None` is unlimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What counts.
    pub soft: Option<u64>,
    /// How far the process may raise it.
    pub hard: Option<u64>,
}

impl Limit {
    /// No limit at all.
    pub const UNLIMITED: Limit = Limit { soft: None, hard: None };
}

/// Everything that is judged.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Release of the kernel, such as `6.12.5-amd64`.
    pub kernel: Option<String>,
    /// What a ring can do here.
    pub ring: RingFacts,
    /// The sysctl `kernel.io_uring_disabled`: 0 for all, 1 for a group, 2 for nobody.
    pub io_uring_disabled: Option<u32>,
    /// A seccomp filter is on this process.
    pub seccomp_filter: bool,
    /// The process may lock memory beyond its limit.
    pub may_lock_memory: bool,
    /// Bytes that may be locked.
    pub locked_memory: Option<Limit>,
    /// Files and sockets that may be open.
    pub open_files: Option<Limit>,
    /// Cores that the process may run on.
    pub cores_available: usize,
    /// Share of the machine that the control group grants, in hundredths of a core; `None` is unlimited.
    pub cpu_quota_percent: Option<u64>,
    /// The clock in use.
    pub clock: Option<String>,
    /// The clocks there are.
    pub clocks_available: Option<String>,
    /// Default congestion control of TCP.
    pub congestion: Option<String>,
    /// Congestion controls that a process may choose.
    pub congestion_available: Option<String>,
    /// Use of transparent huge pages.
    pub huge_pages: Option<String>,
    /// How the frequency of the first core is chosen.
    pub governor: Option<String>,
}

impl HostFacts {
    /// Looks at this machine. Makes and closes one small ring.
    #[must_use]
    pub fn gather() -> HostFacts {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
        HostFacts {
            kernel: line("/proc/sys/kernel/osrelease"),
            ring: ring::probe(),
            io_uring_disabled: line("/proc/sys/kernel/io_uring_disabled").and_then(|text| text.parse().ok()),
            seccomp_filter: status_field(&status, "Seccomp") == Some("2"),
            may_lock_memory: status_field(&status, "CapEff").is_some_and(may_lock_memory),
            locked_memory: limit(&limits, "Max locked memory"),
            open_files: limit(&limits, "Max open files"),
            cores_available: cores_available(),
            cpu_quota_percent: line("/sys/fs/cgroup/cpu.max").and_then(|text| quota_percent(&text)),
            clock: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clocks_available: line("/sys/devices/system/clocksource/clocksource0/available_clocksource"),
            congestion: line("/proc/sys/net/ipv4/tcp_congestion_control"),
            congestion_available: line("/proc/sys/net/ipv4/tcp_available_congestion_control"),
            huge_pages: line("/sys/kernel/mm/transparent_hugepage/enabled").and_then(|text| chosen(&text)),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        }
    }
}

fn line(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn status_field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Whether a capability mask has `CAP_IPC_LOCK`, number 14 in `linux/capability.h`.
fn may_lock_memory(mask: &str) -> bool {
    u64::from_str_radix(mask, 16).is_ok_and(|mask| mask & (1 << 14) != 0)
}

/// The line of a limit in `/proc/self/limits`: name, soft, hard, unit.
fn limit(limits: &str, name: &str) -> Option<Limit> {
    let mut words = limits.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace();
    let mut next = || match words.next()? {
        "unlimited" => Some(None),
        number => number.parse().ok().map(Some),
    };
    Some(Limit { soft: next()?, hard: next()? })
}

/// `cpu.max` has quota and period in microseconds; `max` as quota is none.
fn quota_percent(text: &str) -> Option<u64> {
    let (quota, period) = text.split_once(' ')?;
    let (quota, period): (u64, u64) = (quota.parse().ok()?, period.parse().ok()?);
    quota.checked_mul(100)?.checked_div(period)
}

/// The word in brackets.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_texts_of_the_kernel_are_understood() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max open files            1024                 unlimited            files     \n\
                      Max locked memory         8388608              16777216             bytes     \n";
        assert_eq!(limit(limits, "Max open files"), Some(Limit { soft: Some(1024), hard: None }));
        assert_eq!(limit(limits, "Max locked memory"), Some(Limit { soft: Some(8 << 20), hard: Some(16 << 20) }));
        assert_eq!(limit(limits, "Max wishes"), None);
        assert_eq!(status_field("Seccomp:\t2\nSeccomp_filters:\t1\n", "Seccomp"), Some("2"));
        assert!(may_lock_memory("0000000000004000") && !may_lock_memory("0000000000003fff") && !may_lock_memory("?"));
        assert_eq!(quota_percent("150000 100000"), Some(150));
        assert_eq!(quota_percent("max 100000"), None);
        assert_eq!(quota_percent("1 0"), None);
        assert_eq!(chosen("always [madvise] never"), Some("madvise".to_owned()));
    }
}
