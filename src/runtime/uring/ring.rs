//! One io_uring instance with the memory that the kernel works on, behind a safe interface.
//!
//! Every submission is an operation in a table that owns its memory: bytes to send, room for a hello, an address. The last
//! completion gives that memory back to the caller. Nothing else can reach it meanwhile.
#![allow(unsafe_code)]

use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use super::buffers::{BUFFER_GROUP, ReceiveBuffers, Received};
use super::error::RingError;
use super::sockets::SocketAddress;
use crate::base::limits::COMPLETIONS_PER_TURN;
use crate::runtime::operations::{OperationId, Operations};

/// Entries of the submission queue: one turn rarely has more; the rest waits in a list of ours.
const SUBMISSIONS: u32 = 256;
/// Entries of the completion queue. When it is full the kernel keeps the rest and ends multishot operations, which are re-armed.
const COMPLETIONS: u32 = 4096;
/// Largest single send. A larger output goes in pieces, so that one link does not keep the kernel, and thereby this core, for long.
const SEND_BYTES_MAX: usize = 1 << 20;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_REGISTERED_RING: u32 = 1 << 4;
const REGISTER_RING_FDS: u32 = 20;
const UNREGISTER_RING_FDS: u32 = 21;

/// What an operation is about, in words of the caller (`P`), and what it keeps for the kernel.
struct Operation<P> {
    purpose: P,
    kind: Kind,
}

enum Kind {
    AcceptMany,
    ReceiveMany,
    Bytes(Vec<u8>),
    Connect(Lent<SocketAddress>),
    Timeout(Lent<Timespec>),
}

/// A value that the kernel reads. It has no destructor on purpose: memory that the kernel may still use is leaked, not freed.
struct Lent<T>(NonNull<T>);

impl<T> Lent<T> {
    fn new(value: T) -> Lent<T> {
        Lent(NonNull::from(Box::leak(Box::new(value))))
    }

    fn take_back(self) -> T {
        // SAFETY: the pointer came from a leaked box of this type in `new`, and `self` is consumed: it is freed once.
        *unsafe { Box::from_raw(self.0.as_ptr()) }
    }
}

/// What an operation came to. Errors are numbers of the operating system.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// A connection was accepted.
    Accepted(Result<OwnedFd, i32>),
    /// Bytes arrived in a shared buffer; `Ok(None)` is the end of the stream.
    Received(Result<Option<Received>, i32>),
    /// Bytes were sent or received (how many), and their memory is back.
    Moved(Vec<u8>, Result<usize, i32>),
    /// A connect ended.
    Connected(Result<(), i32>),
    /// A timeout expired or was cancelled.
    Expired,
}

/// One completion.
#[derive(Debug)]
pub(crate) struct Completion<P> {
    /// What the operation was about.
    pub purpose: P,
    /// Its result.
    pub outcome: Outcome,
    /// True if the same operation will complete again.
    pub more: bool,
}

/// The ring of a core. It stays on the thread that made it.
pub(crate) struct Ring<P: Copy> {
    io: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<ReceiveBuffers>,
    operations: ManuallyDrop<Operations<Operation<P>>>,
    waiting: VecDeque<squeue::Entry>,
    registered: Option<u32>,
    reaped: VecDeque<cqueue::Entry>,
    _on_its_thread: PhantomData<*const ()>,
}

/// How the kernel is asked to run its side, best first.
fn build() -> Result<IoUring, RingError> {
    let mut last = None;
    for attempt in 0..4 {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_cqsize(COMPLETIONS).setup_submit_all();
        match attempt {
            0 => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().setup_no_sqarray(),
            1 => builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag(),
            2 => builder.setup_single_issuer().setup_coop_taskrun().setup_taskrun_flag(),
            _ => builder.setup_coop_taskrun().setup_taskrun_flag(),
        };
        match builder.build(SUBMISSIONS) {
            Ok(io) => return Ok(io),
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => last = Some(error),
            Err(error) => return Err(RingError::of(error, "a ring")),
        }
    }
    let error = last.unwrap_or_else(|| io::Error::from_raw_os_error(libc::EINVAL));
    Err(RingError::of(error, "cooperative task running (IORING_SETUP_COOP_TASKRUN)"))
}

impl<P: Copy> Ring<P> {
    /// Makes a ring for this thread, with its receive buffers and at most `operations_max` operations in flight.
    ///
    /// # Errors
    /// When the host does not allow it; the error says what to change.
    pub fn new(receive_buffers: u16, buffer_bytes: u32, operations_max: usize) -> Result<Ring<P>, RingError> {
        let sensible = receive_buffers.is_power_of_two() && receive_buffers <= 1 << 15;
        if !sensible || !(1 << 10..=1 << 20).contains(&buffer_bytes) {
            return Err(RingError::Buffers);
        }
        let io = build()?;
        let buffers = ReceiveBuffers::new(receive_buffers, buffer_bytes as usize)
            .map_err(|error| RingError::of(error, "memory"))?;
        // SAFETY: address and count are those of a mapping that `Ring` keeps until the kernel has ended every receive (see Drop).
        unsafe { io.submitter().register_buf_ring_with_flags(buffers.address(), buffers.count(), BUFFER_GROUP, 0) }
            .map_err(|error| RingError::of(error, "rings of receive buffers (IORING_REGISTER_PBUF_RING)"))?;
        let registered = register_ring(&io);
        Ok(Ring {
            io: ManuallyDrop::new(io),
            buffers: ManuallyDrop::new(buffers),
            operations: ManuallyDrop::new(Operations::new(operations_max)),
            waiting: VecDeque::new(),
            registered,
            reaped: VecDeque::with_capacity(COMPLETIONS_PER_TURN),
            _on_its_thread: PhantomData,
        })
    }

    /// Has the bell rung by every completion while [`enable_bell`](Ring::enable_bell) is on.
    pub fn register_bell(&mut self, bell: BorrowedFd<'_>) -> io::Result<()> {
        self.io.submitter().register_eventfd(bell.as_raw_fd())?;
        self.enable_bell(false);
        Ok(())
    }

    /// Switches the bell on before sleeping and off after it: while awake it would only cost.
    pub fn enable_bell(&mut self, enabled: bool) {
        let completions = self.io.completion();
        if enabled {
            completions.enable_eventfd();
        } else {
            completions.disable_eventfd();
        }
    }

    /// Is there anything to reap? Reads memory only.
    #[inline]
    pub fn ready(&self) -> bool {
        // SAFETY: queues exist only within methods that hold `&mut self`, so there is no other one while `&self` is held, and
        // these two end within this method. The thread does not change: Ring is not Send.
        let (submissions, completions) = unsafe { (self.io.submission_shared(), self.io.completion_shared()) };
        !completions.is_empty() || submissions.taskrun() || submissions.cq_overflow()
    }

    /// Does the kernel have to be entered before all completions can be reaped?
    #[inline]
    pub fn needs_enter(&self) -> bool {
        // SAFETY: as in `ready`.
        let submissions = unsafe { self.io.submission_shared() };
        submissions.taskrun() || submissions.cq_overflow()
    }

    /// Are there operations that the kernel has not been told of?
    #[inline]
    pub fn has_submissions(&self) -> bool {
        // SAFETY: as in `ready`.
        !unsafe { self.io.submission_shared() }.is_empty() || !self.waiting.is_empty()
    }

    /// Tells the kernel of all new operations and lets it do its part of finished ones. Never waits.
    ///
    /// # Errors
    /// Only such that leave the ring unusable.
    pub fn enter(&mut self) -> io::Result<()> {
        loop {
            let count = self.refill();
            match self.enter_once(count) {
                Ok(taken) if taken > 0 && !self.waiting.is_empty() => {}
                Ok(_) => return Ok(()),
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    // Completions must be reaped first, or memory is short for a moment: the submissions stay queued.
                    Some(libc::EBUSY | libc::EAGAIN) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Moves waiting submissions into the queue; says how many it holds.
    fn refill(&mut self) -> u32 {
        let mut submissions = self.io.submission();
        while let Some(entry) = self.waiting.front() {
            // SAFETY: the entry was made by `start` and its memory is in the table of operations.
            if unsafe { submissions.push(entry) }.is_err() {
                break;
            }
            self.waiting.pop_front();
        }
        submissions.len() as u32
    }

    fn enter_once(&self, to_submit: u32) -> io::Result<u32> {
        let (descriptor, flags) = match self.registered {
            Some(index) => (index as i32, ENTER_GETEVENTS | ENTER_REGISTERED_RING),
            None => (self.io.as_raw_fd(), ENTER_GETEVENTS),
        };
        // SAFETY: descriptor and flags name this ring; no wait and no signal mask are passed. The kernel reads `to_submit`
        // entries that are in the queue, whose memory is in the table of operations until their last completion.
        let result = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                descriptor,
                to_submit,
                0,
                flags,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as u32) }
    }

    /// Takes a batch of completions off the queue; [`next_completion`](Ring::next_completion) reads them. Says how many.
    pub fn reap(&mut self) -> usize {
        let room = COMPLETIONS_PER_TURN.saturating_sub(self.reaped.len());
        let completions = self.io.completion();
        self.reaped.extend(completions.take(room));
        self.reaped.len()
    }

    /// The next completion of the batch that somebody waits for.
    pub fn next_completion(&mut self) -> Option<Completion<P>> {
        while let Some(entry) = self.reaped.pop_front() {
            if let Some(completion) = self.interpret(entry) {
                return Some(completion);
            }
        }
        None
    }

    fn interpret(&mut self, entry: cqueue::Entry) -> Option<Completion<P>> {
        let id = OperationId(entry.user_data());
        let more = cqueue::more(entry.flags());
        let result = if entry.result() < 0 { Err(-entry.result()) } else { Ok(entry.result() as usize) };
        let buffer = cqueue::buffer_select(entry.flags());
        let operation = self.operations.get_mut(id)?;
        let purpose = operation.purpose;
        let outcome = match &operation.kind {
            // SAFETY: a successful accept results in a new descriptor that nobody else owns or sees.
            Kind::AcceptMany => Outcome::Accepted(result.map(|fd| unsafe { OwnedFd::from_raw_fd(fd as i32) })),
            Kind::ReceiveMany => Outcome::Received(match (result, buffer) {
                (Ok(length), Some(buffer)) => Ok(self.buffers.take(buffer, length)),
                (Ok(_), None) => Ok(None),
                (Err(error), _) => Err(error),
            }),
            Kind::Bytes(_) | Kind::Connect(_) | Kind::Timeout(_) => return self.last(id, purpose, result),
        };
        if !more {
            self.operations.finish(id);
        }
        Some(Completion { purpose, outcome, more })
    }

    /// The only completion of an operation with memory: takes it back.
    fn last(&mut self, id: OperationId, purpose: P, result: Result<usize, i32>) -> Option<Completion<P>> {
        let outcome = match self.operations.finish(id)?.kind {
            Kind::Bytes(bytes) => Outcome::Moved(bytes, result),
            Kind::Connect(address) => {
                address.take_back();
                Outcome::Connected(result.map(drop))
            }
            Kind::Timeout(time) => {
                time.take_back();
                Outcome::Expired
            }
            Kind::AcceptMany | Kind::ReceiveMany => return None,
        };
        Some(Completion { purpose, outcome, more: false })
    }

    /// The bytes of a receive.
    #[inline]
    pub fn bytes(&self, received: &Received) -> &[u8] {
        self.buffers.bytes(received)
    }

    /// Gives the buffer of a receive back.
    #[inline]
    pub fn give_back(&mut self, received: Received) {
        self.buffers.give_back(received);
    }

    /// Shows the kernel what was given back.
    #[inline]
    pub fn publish_buffers(&self) {
        self.buffers.publish();
    }

    fn start(
        &mut self,
        purpose: P,
        kind: Kind,
        build: impl FnOnce(&Kind) -> squeue::Entry,
    ) -> Result<OperationId, Kind> {
        let entry = build(&kind);
        let id = self.operations.insert(Operation { purpose, kind }).map_err(|operation| operation.kind)?;
        self.push(entry.user_data(id.0));
        Ok(id)
    }

    fn push(&mut self, entry: squeue::Entry) {
        // Order is kept: as long as something waits, everything waits.
        // SAFETY: the entry's memory is in the table of operations until its last completion.
        if !self.waiting.is_empty() || unsafe { self.io.submission().push(&entry) }.is_err() {
            self.waiting.push_back(entry);
        }
    }

    /// Accepts connections until it ends (`more` is false).
    pub fn accept_many(&mut self, purpose: P, listener: BorrowedFd<'_>) -> Option<OperationId> {
        let fd = Fd(listener.as_raw_fd());
        self.start(purpose, Kind::AcceptMany, |_| opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build()).ok()
    }

    /// Receives into shared buffers until it ends (`more` is false).
    pub fn receive_many(&mut self, purpose: P, socket: BorrowedFd<'_>) -> Option<OperationId> {
        let fd = Fd(socket.as_raw_fd());
        self.start(purpose, Kind::ReceiveMany, |_| opcode::RecvMulti::new(fd, BUFFER_GROUP).build()).ok()
    }

    /// Receives into `bytes[from..]`, once.
    pub fn receive_into(
        &mut self,
        purpose: P,
        socket: BorrowedFd<'_>,
        bytes: Vec<u8>,
        from: usize,
    ) -> Option<OperationId> {
        let fd = Fd(socket.as_raw_fd());
        let mut bytes = bytes;
        let from = from.min(bytes.len());
        let room = (bytes.len() - from).min(SEND_BYTES_MAX) as u32;
        // The kernel writes through this pointer; moving the Vec into the table does not move what it points to.
        let start = bytes[from..].as_mut_ptr();
        self.start(purpose, Kind::Bytes(bytes), |_| opcode::Recv::new(fd, start, room).build()).ok()
    }

    /// Sends `bytes[from..]`; may send less.
    ///
    /// # Errors
    /// The bytes, if too many operations are in flight.
    pub fn send(
        &mut self,
        purpose: P,
        socket: BorrowedFd<'_>,
        bytes: Vec<u8>,
        from: usize,
    ) -> Result<OperationId, Vec<u8>> {
        let fd = Fd(socket.as_raw_fd());
        let rest = &bytes[from.min(bytes.len())..];
        let (start, length) = (rest.as_ptr(), rest.len().min(SEND_BYTES_MAX) as u32);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        self.start(purpose, Kind::Bytes(bytes), |_| opcode::Send::new(fd, start, length).flags(flags).build()).map_err(
            |kind| match kind {
                Kind::Bytes(bytes) => bytes,
                _ => Vec::new(),
            },
        )
    }

    /// Connects a socket.
    pub fn connect(&mut self, purpose: P, socket: BorrowedFd<'_>, address: SocketAddr) -> Option<OperationId> {
        let fd = Fd(socket.as_raw_fd());
        let address = SocketAddress::from(address);
        let length = address.length();
        let lent = Lent::new(address);
        let pointer = lent.0.as_ptr().cast_const().cast::<libc::sockaddr>();
        match self.start(purpose, Kind::Connect(lent), |_| opcode::Connect::new(fd, pointer, length).build()) {
            Ok(id) => Some(id),
            Err(kind) => {
                if let Kind::Connect(address) = kind {
                    address.take_back();
                }
                None
            }
        }
    }

    /// Completes after a time, and so rings the bell.
    pub fn timeout(&mut self, purpose: P, after: Duration) -> Option<OperationId> {
        let lent = Lent::new(Timespec::new().sec(after.as_secs()).nsec(after.subsec_nanos()));
        let pointer = lent.0.as_ptr().cast_const();
        match self.start(purpose, Kind::Timeout(lent), |_| opcode::Timeout::new(pointer).build()) {
            Ok(id) => Some(id),
            Err(kind) => {
                if let Kind::Timeout(time) = kind {
                    time.take_back();
                }
                None
            }
        }
    }

    /// Asks the kernel to end an operation. Its last completion comes in any case.
    pub fn cancel(&mut self, operation: OperationId) {
        if self.operations.get_mut(operation).is_some() {
            // user_data 0: nobody waits for the answer.
            self.push(opcode::AsyncCancel::new(operation.0).build().user_data(0));
        }
    }
}

impl<P: Copy> Ring<P> {
    /// Ends every operation. True if the kernel is done with all of them.
    fn end_all(&mut self) -> bool {
        const ROUNDS: u32 = 200;
        for round in 0..ROUNDS {
            if self.enter().is_err() {
                return false;
            }
            while self.reap() > 0 {
                while self.next_completion().is_some() {}
            }
            if self.operations.len() == 0 {
                return true;
            }
            if round % 20 == 0 {
                let limit = Timespec::new().nsec(10_000_000);
                let _ = self.io.submitter().register_sync_cancel(Some(limit), CancelBuilder::any());
            } else {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        false
    }
}

impl<P: Copy> Drop for Ring<P> {
    fn drop(&mut self) {
        let ended = self.end_all();
        if let Some(index) = self.registered.take() {
            unregister_ring(&self.io, index);
        }
        // SAFETY: each is dropped at most once, here, and not used afterwards. The ring goes first. Memory that the kernel may
        // still use (an operation did not end) is leaked: it stays valid for ever.
        unsafe {
            ManuallyDrop::drop(&mut self.io);
            if ended {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.operations);
            }
        }
    }
}

/// Gives the ring an index of this thread, which makes entering the kernel cheaper. `None` where that does not work.
fn register_ring(io: &IoUring) -> Option<u32> {
    let mut update = RingUpdate { offset: u32::MAX, reserved: 0, data: io.as_raw_fd() as u64 };
    // SAFETY: the kernel reads and writes one structure of its own layout, which lives across the call.
    let count = unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            io.as_raw_fd(),
            REGISTER_RING_FDS,
            std::ptr::from_mut(&mut update),
            1,
        )
    };
    (count == 1).then_some(update.offset)
}

fn unregister_ring(io: &IoUring, index: u32) {
    let mut update = RingUpdate { offset: index, reserved: 0, data: 0 };
    // SAFETY: as in `register_ring`.
    unsafe {
        libc::syscall(
            libc::SYS_io_uring_register,
            io.as_raw_fd(),
            UNREGISTER_RING_FDS,
            std::ptr::from_mut(&mut update),
            1,
        )
    };
}

/// `struct io_uring_rsrc_update` of the kernel.
#[repr(C)]
struct RingUpdate {
    offset: u32,
    reserved: u32,
    data: u64,
}
