//! The receive buffers that a core shares among its links: a ring of buffers that the kernel takes from.
#![allow(unsafe_code)]

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::BufRingEntry;

/// The kernel's number for our only group of buffers.
pub(crate) const BUFFER_GROUP: u16 = 1;

/// Bytes that arrived: a buffer that is ours until it is given back.
#[derive(Debug)]
pub(crate) struct Received {
    buffer: u16,
    length: usize,
}

/// Anonymous memory that ends with this value.
struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> io::Result<Mapping> {
        // SAFETY: a new private anonymous mapping at an address that the kernel chooses overlaps nothing that exists.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Mapping { start, bytes })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: start and length are those of the mapping made in `new`, which nothing else unmaps.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// The buffers of one core. The owner keeps this alive until the kernel has ended all receives of the ring.
pub(crate) struct ReceiveBuffers {
    entries: Mapping,
    slab: Mapping,
    count: u16,
    size: usize,
    tail: u16,
    /// Which buffers are ours at the moment: only these may be read.
    held: Box<[bool]>,
}

impl ReceiveBuffers {
    /// Maps the memory and fills the ring of buffers; nothing is registered yet.
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(count: u16, size: usize) -> io::Result<ReceiveBuffers> {
        assert!(count.is_power_of_two(), "checked by the caller");
        let entries = Mapping::new(usize::from(count) * size_of::<BufRingEntry>())?;
        let slab = Mapping::new(usize::from(count) * size)?;
        let held = vec![true; usize::from(count)].into_boxed_slice();
        let mut buffers = ReceiveBuffers { entries, slab, count, size, tail: 0, held };
        for buffer in 0..count {
            buffers.put(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// Address of the ring of buffers, for registering it.
    pub fn address(&self) -> u64 {
        self.entries.start.as_ptr() as u64
    }

    /// How many buffers there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Takes over a buffer that a completion named. `None` if it is none of ours, or ours already.
    pub fn take(&mut self, buffer: u16, length: usize) -> Option<Received> {
        let held = self.held.get_mut(usize::from(buffer))?;
        if *held || length > self.size {
            return None;
        }
        *held = true;
        Some(Received { buffer, length })
    }

    /// The bytes that arrived.
    pub fn bytes(&self, received: &Received) -> &[u8] {
        let at = usize::from(received.buffer);
        if !self.held.get(at).is_some_and(|held| *held) || received.length > self.size {
            return &[];
        }
        // SAFETY: buffer `at` is one of `count` buffers of `size` bytes in the slab, so the range lies within the mapping, which
        // lives as long as self and is initialized (zero at first, written by the kernel later). `held` says that the kernel gave
        // it to us and that it was not given back: the kernel does not write to it, and giving it back needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.slab.start.as_ptr().add(at * self.size), received.length) }
    }

    /// Gives a buffer back to the kernel, which sees it after [`publish`](ReceiveBuffers::publish).
    pub fn give_back(&mut self, received: Received) {
        if self.held.get(usize::from(received.buffer)).is_some_and(|held| *held) {
            self.put(received.buffer);
        }
    }

    fn put(&mut self, buffer: u16) {
        let at = usize::from(self.tail & (self.count - 1));
        // SAFETY: `at` is below `count` (a power of two), so both the entry and the buffer lie within their mappings, which are
        // page-aligned. The kernel reads only entries between its head and the published tail; there are as many entries as
        // buffers and each buffer is in the ring at most once (`held`), so this entry is not among them. The entry is plain
        // integers and was zeroed by mmap.
        unsafe {
            let entry = &mut *self.entries.start.as_ptr().cast::<BufRingEntry>().add(at);
            entry.set_addr(self.slab.start.as_ptr().add(usize::from(buffer) * self.size) as u64);
            entry.set_len(self.size as u32);
            entry.set_bid(buffer);
        }
        self.held[usize::from(buffer)] = false;
        self.tail = self.tail.wrapping_add(1);
    }

    /// Shows the kernel all buffers that were given back.
    pub fn publish(&self) {
        // SAFETY: the tail is a u16 within the first entry of the mapping (aligned, in bounds, alive as long as self); the kernel
        // only reads it, and we write it only here, atomically.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.start.as_ptr().cast::<BufRingEntry>()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}
