//! The connection of a client to a manager: one thread that connects, sends, receives and connects again.
//!
//! Called by the two clients, the store of the control thread and the remote state store: each is a [`Session`], which
//! says what to send and takes what comes. Invariants: the thread never waits for its user; between two attempts to
//! connect there is a pause that grows to a bound; a connection from which nothing comes is given up.

use core::future::Future;
use core::net::SocketAddr;
use core::pin::pin;
use core::time::Duration;
use std::time::Instant;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::protocol::{
    ANSWER_BYTES_MAX, Broken, Frames, PREFACE_BYTES, Service, compare_preface, preface, sign_of_life,
};

/// First pause before a further attempt to connect.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// Longest pause: a manager that is back is found soon, and a hundred pods do not flood it.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// A connection without traffic is asked for a sign of life this often.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(2);
/// A connection from which nothing came for so long is dead.
const SILENCE_MAX: Duration = Duration::from_secs(7);
/// Bytes that wait to be sent before no further commands are taken.
const SEND_BYTES_MAX: usize = 8 << 20;
/// Bytes received at a time.
const RECEIVE_BYTES: usize = 64 << 10;

/// One user of a connection.
pub(crate) trait Session: Send + 'static {
    /// What its user asks of it.
    type Command: Send;
    /// What the connection is for.
    const SERVICE: Service;
    /// The schema of what travels.
    const SCHEMA: u64;

    /// Takes a command. `out` takes frames if there is a connection.
    fn command(&mut self, command: Self::Command, out: Option<&mut Vec<u8>>);
    /// There is a connection.
    fn connected(&mut self, out: &mut Vec<u8>);
    /// Takes the body of a frame.
    fn received(&mut self, body: &[u8], out: &mut Vec<u8>) -> Result<(), Broken>;
    /// An attempt failed, or the connection ended.
    fn disconnected(&mut self, why: &Broken);
    /// When to call [`Session::expire`] next.
    fn deadline(&self) -> Option<Instant>;
    /// Fails what is late. An error gives up the connection.
    fn expire(&mut self, now: Instant) -> Result<(), Broken>;
}

/// The user is gone.
struct Gone;

/// Starts the thread. It ends when the sender of the commands is dropped.
pub(crate) fn start<S: Session>(
    session: S,
    name: &str,
    address: SocketAddr,
    connect_timeout: Duration,
    commands: mpsc::Receiver<S::Command>,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        let mut link = Link { session, address, connect_timeout, commands };
        runtime.block_on(async move {
            let Err(Gone) = link.run().await;
        });
    })
}

struct Link<S: Session> {
    session: S,
    address: SocketAddr,
    connect_timeout: Duration,
    commands: mpsc::Receiver<S::Command>,
}

impl<S: Session> Link<S> {
    async fn run(&mut self) -> Result<core::convert::Infallible, Gone> {
        let mut pause = PAUSE_MIN;
        loop {
            let connecting = connect(self.address, preface(S::SERVICE, S::SCHEMA), self.connect_timeout);
            let connected = self.serve_while(connecting).await?;
            let broken = match connected
                .and_then(|(stream, hello)| compare_preface(&hello, S::SERVICE, S::SCHEMA).map(|()| stream))
            {
                Ok(stream) => {
                    let mut heard = false;
                    let broken = self.talk(stream, &mut heard).await?;
                    if heard {
                        pause = PAUSE_MIN;
                    }
                    broken
                }
                Err(broken) => broken,
            };
            self.session.disconnected(&broken);
            self.serve_while(tokio::time::sleep(pause)).await?;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Takes commands without a connection until `work` is done.
    async fn serve_while<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Gone> {
        let mut work = pin!(work);
        loop {
            let deadline = self.session.deadline();
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                command = self.commands.recv() => self.session.command(command.ok_or(Gone)?, None),
                () = until(deadline) => {
                    // There is no connection to give up.
                    let _ = self.session.expire(Instant::now());
                }
            }
        }
    }

    /// Uses a connection until it breaks.
    async fn talk(&mut self, stream: TcpStream, heard: &mut bool) -> Result<Broken, Gone> {
        let (mut receiver, mut sender) = stream.into_split();
        let mut out = Vec::new();
        let (mut sending, mut sent) = (Vec::new(), 0);
        let mut frames = Frames::new(ANSWER_BYTES_MAX);
        let mut received = vec![0; RECEIVE_BYTES];
        let mut last_heard = Instant::now();
        let mut last_said = Instant::now();
        self.session.connected(&mut out);
        loop {
            if sent == sending.len() && !out.is_empty() {
                sending.clear();
                sent = 0;
                core::mem::swap(&mut sending, &mut out);
            }
            let own = (last_heard + SILENCE_MAX).min(last_said + SIGN_OF_LIFE);
            let deadline = self.session.deadline().map_or(own, |deadline| deadline.min(own));
            let result = tokio::select! {
                read = receiver.read(&mut received) => match read {
                    Ok(0) => Err(Broken::Closed),
                    Ok(count) => {
                        (last_heard, *heard) = (Instant::now(), true);
                        frames.push(&received[..count]);
                        self.take(&mut frames, &mut out)
                    }
                    Err(error) => Err(error.into()),
                },
                written = sender.write(&sending[sent..]), if sent < sending.len() => {
                    last_said = Instant::now();
                    written.map(|count| sent += count).map_err(Broken::from)
                }
                command = self.commands.recv(), if out.len() < SEND_BYTES_MAX => {
                    self.session.command(command.ok_or(Gone)?, Some(&mut out));
                    Ok(())
                }
                () = until(Some(deadline)) => {
                    let now = Instant::now();
                    if now >= last_said + SIGN_OF_LIFE && sent == sending.len() && out.is_empty() {
                        sign_of_life(&mut out);
                        last_said = now;
                    } else if now >= last_said + SIGN_OF_LIFE {
                        last_said = now;
                    }
                    let silent = now >= last_heard + SILENCE_MAX;
                    if silent { Err(Broken::Silent) } else { self.session.expire(now) }
                }
            };
            if let Err(broken) = result {
                return Ok(broken);
            }
        }
    }

    fn take(&mut self, frames: &mut Frames, out: &mut Vec<u8>) -> Result<(), Broken> {
        while let Some(body) = frames.next()? {
            if !body.is_empty() {
                self.session.received(body, out)?;
            }
        }
        Ok(())
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
        None => core::future::pending().await,
    }
}

async fn connect(
    address: SocketAddr,
    hello: [u8; PREFACE_BYTES],
    timeout: Duration,
) -> Result<(TcpStream, [u8; PREFACE_BYTES]), Broken> {
    let attempt = async {
        let mut stream = TcpStream::connect(address).await.map_err(|error| Broken::System(error.to_string()))?;
        stream.set_nodelay(true)?;
        stream.write_all(&hello).await?;
        let mut theirs = [0; PREFACE_BYTES];
        stream.read_exact(&mut theirs).await?;
        Ok((stream, theirs))
    };
    tokio::time::timeout(timeout, attempt).await.unwrap_or(Err(Broken::LateHello))
}
