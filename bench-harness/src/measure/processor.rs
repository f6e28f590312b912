//! Pinning of threads to processors.
#![allow(unsafe_code)]

use std::io;

use anyhow::bail;

/// Fails with a message that names the choices if this process may not use processor `cpu`.
pub fn check_processor(cpu: usize, flag: &str) -> anyhow::Result<()> {
    let set = allowed()?;
    let allowed: Vec<usize> = (0..libc::CPU_SETSIZE as usize).filter(|cpu| contains(&set, *cpu)).collect();
    if !allowed.contains(&cpu) {
        bail!("processor {cpu} is not among those this process may use ({allowed:?}); choose one with {flag}");
    }
    Ok(())
}

/// Pins the calling thread to processor `cpu`.
pub fn pin_to(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("there is no processor {cpu}")));
    }
    // SAFETY: cpu_set_t is a plain array of integers, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: `cpu` is below CPU_SETSIZE, so CPU_SET writes inside of `set`.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the pointer and the size describe `set`, which lives through the call; pid 0 is the calling thread.
    let result = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The processor that the calling thread runs on; lasting only for a pinned one.
pub fn current_processor() -> Option<usize> {
    // SAFETY: sched_getcpu takes nothing and returns a number.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

fn allowed() -> io::Result<libc::cpu_set_t> {
    // SAFETY: cpu_set_t is a plain array of integers, for which all zeros is a valid value.
    let mut set: libc::cpu_set_t = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer and the size describe `set`, which the kernel fills; the process id is our own: the main
    // thread's set, not the calling thread's, which may be pinned already.
    let result = unsafe { libc::sched_getaffinity(libc::getpid(), size_of_val(&set), &mut set) };
    if result == 0 { Ok(set) } else { Err(io::Error::last_os_error()) }
}

fn contains(set: &libc::cpu_set_t, cpu: usize) -> bool {
    // SAFETY: callers pass a number below CPU_SETSIZE, so CPU_ISSET reads inside of `set`.
    unsafe { libc::CPU_ISSET(cpu, set) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_processor_is_named_together_with_the_flag() {
        let error = check_processor(1_000, "--pod-cpu").unwrap_err().to_string();
        assert!(error.contains("1000") && error.contains("--pod-cpu"), "{error}");
        assert!(pin_to(1_000_000).is_err());
    }

    #[test]
    fn a_pinned_thread_runs_where_it_was_told() {
        std::thread::spawn(|| {
            let cpu = (0..64).rev().find(|cpu| pin_to(*cpu).is_ok()).expect("there is at least one processor");
            assert_eq!(current_processor(), Some(cpu));
        })
        .join()
        .unwrap();
    }
}
