//! Which operations the kernel works on: the table that gives meaning to a completion.
//!
//! An operation keeps what the kernel may read or write until its last completion. Its id is position and generation, so that a
//! late or invented completion finds nothing, never another operation. Pure: Miri runs it.

/// Names an operation in a submission and its completions. Never 0, which stands for "nobody waits for it".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OperationId(pub u64);

/// A bounded table of operations in flight.
#[derive(Debug)]
pub(crate) struct Operations<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    operation: Option<T>,
}

impl<T> Operations<T> {
    /// An empty table for at most `limit` operations.
    pub fn new(limit: usize) -> Operations<T> {
        Operations { slots: Vec::new(), free: Vec::new(), limit: limit.min(u32::MAX as usize) }
    }

    /// Adds an operation; gives it back when the table is full.
    pub fn insert(&mut self, operation: T) -> Result<OperationId, T> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.operation = Some(operation);
            return Ok(id(index, slot.generation));
        }
        if self.slots.len() >= self.limit {
            return Err(operation);
        }
        let index = self.slots.len() as u32;
        self.slots.push(Slot { generation: 1, operation: Some(operation) });
        Ok(id(index, 1))
    }

    /// The operation of an id, if it is still in flight.
    pub fn get_mut(&mut self, id: OperationId) -> Option<&mut T> {
        let slot = self.slots.get_mut(id.0 as u32 as usize)?;
        if slot.generation != (id.0 >> 32) as u32 {
            return None;
        }
        slot.operation.as_mut()
    }

    /// Takes an operation out after its last completion.
    pub fn finish(&mut self, id: OperationId) -> Option<T> {
        self.get_mut(id)?;
        let index = id.0 as u32;
        let slot = &mut self.slots[index as usize];
        // Generation 0 is left out: an id is never 0.
        slot.generation = slot.generation.checked_add(1).unwrap_or(1);
        self.free.push(index);
        slot.operation.take()
    }

    /// Operations in flight.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

fn id(index: u32, generation: u32) -> OperationId {
    OperationId(u64::from(generation) << 32 | u64::from(index))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_late_completion_finds_nothing() {
        let mut operations = Operations::new(2);
        let first = operations.insert("first").unwrap();
        assert_ne!(first.0, 0);
        assert_eq!(operations.finish(first), Some("first"));
        let second = operations.insert("second").unwrap();
        assert_eq!(operations.finish(first), None, "its position belongs to another operation now");
        assert_eq!(operations.get_mut(first), None);
        assert_eq!(operations.finish(second), Some("second"));
        assert_eq!(operations.finish(OperationId(0)), None);
        assert_eq!(operations.finish(OperationId(u64::MAX)), None);
    }

    #[test]
    fn a_full_table_gives_the_operation_back() {
        let mut operations = Operations::new(1);
        let id = operations.insert(1).unwrap();
        assert_eq!(operations.insert(2), Err(2));
        operations.finish(id);
        assert!(operations.insert(3).is_ok());
        assert_eq!(operations.len(), 1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 4 } else { 256 }, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn it_behaves_like_a_map_whose_keys_are_never_used_again(steps in proptest::collection::vec((any::<bool>(), any::<u16>()), 0..80)) {
            let mut operations = Operations::new(8);
            let mut model = HashMap::new();
            let mut issued = Vec::new();
            for (insert, value) in steps {
                if insert {
                    match operations.insert(value) {
                        Ok(id) => {
                            prop_assert!(!issued.contains(&id));
                            issued.push(id);
                            model.insert(id.0, value);
                        }
                        Err(_) => prop_assert_eq!(model.len(), 8),
                    }
                } else if !issued.is_empty() {
                    let id = issued[usize::from(value) % issued.len()];
                    prop_assert_eq!(operations.finish(id), model.remove(&id.0));
                }
                prop_assert_eq!(operations.len(), model.len());
            }
        }
    }
}
