//! Wake-ups of tasks, from any thread, that can neither be lost nor overflow.
//!
//! Called by wakers (on any thread) and by the loop of the core that owns the tasks. A wake-up has no place in a
//! bounded queue: it must not fail. So the link is part of the task itself, and the list of the woken is a stack of
//! such links; the owner takes the whole stack at once and reverses it into the order of the pushes.
//!
//! Invariants: a push never fails, allocates or waits for another thread that makes no progress; a pushed node comes
//! out exactly once. Ownership is the caller's business: usually a push hands over one reference count of the task,
//! and an atomic flag in the task says whether it is in the stack already. A waker sets that flag, and pushes if it was
//! not set; the owner clears it after the task came out and before it runs, both with a swap (`AcqRel`): then a wake-up
//! that found the flag set is one whose cause the run will see.
#![allow(unsafe_code)]

use super::sync::{AtomicPtr, Ordering};
use core::{fmt, iter::FusedIterator, ptr, ptr::NonNull};

/// Something that can lie in a [`WokenStack`].
///
/// # Safety
/// [`next_woken`](WokenNode::next_woken) gives the same link each time, and nobody but the stack uses that link.
pub unsafe trait WokenNode: Sized {
    /// The link to the node that was pushed before. Initially anything, for example null.
    fn next_woken(&self) -> &AtomicPtr<Self>;
}

/// The nodes that were pushed and not yet taken. What is left when it is dropped is not touched: take it all first.
pub struct WokenStack<N> {
    newest: AtomicPtr<N>,
}

// SAFETY: the stack is one atomic pointer. That the nodes behind it may be used on the threads that push and take them
// is part of the contract of `push`.
unsafe impl<N> Send for WokenStack<N> {}
// SAFETY: as above.
unsafe impl<N> Sync for WokenStack<N> {}

impl<N: WokenNode> WokenStack<N> {
    /// An empty stack.
    #[must_use]
    pub fn new() -> Self {
        WokenStack { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Adds a node; any thread may. Tells whether the stack was empty: then (and only then) the owner may be asleep
    /// without knowing of it, so the caller has to ring its doorbell.
    ///
    /// # Safety
    /// - `node` stays valid, in place, and not borrowed mutably until it came out of [`Woken`], even if the stack is
    ///   dropped before that.
    /// - It is in no stack now, and is not pushed again before it came out of [`Woken`].
    /// - Its link may be used on every thread that pushes to this stack and on the one that takes from it.
    pub unsafe fn push(&self, node: NonNull<N>) -> bool {
        // SAFETY: the caller says that the node is valid and not borrowed mutably.
        let link = unsafe { node.as_ref() }.next_woken();
        let mut newest = self.newest.load(Ordering::Relaxed);
        loop {
            link.store(newest, Ordering::Relaxed);
            // Release: whoever takes the stack sees the link, and what the waker did before. There is no ABA: nobody
            // takes a single node, and a node whose address comes up again is linked to whatever is there now.
            match self.newest.compare_exchange_weak(newest, node.as_ptr(), Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return newest.is_null(),
                Err(now) => newest = now,
            }
        }
    }

    /// Takes everything that was pushed, as an iterator in the order of the pushes. One thread at a time is the owner
    /// and may call this.
    #[must_use = "the nodes come out of the iterator only"]
    pub fn take_all(&self) -> Woken<N> {
        if self.is_empty() {
            return Woken { oldest: ptr::null_mut() };
        }
        let mut rest = self.newest.swap(ptr::null_mut(), Ordering::Acquire);
        let mut oldest = ptr::null_mut::<N>();
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: it was pushed and did not come out yet, so it is valid by the contract of `push`. Its link was
            // stored before the push that our swap has seen.
            let link = unsafe { node.as_ref() }.next_woken();
            rest = link.load(Ordering::Relaxed);
            link.store(oldest, Ordering::Relaxed);
            oldest = node.as_ptr();
        }
        Woken { oldest }
    }

    /// Whether there is nothing to take: one load. Part of the second look before the owner parks.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.newest.load(Ordering::Relaxed).is_null()
    }
}

impl<N: WokenNode> Default for WokenStack<N> {
    fn default() -> Self {
        WokenStack::new()
    }
}

/// Nodes that were taken, oldest first. It may be kept and continued in a later turn, which is how the owner bounds
/// its turn. When it is dropped early the rest is not touched, and whatever the caller handed over with it is leaked.
pub struct Woken<N> {
    oldest: *mut N,
}

impl<N: WokenNode> Woken<N> {
    /// Whether nothing is left.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.oldest.is_null()
    }
}

impl<N: WokenNode> Iterator for Woken<N> {
    type Item = NonNull<N>;

    #[inline]
    fn next(&mut self) -> Option<NonNull<N>> {
        let node = NonNull::new(self.oldest)?;
        // SAFETY: it was pushed and did not come out yet, so it is valid by the contract of `push`. The link is read
        // before the node comes out, as the caller may free it or push it again at once.
        self.oldest = unsafe { node.as_ref() }.next_woken().load(Ordering::Relaxed);
        Some(node)
    }
}

impl<N: WokenNode> FusedIterator for Woken<N> {}

impl<N> fmt::Debug for WokenStack<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WokenStack").finish_non_exhaustive()
    }
}

impl<N> fmt::Debug for Woken<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Woken").field("empty", &self.oldest.is_null()).finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::mesh::sync::{Arc, AtomicBool};
    use std::thread;

    struct Task {
        number: usize,
        queued: AtomicBool,
        next: AtomicPtr<Task>,
    }
    // SAFETY: it is always the same field, which nothing here touches otherwise.
    unsafe impl WokenNode for Task {
        fn next_woken(&self) -> &AtomicPtr<Task> {
            &self.next
        }
    }
    fn task(number: usize) -> Arc<Task> {
        Arc::new(Task { number, queued: AtomicBool::new(false), next: AtomicPtr::new(ptr::null_mut()) })
    }

    /// As a waker does it: hands over a reference, once per wake-up.
    fn wake(stack: &WokenStack<Task>, task: &Arc<Task>) -> bool {
        if task.queued.swap(true, Ordering::AcqRel) {
            return false;
        }
        let node = NonNull::new(Arc::into_raw(task.clone()).cast_mut()).unwrap();
        // SAFETY: the reference that goes with it keeps the task alive; `queued` says that it is in no stack; a task
        // can be shared between threads, and is never borrowed mutably.
        unsafe { stack.push(node) }
    }
    fn woken(node: NonNull<Task>) -> Arc<Task> {
        // SAFETY: `wake` has handed over this reference.
        let task = unsafe { Arc::from_raw(node.as_ptr()) };
        task.queued.swap(false, Ordering::AcqRel);
        task
    }
    fn numbers(batch: impl Iterator<Item = NonNull<Task>>) -> Vec<usize> {
        batch.map(|node| woken(node).number).collect()
    }

    #[test]
    fn tasks_come_out_in_the_order_of_their_wake_ups() {
        let (stack, tasks) = (WokenStack::new(), [0, 1, 2].map(task));
        assert!(stack.is_empty() && stack.take_all().is_empty());
        assert_eq!(tasks.each_ref().map(|task| wake(&stack, task)), [true, false, false]);
        assert!(!stack.is_empty());
        assert_eq!(numbers(stack.take_all()), [0, 1, 2]);
        assert!(stack.is_empty());
    }

    #[test]
    fn a_batch_can_be_continued_while_its_tasks_are_woken_again() {
        let (stack, tasks) = (WokenStack::default(), [0, 1].map(task));
        tasks.iter().for_each(|task| _ = wake(&stack, task));
        let mut batch = stack.take_all();
        let first = woken(batch.next().unwrap());
        assert!(wake(&stack, &first), "the owner took all, so it has to be told");
        assert_eq!(numbers(batch), [1]);
        assert_eq!(numbers(stack.take_all()), [0]);
    }

    #[test]
    fn a_task_may_end_as_soon_as_it_came_out() {
        let stack = WokenStack::new();
        [3, 4].into_iter().map(task).for_each(|task| _ = wake(&stack, &task));
        assert_eq!(numbers(stack.take_all()), [3, 4]);
    }

    #[test]
    fn no_wake_up_of_any_thread_is_lost() {
        let (threads, wakes) = (3, if cfg!(miri) { 30 } else { 30_000 });
        let stack = Arc::new(WokenStack::new());
        let wakers: Vec<_> = (0..threads)
            .map(|thread| {
                let stack = stack.clone();
                thread::spawn(move || (0..wakes).for_each(|wake_up| _ = wake(&stack, &task(thread * wakes + wake_up))))
            })
            .collect();
        let mut next = vec![0; threads];
        while next.iter().sum::<usize>() < threads * wakes {
            for number in numbers(stack.take_all()) {
                assert_eq!(number % wakes, next[number / wakes], "in the order of each thread");
                next[number / wakes] += 1;
            }
            thread::yield_now();
        }
        wakers.into_iter().for_each(|waker| waker.join().unwrap());
        assert!(stack.is_empty());
    }
}
