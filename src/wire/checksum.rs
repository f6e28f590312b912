//! crc32c of headers and bodies: short inputs inline, long ones by the `crc32c` crate.
//!
//! Called by `header`, `decoder` and `send_buffer` for each frame, twice. The crate is made for long inputs; for the 36
//! bytes of a header its set-up costs several times the checksum. Invariant: the result is that of the crate for every
//! input (tested for all short lengths).
#![allow(unsafe_code)]

/// Longest input for which the plain loop wins.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SHORT_BYTES: usize = 256;

/// The crc32c (Castagnoli) of `bytes`.
#[inline]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if bytes.len() <= SHORT_BYTES && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short(bytes) };
    }
    crc32c::crc32c(bytes)
}

/// The crc32c of an array: no loop and no branch is left in the code.
#[inline]
pub fn crc32c_of<const N: usize>(bytes: &[u8; N]) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if N <= SHORT_BYTES && std::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has the instruction.
        return unsafe { short_of(bytes) };
    }
    crc32c::crc32c(bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn short_of<const N: usize>(bytes: &[u8; N]) -> u32 {
    steps(bytes)
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
fn short(bytes: &[u8]) -> u32 {
    steps(bytes)
}

/// Eight bytes at a time by the processor's own instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "sse4.2")]
#[inline]
fn steps(bytes: &[u8]) -> u32 {
    use core::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u16, _mm_crc32_u32, _mm_crc32_u64};
    let (words, mut rest) = bytes.as_chunks::<8>();
    let (fours, words) = words.as_chunks::<4>();
    let mut crc = u64::from(u32::MAX);
    for four in fours {
        for word in four {
            crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
        }
    }
    for word in words {
        crc = _mm_crc32_u64(crc, u64::from_le_bytes(*word));
    }
    let mut crc = crc as u32;
    // At most three more steps: each waits for the one before it.
    if let Some((word, after)) = rest.split_first_chunk() {
        crc = _mm_crc32_u32(crc, u32::from_le_bytes(*word));
        rest = after;
    }
    if let Some((word, after)) = rest.split_first_chunk() {
        crc = _mm_crc32_u16(crc, u16::from_le_bytes(*word));
        rest = after;
    }
    if let Some(byte) = rest.first() {
        crc = _mm_crc32_u8(crc, *byte);
    }
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_is_the_checksum_of_the_crate() {
        let bytes: Vec<u8> = (0..600_u32).map(|at| (at * 7 + at / 13) as u8).collect();
        for length in 0..=bytes.len() {
            assert_eq!(super::crc32c(&bytes[..length]), crc32c::crc32c(&bytes[..length]), "{length} bytes");
        }
        assert_eq!(super::crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c_of(b"123456789"), 0xe306_9283);
        assert_eq!(super::crc32c_of(&[7; 300]), crc32c::crc32c(&[7; 300]));
    }
}
