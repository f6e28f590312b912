//! Floor of remote asks: two pinned processes, each with one raw io_uring ring, move the same number of bytes over TCP
//! loopback with the same number of requests in flight.
//!
//! Requests are asks of their own, so each message is written and read on its own: at its start are its length and the
//! place of its request, by which the server finds where it ends and the client whose answer it is (`Frames`,
//! `Walker`). Nothing else is interpreted. Without that (`Shape::told_apart`) it is a pump of bytes, which knows of a
//! thousand messages only their sum; that figure is printed beside the floor (ADR 11).

use core::time::Duration;
use std::io;
use std::net::{TcpListener, TcpStream};

use anyhow::Context;

use super::ring::{Connection, with_connection};
use crate::child::Child;
use crate::measure::{Clock, Latencies, Mark, RoundLength, Sample, Sampler, Watch, pin_to};
use crate::scenario::{OPEN_LOOP_IN_FLIGHT_MAX, Spin};
use crate::schedule::{OpenLoop, Schedule};

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
    /// Requests per second, at times fixed beforehand, instead of a fixed number in flight.
    pub rate_per_second: Option<f64>,
    /// How long both sides spin before they sleep.
    pub spin: Spin,
    /// Whether messages are told apart. Such as are shorter than `HEADER_BYTES` cannot be.
    pub told_apart: bool,
}

/// Bytes at the start of a message: its length and the place of its request.
const HEADER_BYTES: usize = 12;

impl Shape {
    fn told_apart(&self) -> bool {
        // In an open loop the number in flight is not known beforehand, and a message is found by its place only.
        self.rate_per_second.is_some()
            || (self.told_apart && self.request_bytes >= HEADER_BYTES && self.reply_bytes >= HEADER_BYTES)
    }
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
        with_connection(&stream, |connection| match shape.rate_per_second {
            Some(rate) => ask_on_schedule(connection, &shape, rate, &watch, length),
            None => ask(connection, &shape, &watch, length),
        })
    })?;
    let sample = client.join().map_err(|_| anyhow::anyhow!("the floor panicked; its message is above"))?;
    sample.context("the bare ring of the floor failed")
}

/// The hidden command line of the peer.
fn peer_command(shape: &Shape, cpu: usize) -> Vec<String> {
    let mut command = [
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
    .to_vec();
    if shape.told_apart() {
        command.push("--told-apart".to_owned());
    }
    command
}

/// What the peer process does: prints its port, answers one connection, ends with it.
pub fn peer(cpu: usize, request_bytes: usize, reply_bytes: usize, spin: Spin, told_apart: bool) -> anyhow::Result<()> {
    pin_to(cpu)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let (stream, _) = listener.accept()?;
    prepare(&stream)?;
    let mut idle = Idle::new(spin);
    with_connection(&stream, |connection| {
        let mut answer = answering(request_bytes, reply_bytes, told_apart);
        while !connection.closed {
            let sleep = idle.sleep_now();
            let worked = connection.turn(sleep, &mut answer)?;
            idle.turned(worked);
        }
        Ok(())
    })?;
    Ok(())
}

/// What the peer does with received bytes.
fn answering(request_bytes: usize, reply_bytes: usize, told_apart: bool) -> impl FnMut(&[u8], &mut Vec<u8>) {
    let (pump, frames) = (Template::new(reply_bytes), Frames::new(reply_bytes));
    let (mut messages, mut walker) = (Counter::new(request_bytes), Walker::default());
    move |bytes, answers| {
        if told_apart {
            walker.each(bytes, |place| frames.put(place, answers));
        } else {
            pump.put(messages.count(bytes.len()), answers);
        }
    }
}

/// The asking side: keeps `outstanding` requests in flight until the time is over.
fn ask(connection: &mut Connection<'_>, shape: &Shape, watch: &Watch, length: RoundLength) -> io::Result<Sample> {
    let clock = Clock::get();
    let outstanding = shape.outstanding.max(1) as usize;
    let told_apart = shape.told_apart();
    let (requests, frames) = (Template::new(shape.request_bytes), Frames::new(shape.request_bytes));
    let (mut replies, mut walker) = (Counter::new(shape.reply_bytes), Walker::default());
    let mut idle = Idle::new(shape.spin);
    let mut flight = Flight::new(outstanding);
    let (warm_up, duration) = (clock.ticks_in(length.warm_up), clock.ticks_in(length.duration));
    let (mut start, mut measuring, mut mark) = (clock.ticks(), false, Mark::now(watch)?);
    flight.send(outstanding, start);
    if told_apart {
        (0..outstanding).for_each(|place| frames.put(place as u64, connection.pending()));
    } else {
        requests.put(outstanding, connection.pending());
    }
    loop {
        let sleep = idle.sleep_now();
        let mut now = start;
        let worked = connection.turn(sleep, |bytes, out| {
            if told_apart {
                now = clock.ticks();
                walker.each(bytes, |place| {
                    flight.answered_at(place, now, clock);
                    frames.put(place, out);
                });
                return;
            }
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
            let elapsed = Duration::from_nanos(clock.ns(now - start));
            return Ok(Sample::new(flight.operations, elapsed, core::mem::take(&mut flight.latencies), usage));
        }
    }
}

/// The asking side in an open loop: sends at times fixed beforehand, latency from the intended time.
fn ask_on_schedule(
    connection: &mut Connection<'_>,
    shape: &Shape,
    rate_per_second: f64,
    watch: &Watch,
    length: RoundLength,
) -> io::Result<Sample> {
    let clock = Clock::get();
    let schedule = Schedule::constant(rate_per_second, length.warm_up + length.duration).map_err(io::Error::other)?;
    let mut open = OpenLoop::new(schedule);
    let (frames, mut walker) = (Frames::new(shape.request_bytes), Walker::default());
    let mut flight = Flight::new(OPEN_LOOP_IN_FLIGHT_MAX as usize);
    let start = clock.ticks();
    let (measured_from, until) = (clock.ticks_in(length.warm_up), clock.ticks_in(length.warm_up + length.duration));
    let (mut marks, mut in_flight) = (None, 0_u32);
    loop {
        let mut now = clock.ticks() - start;
        if marks.is_none() && now >= measured_from {
            let mark = Mark::now(watch)?;
            now = clock.ticks() - start;
            flight.measure_from(start + now + clock.ticks_in(length.settling_time()));
            open.count_from(clock.ns(now));
            marks = Some((mark, now));
        } else if let Some((mark, from)) = &marks
            && now >= until
        {
            let elapsed = Duration::from_nanos(clock.ns(now - from));
            let usage = mark.until(&Mark::now(watch)?);
            let mut sample = Sample::new(flight.operations, elapsed, core::mem::take(&mut flight.latencies), usage);
            sample.sends = Some(open.tally(clock.ns(now)));
            return Ok(sample);
        }
        while in_flight < OPEN_LOOP_IN_FLIGHT_MAX
            && let Some(send) = open.next(clock.ns(now))
        {
            let place = send.index as usize & (flight.sent_at.len() - 1);
            flight.sent_at[place] = start + clock.ticks_in(Duration::from_nanos(send.intended_ns));
            frames.put(place as u64, connection.pending());
            in_flight += 1;
        }
        // The next send is due before a sleep would end.
        connection.turn(false, |bytes, _| {
            let now = clock.ticks();
            walker.each(bytes, |place| {
                flight.answered_at(place, now, clock);
                in_flight = in_flight.saturating_sub(1);
            });
        })?;
        if connection.closed {
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the peer of the floor closed"));
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

    /// The answer to the request of this place has come, and the next one of that place goes out.
    #[inline]
    fn answered_at(&mut self, place: u64, now: u64, clock: &Clock) {
        let mask = self.sent_at.len() - 1;
        let sent_at = core::mem::replace(&mut self.sent_at[place as usize & mask], now);
        if self.sampler.pick() && sent_at >= self.measured_from {
            self.latencies.record(clock.ns(now.saturating_sub(sent_at)));
        }
        self.operations += 1;
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

/// Writes messages one by one, each with its header.
struct Frames {
    message: Vec<u8>,
}

impl Frames {
    fn new(message_bytes: usize) -> Self {
        let mut message = vec![0x5a; message_bytes.max(HEADER_BYTES)];
        let length = message.len() as u32;
        message[..4].copy_from_slice(&length.to_le_bytes());
        Self { message }
    }

    #[inline]
    fn put(&self, place: u64, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.message);
        out[start + 4..start + HEADER_BYTES].copy_from_slice(&place.to_le_bytes());
    }
}

/// Finds the messages in a stream of bytes, however it is cut.
#[derive(Default)]
struct Walker {
    /// The start of a message whose rest has not come.
    partial: Vec<u8>,
}

impl Walker {
    /// Length and place of the message that starts here, once its header is there.
    #[inline]
    fn header(bytes: &[u8]) -> Option<(usize, u64)> {
        let header = bytes.first_chunk::<HEADER_BYTES>()?;
        let (length, place) = header.split_first_chunk::<4>()?;
        let place = place.first_chunk().copied().map(u64::from_le_bytes)?;
        Some(((u32::from_le_bytes(*length) as usize).max(HEADER_BYTES), place))
    }

    #[inline]
    fn each(&mut self, mut bytes: &[u8], mut take: impl FnMut(u64)) {
        while !self.partial.is_empty() {
            let known = Self::header(&self.partial);
            let wanted = known.map_or(HEADER_BYTES, |(length, _)| length);
            if let Some((length, place)) = known
                && self.partial.len() >= length
            {
                self.partial.clear();
                take(place);
                break;
            }
            if bytes.is_empty() {
                return;
            }
            let (missing, rest) = bytes.split_at((wanted - self.partial.len()).min(bytes.len()));
            self.partial.extend_from_slice(missing);
            bytes = rest;
        }
        while let Some((length, place)) = Self::header(bytes)
            && let Some(rest) = bytes.get(length..)
        {
            take(place);
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
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
    fn messages_are_told_apart_over_any_chunking() {
        let mut stream = Vec::new();
        for place in 0..50 {
            Frames::new(if place % 3 == 0 { HEADER_BYTES } else { 40 }).put(place, &mut stream);
        }
        for size in [1, 2, 11, 12, 13, 39, 40, 41, 100, stream.len()] {
            let (mut walker, mut places) = (Walker::default(), Vec::new());
            stream.chunks(size).for_each(|chunk| walker.each(chunk, |place| places.push(place)));
            assert_eq!(places, (0..50).collect::<Vec<_>>(), "chunks of {size}");
            assert!(walker.partial.is_empty());
        }
    }

    #[test]
    fn requests_over_two_rings_are_all_answered() {
        let short = Spin::For(Duration::from_micros(50));
        for (outstanding, spin, told_apart) in
            [(1, Spin::For(Duration::ZERO), true), (64, short, true), (64, short, false)]
        {
            let shape =
                Shape { request_bytes: 100, reply_bytes: 30, outstanding, rate_per_second: None, spin, told_apart };
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let served = std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                let (mut answer, mut received) = (answering(100, 30, told_apart), 0);
                with_connection(&stream, |connection| {
                    while !connection.closed {
                        connection.turn(true, |bytes, out| {
                            received += bytes.len();
                            answer(bytes, out);
                        })?;
                    }
                    Ok(received % 100)
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
