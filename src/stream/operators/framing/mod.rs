//! Operators that find frames in a stream of bytes, whatever the chunks in which the bytes come.
//!
//! Called by whoever reads from a connection or a file. What holds for all of them: the frames are the same however the
//! bytes are split; every byte is looked at once; of an unfinished frame no more than its limit is kept besides the chunk
//! that is being looked at; frames before a fault are emitted before the stage fails with a [`FramingError`]. There is no
//! way on behind a fault, so no supervision decider is asked.
//!
//! They emit when a frame is whole, back-pressure while downstream does and the chunk may have another frame, complete
//! when upstream has and all frames are emitted, and cancel when downstream cancels. A failure of upstream drops what is
//! gathered.

mod delimiter;
mod gathered;
mod json;
mod length_field;

use delimiter::Delimiter;
use json::JsonObjects;
use length_field::{Encoder, Field, LengthField};

use crate::stream::dsl::{BidiFlow, Flow, FlowOps, Plain};
use crate::stream::stage::transform;

/// How many bytes the length in a header has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldLength {
    /// 1 byte.
    One,
    /// 2 bytes.
    Two,
    /// 3 bytes.
    Three,
    /// 4 bytes.
    Four,
}

impl FieldLength {
    /// As number of bytes.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            FieldLength::One => 1,
            FieldLength::Two => 2,
            FieldLength::Three => 3,
            FieldLength::Four => 4,
        }
    }
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The lowest.
    Little,
    /// The highest: the order of networks.
    Big,
}

/// Bytes that are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FramingError {
    /// A frame is longer than it may be.
    #[error("a frame has {bytes} bytes or more, its limit is {limit}: raise the limit, or look at what is sent")]
    TooLong {
        /// Length as announced, or as far as it is known.
        bytes: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The length of a frame is negative, or less than its own header.
    #[error("a frame is said to have {bytes} bytes, but its header alone has {header}: check how the size is computed")]
    TooShort {
        /// Length of the frame as computed.
        bytes: i64,
        /// Length of the header, in bytes.
        header: u64,
    },
    /// The stream completed within a frame.
    #[error("the stream completed within a frame, after {bytes} bytes of it: the sender stopped too early")]
    Truncated {
        /// Bytes of the frame that have come; 0 between the elements of an array.
        bytes: u64,
    },
    /// Something between the objects that may not be there.
    #[error("byte {byte:#04x} at position {position} is outside of objects: only objects, also in arrays, can be read")]
    NotAnObject {
        /// The byte.
        byte: u8,
        /// Its position in the stream, from 0.
        position: u64,
    },
}

/// Operators on streams of bytes.
pub trait FramingOps: FlowOps<Out = Vec<u8>> {
    /// Emits what is between separators, without them; frames may be empty. With `allow_truncation` the end of the stream
    /// is a separator, too; without it, the stage fails if something comes behind the last separator. Fails if a frame has
    /// more than `max_frame_bytes`, or with [`IllegalArgument`](crate::stream::error::IllegalArgument) if the separator is
    /// empty.
    ///
    /// ```
    /// use atoll::stream::operators::prelude::*;
    ///
    /// let chunks = Source::from_iterator(|| [b"one\ntw".to_vec(), b"o\n".to_vec()]);
    /// let lines = chunks.framing_delimiter(b"\n", 80, false); // "one", "two"
    /// # let _ = lines;
    /// ```
    fn framing_delimiter(
        self,
        separator: impl AsRef<[u8]>,
        max_frame_bytes: usize,
        allow_truncation: bool,
    ) -> Plain<Self, Vec<u8>> {
        let blueprint = Delimiter::new(separator.as_ref(), max_frame_bytes, allow_truncation);
        self.via_stage(transform::stage_of("framing_delimiter", move || blueprint))
    }

    /// Emits frames that begin with a header of `offset` bytes and an unsigned number: how many bytes follow it. A frame is
    /// emitted with its header. Fails if a frame has more than `max_frame_bytes` with its header, as soon as the header has
    /// come, and if the stream completes within a frame.
    fn framing_length_field(
        self,
        length: FieldLength,
        offset: usize,
        max_frame_bytes: usize,
        order: ByteOrder,
    ) -> Plain<Self, Vec<u8>> {
        let header = offset.saturating_add(length.bytes()) as u64;
        let compute =
            move |_: &[u8], parsed: u32| i64::try_from(header.saturating_add(parsed.into())).unwrap_or(i64::MAX);
        self.framing_length_field_with(length, offset, max_frame_bytes, order, compute)
    }

    /// As [`FramingOps::framing_length_field`], with a function from the bytes before the number and the number to the size
    /// of the frame with its header. Fails if that is negative or less than the header.
    fn framing_length_field_with<F>(
        self,
        length: FieldLength,
        offset: usize,
        max_frame_bytes: usize,
        order: ByteOrder,
        compute: F,
    ) -> Plain<Self, Vec<u8>>
    where
        F: FnMut(&[u8], u32) -> i64 + Clone + Send + Sync + 'static,
    {
        let field = Field { length, offset, order };
        let factory = move || LengthField::new("framing_length_field", field, max_frame_bytes, compute, 0);
        self.via_stage(transform::stage_of("framing_length_field", factory))
    }

    /// Puts the length of each message before it, as 4 bytes, highest first. Fails if a message has more than
    /// `max_message_bytes`.
    fn framing_encode(self, max_message_bytes: usize) -> Plain<Self, Vec<u8>> {
        self.via_stage(transform::stage_of("framing_encode", move || Encoder::new(max_message_bytes)))
    }

    /// Emits the messages that [`FramingOps::framing_encode`] has put a length before, without it. Fails if a message has
    /// more than `max_message_bytes`, and if the stream completes within one.
    fn framing_decode(self, max_message_bytes: usize) -> Plain<Self, Vec<u8>> {
        self.via_stage(transform::stage_of("framing_decode", move || length_field::decoder(max_message_bytes)))
    }

    /// Emits JSON objects, one by one, byte for byte. They may follow one another at once, with white space, new lines or
    /// commas between them, or be elements of an array. Braces are counted, outside of strings; what is within an object is
    /// not checked any further. Fails if an object has more than `max_object_bytes`, if there is anything but objects, and
    /// if the stream completes within an object or an array.
    fn json_objects(self, max_object_bytes: usize) -> Plain<Self, Vec<u8>> {
        self.via_stage(transform::stage_of("json_objects", move || JsonObjects::new(max_object_bytes)))
    }
}

impl<S: FlowOps<Out = Vec<u8>>> FramingOps for S {}

/// The simple protocol: each message has its length before it, as 4 bytes, highest first.
#[derive(Clone, Copy, Debug)]
pub struct SimpleFraming;

impl SimpleFraming {
    /// Messages become frames on the way down, and frames messages on the way back. Either side has the same limit.
    ///
    /// ```
    /// use atoll::stream::operators::SimpleFraming;
    /// use atoll::stream::operators::prelude::*;
    ///
    /// let echo = Flow::<Vec<u8>, Vec<u8>>::new(); // the connection
    /// let messages = SimpleFraming::protocol(1024).join(echo);
    /// # let _ = messages;
    /// ```
    #[must_use]
    pub fn protocol(max_message_bytes: usize) -> BidiFlow<Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>> {
        BidiFlow::from_flows(SimpleFraming::encoder(max_message_bytes), SimpleFraming::decoder(max_message_bytes))
    }

    /// See [`FramingOps::framing_encode`].
    #[must_use]
    pub fn encoder(max_message_bytes: usize) -> Flow<Vec<u8>, Vec<u8>> {
        Flow::<Vec<u8>, Vec<u8>>::new().framing_encode(max_message_bytes)
    }

    /// See [`FramingOps::framing_decode`].
    #[must_use]
    pub fn decoder(max_message_bytes: usize) -> Flow<Vec<u8>, Vec<u8>> {
        Flow::<Vec<u8>, Vec<u8>>::new().framing_decode(max_message_bytes)
    }
}
