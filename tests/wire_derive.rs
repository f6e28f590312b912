//! What `#[derive(atoll::Wire)]` promises: values come back as they were, the schema follows the shape, bytes that are
//! wrong are refused. The lints prove that the made code troubles no strict user.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, missing_debug_implementations)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use atoll::wire::codec::{Checked, CodecError, decode, encode};
use atoll::{Never, Wire};
use proptest::prelude::*;

const LIMIT: usize = 1 << 20;

/// Every kind of field.
#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Everything {
    /// A public field.
    pub number: u32,
    text: String,
    signed: (i8, i16, i64),
    wide: (u128, i128),
    letter: char,
    nothing: (),
    list: Vec<Option<String>>,
    boxed: Box<Inner>,
    array: [Inner; 2],
    outcome: Result<u8, PayError>,
    sure: Result<u8, Never>,
    time: Duration,
    ranks: BTreeMap<String, u64>,
    names: BTreeSet<String>,
    table: HashMap<u32, Inner>,
    numbers: HashSet<u64>,
    maybe: Option<BTreeMap<u8, String>>,
    many: Vec<Option<BTreeSet<u16>>>,
    pair: [BTreeSet<u8>; 2],
    r#type: bool,
}

#[derive(atoll::Wire, Debug, Clone, PartialEq)]
struct Inner {
    x: u8,
    y: Vec<u16>,
}

/// A tuple struct.
#[derive(atoll::Wire, Debug, Clone, Copy, PartialEq)]
pub struct Coins(pub u64, u16);

/// A unit struct.
#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub struct Marker;

/// Every kind of variant.
#[derive(atoll::Wire, Debug, Clone, PartialEq)]
pub enum PayError {
    /// Without fields.
    NotAMember,
    /// With named fields.
    NoFunds {
        /// A number.
        left: u64,
        /// A map inside a variant.
        owed: BTreeMap<String, u64>,
    },
    /// With numbered fields.
    Other(String, Coins),
    /// With a derived field that has no bytes.
    Odd(Marker),
}

fn bytes_of<T: Wire>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, &mut out, LIMIT).unwrap();
    out
}

fn pay_error() -> impl Strategy<Value = PayError> {
    prop_oneof![
        Just(PayError::NotAMember),
        (any::<u64>(), prop::collection::btree_map(".{0,12}", any::<u64>(), 0..4))
            .prop_map(|(left, owed)| PayError::NoFunds { left, owed }),
        (".{0,40}", any::<u64>(), any::<u16>()).prop_map(|(text, a, b)| PayError::Other(text, Coins(a, b))),
        Just(PayError::Odd(Marker)),
    ]
}

fn inner() -> impl Strategy<Value = Inner> {
    (any::<u8>(), prop::collection::vec(any::<u16>(), 0..5)).prop_map(|(x, y)| Inner { x, y })
}

fn everything() -> impl Strategy<Value = Everything> {
    let plain = (any::<u32>(), ".{0,30}", any::<(i8, i16, i64)>(), any::<(u128, i128)>(), any::<char>(), any::<bool>());
    let nested = (
        prop::collection::vec(prop::option::of(".{0,20}"), 0..4),
        inner(),
        [inner(), inner()],
        prop::result::maybe_ok(any::<u8>(), pay_error()),
        (any::<u64>(), 0..1_000_000_000_u32),
    );
    let maps = (
        prop::collection::btree_map(".{0,20}", any::<u64>(), 0..4),
        prop::collection::btree_set(".{0,20}", 0..4),
        prop::collection::hash_map(any::<u32>(), inner(), 0..4),
        prop::collection::hash_set(any::<u64>(), 0..4),
        prop::option::of(prop::collection::btree_map(any::<u8>(), ".{0,20}", 0..4)),
        prop::collection::vec(prop::option::of(prop::collection::btree_set(any::<u16>(), 0..4)), 0..4),
        [prop::collection::btree_set(any::<u8>(), 0..4), prop::collection::btree_set(any::<u8>(), 0..4)],
    );
    (plain, nested, maps).prop_map(|(plain, nested, maps)| Everything {
        number: plain.0,
        text: plain.1,
        signed: plain.2,
        wide: plain.3,
        letter: plain.4,
        nothing: (),
        list: nested.0,
        boxed: Box::new(nested.1),
        array: nested.2,
        outcome: nested.3,
        sure: Ok(plain.0 as u8),
        time: Duration::new(nested.4.0, nested.4.1),
        ranks: maps.0,
        names: maps.1,
        table: maps.2,
        numbers: maps.3,
        maybe: maps.4,
        many: maps.5,
        pair: maps.6,
        r#type: plain.5,
    })
}

/// Few under Miri, which is some thousand times slower.
fn cases(many: u32) -> ProptestConfig {
    let cases = if cfg!(miri) { 4 } else { many };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn values_come_back_as_they_were(value in everything(), prefix in 0..17_usize) {
        let mut out = vec![7; prefix];
        encode(&value, &mut out, LIMIT).unwrap();
        prop_assert_eq!(decode::<Everything>(&out[prefix..]), Ok(value.clone()));
        let checked = Checked::<Everything>::new(&out[prefix..]).unwrap();
        prop_assert_eq!(checked.get().number.to_native(), value.number);
        prop_assert_eq!(checked.get().text.as_str(), value.text.as_str());
        prop_assert_eq!(checked.get().ranks.len(), value.ranks.len());
        prop_assert_eq!(checked.to_owned(), Ok(value));
    }

    #[test]
    fn flipped_bits_are_refused_or_read_but_never_panic(
        value in everything(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4),
    ) {
        let mut bytes = bytes_of(&value);
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        match decode::<Everything>(&bytes) {
            Ok(read) => prop_assert_ne!(format!("{read:?}"), ""),
            Err(error) => prop_assert_eq!(error, CodecError::Malformed),
        }
    }

    #[test]
    fn random_bytes_are_refused_or_read_but_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        for result in [
            decode::<Everything>(&bytes).map(|read| format!("{read:?}")),
            decode::<PayError>(&bytes).map(|read| format!("{read:?}")),
            decode::<Vec<Vec<String>>>(&bytes).map(|read| format!("{read:?}")),
            Checked::<PayError>::new(&bytes).map(|checked| format!("{:?}", checked.get())),
        ] {
            prop_assert!(result.is_ok() || result == Err(CodecError::Malformed));
        }
    }

    #[test]
    fn cut_bytes_never_panic(value in everything(), keep in any::<prop::sample::Index>()) {
        let bytes = bytes_of(&value);
        let kept = keep.index(bytes.len());
        // A root that is cut short cannot be read; a longer rest may be one by chance.
        if kept < 100 {
            prop_assert_eq!(decode::<Everything>(&bytes[..kept]), Err(CodecError::Malformed));
        }
        let _ = decode::<Everything>(&bytes[bytes.len() - kept..]);
    }
}

#[test]
fn a_variant_that_does_not_exist_is_malformed() {
    let mut bytes = bytes_of(&PayError::NotAMember);
    bytes[0] = 4;
    assert_eq!(decode::<PayError>(&bytes), Err(CodecError::Malformed));
}

#[test]
fn the_archived_form_is_read_in_place() {
    let owed = BTreeMap::from([("ann".to_string(), 3)]);
    let bytes = bytes_of(&PayError::NoFunds { left: 9, owed });
    match Checked::<PayError>::new(&bytes).unwrap().get() {
        ArchivedPayError::NoFunds { left, owed } => {
            assert_eq!(left.to_native(), 9);
            assert_eq!((owed[0].key.as_str(), owed[0].value.to_native()), ("ann", 3));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_type_inside_a_function_may_be_derived() {
    #[derive(atoll::Wire, Debug, PartialEq)]
    struct Local {
        coins: Coins,
    }
    let value = Local { coins: Coins(1, 2) };
    assert_eq!(decode::<Local>(&bytes_of(&value)), Ok(value));
}

mod made_by_a_macro {
    macro_rules! message {
        ($name:ident { $($field:ident: $type:ty),* }) => {
            #[derive(::atoll::Wire, Debug, PartialEq)]
            pub(super) struct $name { $(pub(super) $field: $type),* }
        };
    }
    message!(Join { user: String, ranks: std::collections::BTreeMap<u32, String> });
    message!(Size {});
}

#[test]
fn a_type_made_by_a_macro_may_be_derived() {
    let value = made_by_a_macro::Join { user: "ann".into(), ranks: BTreeMap::from([(1, "x".into())]) };
    assert_eq!(decode::<made_by_a_macro::Join>(&bytes_of(&value)), Ok(value));
    assert_eq!(decode::<made_by_a_macro::Size>(&bytes_of(&made_by_a_macro::Size {})), Ok(made_by_a_macro::Size {}));
}

/// Declares a type in a scope of its own and returns its schema.
macro_rules! schema_of {
    ($name:ident: $item:item) => {{
        #[derive(atoll::Wire)]
        #[allow(dead_code)]
        $item
        <$name as Wire>::SCHEMA
    }};
}

#[test]
fn the_schema_follows_the_shape_and_not_the_name() {
    let base = schema_of!(A: struct A { max: u32, name: String });
    assert_eq!(base, schema_of!(Other: struct Other { max: u32, name: String }), "a renamed type");
    let wrapped = schema_of!(W: struct W { inner: Inner });
    let changed = [
        ("a renamed field", schema_of!(A: struct A { maximum: u32, name: String })),
        ("an added field", schema_of!(A: struct A { max: u32, name: String, more: u8 })),
        ("a removed field", schema_of!(A: struct A { max: u32 })),
        ("a retyped field", schema_of!(A: struct A { max: u64, name: String })),
        ("fields in another order", schema_of!(A: struct A { name: String, max: u32 })),
        ("a field that became optional", schema_of!(A: struct A { max: u32, name: Option<String> })),
        ("fields without names", schema_of!(A: struct A(u32, String);)),
        ("an enum", schema_of!(A: enum A { A { max: u32, name: String } })),
        ("nothing", schema_of!(A: struct A;)),
        ("nothing, in braces", schema_of!(A: struct A {})),
        ("a list", schema_of!(A: struct A { all: Vec<u32> })),
        ("a set", schema_of!(A: struct A { all: BTreeSet<u32> })),
        ("an optional set", schema_of!(A: struct A { all: Option<BTreeSet<u32>> })),
        ("a map", schema_of!(A: struct A { all: BTreeMap<u32, u8> })),
        ("another map", schema_of!(A: struct A { all: BTreeMap<u8, u32> })),
        ("a field of a derived type", wrapped),
    ];
    let mut seen = vec![base];
    for (what, schema) in changed {
        assert!(!seen.contains(&schema), "{what} has the schema of something else");
        seen.push(schema);
    }
    assert_eq!(
        schema_of!(A: struct A { all: HashSet<u32> }),
        schema_of!(A: struct A { all: BTreeSet<u32> }),
        "which set holds the elements is nobody else's business"
    );
}

#[test]
fn the_schema_of_an_enum_follows_its_variants() {
    let base = schema_of!(A: enum A { X, Y(u8) });
    assert_eq!(base, schema_of!(B: enum B { X, Y(u8) }));
    assert_ne!(base, schema_of!(A: enum A { X, Z(u8) }));
    assert_ne!(base, schema_of!(A: enum A { Y(u8), X }));
    assert_ne!(base, schema_of!(A: enum A { X, Y(u16) }));
    assert_ne!(base, schema_of!(A: enum A { X, Y { a: u8 } }));
    assert_ne!(base, schema_of!(A: enum A { X, Y(u8), Z }));
}

#[test]
fn the_schema_follows_a_change_far_below() {
    mod before {
        #[derive(atoll::Wire, Debug)]
        pub struct Leaf {
            pub a: u8,
        }
        #[derive(atoll::Wire, Debug)]
        pub struct Root {
            pub leaves: Vec<Option<Leaf>>,
        }
    }
    mod after {
        #[derive(atoll::Wire, Debug)]
        pub struct Leaf {
            pub b: u8,
        }
        #[derive(atoll::Wire, Debug)]
        pub struct Root {
            pub leaves: Vec<Option<Leaf>>,
        }
    }
    assert_ne!(before::Root::SCHEMA, after::Root::SCHEMA);
}

/// Schemas are compared between versions, so they never change. (The numbers come from another implementation.)
#[test]
fn schemas_are_fixed() {
    let fixed = [
        u32::SCHEMA,
        String::SCHEMA,
        Vec::<u8>::SCHEMA,
        Option::<String>::SCHEMA,
        Result::<u32, Never>::SCHEMA,
        <(u8, u16)>::SCHEMA,
        <[u8; 16]>::SCHEMA,
        Coins::SCHEMA,
        Marker::SCHEMA,
        PayError::SCHEMA,
    ];
    let expected: [u64; 10] = [
        0x4d2b_df19_3e85_26d1,
        0x704b_e0d8_faaf_fc58,
        0x0f34_2ed6_3114_3814,
        0x8568_a113_5ec2_05df,
        0x161e_8136_a11d_09da,
        0x92d0_6261_62e0_271f,
        0x904a_0a7e_b1e8_5ef4,
        0x4b03_daa9_e413_95d1,
        0xd0a7_2c2c_e637_ef7a,
        0xd8a1_34e8_81b4_de18,
    ];
    assert_eq!(fixed, expected, "{fixed:#018x?}");
}

#[test]
fn a_list_of_plain_structs_is_copied_whole() {
    #[derive(atoll::Wire, Debug, Clone, PartialEq)]
    struct Point {
        x: u32,
        y: u32,
    }
    use atoll::private::rkyv::Archive;
    assert_eq!(Point::COPY_OPTIMIZATION.is_enabled(), cfg!(target_endian = "little"));
    assert!(!Coins::COPY_OPTIMIZATION.is_enabled(), "it has padding that must not be sent");
    assert!(!Inner::COPY_OPTIMIZATION.is_enabled(), "it holds a pointer");
    let points = vec![Point { x: 1, y: 2 }, Point { x: 3, y: 4 }];
    let bytes = bytes_of(&points);
    assert_eq!(bytes[..16], [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
    assert_eq!(decode::<Vec<Point>>(&bytes), Ok(points));
}

/// The archive itself is compared between versions too.
#[test]
fn the_bytes_are_fixed() {
    assert_eq!(bytes_of(&Coins(0x0102_0304_0506_0708, 0x090a)), [8, 7, 6, 5, 4, 3, 2, 1, 0x0a, 9]);
    assert_eq!(bytes_of(&Some("abc".to_string())), [1, b'a', b'b', b'c', 0xff, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(bytes_of(&Result::<u16, Never>::Ok(3)), [0, 3, 0]);
    assert_eq!(bytes_of(&vec![1_u8, 2]), [1, 2, 0xfe, 0xff, 0xff, 0xff, 2, 0, 0, 0]);
}
