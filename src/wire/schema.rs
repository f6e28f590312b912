//! Which types may travel between pods, and a number that changes whenever the shape of one does.
//!
//! [`Wire`] is implemented here for the types of the standard library, and by `#[derive(atoll::Wire)]` for types of an
//! application. The codec and the message traits ask for nothing else.
//! Invariants: equal shapes have equal [`Wire::SCHEMA`]s on every machine and in every version (fixed vectors in
//! `tests/wire_derive.rs`); a sequence never has elements that take no bytes, so a lying length costs nothing;
//! recursion and shared pointers have no impl, so the depth of a value is bounded by its type.

use core::time::Duration;

use rkyv::api::low::{LowDeserializer, LowSerializer, LowValidator};
use rkyv::bytecheck::CheckBytes;
use rkyv::rancor::Failure;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::{Archive, Deserialize, Serialize};

use super::codec::BodyWriter;
use crate::base::hash::{mix, stable_hash};

/// What archives a value. It cannot share pointers, so `Rc` and `Arc` do not compile.
pub type Encoder<'a> = LowSerializer<BodyWriter<'a>, ArenaHandle<'a>, Failure>;
/// What checks received bytes before anything in them is read.
pub type BodyValidator<'a> = LowValidator<'a, Failure>;
/// What makes an owned value of an archived one.
pub type Decoder = LowDeserializer<Failure>;

/// A value that may travel between pods: as the argument, reply or error of a message.
///
/// Derive it: `#[derive(atoll::Wire)]` on a struct or enum without parameters. The derive makes the archived type
/// (`ArchivedName`, beside the type and as visible) and everything that rkyv needs. Fields of type `BTreeMap`,
/// `HashMap`, `BTreeSet` and `HashSet` (also inside `Option`, `Vec` and arrays) travel as sequences.
///
/// `usize` and `isize` are no `Wire` types, because their size differs between machines; use `u64` and `i64`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot travel between pods",
    label = "this type does not implement `atoll::Wire`",
    note = "put `#[derive(atoll::Wire)]` on your own types",
    note = "maps and sets travel only as fields of a derived type, also inside `Option`, `Vec` or an array",
    note = "`Rc`, `Arc`, references, `usize` and `isize` never travel"
)]
pub trait Wire:
    Sized
    + Send
    + 'static
    + Archive<Archived: for<'a> CheckBytes<BodyValidator<'a>> + Deserialize<Self, Decoder>>
    + for<'a> Serialize<Encoder<'a>>
{
    /// Hash of the shape: names of fields and variants and the types of the fields, all the way down, but not the name
    /// of the type itself. Two sides whose numbers differ must not decode each other's bytes.
    const SCHEMA: u64;
}

macro_rules! primitives {
    ($($type:ty => $name:literal),* $(,)?) => {
        $(impl Wire for $type {
            const SCHEMA: u64 = stable_hash($name);
        })*
    };
}

primitives! {
    u8 => "u8", u16 => "u16", u32 => "u32", u64 => "u64", u128 => "u128",
    i8 => "i8", i16 => "i16", i32 => "i32", i64 => "i64", i128 => "i128",
    f32 => "f32", f64 => "f64", bool => "bool", char => "char", () => "unit",
    String => "string", Duration => "duration", super::never::Never => "never",
}

impl<T: Wire> Wire for Option<T> {
    const SCHEMA: u64 = option(T::SCHEMA);
}

impl<T: Wire, E: Wire> Wire for Result<T, E> {
    const SCHEMA: u64 = mix(mix(stable_hash("result"), T::SCHEMA), E::SCHEMA);
}

impl<T: Wire> Wire for Vec<T> {
    const SCHEMA: u64 = {
        refuse_empty_elements(size_of::<T::Archived>());
        sequence(T::SCHEMA)
    };
}

impl<T: Wire> Wire for Box<T> {
    const SCHEMA: u64 = mix(stable_hash("box"), T::SCHEMA);
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    const SCHEMA: u64 = array(T::SCHEMA, N);
}

macro_rules! tuples {
    ($(($($name:ident),+))*) => {
        $(impl<$($name: Wire),+> Wire for ($($name,)+) {
            const SCHEMA: u64 = {
                let mut hash = stable_hash("tuple");
                $(hash = mix(hash, $name::SCHEMA);)+
                hash
            };
        })*
    };
}

tuples! {
    (A)
    (A, B)
    (A, B, C)
    (A, B, C, D)
    (A, B, C, D, E)
    (A, B, C, D, E, F)
    (A, B, C, D, E, F, G)
    (A, B, C, D, E, F, G, H)
}

/// Without bytes per element, nine bytes from a peer could claim four billion of them.
const fn refuse_empty_elements(archived_bytes: usize) {
    assert!(archived_bytes > 0, "a sequence of elements that take no bytes cannot travel; send their number instead");
}

/// Schema of an option of something. Called by derived code.
#[doc(hidden)]
#[must_use]
pub const fn option(of: u64) -> u64 {
    mix(stable_hash("option"), of)
}

/// Schema of a sequence of something that takes bytes. Called by derived code.
#[doc(hidden)]
#[must_use]
pub const fn sequence(of: u64) -> u64 {
    mix(stable_hash("sequence"), of)
}

/// Schema of an array of something. Called by derived code.
#[doc(hidden)]
#[must_use]
pub const fn array(of: u64, length: usize) -> u64 {
    mix(mix(stable_hash("array"), of), length as u64)
}

/// Schema of a map field. Called by derived code.
#[doc(hidden)]
#[must_use]
pub const fn map<K: Wire, V: Wire>() -> u64 {
    refuse_empty_elements(size_of::<K::Archived>() + size_of::<V::Archived>());
    mix(mix(stable_hash("map"), K::SCHEMA), V::SCHEMA)
}

/// Schema of a set field. Called by derived code.
#[doc(hidden)]
#[must_use]
pub const fn set<T: Wire>() -> u64 {
    refuse_empty_elements(size_of::<T::Archived>());
    mix(stable_hash("set"), T::SCHEMA)
}

/// Schema of fields, in their order. `kind` says what holds them. Called by derived code.
#[doc(hidden)]
#[must_use]
pub const fn fields(kind: &str, fields: &[(&str, u64)]) -> u64 {
    let mut hash = mix(stable_hash(kind), fields.len() as u64);
    let mut at = 0;
    while at < fields.len() {
        hash = mix(mix(hash, stable_hash(fields[at].0)), fields[at].1);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_shapes_have_different_schemas() {
        let all = [
            u8::SCHEMA,
            i8::SCHEMA,
            u32::SCHEMA,
            <()>::SCHEMA,
            String::SCHEMA,
            Duration::SCHEMA,
            super::super::never::Never::SCHEMA,
            Vec::<u8>::SCHEMA,
            Vec::<Vec<u8>>::SCHEMA,
            Option::<u8>::SCHEMA,
            Option::<Option<u8>>::SCHEMA,
            Box::<u8>::SCHEMA,
            <[u8; 3]>::SCHEMA,
            <[u8; 4]>::SCHEMA,
            <(u8,)>::SCHEMA,
            <(u8, u32)>::SCHEMA,
            <(u32, u8)>::SCHEMA,
            Result::<u8, u32>::SCHEMA,
            Result::<u32, u8>::SCHEMA,
            set::<u8>(),
            map::<u8, u32>(),
            map::<u32, u8>(),
            fields("struct", &[]),
            fields("tuple struct", &[]),
            fields("struct", &[("a", 1), ("b", 2)]),
            fields("struct", &[("b", 2), ("a", 1)]),
        ];
        for (at, schema) in all.iter().enumerate() {
            assert!(!all[..at].contains(schema), "schema {at} equals an earlier one");
        }
    }
}
