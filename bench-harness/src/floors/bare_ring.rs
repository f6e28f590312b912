//! Floor of remote asks: two pinned processes, each with one raw io_uring ring, move the same number of bytes over TCP
//! loopback with the same number of requests in flight. Every byte is written and received, none is interpreted.

use std::io;
use std::net::{TcpListener, TcpStream};

use anyhow::Context;

use super::ring::{Connection, with_connection};
use crate::child::Child;
use crate::measure::{Clock, Latencies, Mark, RoundLength, Sample, Sampler, Watch, pin_to};
use crate::scenario::Spin;

/// Copies of a message that are sent with one copy operation.
const TEMPLATE_MESSAGES: usize = 256;

/// What the messages look like.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Bytes of a reply.
    pub reply_bytes: usize,
    /// Requests in flight.
    pub outstanding: u32,
    /// How long both sides spin before they sleep.
    pub spin: Spin,
}

/// One round against a peer process that is started for it.
pub fn round(shape: &Shape, server_cpu: usize, client_cpu: usize, length: RoundLength) -> anyhow::Result<Sample> {
    let mut child = Child::start(peer_command(shape, server_cpu))?;
    let port: u16 = child.line()?.parse().context("the peer of the floor did not print its port")?;
    let watch = Watch { processes: vec![child.id()], processors: vec![server_cpu, client_cpu] };
    let shape = shape.clone();
    let client = std::thread::Builder::new().name("floor-asks".into()).spawn(move || -> io::Result<Sample> {
        pin_to(client_cpu)?;
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        prepare(&stream)?;
        with_connection(&stream, |connection| ask(connection, &shape, &watch, length))
    })?;
    let sample = client.join().map_err(|_| anyhow::anyhow!("the floor panicked; its message is above"))?;
    sample.context("the bare ring of the floor failed")
}

/// The hidden command line of the peer.
fn peer_command(shape: &Shape, cpu: usize) -> Vec<String> {
    [
        "floor-peer",
        "--cpu",
        &cpu.to_string(),
        "--request-bytes",
        &shape.request_bytes.to_string(),
        "--reply-bytes",
        &shape.reply_bytes.to_string(),
        "--spin",
        &shape.spin.argument(),
    ]
    .map(str::to_owned)
    .to_vec()
}

/// What the peer process does: prints its port, answers one connection, ends with it.
pub fn peer(cpu: usize, request_bytes: usize, reply_bytes: usize, spin: Spin) -> anyhow::Result<()> {
    pin_to(cpu)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let (stream, _) = listener.accept()?;
    prepare(&stream)?;
    let replies = Template::new(reply_bytes);
    let mut messages = Counter::new(request_bytes);
    let mut idle = Idle::new(spin);
    with_connection(&stream, |connection| {
        while !connection.closed {
            let sleep = idle.sleep_now();
            let worked = connection.turn(sleep, |bytes, answers| replies.put(messages.count(bytes.len()), answers))?;
            idle.turned(worked);
        }
        Ok(())
    })?;
    Ok(())
}

/// The asking side: keeps `outstanding` requests in flight until the time is over.
fn ask(connection: &mut Connection<'_>, shape: &Shape, watch: &Watch, length: RoundLength) -> io::Result<Sample> {
    let clock = Clock::get();
    let outstanding = shape.outstanding.max(1) as usize;
    let requests = Template::new(shape.request_bytes);
    let mut replies = Counter::new(shape.reply_bytes);
    let mut idle = Idle::new(shape.spin);
    let mut flight = Flight::new(outstanding);
    let (warm_up, duration) = (clock.ticks_in(length.warm_up), clock.ticks_in(length.duration));
    let (mut start, mut measuring, mut mark) = (clock.ticks(), false, Mark::now(watch)?);
    flight.send(outstanding, start);
    requests.put(outstanding, connection.pending());
    loop {
        let sleep = idle.sleep_now();
        let mut now = start;
        let worked = connection.turn(sleep, |bytes, out| {
            let answered = replies.count(bytes.len());
            if answered > 0 {
                now = clock.ticks();
                flight.answered(answered, now, clock);
                flight.send(answered, now);
                requests.put(answered, out);
            }
        })?;
        idle.turned(worked);
        if connection.closed {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the peer of the floor closed"));
        }
        if !measuring && now.saturating_sub(start) >= warm_up {
            measuring = true;
            mark = Mark::now(watch)?;
            start = clock.ticks();
            flight.measure_from(start);
        } else if measuring && now.saturating_sub(start) >= duration {
            let usage = mark.until(&Mark::now(watch)?);
            let elapsed = core::time::Duration::from_nanos(clock.ns(now - start));
            return Ok(Sample::new(flight.operations, elapsed, core::mem::take(&mut flight.latencies), usage));
        }
    }
}

/// The send times of the requests in flight, oldest first, and what came back.
struct Flight {
    sent_at: Box<[u64]>,
    first: usize,
    next: usize,
    measured_from: u64,
    operations: u64,
    latencies: Latencies,
    sampler: Sampler,
}

impl Flight {
    fn new(outstanding: usize) -> Self {
        Self {
            sent_at: vec![0; outstanding.next_power_of_two()].into(),
            first: 0,
            next: 0,
            measured_from: 0,
            operations: 0,
            latencies: Latencies::new(),
            sampler: Sampler::one_in(if outstanding >= 16 { 16 } else { 1 }),
        }
    }

    #[inline]
    fn send(&mut self, count: usize, now: u64) {
        let mask = self.sent_at.len() - 1;
        for index in self.next..self.next + count {
            self.sent_at[index & mask] = now;
        }
        self.next += count;
    }

    #[inline]
    fn answered(&mut self, count: usize, now: u64, clock: &Clock) {
        let mask = self.sent_at.len() - 1;
        for index in self.first..self.first + count {
            let sent_at = self.sent_at[index & mask];
            if self.sampler.pick() && sent_at >= self.measured_from {
                self.latencies.record(clock.ns(now.saturating_sub(sent_at)));
            }
        }
        self.first += count;
        self.operations += count as u64;
    }

    /// Ends the warm-up. Requests in flight count, but their latency contains our own pause for reading the counters.
    fn measure_from(&mut self, now: u64) {
        self.measured_from = now;
        self.operations = 0;
        self.latencies.clear();
    }
}

/// Counts whole messages in a stream of bytes.
struct Counter {
    message_bytes: usize,
    partial: usize,
}

impl Counter {
    fn new(message_bytes: usize) -> Self {
        Self { message_bytes: message_bytes.max(1), partial: 0 }
    }

    #[inline]
    fn count(&mut self, bytes: usize) -> usize {
        let total = self.partial + bytes;
        self.partial = total % self.message_bytes;
        total / self.message_bytes
    }
}

/// Many copies of a message, so that a batch is written in few copy operations.
struct Template {
    message_bytes: usize,
    bytes: Vec<u8>,
}

impl Template {
    fn new(message_bytes: usize) -> Self {
        let message_bytes = message_bytes.max(1);
        Self { message_bytes, bytes: vec![0x5a; message_bytes * TEMPLATE_MESSAGES] }
    }

    #[inline]
    fn put(&self, mut messages: usize, out: &mut Vec<u8>) {
        while messages > 0 {
            let batch = messages.min(TEMPLATE_MESSAGES);
            out.extend_from_slice(&self.bytes[..batch * self.message_bytes]);
            messages -= batch;
        }
    }
}

/// How long nothing has happened.
struct Idle {
    spin_ticks: Option<u64>,
    since: u64,
}

impl Idle {
    fn new(spin: Spin) -> Self {
        let spin_ticks = match spin {
            Spin::Always => None,
            Spin::For(duration) => Some(Clock::get().ticks_in(duration)),
        };
        Self { spin_ticks, since: Clock::get().ticks() }
    }

    #[inline]
    fn sleep_now(&self) -> bool {
        self.spin_ticks.is_some_and(|spin| Clock::get().ticks().saturating_sub(self.since) >= spin)
    }

    #[inline]
    fn turned(&mut self, worked: bool) {
        if worked && self.spin_ticks.is_some() {
            self.since = Clock::get().ticks();
        }
    }
}

/// No delay for small segments, and reno: a bbr default costs half the latency on loopback.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    super::ring::use_reno(stream)
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn messages_are_counted_over_any_chunking() {
        let mut counter = Counter::new(10);
        assert_eq!([3, 6, 1, 25, 5].map(|bytes| counter.count(bytes)), [0, 0, 1, 2, 1]);
    }

    #[test]
    fn a_template_writes_exactly_the_messages() {
        let mut out = Vec::new();
        Template::new(3).put(1_000, &mut out);
        assert_eq!(out.len(), 3_000);
    }

    #[test]
    fn requests_over_two_rings_are_all_answered() {
        for (outstanding, spin) in [(1, Spin::For(Duration::ZERO)), (64, Spin::For(Duration::from_micros(50)))] {
            let shape = Shape { request_bytes: 100, reply_bytes: 30, outstanding, spin };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let served = std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let (replies, mut messages) = (Template::new(30), Counter::new(100));
                with_connection(&stream, |connection| {
                    while !connection.closed {
                        connection.turn(true, |bytes, out| replies.put(messages.count(bytes.len()), out))?;
                    }
                    Ok(messages.partial)
                })
                .unwrap()
            });
            let length = RoundLength { warm_up: Duration::from_millis(2), duration: Duration::from_millis(10) };
            let sample =
                with_connection(&stream, |connection| ask(connection, &shape, &Watch::default(), length)).unwrap();
            assert!(sample.operations > 0 && sample.latencies.count() > 0);
            assert_eq!(served.join().unwrap(), 0, "no message was cut");
        }
    }
}
