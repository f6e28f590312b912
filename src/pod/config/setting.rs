//! The types that a value of the configuration can have: how each is read from TOML and from text, and written.

use core::net::SocketAddr;
use core::time::Duration;
use std::path::PathBuf;

use serde::{Deserializer, Serializer};

use super::units::{format_bytes, format_duration, parse_bytes, parse_duration};

/// A value as it was given.
#[derive(Clone, Copy, Debug)]
pub enum Given<'a> {
    /// Text of a flag or an environment variable: numbers and booleans are texts too.
    Text(&'a str),
    /// A string in the file.
    String(&'a str),
    /// An integer in the file.
    Integer(i64),
    /// A boolean in the file.
    Boolean(bool),
    /// Something that no key takes, by its TOML name.
    Other(&'a str),
}

/// A value as TOML writes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// A string.
    Text(String),
    /// An integer.
    Integer(u64),
    /// A boolean.
    Boolean(bool),
}

impl core::fmt::Display for Written {
    /// As a TOML literal.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Written::Text(text) => toml::Value::String(text.clone()).fmt(f),
            Written::Integer(number) => number.fmt(f),
            Written::Boolean(yes) => yes.fmt(f),
        }
    }
}

/// A type that a key can have.
pub trait Setting: Sized {
    /// What to write, as it follows "write" in a sentence.
    const EXPECTED: &'static str;

    /// Reads a value.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence that says what to write instead.
    fn read(given: Given<'_>) -> Result<Self, String>;

    /// Writes it so that [`read`](Setting::read) reads the same.
    fn write(&self) -> Written;
}

fn wrong_type<T: Setting>(given: Given<'_>) -> String {
    let found = match given {
        Given::Text(text) | Given::String(text) => format!("the text {text:?}"),
        Given::Integer(number) => format!("the number {number}"),
        Given::Boolean(yes) => format!("`{yes}`"),
        Given::Other(kind) => format!("a TOML {kind}"),
    };
    format!("does not take {found}; write {}", T::EXPECTED)
}

fn read_text<T: Setting>(given: Given<'_>, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, String> {
    match given {
        Given::Text(text) | Given::String(text) => parse(text).ok_or_else(|| wrong_type::<T>(given)),
        _ => Err(wrong_type::<T>(given)),
    }
}

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";
    fn read(given: Given<'_>) -> Result<Self, String> {
        match given {
            Given::Boolean(yes) => Ok(yes),
            Given::Text(text) => text.parse().map_err(|_| wrong_type::<Self>(given)),
            _ => Err(wrong_type::<Self>(given)),
        }
    }
    fn write(&self) -> Written {
        Written::Boolean(*self)
    }
}

macro_rules! count_setting {
    ($($number:ty),+) => {$(
        impl Setting for $number {
            const EXPECTED: &'static str = "a whole number";
            fn read(given: Given<'_>) -> Result<Self, String> {
                let number = match given {
                    Given::Integer(number) => i128::from(number),
                    Given::Text(text) => text.parse().map_err(|_| wrong_type::<Self>(given))?,
                    _ => return Err(wrong_type::<Self>(given)),
                };
                Self::try_from(number).map_err(|_| format!("is {number}; write 0 to {}", Self::MAX))
            }
            fn write(&self) -> Written {
                Written::Integer(u64::from(*self))
            }
        }
    )+};
}

count_setting! { u16, u32, u64 }

/// A `usize` in the configuration is always a number of bytes.
impl Setting for usize {
    const EXPECTED: &'static str = "a size such as \"64KiB\" or \"1MiB\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(given, |text| parse_bytes(text).ok())
    }
    fn write(&self) -> Written {
        Written::Text(format_bytes(*self))
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a duration such as \"5s\", \"50us\" or \"1m30s\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(given, |text| parse_duration(text).ok())
    }
    fn write(&self) -> Written {
        Written::Text(format_duration(*self))
    }
}

impl Setting for String {
    const EXPECTED: &'static str = "a text in quotes";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(given, |text| Some(text.to_owned()))
    }
    fn write(&self) -> Written {
        Written::Text(self.clone())
    }
}

impl Setting for SocketAddr {
    const EXPECTED: &'static str = "an IP address with a port, such as \"127.0.0.1:7400\" or \"[::1]:7400\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(given, |text| text.parse().ok())
    }
    fn write(&self) -> Written {
        Written::Text(self.to_string())
    }
}

/// `"listen"` stands for `None`: the address that others use is the one that the pod listens at.
impl Setting for Option<SocketAddr> {
    const EXPECTED: &'static str = "an IP address with a port, such as \"10.0.0.7:7400\", or \"listen\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(given, |text| if text == "listen" { Some(None) } else { text.parse().ok().map(Some) })
    }
    fn write(&self) -> Written {
        Written::Text(self.map_or_else(|| "listen".to_owned(), |address| address.to_string()))
    }
}

/// `"memory"` stands for `None`: nothing is kept.
impl Setting for Option<PathBuf> {
    const EXPECTED: &'static str = "the path of a folder, or \"memory\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(given, |text| match text {
            "" => None,
            "memory" => Some(None),
            path => Some(Some(PathBuf::from(path))),
        })
    }
    fn write(&self) -> Written {
        Written::Text(self.as_ref().map_or_else(|| "memory".to_owned(), |path| path.display().to_string()))
    }
}

/// How many cores a pod uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// All that the process may run on.
    All,
    /// This many.
    Count(u16),
}

impl Cores {
    /// The number of cores, given how many the process may run on.
    #[must_use]
    pub fn count(self, available: usize) -> usize {
        match self {
            Cores::All => available.max(1),
            Cores::Count(count) => usize::from(count),
        }
    }
}

impl Setting for Cores {
    const EXPECTED: &'static str = "a number of cores, 1 or more, or \"all\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        let count = match given {
            Given::Text("all") | Given::String("all") => return Ok(Cores::All),
            Given::Text(text) => text.parse().ok(),
            Given::Integer(number) => u16::try_from(number).ok(),
            _ => None,
        };
        count.filter(|count| *count > 0).map(Cores::Count).ok_or_else(|| wrong_type::<Self>(given))
    }
    fn write(&self) -> Written {
        match self {
            Cores::All => Written::Text("all".to_owned()),
            Cores::Count(count) => Written::Integer(u64::from(*count)),
        }
    }
}

/// How long an idle core looks for work before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spin {
    /// It never sleeps.
    Always,
    /// This long; zero sleeps at once.
    For(Duration),
}

impl Setting for Spin {
    const EXPECTED: &'static str = "a duration such as \"50us\" or \"0us\", or \"always\"";
    fn read(given: Given<'_>) -> Result<Self, String> {
        read_text(
            given,
            |text| if text == "always" { Some(Spin::Always) } else { parse_duration(text).ok().map(Spin::For) },
        )
    }
    fn write(&self) -> Written {
        match self {
            Spin::Always => Written::Text("always".to_owned()),
            Spin::For(duration) => Written::Text(format_duration(*duration)),
        }
    }
}

macro_rules! choice {
    ($(#[$attribute:meta])* $name:ident, $expected:literal, $($(#[$variant_attribute:meta])* $variant:ident = $text:literal),+) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$variant_attribute])* $variant),+ }

        impl Setting for $name {
            const EXPECTED: &'static str = $expected;
            fn read(given: Given<'_>) -> Result<Self, String> {
                read_text(given, |text| match text { $($text => Some($name::$variant),)+ _ => None })
            }
            fn write(&self) -> Written {
                Written::Text(match self { $($name::$variant => $text),+ }.to_owned())
            }
        }
    };
}

choice! {
    /// Where the records of the cluster (plan, ownership, leases) are kept.
    Store, "\"embedded\", \"served\" or \"etcd\"",
    /// In the pod itself: a cluster of one pod.
    Embedded = "embedded",
    /// At an `atoll manager`.
    Served = "served",
    /// In etcd.
    Etcd = "etcd"
}

choice! {
    /// The form of log lines.
    LogFormat, "\"text\" or \"json\"",
    /// For people.
    Text = "text",
    /// One JSON object a line.
    Json = "json"
}

/// For `#[serde(deserialize_with)]` on a field: any [`Setting`] through any serde format.
pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Setting>(deserializer: D) -> Result<T, D::Error> {
    struct Visitor<T>(core::marker::PhantomData<T>);

    impl<T: Setting> serde::de::Visitor<'_> for Visitor<T> {
        type Value = T;

        fn expecting(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            f.write_str(T::EXPECTED)
        }
        fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
            T::read(Given::String(text)).map_err(E::custom)
        }
        fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
            T::read(Given::Integer(number)).map_err(E::custom)
        }
        fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
            match i64::try_from(number) {
                Ok(number) => self.visit_i64(number),
                Err(_) => Err(E::custom(format!("the number {number} is too large; write {}", T::EXPECTED))),
            }
        }
        fn visit_bool<E: serde::de::Error>(self, yes: bool) -> Result<T, E> {
            T::read(Given::Boolean(yes)).map_err(E::custom)
        }
    }

    deserializer.deserialize_any(Visitor(core::marker::PhantomData))
}

/// For `#[serde(serialize_with)]`, the other way.
pub(super) fn serialize<T: Setting, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    match value.write() {
        Written::Text(text) => serializer.serialize_str(&text),
        Written::Integer(number) => serializer.serialize_u64(number),
        Written::Boolean(yes) => serializer.serialize_bool(yes),
    }
}
