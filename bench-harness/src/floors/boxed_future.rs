//! Floor of one local ask at a time: find the entity by its string id, call it through a trait object, poll its boxed
//! asynchronous handler once in place. Message and reply travel erased, through slots on the asker's stack, so the
//! future is the only allocation.

use core::any::Any;
use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};
use std::io;
use std::time::Instant;

use super::ids::{ById, ids};
use super::mailbox_loop::Message;
use super::{Measured, mark_here};
use crate::measure::{Clock, Latencies, RoundLength, Sampler};

/// Operations between two looks at the clock.
const BATCH: u32 = 1_024;

type Handling<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// An entity whose type the caller does not know.
trait ErasedEntity {
    /// `message` is an `Option<M>`, `reply` an `Option<Reply>`, of types that the entity knows.
    fn handle<'a>(&'a mut self, message: &'a mut dyn Any, reply: &'a mut dyn Any) -> Handling<'a>;
}

struct Echo<M> {
    handled: u64,
    message: core::marker::PhantomData<M>,
}

impl<M: Message> Echo<M> {
    async fn echo(&mut self, message: M) -> M {
        self.handled = self.handled.wrapping_add(message.number());
        message
    }
}

impl<M: Message> ErasedEntity for Echo<M> {
    fn handle<'a>(&'a mut self, message: &'a mut dyn Any, reply: &'a mut dyn Any) -> Handling<'a> {
        Box::pin(async move {
            let message = message.downcast_mut::<Option<M>>().and_then(Option::take);
            if let (Some(message), Some(reply)) = (message, reply.downcast_mut::<Option<M>>()) {
                *reply = Some(self.echo(message).await);
            }
        })
    }
}

/// Asks `entities` entities in turn, one at a time.
pub fn ask(entities: u32, payload_bytes: u32, length: RoundLength) -> io::Result<Measured> {
    if payload_bytes == 0 {
        ask_with(entities, 1_u64, length)
    } else {
        ask_with(entities, vec![0x5a_u8; payload_bytes as usize], length)
    }
}

fn ask_with<M: Message>(entities: u32, message: M, length: RoundLength) -> io::Result<Measured> {
    let ids = ids(entities.max(1));
    let mut directory: ById<Box<dyn ErasedEntity>> = ById::default();
    for id in &ids {
        let entity = Echo::<M> { handled: 0, message: core::marker::PhantomData };
        directory.insert(id.clone(), Box::new(entity));
    }
    let clock = Clock::get();
    let (mut latencies, mut sampler) = (Latencies::new(), Sampler::for_local(1));
    let (mut operations, mut measuring) = (0_u64, false);
    let (mut start, mut mark) = (Instant::now(), mark_here()?);
    let mut next = ids.iter().cycle();
    loop {
        for _ in 0..BATCH {
            let id = next.next().expect("a cycle over at least one id");
            if sampler.pick() {
                let before = clock.ticks();
                core::hint::black_box(ask_one(&mut directory, id, message.clone()));
                latencies.record(clock.since(before));
            } else {
                core::hint::black_box(ask_one(&mut directory, id, message.clone()));
            }
        }
        operations += u64::from(BATCH);
        let elapsed = start.elapsed();
        if !measuring && elapsed >= length.warm_up {
            (measuring, operations) = (true, 0);
            latencies.clear();
            mark = mark_here()?;
            start = Instant::now();
        } else if measuring && elapsed >= length.duration {
            let usage = mark.until(&mark_here()?);
            return Ok(Measured { operations, elapsed, latencies, longest_pause_ns: None, usage });
        }
    }
}

#[inline]
fn ask_one<M: Message>(directory: &mut ById<Box<dyn ErasedEntity>>, id: &str, message: M) -> Option<M> {
    let entity = directory.get_mut(core::hint::black_box(id))?;
    let (mut message, mut reply) = (Some(message), None::<M>);
    {
        let mut handling = pin!(entity.handle(&mut message, &mut reply));
        let Poll::Ready(()) = handling.as_mut().poll(&mut Context::from_waker(Waker::noop())) else { return None };
    }
    reply
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn the_entity_found_by_its_id_answers_with_the_message() {
        let mut directory: ById<Box<dyn ErasedEntity>> = ById::default();
        directory.insert("a".into(), Box::new(Echo::<u64> { handled: 0, message: core::marker::PhantomData }));
        assert_eq!(ask_one(&mut directory, "a", 7_u64), Some(7));
        assert_eq!(ask_one(&mut directory, "b", 7_u64), None);
        assert_eq!(ask_one(&mut directory, "a", vec![1_u8]), None, "a message of a foreign type is not handled");
    }

    #[test]
    fn a_round_counts_operations_and_times_some_of_them() {
        let length = RoundLength { warm_up: Duration::from_millis(1), duration: Duration::from_millis(5) };
        for payload_bytes in [0, 64] {
            let measured = ask(10, payload_bytes, length).unwrap();
            assert!(measured.operations > 0 && measured.elapsed >= length.duration);
            assert!((1..=measured.operations / 16 + 64).contains(&measured.latencies.count()));
        }
    }
}
