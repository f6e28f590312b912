//! Small stacks whose first entries need no allocation: most graphs are shallow and most operators have few ports.

/// A stack that allocates only beyond `N` entries.
pub(crate) struct InlineStack<T, const N: usize> {
    first: [Option<T>; N],
    length: usize,
    /// What lies above the first `N`.
    rest: Vec<T>,
}

impl<T, const N: usize> InlineStack<T, N> {
    pub(crate) fn new() -> Self {
        InlineStack { first: [const { None }; N], length: 0, rest: Vec::new() }
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        match self.first.get_mut(self.length) {
            Some(place) => {
                *place = Some(entry);
                self.length += 1;
            }
            None => self.rest.push(entry),
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if let Some(entry) = self.rest.pop() {
            return Some(entry);
        }
        self.length = self.length.checked_sub(1)?;
        self.first[self.length].take()
    }

    #[inline]
    pub(crate) fn top(&self) -> Option<&T> {
        self.rest.last().or_else(|| self.first[self.length.checked_sub(1)?].as_ref())
    }
}

/// A list that allocates only beyond `N` entries, and keeps what it allocated when it is cleared.
pub(crate) struct InlineList<T, const N: usize> {
    first: [T; N],
    length: usize,
    /// All entries, once there are more than `N`.
    spilled: Vec<T>,
}

impl<T: Copy, const N: usize> InlineList<T, N> {
    pub(crate) fn new(filler: T) -> Self {
        InlineList { first: [filler; N], length: 0, spilled: Vec::new() }
    }

    #[inline]
    pub(crate) fn clear(&mut self) {
        self.length = 0;
        self.spilled.clear();
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: T) {
        if self.length < N {
            self.first[self.length] = entry;
        } else {
            if self.length == N {
                self.spilled.extend_from_slice(&self.first);
            }
            self.spilled.push(entry);
        }
        self.length += 1;
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[T] {
        if self.length <= N { &self.first[..self.length] } else { &self.spilled }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_a_stack_across_its_inline_part() {
        let mut stack = InlineStack::<_, 2>::new();
        assert_eq!(stack.top(), None);
        assert_eq!(stack.pop(), None);
        for round in 0..3 {
            (0..5).for_each(|entry| stack.push(entry + round));
            assert_eq!(stack.top(), Some(&(4 + round)));
            let popped: Vec<_> = std::iter::from_fn(|| stack.pop()).collect();
            assert_eq!(popped, (0..5).rev().map(|entry| entry + round).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_list_keeps_its_order_when_it_spills() {
        let mut list = InlineList::<_, 2>::new(0);
        for length in [0, 1, 2, 3, 7, 1] {
            list.clear();
            (0..length).for_each(|entry| list.push(entry));
            assert_eq!(list.as_slice(), (0..length).collect::<Vec<_>>());
        }
    }
}
