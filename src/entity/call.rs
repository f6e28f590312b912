//! What travels with a message: who waits for the reply, and the chain of calls that led here.

use crate::base::limits::CALL_CHAIN_MAX;
use crate::base::{CoreIndex, LinkId};

/// Key of an ask that waits on its core: position and generation. As a number it is the correlation of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PendingKey {
    /// Position in the core's table.
    pub index: u32,
    /// Counts the asks that had this position.
    pub generation: u32,
}

impl PendingKey {
    /// As one number.
    #[inline]
    pub fn to_number(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// From [`PendingKey::to_number`].
    #[inline]
    pub fn from_number(number: u64) -> PendingKey {
        PendingKey { index: number as u32, generation: (number >> 32) as u32 }
    }
}

/// Who waits for the outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReplyTo {
    /// Nobody: a discard, or the sender stopped waiting.
    Nobody,
    /// An ask on this core.
    Local(PendingKey),
    /// An ask on another core of this pod.
    Core(CoreIndex, u64),
    /// An ask behind a link, by its correlation.
    Link(LinkId, u64),
    /// A call in JSON behind a link.
    Json(LinkId, u64),
}

/// The calls that wait for this one, oldest first: at most [`CALL_CHAIN_MAX`], the oldest are forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallChain {
    length: u8,
    calls: [u64; CALL_CHAIN_MAX],
}

impl CallChain {
    /// The chain of a call that nobody's handler made.
    pub const EMPTY: CallChain = CallChain { length: 0, calls: [0; CALL_CHAIN_MAX] };

    /// The calls.
    #[inline]
    pub fn calls(&self) -> &[u64] {
        &self.calls[..usize::from(self.length)]
    }

    /// Whether it is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// This chain with one more call at its end.
    #[must_use]
    pub fn with(mut self, call: u64) -> CallChain {
        if usize::from(self.length) == CALL_CHAIN_MAX {
            self.calls.copy_within(1.., 0);
            self.length -= 1;
        }
        self.calls[usize::from(self.length)] = call;
        self.length += 1;
        self
    }
}

impl FromIterator<u64> for CallChain {
    fn from_iter<T: IntoIterator<Item = u64>>(calls: T) -> Self {
        calls.into_iter().fold(CallChain::EMPTY, CallChain::with)
    }
}

/// What travels with a message.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Who waits.
    pub reply_to: ReplyTo,
    /// Which calls wait for it.
    pub chain: CallChain,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_chain_forgets_its_oldest_calls() {
        let chain: CallChain = (1..=10).collect();
        assert_eq!(chain.calls(), [3, 4, 5, 6, 7, 8, 9, 10]);
        assert!(CallChain::EMPTY.is_empty());
    }

    #[test]
    fn a_key_is_a_number() {
        let key = PendingKey { index: 7, generation: u32::MAX };
        assert_eq!(PendingKey::from_number(key.to_number()), key);
    }
}
