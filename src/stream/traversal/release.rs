//! Dropping a traversal without recursion: a chain of a million operators must not need a million stack frames.

use std::mem::take;
use std::sync::Arc;

use super::{Pair, Traversal};

/// Drops `traversal` and all that nothing else shares with it, in a loop.
///
/// A node is taken apart only while nobody else holds it, so its own drop finds nothing left. Where two threads drop the
/// last handles at once, neither may see itself alone; the drop of the node then comes here again, one frame deeper.
pub(super) fn release(traversal: Traversal) {
    let mut current = traversal;
    let mut later: Vec<Traversal> = Vec::new();
    loop {
        match current {
            Traversal::Operator { mut node, .. } => {
                if let Some(owned) = Arc::get_mut(&mut node) {
                    current = take(&mut owned.next);
                    continue;
                }
            }
            Traversal::Concat(mut pair) => {
                if let Some(owned) = Arc::get_mut(&mut pair) {
                    let second = take(&mut owned.second);
                    if second.is_nested() {
                        later.push(second);
                    }
                    current = take(&mut owned.first);
                    continue;
                }
            }
            _ => {}
        }
        match later.pop() {
            Some(next) => current = next,
            None => return,
        }
    }
}

impl Traversal {
    fn is_nested(&self) -> bool {
        matches!(self, Traversal::Operator { .. } | Traversal::Concat(_))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for part in [take(&mut self.first), take(&mut self.second)] {
            if part.is_nested() {
                release(part);
            }
        }
    }
}
