//! Correcting the optimistic wiring of a linear chain.

use std::sync::Arc;

use super::{Pair, Traversal};

impl Traversal {
    /// The same traversal, except that the outlet of the operator visited first leads to `relative_slot`; nothing if there
    /// is no operator.
    ///
    /// Right only where that operator has one outlet, as in linear layouts. Takes as many steps as commands precede the
    /// operator, and copies none of the operators.
    pub fn rewire_first_to(&self, relative_slot: i32) -> Option<Traversal> {
        let mut path: Vec<(&Pair, Side)> = Vec::new();
        let mut current = self;
        loop {
            match current {
                Traversal::Operator { node, value, .. } => {
                    let found =
                        Traversal::Operator { node: Arc::clone(node), first_outlet: relative_slot, value: *value };
                    return Some(rebuild(path, found));
                }
                Traversal::Concat(pair) => {
                    path.push((pair, Side::First));
                    current = &pair.first;
                }
                _ => {
                    // Nothing on this side: the nearest pair whose second part was not looked at yet.
                    current = loop {
                        let (pair, side) = path.pop()?;
                        if matches!(side, Side::First) {
                            path.push((pair, Side::Second));
                            break &pair.second;
                        }
                    };
                }
            }
        }
    }
}

enum Side {
    First,
    Second,
}

fn rebuild(path: Vec<(&Pair, Side)>, found: Traversal) -> Traversal {
    path.into_iter().rev().fold(found, |part, (pair, side)| {
        let pair = match side {
            Side::First => Pair { first: part, second: pair.second.clone() },
            Side::Second => Pair { first: pair.first.clone(), second: part },
        };
        Traversal::Concat(Arc::new(pair))
    })
}
