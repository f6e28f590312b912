//! Processor time, interruptions and memory, read from the kernel before and after a round.
//!
//! A round that others disturbed says nothing: the host took the processor away (steal), or other threads ran on it
//! (involuntary switches, or a busy thread that stood in line). Such rounds are repeated, see [`Usage::disturbed`].
#![allow(unsafe_code)]

use std::io;
use std::time::Instant;

use serde::Serialize;

/// Steal above this share of the watched processors' time spoils a round. /proc/stat counts in 10 ms, so a round of
/// a second cannot be judged finer than 1 %.
const STEAL_SHARE_MAX: f64 = 0.02;
/// Involuntary switches per second above this number spoil a round: each costs some 5 µs, so 200 of them are a
/// thousandth of the time, and the p99.9 of a latency begins to be theirs.
const INVOLUNTARY_PER_SECOND_MAX: f64 = 200.0;
/// A busy thread that stood in line for a processor longer than this share of the time spoils a round.
const WAITED_SHARE_MAX: f64 = 0.02;
/// A thread that used a processor for more than this share of the time is busy: what others wait for is their affair.
const BUSY_SHARE: f64 = 0.2;
/// Length of a tick in /proc/stat and /proc/PID/stat: USER_HZ is 100 on every Linux.
const TICK_NS: u64 = 10_000_000;

/// Whose processor time counts and which processors are watched for steal.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// Other processes that take part; this one always does.
    pub processes: Vec<u32>,
    /// Processors that the participants are pinned to.
    pub processors: Vec<usize>,
}

/// Counters at one moment.
#[derive(Clone, Debug)]
pub struct Mark {
    at: Instant,
    cpu_ns: u64,
    involuntary_switches: u64,
    steal_ns: u64,
    processors: usize,
    threads: Vec<ThreadMark>,
}

/// What the scheduler counted of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ThreadMark {
    process: u32,
    thread: u32,
    ran_ns: u64,
    waited_ns: u64,
}

/// What was used between two marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Usage {
    /// Processor time, user and system, of all participants.
    pub cpu_ns: u64,
    /// How often the kernel took a processor away from a participant.
    pub involuntary_switches: u64,
    /// How long the host ran somebody else on the watched processors.
    pub steal_ns: u64,
    /// How long the busy threads were ready to run and had no processor.
    pub waited_ns: u64,
    /// Time between the marks.
    pub elapsed_ns: u64,
    /// Processors watched.
    pub processors: usize,
}

impl Mark {
    /// Reads the counters now. A process that has ended counts as zero.
    pub fn now(watch: &Watch) -> io::Result<Self> {
        let (mut cpu_ns, mut involuntary_switches) = own_usage();
        let mut threads = thread_marks(std::process::id());
        for process in &watch.processes {
            threads.extend(thread_marks(*process));
            let (cpu, switches) = usage_of(*process);
            cpu_ns += cpu;
            involuntary_switches += switches;
        }
        let steal_ns = steal_ticks(&std::fs::read_to_string("/proc/stat")?, &watch.processors) * TICK_NS;
        let processors = watch.processors.len();
        Ok(Self { at: Instant::now(), cpu_ns, involuntary_switches, steal_ns, processors, threads })
    }

    /// What was used since this mark.
    pub fn until(&self, later: &Self) -> Usage {
        let elapsed_ns = later.at.saturating_duration_since(self.at).as_nanos() as u64;
        Usage {
            waited_ns: busy_wait_ns(&self.threads, &later.threads, elapsed_ns),
            cpu_ns: later.cpu_ns.saturating_sub(self.cpu_ns),
            involuntary_switches: later.involuntary_switches.saturating_sub(self.involuntary_switches),
            steal_ns: later.steal_ns.saturating_sub(self.steal_ns),
            elapsed_ns,
            processors: self.processors,
        }
    }
}

impl Usage {
    /// Whether others disturbed the round so much that it has to be repeated.
    pub fn disturbed(&self) -> bool {
        let seconds = self.elapsed_ns as f64 / 1e9;
        let time = (self.elapsed_ns * self.processors.max(1) as u64) as f64;
        let steal_max = STEAL_SHARE_MAX * time;
        // One tick is the resolution, not a finding.
        (self.steal_ns > TICK_NS && self.steal_ns as f64 > steal_max)
            || self.waited_ns as f64 > WAITED_SHARE_MAX * time
            || (self.involuntary_switches > 20
                && self.involuntary_switches as f64 > INVOLUNTARY_PER_SECOND_MAX * seconds)
    }
}

/// Bytes of this process that are in memory.
pub fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    // SAFETY: sysconf takes a constant and returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    resident_pages(&text)
        .map(|pages| pages * page.max(0) as u64)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm has no second field"))
}

fn resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn own_usage() -> (u64, u64) {
    // SAFETY: rusage is a plain struct of integers, for which all zeros is a valid value.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer is to a live rusage, which the kernel fills; the constant is valid, so it cannot fail.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1_000;
    (ns(usage.ru_utime) + ns(usage.ru_stime), usage.ru_nivcsw.max(0) as u64)
}

/// Processor time and involuntary switches of another process, over its living threads.
fn usage_of(process: u32) -> (u64, u64) {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return (0, 0) };
    let (mut cpu_ns, mut switches) = (0, 0);
    for task in tasks.flatten() {
        let read = |name| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        // schedstat counts nanoseconds; kernels without it leave the 10 ms ticks of stat.
        cpu_ns += schedstat_ns(&read("schedstat"))
            .or_else(|| stat_ticks(&read("stat")).map(|ticks| ticks * TICK_NS))
            .unwrap_or(0);
        switches += involuntary(&read("status"));
    }
    (cpu_ns, switches)
}

fn thread_marks(process: u32) -> Vec<ThreadMark> {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let mark = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(|field| field.parse::<u64>().ok());
        let thread = task.file_name().to_str()?.parse().ok()?;
        Some(ThreadMark { process, thread, ran_ns: fields.next()??, waited_ns: fields.next()?? })
    };
    tasks.flatten().filter_map(mark).collect()
}

/// The time in line of all busy threads, added up.
fn busy_wait_ns(earlier: &[ThreadMark], later: &[ThreadMark], elapsed_ns: u64) -> u64 {
    let busy = |after: &ThreadMark| {
        let before = earlier.iter().find(|mark| (mark.process, mark.thread) == (after.process, after.thread));
        let (ran, waited) = before.map_or((0, 0), |before| (before.ran_ns, before.waited_ns));
        let ran_ns = after.ran_ns.saturating_sub(ran);
        (ran_ns as f64 > BUSY_SHARE * elapsed_ns as f64).then(|| after.waited_ns.saturating_sub(waited))
    };
    later.iter().filter_map(busy).sum()
}

fn schedstat_ns(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().next()?.parse().ok()
}

/// User plus system ticks. The name in parentheses may contain anything, so counting starts after its last one.
fn stat_ticks(text: &str) -> Option<u64> {
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

fn involuntary(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

/// Ticks that the host took from these processors.
fn steal_ticks(stat: &str, processors: &[usize]) -> u64 {
    stat.lines()
        .filter_map(|line| {
            let mut fields = line.split_ascii_whitespace();
            let processor: usize = fields.next()?.strip_prefix("cpu")?.parse().ok()?;
            if !processors.contains(&processor) {
                return None;
            }
            fields.nth(7)?.parse::<u64>().ok()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_the_watched_processors() {
        let stat =
            "cpu  9 0 9 9 9 0 9 99 0 0\ncpu0 4 0 2 7 1 0 3 7 0 0\ncpu1 5 0 3 7 1 0 3 12 0 0\nintr 1 2 3 4 5 6 7 8 9\n";
        assert_eq!((steal_ticks(stat, &[0]), steal_ticks(stat, &[1]), steal_ticks(stat, &[0, 1])), (7, 12, 19));
        assert_eq!(steal_ticks("nonsense\ncpu0 1\n", &[0]), 0);
    }

    #[test]
    fn fields_are_found_behind_a_hostile_thread_name() {
        let stat = "7 (a) R b 1) S 1 7 7 0 -1 4 1 2 3 4 50 8 0 0 20 0 1 0 5 6 7";
        assert_eq!(stat_ticks(stat), Some(58));
        assert_eq!(stat_ticks("garbage"), None);
        assert_eq!(involuntary("Name:\tx\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t9\n"), 9);
        assert_eq!(resident_pages("710 342 300 9 0 1 0"), Some(342));
        assert_eq!(schedstat_ns("123 4 5\n"), Some(123));
    }

    #[test]
    fn busy_time_of_this_process_is_seen_from_inside_and_outside() {
        let watch = Watch { processes: vec![std::process::id()], processors: vec![0] };
        let (before, start) = (Mark::now(&watch).unwrap(), Instant::now());
        while start.elapsed().as_millis() < 60 {
            core::hint::spin_loop();
        }
        let usage = before.until(&Mark::now(&watch).unwrap());
        // Counted twice on purpose: once by getrusage and once through /proc.
        assert!(usage.cpu_ns > 40_000_000, "{usage:?}");
    }

    #[test]
    fn memory_that_is_touched_is_resident() {
        let before = resident_bytes().unwrap();
        let block = vec![1_u8; 32 << 20];
        let grown = resident_bytes().unwrap().saturating_sub(before);
        assert!(grown > 24 << 20, "{} bytes touched, {grown} seen", block.len());
    }

    #[test]
    fn only_strong_disturbance_spoils_a_round() {
        let calm = Usage { elapsed_ns: 1_000_000_000, processors: 2, ..Usage::default() };
        assert!(!Usage { involuntary_switches: 50, steal_ns: 2 * TICK_NS, ..calm }.disturbed());
        assert!(Usage { involuntary_switches: 500, ..calm }.disturbed());
        assert!(Usage { steal_ns: 10 * TICK_NS, ..calm }.disturbed());
        assert!(Usage { waited_ns: 100_000_000, ..calm }.disturbed());
        assert!(!Usage { waited_ns: 10_000_000, ..calm }.disturbed());
        assert!(!Usage { elapsed_ns: 20_000_000, steal_ns: TICK_NS, ..calm }.disturbed());
    }

    #[test]
    fn only_busy_threads_wait_in_line() {
        let mark = |thread, ran_ns, waited_ns| ThreadMark { process: 1, thread, ran_ns, waited_ns };
        let earlier = [mark(1, 100, 50), mark(2, 100, 50)];
        // Thread 1 spun; thread 2 is a helper that waited behind it; thread 3 is new and busy.
        let later = [mark(1, 900, 60), mark(2, 110, 700), mark(3, 500, 7)];
        assert_eq!(busy_wait_ns(&earlier, &later, 1_000), 10 + 7);
    }
}
