//! Operators that find frames in bytes: what is a frame, what is none, and that it does not matter how bytes are split.

use std::sync::{Arc, Mutex};

use atoll::stream::attributes::{Attributes, Directive};
use atoll::stream::dsl::{Flow, FlowOps, Sink, Source};
use atoll::stream::error::IllegalArgument;
use atoll::stream::operators::{ByteOrder, FieldLength, FramingError, FramingOps, SimpleFraming};
use proptest::prelude::*;

use crate::drive::{always, run};
use crate::hand::Hand;

type Bytes = Vec<u8>;
type Framing = Flow<Bytes, Bytes>;
/// The frames, and the failure behind them.
type Outcome = (Vec<Bytes>, Option<FramingError>);

fn bytes() -> Framing {
    Flow::<Bytes, Bytes>::new()
}

fn of_chunks(chunks: Vec<Bytes>, framing: &Framing) -> Outcome {
    let frames = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&frames);
    let sink = Sink::for_each(move |frame| seen.lock().unwrap().push(frame));
    // A framing cannot go on behind a fault, whatever a decider would say.
    let resume = Attributes::of(always(Directive::Resume));
    let source = Source::from_iterator(move || chunks.clone()).via(framing.clone());
    let outcome = run(&source.to_right(sink).add_attributes(&resume));
    let error = outcome.err().map(|error| *error.downcast_ref::<FramingError>().expect("typed"));
    (std::mem::take(&mut *frames.lock().unwrap()), error)
}

/// Chunks of so many bytes, with an empty one in front.
fn split(bytes: &[u8], size: usize) -> Vec<Bytes> {
    std::iter::once(Vec::new()).chain(bytes.chunks(size).map(<[u8]>::to_vec)).collect()
}

/// The outcome, which is the same for chunks of any size.
#[track_caller]
fn of(input: impl AsRef<[u8]>, framing: &Framing) -> Outcome {
    let input = input.as_ref();
    let whole = of_chunks(vec![input.to_vec()], framing);
    for size in 1..=input.len() {
        assert_eq!(of_chunks(split(input, size), framing), whole, "in chunks of {size}");
    }
    whole
}

fn texts(outcome: Outcome) -> (Vec<String>, Option<FramingError>) {
    (outcome.0.into_iter().map(|frame| String::from_utf8(frame).unwrap()).collect(), outcome.1)
}

fn too_long(bytes: u64, limit: u64) -> Option<FramingError> {
    Some(FramingError::TooLong { bytes, limit })
}

fn truncated(bytes: u64) -> Option<FramingError> {
    Some(FramingError::Truncated { bytes })
}

fn is_illegal(framing: Framing) -> bool {
    let source = Source::from_iterator(|| [b"a".to_vec()]).via(framing);
    run(&source.to_right(Sink::seq())).unwrap_err().downcast_ref::<IllegalArgument>().is_some()
}

#[test]
fn frames_between_separators() {
    type Case = (&'static str, &'static str, usize, bool, &'static [&'static str], Option<FramingError>);
    let cases: &[Case] = &[
        ("", "\n", 9, false, &[], None),
        ("\n", "\n", 9, false, &[""], None),
        ("a\nbc\n", "\n", 9, false, &["a", "bc"], None),
        ("\n\na\n", "\n", 9, false, &["", "", "a"], None),
        ("a\nbc", "\n", 9, false, &["a"], truncated(2)),
        ("a\nbc", "\n", 9, true, &["a", "bc"], None),
        ("a\nbc\n", "\n", 9, true, &["a", "bc"], None),
        ("", "\n", 9, true, &[], None),
        // The limit is without the separator.
        ("abcd\r\n", "\r\n", 4, false, &["abcd"], None),
        ("a\r\nabcde\r\nb", "\r\n", 4, false, &["a"], too_long(5, 4)),
        ("abcde", "\r\n", 4, true, &[], too_long(5, 4)),
        ("abcd\r", "\r\n", 4, true, &[], too_long(5, 4)),
        ("abcd", "\r\n", 4, true, &["abcd"], None),
        ("\n\nx", "\n", 0, true, &["", ""], too_long(1, 0)),
        // Separators that begin like themselves, or not quite.
        ("a\rb\r\r\nc\r\n", "\r\n", 9, false, &["a\rb\r", "c"], None),
        ("aaab", "aab", 9, false, &["a"], None),
        ("abababac", "ababac", 9, false, &["ab"], None),
        ("aaaaa", "aa", 9, true, &["", "", "a"], None),
        ("xaab", "aac", 9, true, &["xaab"], None),
        ("a\r", "\r\n", 9, false, &[], truncated(2)),
        ("a\r", "\r\n", 9, true, &["a\r"], None),
    ];
    for (input, separator, limit, truncation, frames, error) in cases {
        let outcome = of(input, &bytes().framing_delimiter(separator, *limit, *truncation));
        let expected = (frames.iter().map(|frame| (*frame).to_owned()).collect(), *error);
        assert_eq!(texts(outcome), expected, "{input:?} with {separator:?}");
    }
    assert!(is_illegal(bytes().framing_delimiter("", 9, false)));
}

#[test]
fn long_frames_between_separators() {
    let line = "x".repeat(200);
    let (frames, error) = of(format!("{line}\n{line}\n"), &bytes().framing_delimiter("\n", 200, false));
    assert_eq!((frames, error), (vec![line.clone().into_bytes(); 2], None));
}

#[test]
fn frames_with_a_length() {
    use ByteOrder::{Big, Little};
    use FieldLength::{Four, One, Three, Two};
    type Case = (&'static [u8], FieldLength, usize, usize, ByteOrder, &'static [&'static [u8]], Option<FramingError>);
    let cases: &[Case] = &[
        (&[], Four, 0, 9, Big, &[], None),
        (&[0], One, 0, 9, Big, &[&[0]], None),
        (&[2, 7, 8, 0, 1, 9], One, 0, 9, Big, &[&[2, 7, 8], &[0], &[1, 9]], None),
        (&[0, 1, 7], Two, 0, 9, Big, &[&[0, 1, 7]], None),
        (&[1, 0, 7], Two, 0, 9, Little, &[&[1, 0, 7]], None),
        (&[0, 0, 1, 7], Three, 0, 9, Big, &[&[0, 0, 1, 7]], None),
        (&[1, 0, 0, 7], Three, 0, 9, Little, &[&[1, 0, 0, 7]], None),
        (&[5, 5, 1, 0, 0, 0, 7], Four, 2, 9, Little, &[&[5, 5, 1, 0, 0, 0, 7]], None),
        // The limit is with the header.
        (&[2, 7, 8], One, 0, 3, Big, &[&[2, 7, 8]], None),
        (&[1, 7, 3, 7, 8, 9], One, 0, 3, Big, &[&[1, 7]], too_long(4, 3)),
        (&[255, 255, 255, 255], Four, 0, 9, Big, &[], too_long((1 << 32) + 3, 9)),
        (&[0, 1], Two, 0, 9, Little, &[], too_long(258, 9)),
        // The end is within a header, or behind it.
        (&[0, 0], Three, 0, 9, Big, &[], truncated(2)),
        (&[1, 7, 2, 7], One, 0, 9, Big, &[&[1, 7]], truncated(2)),
    ];
    for (input, length, offset, limit, order, frames, error) in cases {
        let outcome = of(input, &bytes().framing_length_field(*length, *offset, *limit, *order));
        let expected = (frames.iter().map(|frame| frame.to_vec()).collect(), *error);
        assert_eq!(outcome, expected, "{input:?}");
    }
    assert!(is_illegal(bytes().framing_length_field(Four, 6, 9, Big)));
    assert!(is_illegal(bytes().framing_length_field(One, usize::MAX, 9, Big)));
}

#[test]
fn the_size_of_a_frame_may_be_computed() {
    // The number counts its header, and the byte before it is a number of trailing bytes.
    let compute = |before: &[u8], length: u32| i64::from(length) + i64::from(before[0]);
    let framing = |less: i64| {
        let compute = move |before: &[u8], length| compute(before, length) - less;
        bytes().framing_length_field_with(FieldLength::One, 1, 5, ByteOrder::Big, compute)
    };
    let frames = vec![vec![1, 3, 7, 8], vec![0, 2], vec![0, 3, 9]];
    assert_eq!(of(frames.concat(), &framing(0)), (frames, None));
    let too_short = |bytes| Some(FramingError::TooShort { bytes, header: 2 });
    assert_eq!(of([0, 1], &framing(0)), (vec![], too_short(1)));
    assert_eq!(of([0, 4], &framing(5)), (vec![], too_short(-1)));
    assert_eq!(of([3, 3], &framing(0)), (vec![], too_long(6, 5)));
}

#[test]
fn messages_of_the_simple_protocol() {
    let decoder = SimpleFraming::decoder(3);
    assert_eq!(of([0, 0, 0, 3, 1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 1, 9], &decoder).0, [vec![1, 2, 3], vec![], vec![9]]);
    assert_eq!(of([0, 0, 0, 4, 1, 2, 3, 4], &decoder), (vec![], too_long(4, 3)));
    assert_eq!(of([0, 0, 0, 3, 1, 2], &decoder), (vec![], truncated(6)));
    assert_eq!(of([255; 4], &decoder), (vec![], too_long(u64::from(u32::MAX), 3)));
    let encoder = SimpleFraming::encoder(3);
    assert_eq!(of_chunks(vec![vec![1, 2, 3], vec![]], &encoder).0, [vec![0, 0, 0, 3, 1, 2, 3], vec![0; 4]]);
    assert_eq!(of_chunks(vec![vec![1], vec![0; 4]], &encoder), (vec![vec![0, 0, 0, 1, 1]], too_long(4, 3)));
    let messages = vec![vec![], vec![1], vec![1, 2, 3]];
    assert_eq!(of_chunks(messages.clone(), &SimpleFraming::protocol(3).join(bytes())), (messages, None));
}

#[test]
fn objects_of_json() {
    let not_an_object = |byte, position| Some(FramingError::NotAnObject { byte, position });
    let cases: &[(&str, &[&str], Option<FramingError>)] = &[
        ("", &[], None),
        (" \r\n\t", &[], None),
        ("{}", &["{}"], None),
        ("{}{}", &["{}", "{}"], None),
        (" {} \n{}\r\n,{} ", &["{}", "{}", "{}"], None),
        ("[]", &[], None),
        ("[{},{}]", &["{}", "{}"], None),
        ("[ {\"a\":1} ,\n{\"b\":[{},{}]}\n] ", &["{\"a\":1}", "{\"b\":[{},{}]}"], None),
        ("[{}][{}]{}", &["{}", "{}", "{}"], None),
        ("{\"a\": {\"b\": {}} }", &["{\"a\": {\"b\": {}} }"], None),
        ("{\"}\":\"{\"}", &["{\"}\":\"{\"}"], None),
        (r#"{"\"}":"\\"}{}"#, &[r#"{"\"}":"\\"}"#, "{}"], None),
        (r#"{"é":"\u007d}"}"#, &[r#"{"é":"\u007d}"}"#], None),
        // Not objects.
        ("x", &[], not_an_object(b'x', 0)),
        ("{} null", &["{}"], not_an_object(b'n', 3)),
        ("{}}", &["{}"], not_an_object(b'}', 2)),
        ("[{},1]", &["{}"], not_an_object(b'1', 4)),
        ("[[{}]]", &[], not_an_object(b'[', 1)),
        ("{}]", &["{}"], not_an_object(b']', 2)),
        ("\"{}\"", &[], not_an_object(b'"', 0)),
        // Too long: the limit is 20.
        ("{\"a\":\"123456789012\"}", &["{\"a\":\"123456789012\"}"], None),
        ("{}{\"a\":\"1234567890123\"}", &["{}"], too_long(21, 20)),
        ("{{{{{{{{{{{{{{{{{{{{{{{{{", &[], too_long(21, 20)),
        ("{}                          {}", &["{}", "{}"], None),
        // Truncated.
        ("{}{\"a", &["{}"], truncated(3)),
        ("{\"}", &[], truncated(3)),
        ("[{}", &["{}"], truncated(0)),
        ("[", &[], truncated(0)),
    ];
    for (input, objects, error) in cases {
        let expected = (objects.iter().map(|object| (*object).to_owned()).collect(), *error);
        assert_eq!(texts(of(input, &bytes().json_objects(20))), expected, "{input:?}");
    }
    assert_eq!(of(" {", &bytes().json_objects(0)), (vec![], too_long(1, 0)));
}

#[test]
fn upstream_is_asked_when_there_is_no_frame_left() {
    let hand = Hand::hold(bytes().framing_delimiter("\n", 9, false));
    hand.request(1).give(b"a\nb\nc".to_vec());
    assert_eq!((hand.received(), hand.is_asked()), (vec![b"a".to_vec()], false));
    hand.request(1);
    assert_eq!((hand.received(), hand.is_asked()), (vec![b"b".to_vec()], false));
    assert!(hand.request(1).is_asked());
    hand.give(b"\n".to_vec()).complete();
    assert_eq!((hand.received(), hand.end()), (vec![b"c".to_vec()], Some("complete".to_owned())));
}

#[test]
fn frames_that_are_left_come_before_the_end() {
    let hand = Hand::hold(bytes().json_objects(9));
    hand.request(1).give(b"{}{}".to_vec()).complete();
    assert_eq!((hand.received().len(), hand.end()), (1, None));
    hand.request(1);
    assert_eq!((hand.received().len(), hand.end()), (1, Some("complete".to_owned())));
}

#[test]
fn an_announced_length_fails_before_the_frame_comes() {
    let hand = Hand::hold(SimpleFraming::decoder(3));
    hand.request(1).give(vec![0, 0, 0, 4]);
    assert!(hand.end().unwrap().contains("limit is 3") && hand.cancelled().is_some());
}

#[test]
fn failures_and_cancellation_pass() {
    let hand = Hand::hold(bytes().framing_delimiter("\n", 9, true));
    hand.request(1).give(b"a".to_vec()).fail("broken");
    assert_eq!((hand.received(), hand.end()), (vec![], Some("broken".to_owned())));
    let hand = Hand::hold(bytes().framing_delimiter("\n", 9, true));
    hand.request(1).give(b"a".to_vec()).cancel();
    assert!(hand.cancelled().is_some());
}

/// Pieces of the input, split after each byte of which `after` says so.
fn pieces(input: &[u8], after: &[bool]) -> Vec<Bytes> {
    let mut pieces = vec![Vec::new()];
    for (at, byte) in input.iter().enumerate() {
        pieces.last_mut().unwrap().push(*byte);
        if after[at % after.len()] {
            pieces.push(Vec::new());
        }
    }
    pieces
}

/// Frames by looking for the separator from the beginning, each time.
fn separated(mut input: &[u8], separator: &[u8], limit: usize) -> Outcome {
    let mut frames = Vec::new();
    loop {
        let end = input.windows(separator.len()).position(|window| window == separator);
        let length = end.unwrap_or(input.len());
        match end {
            _ if length > limit => {
                // Bytes at the end that could be of a separator do not tell: the end of the stream does.
                return (frames, Some(FramingError::TooLong { bytes: 0, limit: limit as u64 }));
            }
            Some(end) => frames.push(input[..end].to_vec()),
            None if input.is_empty() => return (frames, None),
            None => {
                frames.push(input.to_vec());
                return (frames, None);
            }
        }
        input = &input[length + separator.len()..];
    }
}

fn without_length(outcome: Outcome) -> Outcome {
    let error = outcome.1.map(|error| match error {
        FramingError::TooLong { limit, .. } => FramingError::TooLong { bytes: 0, limit },
        other => other,
    });
    (outcome.0, error)
}

proptest! {
    #[test]
    fn separators_are_found_in_any_chunks(
        input in proptest::collection::vec(0..3_u8, 0..200),
        separator in proptest::collection::vec(0..2_u8, 1..6),
        after in proptest::collection::vec(any::<bool>(), 1..50),
        limit in 0..60_usize,
    ) {
        let framing = bytes().framing_delimiter(&separator, limit, true);
        let outcome = of_chunks(pieces(&input, &after), &framing);
        prop_assert_eq!(&outcome, &of_chunks(vec![input.clone()], &framing));
        prop_assert_eq!(without_length(outcome), separated(&input, &separator, limit));
    }

    #[test]
    fn messages_come_back_from_any_chunks(
        messages in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10),
        after in proptest::collection::vec(any::<bool>(), 1..50),
    ) {
        let frames = of_chunks(messages.clone(), &SimpleFraming::encoder(40)).0.concat();
        let outcome = of_chunks(pieces(&frames, &after), &SimpleFraming::decoder(40));
        prop_assert_eq!(outcome, (messages, None));
    }

    #[test]
    fn objects_come_back_from_any_chunks(
        values in proptest::collection::vec("[{}\"\\\\,\\[\\]a]{0,12}", 0..8),
        separator in prop_oneof![Just(""), Just("\n"), Just(" , ")],
        is_array: bool,
        after in proptest::collection::vec(any::<bool>(), 1..50),
    ) {
        let object = |value: &String| format!("{{{value:?}:{{\"b\":[{value:?}]}}}}");
        let objects: Vec<String> = values.iter().map(object).collect();
        let joined = objects.join(separator);
        let text = if is_array { format!("[{joined}]") } else { joined };
        let outcome = of_chunks(pieces(text.as_bytes(), &after), &bytes().json_objects(100));
        prop_assert_eq!(texts(outcome), (objects, None));
    }

    #[test]
    fn any_bytes_have_the_same_outcome_in_any_chunks(
        input in proptest::collection::vec(prop_oneof![Just(b'{'), Just(b'}'), Just(b'"'), Just(b'\\'), Just(b'['), Just(b','),
            Just(b']'), 0..4_u8], 0..60),
        after in proptest::collection::vec(any::<bool>(), 1..50),
    ) {
        let framings = [
            bytes().json_objects(20),
            bytes().framing_delimiter([0], 20, false),
            bytes().framing_length_field(FieldLength::One, 1, 99, ByteOrder::Big),
            bytes().framing_length_field(FieldLength::Two, 1, 999, ByteOrder::Little),
        ];
        for framing in framings {
            let whole = of_chunks(vec![input.clone()], &framing);
            prop_assert_eq!(of_chunks(pieces(&input, &after), &framing), whole);
        }
    }
}
