//! Processes made of this very binary: the pod, the peer of the bare ring, measurements that need a fresh process.
//!
//! A child starts with a hidden subcommand, prints one line when it is ready, and dies with its parent. Invariant: a
//! [`Child`] that goes out of scope leaves no process behind.
#![allow(unsafe_code)]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdout, Command, Stdio};

use anyhow::{Context, bail};

/// A running child.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    output: BufReader<ChildStdout>,
    ended: bool,
}

impl Child {
    /// Starts this binary with `arguments`; its standard error is ours.
    pub fn start<I>(arguments: I) -> anyhow::Result<Self>
    where
        I: IntoIterator,
        I::Item: AsRef<std::ffi::OsStr>,
    {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        let mut command = Command::new(&program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped());
        let parent = std::process::id();
        // SAFETY: the closure runs in the forked child before exec and calls only prctl and getppid, both
        // async-signal-safe; it allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(move || {
                // The signal is sent when the *thread* that started the child ends: children are started from
                // threads that outlive them.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // The parent may have died before the request above took effect.
                if libc::getppid() as u32 != parent {
                    return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            });
        }
        let mut process = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let output = BufReader::new(process.stdout.take().expect("standard output is piped"));
        Ok(Self { process, output, ended: false })
    }

    /// The next line that the child prints, without its end. Fails when the child ends first.
    pub fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        if self.output.read_line(&mut line).context("cannot read what the child prints")? == 0 {
            self.ended = true;
            let status = self.process.wait().context("the child is gone")?;
            bail!("the child ended before it was ready ({status}); its message is above");
        }
        Ok(line.trim_end().to_owned())
    }

    /// Its process id, for [`crate::measure::Watch`].
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops the child where it stands, so that a spinning one leaves its processor to the floor.
    pub fn pause(&mut self) {
        self.signal(libc::SIGSTOP);
    }

    /// Lets a paused child go on.
    pub fn resume(&mut self) {
        self.signal(libc::SIGCONT);
    }

    /// Tells the child to stop in order.
    pub fn terminate(&mut self) {
        self.signal(libc::SIGTERM);
    }

    /// Waits for a child that ends by itself.
    pub fn wait(mut self) -> anyhow::Result<()> {
        let status = self.process.wait().context("the child is gone")?;
        if status.success() { Ok(()) } else { bail!("the child failed ({status}); its message is above") }
    }

    fn signal(&self, signal: libc::c_int) {
        if self.ended {
            return;
        }
        // SAFETY: the child has not been waited for (`ended` is set where that happens, and `wait` and `drop` consume
        // the value), so the id still names it, at worst as a zombie.
        unsafe { libc::kill(self.process.id() as libc::pid_t, signal) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // Errors mean that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
