//! Tries on a small ring what the reactor needs: the set-up flags, a buffer ring, a receive that stays armed.
//!
//! Trying is the only reliable answer: versions are backported, and a container can refuse what its kernel has.
#![allow(unsafe_code)]

use core::sync::atomic::{AtomicU16, Ordering};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;

use io_uring::types::{BufRingEntry, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode};

/// Numbers of errors are those of `errno`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFacts {
    /// A ring with one issuer and deferred work can be made.
    pub setup: Result<(), i32>,
    /// A ring without any flag can be made.
    pub plain_setup: Result<(), i32>,
    /// A receive into a buffer ring delivered bytes and stayed armed.
    pub multishot_receive: Result<(), i32>,
    /// Buffers of a ring can be filled in pieces.
    pub incremental_buffers: bool,
}

/// `IOU_PBUF_RING_INC` of `linux/io_uring.h`.
const INCREMENTAL: u16 = 2;
const BUFFER_GROUP: u16 = 1;
/// As many entries as the kernel takes at least; one is used.
const ENTRIES: u16 = 2;
/// Completions until a receive whose peer has closed must have ended: its bytes, its end, and room for doubt.
const COMPLETIONS_MAX: usize = 8;
const PATIENCE: Timespec = Timespec::new().sec(1);

/// One allocation: the buffer ring in its first page, the buffer itself behind. Pages have up to 64 KiB.
#[repr(C, align(65536))]
struct Region([u8; 65536]);

const BUFFER_OFFSET: usize = 4096;
const BUFFER_BYTES: u32 = 64;

/// Tries everything, on a ring that is closed again.
pub fn probe() -> RingFacts {
    let errno = |error: io::Error| error.raw_os_error().unwrap_or(0);
    let plain_setup = IoUring::new(8).map(drop).map_err(errno);
    let ring = || IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(8);
    let setup = ring().map(drop).map_err(errno);
    let multishot_receive = ring().and_then(|ring| receive(ring, 0)).map_err(errno);
    let incremental_buffers = ring().and_then(|ring| receive(ring, INCREMENTAL)).is_ok();
    RingFacts { setup, plain_setup, multishot_receive, incremental_buffers }
}

/// Receives one byte through a buffer ring that is registered with `flags`.
fn receive(mut ring: IoUring, flags: u16) -> io::Result<()> {
    let mut region = Box::new(Region([0; 65536]));
    let base = region.0.as_mut_ptr();
    let entry = base.cast::<BufRingEntry>();
    // SAFETY: `entry` points to the start of a live allocation of 64 KiB that is aligned to 64 KiB, so two entries of
    // 16 bytes and the buffer at BUFFER_OFFSET (4096 + 64 bytes) are inside of it. The entry type is a plain struct of
    // integers, for which all-zero bytes are a value. Nobody else has the pointer: the kernel gets it only below.
    unsafe {
        (*entry).set_addr(base.add(BUFFER_OFFSET) as u64);
        (*entry).set_len(BUFFER_BYTES);
        (*entry).set_bid(0);
    }
    // SAFETY: the region is page-aligned and holds ENTRIES entries. It outlives the registration: it is either
    // unregistered before it is freed, or leaked.
    unsafe { ring.submitter().register_buf_ring_with_flags(base as u64, ENTRIES, BUFFER_GROUP, flags)? };
    // SAFETY: `entry` is the first entry of the buffer ring and initialized; the tail is a u16 at an even offset within
    // it, and only this thread writes it (the kernel reads).
    let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(entry).cast_mut()) };
    tail.store(1, Ordering::Release);

    let outcome = receive_one_byte(&mut ring);
    if let (Ended::Yes, Ok(())) = (outcome.0, ring.submitter().unregister_buf_ring(BUFFER_GROUP)) {
        drop(region);
    } else {
        // The kernel may still write into the buffer: give it up.
        Box::leak(region);
    }
    outcome.1
}

/// Whether the kernel can no longer touch the buffer on behalf of the receive.
#[derive(Clone, Copy)]
enum Ended {
    Yes,
    Unknown,
}

fn receive_one_byte(ring: &mut IoUring) -> (Ended, io::Result<()>) {
    let (reader, writer) = match UnixStream::pair() {
        Ok(pair) => pair,
        Err(error) => return (Ended::Yes, Err(error)),
    };
    if let Err(error) = (&writer).write_all(b"x") {
        return (Ended::Yes, Err(error));
    }
    let request = opcode::RecvMulti::new(Fd(reader.as_raw_fd()), BUFFER_GROUP).build();
    // SAFETY: the request holds no pointer (its buffer comes from the registered ring, which the caller keeps), and its
    // descriptor stays open until this function returns.
    if unsafe { ring.submission().push(&request) }.is_err() {
        return (Ended::Yes, Err(io::ErrorKind::QuotaExceeded.into()));
    }
    let mut writer = Some(writer);
    let mut outcome = Err(io::ErrorKind::UnexpectedEof.into());
    for _ in 0..COMPLETIONS_MAX {
        if let Err(error) = ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&PATIENCE)) {
            return (Ended::Unknown, Err(error));
        }
        while let Some(completion) = ring.completion().next() {
            let armed = cqueue::more(completion.flags());
            match completion.result() {
                1 if armed && cqueue::buffer_select(completion.flags()) == Some(0) => outcome = Ok(()),
                error if error < 0 && writer.is_some() => outcome = Err(io::Error::from_raw_os_error(-error)),
                _ => {}
            }
            if !armed {
                return (Ended::Yes, outcome);
            }
            // The peer closes, so the receive ends by itself.
            writer = None;
        }
    }
    (Ended::Unknown, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_received_implies_what_it_was_received_with() {
        let facts = probe();
        if facts.multishot_receive.is_ok() {
            assert_eq!(facts.setup, Ok(()));
        }
        if facts.incremental_buffers {
            assert_eq!(facts.multishot_receive, Ok(()));
        }
        if facts.setup.is_ok() {
            assert_eq!(facts.plain_setup, Ok(()));
        }
    }
}
