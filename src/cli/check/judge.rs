//! Compares the facts of a machine with what a configuration needs. Pure.

use super::facts::{HostFacts, Limit};
use super::{Finding, Severity};
use crate::pod::config::{Config, Spin, format_bytes};

/// Oldest kernel whose ring has all that the reactor needs.
const KERNEL: (u32, u32) = (6, 1);
/// Locked memory of one core: its rings and registered buffers.
const LOCKED_BYTES_PER_CORE: u64 = 512 << 10;
/// Files that one core has open without any connection, with room for its store and logs.
const OPEN_FILES_PER_CORE: u64 = 64;
/// Open files that let a pod serve thousands of clients.
const OPEN_FILES_COMFORTABLE: u64 = 16_384;
/// Clocks that are read without a system call.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// Every finding, in the order of the report: what keeps a pod from starting comes first.
#[must_use]
pub fn judge(facts: &HostFacts, config: &Config) -> Vec<Finding> {
    let cores = config.pod.cores.count(facts.cores_available);
    vec![
        kernel(facts),
        io_uring(facts),
        receive(facts),
        incremental_buffers(facts),
        locked_memory(facts, cores),
        open_files(facts, cores),
        available_cores(facts, config, cores),
        cpu_quota(facts, config, cores),
        clock(facts),
        congestion(facts),
        information("huge pages", facts.huge_pages.as_deref()),
        information("cpu governor", facts.governor.as_deref()),
    ]
}

fn finding(name: &'static str, severity: Severity, found: impl Into<String>, required: impl Into<String>) -> Finding {
    Finding { name, severity, found: found.into(), required: required.into(), fix: None }
}

fn fix(mut finding: Finding, text: impl Into<String>) -> Finding {
    finding.fix = Some(text.into());
    finding
}

fn information(name: &'static str, found: Option<&str>) -> Finding {
    finding(name, Severity::Information, found.unwrap_or("unknown"), "")
}

/// Major and minor number of a release such as `6.12.5-amd64`.
fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel(facts: &HostFacts) -> Finding {
    let required = format!("Linux {}.{} or newer", KERNEL.0, KERNEL.1);
    let Some(release) = facts.kernel.as_deref() else {
        return finding("kernel", Severity::Warning, "unknown", required);
    };
    match kernel_version(release) {
        Some(version) if version >= KERNEL => finding("kernel", Severity::Ok, release, required),
        Some(_) => fix(
            finding("kernel", Severity::Fatal, release, required),
            "install and boot a newer kernel; Debian 12, Ubuntu 24.04, RHEL 10 and newer have one",
        ),
        None => finding("kernel", Severity::Warning, release, required),
    }
}

fn io_uring(facts: &HostFacts) -> Finding {
    let required = "a ring with SINGLE_ISSUER and DEFER_TASKRUN";
    let refused = |why: String, what: &str| fix(finding("io_uring", Severity::Fatal, why, required), what);
    let Err(error) = facts.ring.setup else {
        return finding("io_uring", Severity::Ok, "works", required);
    };
    match error {
        libc::ENOSYS => refused(
            "the kernel has none (ENOSYS)".to_owned(),
            "run on a Linux kernel built with CONFIG_IO_URING; sandboxes such as gVisor do not have it",
        ),
        libc::EPERM | libc::EACCES => match facts.io_uring_disabled {
            Some(level @ 1..) => refused(
                format!("forbidden by the sysctl kernel.io_uring_disabled = {level}"),
                "sudo sysctl -w kernel.io_uring_disabled=0",
            ),
            _ if facts.seccomp_filter => refused(
                "forbidden by the seccomp filter of this container or service".to_owned(),
                "docker run --security-opt seccomp=unconfined … (or a profile that allows io_uring_setup, io_uring_enter and io_uring_register)",
            ),
            _ => refused(
                "forbidden (EPERM)".to_owned(),
                "allow io_uring_setup, io_uring_enter and io_uring_register in the security module (SELinux, AppArmor) of this process",
            ),
        },
        libc::ENOMEM => refused(
            "not enough locked memory (ENOMEM)".to_owned(),
            "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1)",
        ),
        libc::EMFILE | libc::ENFILE => {
            refused("too many open files".to_owned(), "ulimit -n 65536 (systemd: LimitNOFILE=65536)")
        }
        libc::EINVAL if facts.ring.plain_setup.is_ok() => {
            refused("the kernel does not know these flags (EINVAL)".to_owned(), "boot Linux 6.1 or newer")
        }
        error => refused(
            format!("refused: {}", std::io::Error::from_raw_os_error(error)),
            "look at `dmesg` and at the security settings of this process",
        ),
    }
}

fn receive(facts: &HostFacts) -> Finding {
    let required = "a receive into provided buffers that stays armed";
    match (facts.ring.setup, facts.ring.multishot_receive) {
        (Err(_), _) => finding("multishot receive", Severity::Information, "not tried without a ring", required),
        (_, Ok(())) => finding("multishot receive", Severity::Ok, "works", required),
        (_, Err(libc::ENOMEM)) => fix(
            finding("multishot receive", Severity::Fatal, "not enough locked memory (ENOMEM)", required),
            "ulimit -l unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1)",
        ),
        (_, Err(error)) => fix(
            finding(
                "multishot receive",
                Severity::Fatal,
                format!("failed: {}", std::io::Error::from_raw_os_error(error)),
                required,
            ),
            "boot Linux 6.1 or newer, and allow io_uring_register where seccomp filters it",
        ),
    }
}

fn incremental_buffers(facts: &HostFacts) -> Finding {
    let required = "Linux 6.12 or newer has them; without them frames that are split are copied";
    let found = if facts.ring.incremental_buffers { "work" } else { "not available" };
    finding("incremental buffers", Severity::Information, found, required)
}

fn show_limit(limit: Option<u64>, show: impl Fn(u64) -> String) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), show)
}

fn show_bytes(bytes: u64) -> String {
    usize::try_from(bytes).map_or_else(|_| bytes.to_string(), format_bytes)
}

/// Whether a limit allows what is needed; no limit allows everything.
fn allows(limit: Option<u64>, needed: u64) -> bool {
    limit.is_none_or(|limit| limit >= needed)
}

fn locked_memory(facts: &HostFacts, cores: usize) -> Finding {
    const NAME: &str = "locked memory";
    // Who may lock memory anyway is not counted, but each core's executor still looks at the limit.
    let needed = if facts.may_lock_memory { LOCKED_BYTES_PER_CORE } else { LOCKED_BYTES_PER_CORE * cores as u64 };
    let required = if facts.may_lock_memory {
        format!("{} or more", show_bytes(needed))
    } else {
        format!("{} or more: {} for each of {cores} cores", show_bytes(needed), show_bytes(LOCKED_BYTES_PER_CORE))
    };
    let Some(limit) = facts.locked_memory else {
        return finding(NAME, Severity::Warning, "unknown", required);
    };
    let found = show_limit(limit.soft, show_bytes);
    if allows(limit.soft, needed) {
        return finding(NAME, Severity::Ok, found, required);
    }
    let command = if allows(limit.hard, needed) {
        format!("ulimit -l {}", needed >> 10)
    } else {
        "sudo prlimit --pid $$ --memlock=unlimited (systemd: LimitMEMLOCK=infinity; docker: --ulimit memlock=-1)"
            .to_owned()
    };
    fix(finding(NAME, Severity::Fatal, found, required), command)
}

fn open_files(facts: &HostFacts, cores: usize) -> Finding {
    const NAME: &str = "open files";
    let needed = OPEN_FILES_PER_CORE * (cores as u64 + 1);
    let comfortable = OPEN_FILES_COMFORTABLE.max(needed);
    let required = format!("{comfortable} or more, one for each connection");
    let Some(limit @ Limit { soft, hard }) = facts.open_files else {
        return finding(NAME, Severity::Warning, "unknown", required);
    };
    let found = show_limit(limit.soft, |files| files.to_string());
    if allows(soft, comfortable) {
        return finding(NAME, Severity::Ok, found, required);
    }
    let severity = if allows(soft, needed) { Severity::Warning } else { Severity::Fatal };
    let command = if allows(hard, comfortable) {
        format!("ulimit -n {comfortable} (systemd: LimitNOFILE={comfortable})")
    } else {
        format!(
            "sudo prlimit --pid $$ --nofile={comfortable} (systemd: LimitNOFILE={comfortable}; docker: --ulimit nofile={comfortable})"
        )
    };
    fix(finding(NAME, severity, found, required), command)
}

fn available_cores(facts: &HostFacts, config: &Config, cores: usize) -> Finding {
    let available = facts.cores_available;
    let found = format!("{available} available, {cores} configured");
    if cores <= available {
        return finding("cores", Severity::Ok, found, "as many as configured");
    }
    let severity = if config.pod.pin { Severity::Fatal } else { Severity::Warning };
    let text = format!("use --cores {available}, or widen the CPU set of this process (taskset, docker --cpuset-cpus)");
    fix(finding("cores", severity, found, "as many as configured"), text)
}

fn cpu_quota(facts: &HostFacts, config: &Config, cores: usize) -> Finding {
    const NAME: &str = "cpu quota";
    let required = format!("none, or {cores}.00 cores: a core that is cut off stalls everything it serves");
    let Some(percent) = facts.cpu_quota_percent else {
        return finding(NAME, Severity::Ok, "none", required);
    };
    let found = format!("{}.{:02} cores", percent / 100, percent % 100);
    // Cores that sleep when idle may well stay below a smaller quota.
    let spins = config.event_loop.spin != Spin::For(core::time::Duration::ZERO);
    if percent >= 100 * cores as u64 || !spins {
        return finding(NAME, Severity::Ok, found, required);
    }
    fix(finding(NAME, Severity::Warning, found, required), "raise the CPU limit of the container, or use --spin 0us")
}

fn clock(facts: &HostFacts) -> Finding {
    let required = "one that is read without a system call, such as tsc";
    let Some(clock) = facts.clock.as_deref() else { return information("clock", None) };
    if FAST_CLOCKS.contains(&clock) {
        return finding("clock", Severity::Ok, clock, required);
    }
    let slow = finding("clock", Severity::Warning, clock, required);
    let has_tsc = facts.clocks_available.as_deref().is_some_and(|clocks| clocks.split(' ').any(|clock| clock == "tsc"));
    if has_tsc {
        fix(slow, "echo tsc | sudo tee /sys/devices/system/clocksource/clocksource0/current_clocksource")
    } else {
        fix(slow, "boot with tsc=reliable, or run on a host that offers its guests a stable TSC")
    }
}

fn congestion(facts: &HostFacts) -> Finding {
    const NAME: &str = "tcp congestion";
    let required = "cubic or reno between machines of one rack";
    let Some(congestion) = facts.congestion.as_deref() else { return information(NAME, None) };
    if !congestion.starts_with("bbr") {
        return finding(NAME, Severity::Ok, congestion, required);
    }
    let available = facts.congestion_available.as_deref().unwrap_or_default();
    let better = ["cubic", "reno"].into_iter().find(|name| available.split(' ').any(|known| known == *name));
    let slow = finding(NAME, Severity::Warning, format!("{congestion}, which paces short messages"), required);
    fix(slow, format!("sudo sysctl -w net.ipv4.tcp_congestion_control={}", better.unwrap_or("reno")))
}

#[cfg(test)]
mod tests {
    use super::super::ring::RingFacts;
    use super::*;
    use crate::pod::config::Cores;

    fn fit_host() -> HostFacts {
        HostFacts {
            kernel: Some("6.12.5-amd64".to_owned()),
            ring: RingFacts {
                setup: Ok(()),
                plain_setup: Ok(()),
                multishot_receive: Ok(()),
                incremental_buffers: true,
            },
            io_uring_disabled: Some(0),
            seccomp_filter: false,
            may_lock_memory: false,
            locked_memory: Some(Limit::UNLIMITED),
            open_files: Some(Limit { soft: Some(65_536), hard: None }),
            cores_available: 4,
            cpu_quota_percent: None,
            clock: Some("tsc".to_owned()),
            clocks_available: Some("tsc hpet".to_owned()),
            congestion: Some("cubic".to_owned()),
            congestion_available: Some("reno cubic".to_owned()),
            huge_pages: Some("madvise".to_owned()),
            governor: None,
        }
    }

    /// The findings that are not as they should be.
    fn wrong(facts: &HostFacts, config: &Config) -> Vec<(&'static str, Severity, String)> {
        judge(facts, config)
            .into_iter()
            .filter(|finding| finding.severity >= Severity::Warning)
            .map(|finding| (finding.name, finding.severity, finding.fix.unwrap_or_default()))
            .collect()
    }

    fn only(change: impl FnOnce(&mut HostFacts)) -> (&'static str, Severity, String) {
        let mut facts = fit_host();
        change(&mut facts);
        let mut wrong = wrong(&facts, &Config::default());
        assert_eq!(wrong.len(), 1, "{wrong:?}");
        wrong.remove(0)
    }

    #[test]
    fn a_fit_machine_has_nothing_to_change() {
        assert_eq!(wrong(&fit_host(), &Config::default()), []);
        assert_eq!(wrong(&fit_host(), &Config::dev()), []);
    }

    #[test]
    fn an_old_kernel_is_fatal() {
        for (release, fatal) in [("5.15.0-91-generic", true), ("6.0.19", true), ("6.1.0", false), ("10.0", false)] {
            let mut facts = fit_host();
            facts.kernel = Some(release.to_owned());
            assert_eq!(!wrong(&facts, &Config::default()).is_empty(), fatal, "{release}");
        }
    }

    #[test]
    fn each_reason_why_a_ring_is_refused_has_its_own_fix() {
        let refused = |error: i32, sysctl: u32, seccomp: bool, plain: Result<(), i32>| {
            let (name, severity, fix) = only(|facts| {
                facts.ring = RingFacts {
                    setup: Err(error),
                    plain_setup: plain,
                    multishot_receive: Err(error),
                    incremental_buffers: false,
                };
                facts.io_uring_disabled = Some(sysctl);
                facts.seccomp_filter = seccomp;
            });
            assert_eq!((name, severity), ("io_uring", Severity::Fatal));
            fix
        };
        assert!(refused(libc::EPERM, 2, true, Err(libc::EPERM)).contains("sysctl -w kernel.io_uring_disabled=0"));
        assert!(refused(libc::EPERM, 0, true, Err(libc::EPERM)).contains("seccomp=unconfined"));
        assert!(refused(libc::EPERM, 0, false, Err(libc::EPERM)).contains("SELinux"));
        assert!(refused(libc::ENOSYS, 0, false, Err(libc::ENOSYS)).contains("CONFIG_IO_URING"));
        assert!(refused(libc::ENOMEM, 0, false, Err(libc::ENOMEM)).contains("ulimit -l"));
        assert!(refused(libc::EINVAL, 0, false, Ok(())).contains("6.1"));
        assert!(refused(libc::EIO, 0, false, Err(libc::EIO)).contains("dmesg"));
    }

    #[test]
    fn locked_memory_is_needed_for_each_core_unless_the_process_may_lock_anyway() {
        let limited = |kib: u64, hard: Option<u64>, may: bool| {
            let mut facts = fit_host();
            facts.locked_memory = Some(Limit { soft: Some(kib << 10), hard });
            facts.may_lock_memory = may;
            wrong(&facts, &Config::default()).pop().map(|(_, severity, fix)| (severity, fix))
        };
        assert_eq!(limited(2048, Some(2 << 20), false), None);
        let (severity, fix) = limited(2047, None, false).unwrap();
        assert_eq!((severity, fix.as_str()), (Severity::Fatal, "ulimit -l 2048"));
        assert!(limited(64, Some(64 << 10), false).unwrap().1.contains("prlimit"));
        assert_eq!(limited(512, Some(512 << 10), true), None);
        assert!(limited(511, Some(511 << 10), true).is_some());
    }

    #[test]
    fn few_open_files_are_a_warning_and_too_few_are_fatal() {
        let files = |soft: u64| only(|facts| facts.open_files = Some(Limit { soft: Some(soft), hard: None })).1;
        assert_eq!(files(1024), Severity::Warning);
        assert_eq!(files(256), Severity::Fatal);
    }

    #[test]
    fn more_cores_than_available_are_fatal_when_pinned() {
        let mut config = Config::default();
        config.pod.cores = Cores::Count(8);
        assert_eq!(wrong(&fit_host(), &config)[0].1, Severity::Fatal);
        config.pod.pin = false;
        assert_eq!(wrong(&fit_host(), &config)[0].1, Severity::Warning);
    }

    #[test]
    fn what_costs_speed_is_a_warning() {
        let (name, severity, fix) = only(|facts| facts.congestion = Some("bbr".to_owned()));
        assert_eq!((name, severity), ("tcp congestion", Severity::Warning));
        assert!(fix.ends_with("tcp_congestion_control=cubic"));
        let (name, severity, fix) = only(|facts| facts.clock = Some("hpet".to_owned()));
        assert_eq!((name, severity), ("clock", Severity::Warning));
        assert!(fix.starts_with("echo tsc"));
        assert_eq!(only(|facts| facts.cpu_quota_percent = Some(150)).0, "cpu quota");
    }

    #[test]
    fn what_cannot_be_read_is_never_fatal() {
        let mut facts = fit_host();
        (facts.kernel, facts.locked_memory, facts.open_files, facts.clock, facts.congestion) =
            (None, None, None, None, None);
        assert!(wrong(&facts, &Config::default()).iter().all(|(_, severity, _)| *severity == Severity::Warning));
    }
}
