//! What crosses from one core to another of the same pod.
//!
//! A parcel is written into the slot of its queue and read there ([`InPlace`]), so that only those cache lines of it
//! travel that it needs: two for a message, one for an answer of up to 32 bytes, a notice or an acknowledgement. Called
//! by `routes` and `core`. Invariant: a parcel owns its message or answer; one that is dropped drops it.
#![allow(unsafe_code)]

use core::cmp::Ordering;
use core::mem::{ManuallyDrop, MaybeUninit};
use core::ptr::NonNull;

use std::sync::Arc;

pub(super) use super::payload::HomeBlock;
use super::payload::Payload;
use crate::base::{ClusterError, EntityId, Token};
use crate::entity::pool::BlockPool;
use crate::entity::{AnswerVtable, CallChain, Host, MessageVtable, PendingKey};
use crate::mesh::InPlace;
use crate::sharding::ShardTable;

/// The first field of all that a parcel can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Call,
    Answer,
    Notice,
}

/// A message for an entity of another core.
#[repr(C)]
pub struct CallParcel {
    kind: Kind,
    /// Wants only to know that it is in the mailbox.
    pub discard: bool,
    /// Position of the entity's type, the same on every core of a pod.
    pub type_index: u16,
    /// The low half of the token under which its sender knows the shard, for which there is room: enough to tell apart
    /// two that are less than four thousand million claims of shards apart.
    token: u32,
    message_type: &'static MessageVtable,
    /// Hash of the id.
    pub hash: u64,
    /// Who waits, on the sending core.
    pub key: u64,
    /// The calls that wait for this one. A message that no handler sent has none, and so needs no box.
    pub chain: Option<Box<CallChain>>,
    /// The id.
    pub id: EntityId,
    message: Payload,
}

// SAFETY: messages are `Send` (a bound of `Wire`), and everything else in a parcel is too.
unsafe impl Send for CallParcel {}

/// Where a message goes, and who waits for it.
pub(super) struct CallAddress<'a> {
    pub discard: bool,
    pub type_index: u16,
    pub token: Token,
    pub hash: u64,
    pub id: &'a EntityId,
    pub key: u64,
    pub chain: CallChain,
}

impl CallParcel {
    /// Writes a message into a slot.
    ///
    /// # Safety
    /// `slot` may be written; `message` is initialised, of the given type, and moves in.
    #[inline]
    pub(super) unsafe fn write(
        slot: *mut Parcel,
        address: &CallAddress<'_>,
        message_type: &'static MessageVtable,
        message: *const (),
        pool: &BlockPool,
    ) {
        let call = slot.cast::<CallParcel>();
        // SAFETY: a slot has room for each of the parcels and is aligned for it; nothing in it has to be dropped.
        unsafe {
            (&raw mut (*call).kind).write(Kind::Call);
            (&raw mut (*call).discard).write(address.discard);
            (&raw mut (*call).type_index).write(address.type_index);
            (&raw mut (*call).token).write(address.token.0 as u32);
            (&raw mut (*call).message_type).write(message_type);
            (&raw mut (*call).hash).write(address.hash);
            (&raw mut (*call).key).write(address.key);
            (&raw mut (*call).chain).write((!address.chain.is_empty()).then(|| Box::new(address.chain)));
            (&raw mut (*call).id).write(address.id.clone());
            Payload::write(&raw mut (*call).message, message, message_type.layout, pool);
        }
    }

    /// How the token that its sender named compares with another one of the shard.
    #[inline]
    pub(super) fn compare_token(&self, token: Token) -> Ordering {
        (self.token.wrapping_sub(token.0 as u32) as i32).cmp(&0)
    }

    /// Position of the message among the methods of its protocol.
    pub(super) fn method_index(&self) -> usize {
        usize::from(self.message_type.index)
    }

    /// Gives the message back to the ask that sent it, on its core. False if that does not wait any more.
    pub(super) fn give_back(self, host: &Host) -> bool {
        let give_back = |parcel: &CallParcel, message: *mut ()| {
            // SAFETY: the message is initialised, of its type, and given away; the key is that of the ask which sent it.
            unsafe { host.give_back(PendingKey::from_number(parcel.key), parcel.message_type, message) }
        };
        let (waits, block) = InPlace::lend(self, |call| CallParcel::open(call, give_back));
        if let Some(block) = block {
            block.arrive(host.pool());
        }
        waits
    }

    /// Hands the message to `take`, which consumes it, with the rest of the parcel beside it. The block of the message, if
    /// it has one, is left to the caller.
    #[inline]
    pub(super) fn open<R>(
        call: InPlace<'_, CallParcel>,
        take: impl FnOnce(&CallParcel, *mut ()) -> R,
    ) -> (R, Option<HomeBlock>) {
        let call = call.give_away().as_ptr();
        // SAFETY: the parcel is ours. The payload was made with this layout; the message is consumed by `take`, and what else
        // the parcel owns is dropped once, field by field.
        unsafe {
            let layout = (*call).message_type.layout;
            let message = (&raw mut (*call).message).as_mut_unchecked().pointer(layout);
            let result = take(&*call, message);
            let block = (*call).message.take_block(layout);
            (&raw mut (*call).id).drop_in_place();
            (&raw mut (*call).chain).drop_in_place();
            (result, block)
        }
    }
}

impl Drop for CallParcel {
    fn drop(&mut self) {
        let layout = self.message_type.layout;
        // SAFETY: the message is still there; on which thread a parcel is lost is unknown, so no pool is used.
        unsafe {
            (self.message_type.drop)(self.message.pointer(layout));
            self.message.release(layout, None);
        }
    }
}

/// An answer for an ask of another core.
#[repr(C)]
pub struct AnswerParcel {
    kind: Kind,
    has_home: bool,
    /// Who waits.
    pub key: u64,
    answer_type: &'static AnswerVtable,
    answer: Payload,
    /// A block of the receiver's, if it has one.
    home: MaybeUninit<HomeBlock>,
}

// SAFETY: answers are `Send` (a bound of `Wire`).
unsafe impl Send for AnswerParcel {}

impl AnswerParcel {
    /// Writes an answer into a slot.
    ///
    /// # Safety
    /// `slot` may be written; `answer` is initialised, of the given type, and moves in.
    #[inline]
    pub(super) unsafe fn write(
        slot: *mut Parcel,
        key: u64,
        answer_type: &'static AnswerVtable,
        answer: *const (),
        pool: &BlockPool,
        home: Option<HomeBlock>,
    ) {
        let parcel = slot.cast::<AnswerParcel>();
        // SAFETY: a slot has room for each of the parcels and is aligned for it; nothing in it has to be dropped.
        unsafe {
            (&raw mut (*parcel).kind).write(Kind::Answer);
            (&raw mut (*parcel).has_home).write(home.is_some());
            (&raw mut (*parcel).key).write(key);
            (&raw mut (*parcel).answer_type).write(answer_type);
            Payload::write(&raw mut (*parcel).answer, answer, answer_type.layout, pool);
            if let Some(home) = home {
                (&raw mut (*parcel).home).write(MaybeUninit::new(home));
            }
        }
    }

    /// The block, once.
    ///
    /// # Safety
    /// It was not taken before.
    unsafe fn home(&self) -> Option<HomeBlock> {
        // SAFETY: the block is there if the parcel says so, and is taken once.
        self.has_home.then(|| unsafe { self.home.assume_init_read() })
    }

    /// Hands the answer to `take`, which consumes it.
    #[inline]
    pub(super) fn open(
        parcel: InPlace<'_, AnswerParcel>,
        pool: &BlockPool,
        take: impl FnOnce(u64, &'static AnswerVtable, *mut ()),
    ) {
        let parcel = parcel.give_away().as_ptr();
        // SAFETY: the parcel is ours. The payload was made with this layout; the answer is consumed by `take`, the block is
        // taken once, and the rest needs no drop.
        unsafe {
            if let Some(home) = (*parcel).home() {
                home.arrive(pool);
            }
            let (key, answer_type) = ((*parcel).key, (*parcel).answer_type);
            let answer = (&raw mut (*parcel).answer).as_mut_unchecked().pointer(answer_type.layout);
            take(key, answer_type, answer);
            (*parcel).answer.release(answer_type.layout, Some(pool));
        }
    }
}

impl Drop for AnswerParcel {
    fn drop(&mut self) {
        let layout = self.answer_type.layout;
        // SAFETY: the answer and the block are still there.
        unsafe {
            (self.answer_type.drop)(self.answer.pointer(layout));
            self.answer.release(layout, None);
            drop(self.home());
        }
    }
}

/// A connection that was accepted by another core.
pub struct AcceptedSocket {
    /// Its hello, already checked.
    pub hello: crate::wire::Hello,
    /// The descriptor.
    pub descriptor: i32,
}

/// What one core tells another.
pub(super) enum Notice {
    /// A discard is in the mailbox.
    Acknowledged {
        /// Who waits.
        key: u64,
        /// A block of the receiver's.
        home: Option<HomeBlock>,
    },
    /// An ask failed.
    Failed {
        /// Who waits.
        key: u64,
        /// Why.
        error: ClusterError,
    },
    /// The sender of an ask stopped waiting.
    Cancel {
        /// Who waited.
        key: u64,
    },
    /// A connection for this core.
    Socket(Box<AcceptedSocket>),
    /// A message comes back: its shard is not on the core that it was sent to.
    Returned(Box<CallParcel>),
    /// The table of the sending core, which may be newer.
    Table(Arc<ShardTable>),
}

#[repr(C)]
struct NoticeParcel {
    kind: Kind,
    notice: Notice,
}

/// What crosses between cores.
#[repr(C)]
pub union Parcel {
    kind: Kind,
    call: ManuallyDrop<CallParcel>,
    answer: ManuallyDrop<AnswerParcel>,
    notice: ManuallyDrop<NoticeParcel>,
}

// A slot of a queue is a sequence number and a parcel in two cache lines; in the first are all of a notice, and of an answer
// all but what is longer than 32 bytes.
const _: () = assert!(size_of::<Parcel>() <= 120);
const _: () = assert!(size_of::<NoticeParcel>() <= 56);
const _: () = assert!(core::mem::offset_of!(AnswerParcel, answer) + 32 <= 56);

// SAFETY: each of what it can be is `Send`.
unsafe impl Send for Parcel {}

/// A parcel, by what it is.
pub(super) enum Opened<'a> {
    /// A message for an entity.
    Call(InPlace<'a, CallParcel>),
    /// The answer to an ask.
    Answer(InPlace<'a, AnswerParcel>),
    /// Anything else.
    Notice(Notice),
}

impl Parcel {
    /// A notice on its way.
    #[inline]
    pub(super) fn notice(notice: Notice) -> Parcel {
        Parcel { notice: ManuallyDrop::new(NoticeParcel { kind: Kind::Notice, notice }) }
    }

    /// Says that the sender of an ask stopped waiting.
    #[must_use]
    pub fn cancel(key: u64) -> Parcel {
        Parcel::notice(Notice::Cancel { key })
    }

    /// Writes a notice into a slot.
    ///
    /// # Safety
    /// `slot` may be written.
    #[inline]
    pub(super) unsafe fn write_notice(slot: *mut Parcel, notice: Notice) {
        // SAFETY: a slot has room for each of the parcels and is aligned for it; nothing in it has to be dropped.
        unsafe { slot.cast::<NoticeParcel>().write(NoticeParcel { kind: Kind::Notice, notice }) };
    }

    #[inline]
    fn kind(&self) -> Kind {
        // SAFETY: all that a parcel can be is laid out as in C and has its kind first.
        unsafe { self.kind }
    }

    /// Says what it is.
    #[inline]
    pub(super) fn open(parcel: InPlace<'_, Parcel>) -> Opened<'_> {
        let kind = parcel.kind();
        let parcel: NonNull<Parcel> = parcel.give_away();
        // SAFETY: the parcel is ours, and what its kind says; from here on it is owned as that.
        unsafe {
            match kind {
                Kind::Call => Opened::Call(InPlace::new(parcel.cast().as_ptr())),
                Kind::Answer => Opened::Answer(InPlace::new(parcel.cast().as_ptr())),
                Kind::Notice => Opened::Notice(parcel.cast::<NoticeParcel>().read().notice),
            }
        }
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // SAFETY: the parcel is what its kind says, and is not used again.
        unsafe {
            match self.kind() {
                Kind::Call => ManuallyDrop::drop(&mut self.call),
                Kind::Answer => ManuallyDrop::drop(&mut self.answer),
                Kind::Notice => ManuallyDrop::drop(&mut self.notice),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use core::alloc::Layout;

    use super::*;
    use crate::mesh::{Consumer, Producer, channel};

    /// A value that lies in the parcel, or in a block.
    struct Counted<const WORDS: usize>(#[expect(dead_code, reason = "it is counted")] Arc<()>, [u64; WORDS]);

    type Short = Counted<2>;
    type Long = Counted<20>;

    unsafe fn drop_as<T>(value: *mut ()) {
        // SAFETY: the tables below name it for their own type.
        unsafe { value.cast::<T>().drop_in_place() };
    }

    struct Of<T>(T);

    impl<T: 'static> Of<T> {
        const ANSWER: AnswerVtable = AnswerVtable {
            layout: Layout::new::<T>(),
            drop: drop_as::<T>,
            decode: |_, _| unreachable!("nothing is decoded"),
            type_id: core::any::TypeId::of::<T>,
        };
        const MESSAGE: MessageVtable = MessageVtable {
            protocol: "counted",
            index: 3,
            tag: 0,
            schema: 0,
            uninterruptible: false,
            layout: Layout::new::<T>(),
            drop: drop_as::<T>,
            encode: |_, _, _| unreachable!("nothing is encoded"),
            answer: &Self::ANSWER,
        };
    }

    fn push_call<T: 'static>(producer: &mut Producer<Parcel>, value: T, key: u64, pool: &BlockPool) {
        push_call_under(producer, value, key, Token(9), pool);
    }

    fn push_call_under<T: 'static>(
        producer: &mut Producer<Parcel>,
        value: T,
        key: u64,
        token: Token,
        pool: &BlockPool,
    ) {
        let value = ManuallyDrop::new(value);
        let id = EntityId::new("an id which is longer than what lies in place").unwrap();
        let chain = CallChain::EMPTY;
        let address = CallAddress { discard: false, type_index: 1, token, hash: 2, id: &id, key, chain };
        let message = (&raw const value).cast::<()>();
        // SAFETY: the value is initialised, of the type of its table, and moves in.
        let pushed =
            unsafe { producer.push_with(|slot| CallParcel::write(slot, &address, &Of::<T>::MESSAGE, message, pool)) };
        assert!(pushed.is_ok());
    }

    fn push_answer<T: 'static>(producer: &mut Producer<Parcel>, value: T, home: Option<HomeBlock>, pool: &BlockPool) {
        let value = ManuallyDrop::new(value);
        let answer = (&raw const value).cast::<()>();
        // SAFETY: as for a call.
        let pushed =
            unsafe { producer.push_with(|slot| AnswerParcel::write(slot, 7, &Of::<T>::ANSWER, answer, pool, home)) };
        assert!(pushed.is_ok());
    }

    /// Opens a call and keeps its message.
    fn open_call<T>(consumer: &mut Consumer<Parcel>, key: u64) -> (T, Option<HomeBlock>) {
        let opened = consumer.pop_with(|parcel| {
            let Opened::Call(call) = Parcel::open(parcel) else { panic!("it is a call") };
            CallParcel::open(call, |call, message| {
                assert_eq!((call.key, call.type_index, call.hash, call.method_index()), (key, 1, 2, 3));
                assert!(call.id.as_str().starts_with("an id"));
                // SAFETY: the message is of this type and is ours.
                unsafe { message.cast::<T>().read() }
            })
        });
        opened.expect("there is one")
    }

    #[test]
    fn a_message_and_its_answer_arrive_and_the_block_goes_home() {
        let (pool, there, counted) = (BlockPool::default(), BlockPool::default(), Arc::new(()));
        let (mut producer, mut consumer) = channel(2);
        push_call(&mut producer, Counted(Arc::clone(&counted), [1; 2]), 5, &pool);
        push_call(&mut producer, Counted(Arc::clone(&counted), [2; 20]), 6, &pool);
        let (short, no_block) = open_call::<Short>(&mut consumer, 5);
        let (long, block) = open_call::<Long>(&mut consumer, 6);
        assert_eq!((short.1, long.1, no_block.is_none()), ([1; 2], [2; 20], true));
        assert_eq!(Arc::strong_count(&counted), 3);
        push_answer(&mut producer, short, block, &there);
        push_answer(&mut producer, long, None, &there);
        for words in [2, 20] {
            consumer.pop_with(|parcel| {
                let Opened::Answer(answer) = Parcel::open(parcel) else { panic!("it is an answer") };
                AnswerParcel::open(answer, &pool, |key, answer_type, answer| {
                    assert_eq!((key, answer_type.layout.size()), (7, 8 + 8 * words));
                    // SAFETY: the answer is of this type and is ours.
                    unsafe { (answer_type.drop)(answer) };
                });
            });
        }
        assert_eq!(Arc::strong_count(&counted), 1);
    }

    #[test]
    fn tokens_compare_also_where_their_low_halves_wrap() {
        let (pool, half) = (BlockPool::default(), 1 << 32);
        for (named, own, order) in [
            (7, 7, Ordering::Equal),
            (7, 8, Ordering::Less),
            (8, 7, Ordering::Greater),
            (half - 1, half, Ordering::Less),
            (half + 1, half - 1, Ordering::Greater),
        ] {
            let (mut producer, mut consumer) = channel(1);
            push_call_under(&mut producer, (), 1, Token(named), &pool);
            let compared = consumer.pop_with(|parcel| match Parcel::open(parcel) {
                Opened::Call(call) => call.compare_token(Token(own)),
                _ => panic!("it is a call"),
            });
            assert_eq!(compared, Some(order), "{named} and {own}");
        }
    }

    #[test]
    fn a_parcel_that_is_lost_drops_what_it_owns() {
        let (pool, counted) = (BlockPool::default(), Arc::new(()));
        let (mut producer, mut consumer) = channel(8);
        push_call(&mut producer, Counted(Arc::clone(&counted), [1; 20]), 1, &pool);
        let (long, block) = open_call::<Long>(&mut consumer, 1);
        push_call(&mut producer, Counted(Arc::clone(&counted), [1; 2]), 1, &pool);
        push_call(&mut producer, Counted(Arc::clone(&counted), [1; 20]), 1, &pool);
        push_call(&mut producer, Counted(Arc::clone(&counted), [1; 20]), 1, &pool);
        push_answer(&mut producer, long, block, &pool);
        push_answer(&mut producer, Counted(Arc::clone(&counted), [1; 2]), None, &pool);
        assert!(producer.push(Parcel::cancel(3)).is_ok());
        assert_eq!(Arc::strong_count(&counted), 6);
        // One that is kept for later, and one that is not even looked at.
        let kept = consumer.pop_with(|parcel| match Parcel::open(parcel) {
            Opened::Call(call) => call.into_inner(),
            _ => panic!("it is a call"),
        });
        drop(consumer.pop());
        assert_eq!(Arc::strong_count(&counted), 5);
        drop((consumer, producer));
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(kept);
        assert_eq!(Arc::strong_count(&counted), 1);
    }
}
