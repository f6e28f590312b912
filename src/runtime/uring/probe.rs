//! Is this host fit? What the runtime needs of it, what is there, and what to do about the rest.
#![allow(unsafe_code)]

use io_uring::{IoUring, Probe, opcode};

use super::error::{RingError, io_uring_disabled, kernel_release};
use super::ring::Ring;
use super::sockets::congestion_controls;
use crate::runtime::clock::Clock;

/// Locked memory that each core needs, in KiB.
const LOCKED_MEMORY_KIB_PER_CORE: u64 = 512;
/// Descriptors that a small pod needs.
const DESCRIPTORS: u64 = 1024;

/// One thing that the runtime needs or likes of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// What it is.
    pub name: &'static str,
    /// Does nothing start without it? The others only cost speed.
    pub needed: bool,
    /// Is it there?
    pub present: bool,
    /// What was found.
    pub found: String,
    /// What to do when it is not there; empty when it is.
    pub remedy: String,
}

fn feature(name: &'static str, needed: bool, present: bool, found: impl Into<String>, remedy: &str) -> Feature {
    let remedy = if present { String::new() } else { remedy.to_owned() };
    Feature { name, needed, present, found: found.into(), remedy }
}

/// Looks at the host, for so many cores. Takes some milliseconds; changes nothing.
#[must_use]
pub fn probe(cores: usize) -> Vec<Feature> {
    let release = kernel_release();
    let newer = "use Linux 6.1 or newer";
    let mut features = vec![feature("kernel", true, version(&release) >= (6, 1), release.clone(), newer), permission()];
    features.extend(ring_features());
    features.extend(resources(cores));
    features
}

/// `major.minor` of a kernel release.
fn version(release: &str) -> (u32, u32) {
    let mut parts = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
}

fn permission() -> Feature {
    let (present, found, remedy) = match Ring::<()>::new(2, 4096, 16) {
        Ok(_) => (true, format!("allowed (kernel.io_uring_disabled = {})", io_uring_disabled()), String::new()),
        Err(error) => (false, "cannot be used".to_owned(), error.to_string()),
    };
    feature("io_uring", true, present, found, &remedy)
}

fn ring_features() -> Vec<Feature> {
    let defer = IoUring::<io_uring::squeue::Entry>::builder().setup_single_issuer().setup_defer_taskrun().build(4);
    let array = IoUring::<io_uring::squeue::Entry>::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_no_sqarray()
        .build(4);
    let words = |present: bool| if present { "yes" } else { "no" };
    let mut features = vec![
        feature(
            "deferred task run",
            false,
            defer.is_ok(),
            words(defer.is_ok()),
            "use Linux 6.1 or newer: without it a round trip takes longer",
        ),
        feature(
            "ring without index array",
            false,
            array.is_ok(),
            words(array.is_ok()),
            "Linux 6.6 or newer saves some nanoseconds per operation",
        ),
    ];
    let Ok(io) = IoUring::new(4) else { return features };
    let mut known = Probe::new();
    let probed = io.submitter().register_probe(&mut known).is_ok();
    let operations = [
        ("accept", opcode::Accept::CODE),
        ("receive", opcode::Recv::CODE),
        ("send", opcode::Send::CODE),
        ("connect", opcode::Connect::CODE),
        ("cancel", opcode::AsyncCancel::CODE),
        ("timeout", opcode::Timeout::CODE),
        // Came with the same kernel (6.0) as multishot receive, which cannot be probed.
        ("multishot receive", opcode::SendZc::CODE),
    ];
    for (name, code) in operations {
        let present = probed && known.is_supported(code);
        features.push(feature(name, true, present, words(present), "use Linux 6.1 or newer"));
    }
    let incremental = incremental_buffers(&io);
    let remedy = "Linux 6.12 or newer lets links between pods receive without copies";
    features.push(feature("incremental receive buffers", false, incremental, words(incremental), remedy));
    features
}

/// Can a ring of buffers be registered that are filled piece by piece?
fn incremental_buffers(io: &IoUring) -> bool {
    const INCREMENTAL: u16 = 2;
    const GROUP: u16 = 9;
    let Ok(buffers) = super::buffers::ReceiveBuffers::new(1, 4096) else { return false };
    // SAFETY: address and count are those of a mapping that outlives the registration, which ends two lines below; no receive
    // uses the group.
    let registered = unsafe {
        io.submitter().register_buf_ring_with_flags(buffers.address(), buffers.count(), GROUP, INCREMENTAL).is_ok()
    };
    registered && io.submitter().unregister_buf_ring(GROUP).is_ok()
}

fn resources(cores: usize) -> Vec<Feature> {
    let wanted = LOCKED_MEMORY_KIB_PER_CORE * cores.max(1) as u64;
    let locked = limit(libc::RLIMIT_MEMLOCK).map(|bytes| bytes / 1024);
    let text = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let files = limit(libc::RLIMIT_NOFILE);
    let controls = congestion_controls();
    let quick = controls.iter().any(|name| name == "cubic" || name == "reno");
    let counter = Clock::new().is_counter();
    vec![
        feature(
            "locked memory (KiB)",
            // Below this the executor refuses; with less than one share per core its file work is slower.
            locked.is_some_and(|locked| locked < LOCKED_MEMORY_KIB_PER_CORE),
            locked.is_none_or(|locked| locked >= wanted),
            text(locked),
            &format!("run `ulimit -l {wanted}`, or start the container with `--ulimit memlock=-1`"),
        ),
        feature(
            "open files",
            true,
            files.is_none_or(|files| files >= DESCRIPTORS),
            text(files),
            "run `ulimit -n 65536`: each connection needs one",
        ),
        feature(
            "congestion control",
            false,
            quick,
            controls.join(" "),
            "run `modprobe tcp_cubic`: a bbr default takes twice as long between pods of one rack",
        ),
        feature(
            "invariant time stamp counter",
            false,
            counter,
            if counter { "yes" } else { "no" },
            "reading the time costs more here; nothing to do",
        ),
    ]
}

/// A soft limit of this process; `None` is unlimited (or unknown).
fn limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit, which lives across the call.
    let result = unsafe { libc::getrlimit(resource, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// The first thing that is needed and missing, as an error that says what to do.
///
/// # Errors
/// If there is such a thing.
pub fn require(features: &[Feature]) -> Result<(), RingError> {
    match features.iter().find(|feature| feature.needed && !feature.present) {
        None => Ok(()),
        Some(missing) => Err(RingError::Unfit { feature: missing.name, remedy: missing.remedy.clone() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_any_release_name() {
        assert_eq!(version("6.18.44-fc-v669"), (6, 18));
        assert_eq!(version("6.1"), (6, 1));
        assert_eq!(version("5.15.0-91-generic"), (5, 15));
        assert_eq!(version(""), (0, 0));
        assert!(version("10.0") > version("6.12"));
    }

    #[test]
    fn what_is_missing_has_a_remedy() {
        for feature in probe(1) {
            assert_eq!(feature.present, feature.remedy.is_empty(), "{feature:?}");
        }
        let missing = vec![feature("a", false, false, "no", "?"), feature("b", true, false, "no", "do this")];
        assert!(require(&missing).unwrap_err().to_string().contains("do this"));
        assert!(require(&missing[..1]).is_ok(), "what is only liked does not stop anybody");
    }
}
