//! One TCP connection on one raw io_uring ring: multishot receive into provided buffers, batched sends. As little as it
//! takes to move bytes, for [`super::bare_ring`].
//!
//! Invariants: a buffer that the kernel may read or write is never touched, moved or freed by us. While a send is in
//! flight `sending` is not touched; new bytes gather in `pending`. A receive buffer is read only between its
//! completion and its return to the ring. Dropping a [`Connection`] waits until all requests have ended.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU16, Ordering};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsRawFd;

use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue, types};

const SUBMISSIONS: u32 = 64;
const COMPLETIONS: u32 = 1_024;
/// Receive buffers; a power of two, as the kernel asks.
const BUFFERS: u16 = 64;
const BUFFER_BYTES: usize = 16 * 1_024;
const BUFFER_GROUP: u16 = 0;
const PAGE: usize = 4_096;
const RECEIVE: u64 = 1;
const SEND: u64 = 2;
/// IORING_ENTER_GETEVENTS: run the deferred work and look for completions.
const GET_EVENTS: u32 = 1;

/// Memory shared with the kernel: the ring of buffer entries, then the buffers.
struct ReceiveBuffers {
    memory: *mut u8,
    tail: u16,
    /// Set when requests may still be in flight and will never be seen to end.
    leaked: bool,
}

impl ReceiveBuffers {
    const ENTRIES_BYTES: usize = (BUFFERS as usize * size_of::<types::BufRingEntry>()).next_multiple_of(PAGE);

    fn layout() -> Layout {
        Layout::from_size_align(Self::ENTRIES_BYTES + BUFFERS as usize * BUFFER_BYTES, PAGE).expect("a constant layout")
    }

    fn new() -> Self {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(Self::layout()) };
        if memory.is_null() {
            handle_alloc_error(Self::layout());
        }
        Self { memory, tail: 0, leaked: false }
    }

    fn register(&mut self, ring: &IoUring) -> io::Result<()> {
        // SAFETY: the memory holds BUFFERS entries, is aligned to a page and outlives the ring: `with_connection`
        // declares it first, so it is dropped last.
        unsafe { ring.submitter().register_buf_ring_with_flags(self.memory as u64, BUFFERS, BUFFER_GROUP, 0)? };
        (0..BUFFERS).for_each(|buffer| self.give(buffer));
        self.publish();
        Ok(())
    }

    fn buffer(&self, buffer: u16) -> *mut u8 {
        // SAFETY: `buffer` is below BUFFERS (all come from `register` or from `buffer_select`, which returns what we
        // registered), so the offset stays inside of the allocation.
        unsafe { self.memory.add(Self::ENTRIES_BYTES + buffer as usize * BUFFER_BYTES) }
    }

    /// Puts a buffer back; the kernel sees it after `publish`.
    fn give(&mut self, buffer: u16) {
        let address = self.buffer(buffer) as u64;
        let slot = usize::from(self.tail % BUFFERS);
        // SAFETY: the slot lies inside of the entries. The kernel reads only slots below the published tail, and
        // at most BUFFERS buffers exist, so it has consumed what was in this slot. The setters leave `resv` of entry
        // 0, which is the tail, alone.
        let entry = unsafe { &mut *self.memory.cast::<types::BufRingEntry>().add(slot) };
        entry.set_addr(address);
        entry.set_len(BUFFER_BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    fn publish(&self) {
        // SAFETY: `memory` is the address of the first entry, initialised with zeros; the tail is a u16 inside of it,
        // aligned to two bytes, that we write only through this atomic.
        let tail = unsafe { &*types::BufRingEntry::tail(self.memory.cast()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}

impl Drop for ReceiveBuffers {
    fn drop(&mut self) {
        if self.leaked {
            return;
        }
        // SAFETY: allocated in `new` with this layout and freed once. The kernel has no request left that could write
        // to it: the drop of `Connection` waited for them, or set `leaked`.
        unsafe { dealloc(self.memory, Self::layout()) };
    }
}

/// The two ends of the ring and the state of the one connection on it.
pub(super) struct Connection<'ring> {
    submitter: Submitter<'ring>,
    submissions: SubmissionQueue<'ring>,
    completions: CompletionQueue<'ring>,
    buffers: &'ring mut ReceiveBuffers,
    stream: &'ring TcpStream,
    sending: Vec<u8>,
    pending: Vec<u8>,
    sent: usize,
    send_in_flight: bool,
    receive_in_flight: bool,
    /// Whether the peer closed, or the connection failed.
    pub(super) closed: bool,
}

/// Runs `work` with a ring on the calling thread, which must be the only one that uses it. Closes `stream` at the end.
pub(super) fn with_connection<T>(
    stream: &TcpStream,
    work: impl FnOnce(&mut Connection<'_>) -> io::Result<T>,
) -> io::Result<T> {
    let mut buffers = ReceiveBuffers::new();
    let mut ring = make_ring()?;
    buffers.register(&ring)?;
    let (mut submitter, submissions, completions) = ring.split();
    // Saves the kernel a look-up per call; where it is missing, the plain descriptor serves.
    let _ = submitter.register_ring_fd();
    let mut connection = Connection {
        submitter,
        submissions,
        completions,
        buffers: &mut buffers,
        stream,
        sending: Vec::with_capacity(1 << 19),
        pending: Vec::with_capacity(1 << 19),
        sent: 0,
        send_in_flight: false,
        receive_in_flight: false,
        closed: false,
    };
    connection.receive();
    work(&mut connection)
}

impl Drop for Connection<'_> {
    /// Ends the connection and waits until the kernel has given all memory back, also when `work` panicked.
    fn drop(&mut self) {
        // A shut down socket ends its requests at once.
        let _ = self.stream.shutdown(Shutdown::Both);
        self.closed = true;
        while self.send_in_flight || self.receive_in_flight {
            if self.turn(true, |_, _| {}).is_err() {
                // Without the ring we cannot learn when they end: rather leak the memory than free it under the kernel.
                self.buffers.leaked = true;
                core::mem::forget(core::mem::take(&mut self.sending));
                return;
            }
        }
    }
}

fn make_ring() -> io::Result<IoUring> {
    let build = |without_array: bool| {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(COMPLETIONS).setup_submit_all().setup_single_issuer().setup_defer_taskrun();
        builder.setup_taskrun_flag();
        if without_array {
            builder.setup_no_sqarray();
        }
        builder.build(SUBMISSIONS)
    };
    // Linux 6.6 and later can do without the array of indices.
    build(true).or_else(|_| build(false))
}

impl Connection<'_> {
    /// One turn: sends what is pending, takes what has come. `take` gets received bytes and the buffer for answers.
    /// With `wait` it sleeps until something happens. Returns whether anything did.
    #[inline]
    pub(super) fn turn(&mut self, wait: bool, mut take: impl FnMut(&[u8], &mut Vec<u8>)) -> io::Result<bool> {
        self.send();
        let entered = self.enter(wait)?;
        self.completions.sync();
        let (mut came, mut gave) = (false, false);
        while let Some(completion) = self.completions.next() {
            came = true;
            let (result, flags) = (completion.result(), completion.flags());
            if completion.user_data() == SEND {
                self.send_ended(result);
                continue;
            }
            self.receive_in_flight = cqueue::more(flags);
            if let Some(buffer) = cqueue::buffer_select(flags) {
                if result > 0 {
                    let start = self.buffers.buffer(buffer);
                    // SAFETY: the kernel filled `result` bytes of this buffer, at most BUFFER_BYTES, and lets it alone
                    // until it is given back below; the slice ends before that.
                    take(unsafe { core::slice::from_raw_parts(start, result as usize) }, &mut self.pending);
                }
                self.buffers.give(buffer);
                gave = true;
            }
            self.closed |= result == 0 || (result < 0 && result != -libc::ENOBUFS);
        }
        if gave {
            self.buffers.publish();
        }
        if !came {
            return Ok(entered);
        }
        if !self.receive_in_flight && !self.closed {
            self.receive();
        }
        self.send();
        self.enter(false)?;
        Ok(true)
    }

    /// Bytes that the next turn sends.
    pub(super) fn pending(&mut self) -> &mut Vec<u8> {
        &mut self.pending
    }

    #[inline]
    fn enter(&mut self, wait: bool) -> io::Result<bool> {
        self.submissions.sync();
        let submissions = self.submissions.len() as u32;
        if submissions == 0 && !self.submissions.taskrun() && !wait {
            return Ok(false);
        }
        loop {
            // SAFETY: no argument is passed. All submitted entries point to memory that this connection keeps until
            // their completion: the receive buffers, and `sending` while `send_in_flight`.
            match unsafe { self.submitter.enter::<libc::sigset_t>(submissions, wait.into(), GET_EVENTS, None) } {
                Ok(_) => break,
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(error),
            }
        }
        self.submissions.sync();
        Ok(true)
    }

    #[inline]
    fn send(&mut self) {
        if self.send_in_flight || self.pending.is_empty() || self.closed {
            return;
        }
        core::mem::swap(&mut self.sending, &mut self.pending);
        self.pending.clear();
        self.sent = 0;
        self.send_rest();
    }

    #[inline]
    fn send_rest(&mut self) {
        let rest = &self.sending[self.sent..];
        let entry = opcode::Send::new(types::Fd(self.stream.as_raw_fd()), rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
            .user_data(SEND);
        self.push(&entry);
        self.send_in_flight = true;
    }

    #[inline]
    fn send_ended(&mut self, result: i32) {
        self.send_in_flight = false;
        self.sent += result.max(0) as usize;
        self.closed |= result <= 0;
        if self.sent < self.sending.len() && !self.closed {
            self.send_rest();
        }
    }

    fn receive(&mut self) {
        let entry = opcode::RecvMulti::new(types::Fd(self.stream.as_raw_fd()), BUFFER_GROUP).build().user_data(RECEIVE);
        self.push(&entry);
        self.receive_in_flight = true;
    }

    #[inline]
    fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: both kinds of entry point to memory that lives until their completion, as `enter` explains.
        let pushed = unsafe { self.submissions.push(entry) };
        // One receive and one send at a time: the queue of 64 is never full.
        debug_assert!(pushed.is_ok());
    }
}

/// Chooses the congestion control that suits a rack and every kernel has.
pub(super) fn use_reno(stream: &TcpStream) -> io::Result<()> {
    const NAME: &[u8] = b"reno";
    // SAFETY: the pointer and the length describe NAME, which the kernel copies.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            NAME.as_ptr().cast(),
            NAME.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
