//! The real binary as a process.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::{PATIENCE, until};

/// `atoll` with no `ATOLL_` variable of the environment.
pub fn atoll_command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_atoll"));
    without_atoll_variables(&mut command);
    command
}

/// For a command that is configured by its flags alone.
pub fn without_atoll_variables(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("ATOLL_")) {
        command.env_remove(name);
    }
    command
}

/// Runs `atoll` to its end.
pub fn atoll(arguments: &[&str]) -> Output {
    atoll_command().args(arguments).output().unwrap()
}

pub fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// An address that stays free between two runs of a pod: its port is below those that the kernel gives out.
pub fn lasting_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 100) as u16 * 100;
    let mut ports = std::iter::repeat_with(|| 20_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 10_000);
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    format!("127.0.0.1:{}", ports.by_ref().take(10_000).find(is_free).expect("a free port"))
}

/// A running `atoll pod --dev`; killed when dropped.
pub struct PodProcess {
    child: Child,
    pub address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
}

impl PodProcess {
    /// On a free port.
    pub fn start(arguments: &[&str]) -> PodProcess {
        PodProcess::start_at("127.0.0.1:0", arguments)
    }

    /// On a port that a pod may just have left: the kernel ends the ring of a killed process, and with it the
    /// listening socket, some time after the process.
    pub fn start_at(listen: &str, arguments: &[&str]) -> PodProcess {
        until("the port is free again", || PodProcess::try_start_at(listen, arguments))
    }

    /// `None` if the port is in use.
    fn try_start_at(listen: &str, arguments: &[&str]) -> Option<PodProcess> {
        let mut command = atoll_command();
        command.args(["pod", "--dev", "--listen", listen]).args(arguments);
        PodProcess::try_start(command)
    }

    /// A pod made by any command that says on standard error ` serves at ADDRESS ` when it does; a manager, too. `None`
    /// if the port is in use.
    pub fn try_start(mut command: Command) -> Option<PodProcess> {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (stderr, into) = (child.stderr.take().unwrap(), Arc::clone(&lines));
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                into.lock().unwrap().push(line);
            }
        });
        let mut pod = PodProcess { child, address: SocketAddr::from(([0, 0, 0, 0], 0)), lines };
        let address = until("the pod says where it serves, or ends", || {
            if pod.child.try_wait().unwrap().is_some() {
                return Some(None);
            }
            let line = pod.line_with(" serves ")?;
            line.rsplit(" at ").next()?.split(' ').next()?.parse().ok().map(Some)
        });
        if let Some(address) = address {
            pod.address = address;
            return Some(pod);
        }
        reader.join().unwrap();
        assert!(pod.line_with("is in use").is_some(), "the pod does not start: {}", pod.log());
        None
    }

    /// Everything on its standard error so far.
    pub fn log(&self) -> String {
        self.lines.lock().unwrap().join("\n")
    }

    pub fn line_with(&self, part: &str) -> Option<String> {
        self.lines.lock().unwrap().iter().find(|line| line.contains(part)).cloned()
    }

    pub fn address_text(&self) -> String {
        self.address.to_string()
    }

    /// Runs `atoll` with `--pods` of this pod.
    pub fn atoll(&self, arguments: &[&str]) -> Output {
        let address = self.address_text();
        atoll(&[arguments, &["--pods", &address]].concat())
    }

    /// Sends a signal, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Stops it where it stands (SIGSTOP), and waits until each of its threads does: the signal is only on its way when
    /// `kill` returns.
    pub fn freeze(&self) {
        self.signal("STOP");
        let give_up = Instant::now() + PATIENCE;
        while !self.stands() {
            assert!(Instant::now() < give_up, "the pod does not stand still");
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn stands(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        threads.flatten().all(|thread| {
            let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
            // The state follows the name, which is in parentheses.
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let give_up = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < give_up, "the pod does not end: {}", self.log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Memory that it holds, in bytes.
    pub fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for PodProcess {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
