//! Connections that were accepted and have not said hello yet. Pure: Miri runs it.
//!
//! The reactor keeps exactly one receive in flight per entry and takes the entry out at its last completion.

use crate::base::Nanos;

use super::operations::OperationId;

/// One connection whose hello is awaited; `D` owns the descriptor.
#[derive(Debug)]
pub(crate) struct Greeting<D> {
    /// The connection.
    pub descriptor: D,
    /// Bytes of the hello that are there.
    pub filled: usize,
    /// The receive in flight.
    pub operation: Option<OperationId>,
    /// When its time is over.
    pub deadline: Nanos,
    /// Its time was over: the next completion ends it.
    pub expired: bool,
}

/// All connections whose hello is awaited.
#[derive(Debug)]
pub(crate) struct Greetings<D> {
    entries: Vec<Option<Greeting<D>>>,
    free: Vec<u32>,
}

impl<D> Greetings<D> {
    /// Nobody is awaited.
    pub fn new() -> Greetings<D> {
        Greetings { entries: Vec::new(), free: Vec::new() }
    }

    /// How many are awaited.
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Adds a connection and names its entry.
    pub fn add(&mut self, descriptor: D, deadline: Nanos) -> u32 {
        let greeting = Some(Greeting { descriptor, filled: 0, operation: None, deadline, expired: false });
        if let Some(key) = self.free.pop() {
            self.entries[key as usize] = greeting;
            return key;
        }
        self.entries.push(greeting);
        self.entries.len() as u32 - 1
    }

    /// The entry of a key.
    pub fn get_mut(&mut self, key: u32) -> Option<&mut Greeting<D>> {
        self.entries.get_mut(key as usize)?.as_mut()
    }

    /// Takes an entry out.
    pub fn take(&mut self, key: u32) -> Option<Greeting<D>> {
        let greeting = self.entries.get_mut(key as usize)?.take()?;
        self.free.push(key);
        Some(greeting)
    }

    /// Marks the entries whose time is over and returns their receives, and when the next one's is.
    pub fn expire(&mut self, now: Nanos) -> (Vec<OperationId>, Nanos) {
        let mut late = Vec::new();
        let mut next = Nanos::NEVER;
        for greeting in self.entries.iter_mut().flatten().filter(|greeting| !greeting.expired) {
            if greeting.deadline <= now {
                greeting.expired = true;
                late.extend(greeting.operation);
            } else {
                next = next.min(greeting.deadline);
            }
        }
        (late, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_each_is_its_own() {
        let mut greetings = Greetings::new();
        let first = greetings.add("first", Nanos(10));
        let second = greetings.add("second", Nanos(20));
        greetings.get_mut(first).unwrap().operation = Some(OperationId(1));
        greetings.get_mut(second).unwrap().operation = Some(OperationId(2));
        assert_eq!(greetings.expire(Nanos(5)), (vec![], Nanos(10)));
        assert_eq!(greetings.expire(Nanos(10)), (vec![OperationId(1)], Nanos(20)));
        assert_eq!(greetings.expire(Nanos(11)), (vec![], Nanos(20)), "each is told once");
        assert_eq!(greetings.len(), 2);
        assert_eq!(greetings.take(first).unwrap().descriptor, "first");
        assert!(greetings.take(first).is_none());
        assert_eq!(greetings.len(), 1);
        let third = greetings.add("third", Nanos(30));
        assert_eq!(third, first, "entries are used again");
        assert_eq!(greetings.expire(Nanos(30)).0, vec![OperationId(2)]);
    }
}
