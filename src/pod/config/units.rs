//! Durations and sizes as people write them: `"50us"`, `"1m30s"`, `"1MiB"`. Exact both ways; no fractions.

use core::time::Duration;

const DURATION_UNITS: [(&str, u128); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

const BYTE_UNITS: [(&str, u64); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

/// Reads a duration: one or more whole numbers with `ns`, `us`, `ms`, `s`, `m`, `h` or `d`.
///
/// # Errors
/// A sentence that says how to write it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let mut rest = text.trim();
    let mut nanos: u128 = 0;
    let wrong = || {
        format!(
            "`{text}` is no duration; write whole numbers with ns, us, ms, s, m, h or d, such as \"5s\" or \"1m30s\""
        )
    };
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let (count, unit, after) = split_number(rest).ok_or_else(wrong)?;
        let unit = if unit == "µs" || unit == "μs" { "us" } else { unit };
        let factor = DURATION_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
        nanos = u128::from(count).checked_mul(factor).and_then(|more| nanos.checked_add(more)).ok_or_else(wrong)?;
        rest = after;
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| format!("`{text}` is longer than 584 years; write less"))
}

/// Writes a duration so that [`parse_duration`] reads the same: the largest unit that divides it.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    let (name, factor) = DURATION_UNITS.iter().find(|(_, factor)| nanos.is_multiple_of(*factor)).unwrap_or(&("ns", 1));
    format!("{}{name}", nanos / factor)
}

/// Reads a size: a whole number with `B`, `KiB`, `MiB` or `GiB`.
///
/// # Errors
/// A sentence that says how to write it.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    let wrong =
        || format!("`{text}` is no size; write a whole number with B, KiB, MiB or GiB, such as \"64KiB\" or \"1MiB\"");
    let (count, unit, rest) = split_number(text.trim()).ok_or_else(wrong)?;
    if !rest.is_empty() {
        return Err(wrong());
    }
    let factor = BYTE_UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?.1;
    let bytes = count.checked_mul(factor).ok_or_else(wrong)?;
    usize::try_from(bytes).map_err(|_| wrong())
}

/// Writes a size so that [`parse_bytes`] reads the same.
#[must_use]
pub fn format_bytes(bytes: usize) -> String {
    let bytes = bytes as u64;
    let (name, factor) =
        BYTE_UNITS.iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor)).unwrap_or(&("B", 1));
    format!("{}{name}", bytes / factor)
}

/// Number, unit and what follows; `None` if it does not start with a number that fits, or has no unit.
fn split_number(text: &str) -> Option<(u64, &str, &str)> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let count = text[..digits].parse().ok()?;
    let tail = text[digits..].trim_start();
    let end = tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len());
    let (unit, rest) = tail.split_at(end);
    (!unit.is_empty()).then_some((count, unit, rest.trim_start()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn durations_read_as_people_write_them() {
        for (text, nanos) in [
            ("50us", 50_000),
            ("50µs", 50_000),
            ("0us", 0),
            ("5s", 5_000_000_000),
            ("1m30s", 90_000_000_000),
            (" 2 ms ", 2_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in ["", "5", "s", "-5s", "1.5s", "5 parsecs", "99999999999999999999s", "999999999d", "5s5"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_read_as_people_write_them() {
        for (text, bytes) in [("1MiB", 1 << 20), ("64KiB", 65_536), ("7B", 7), ("0B", 0), ("2 GiB", 2 << 30)] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["", "5", "MiB", "1MB", "1mib", "-1B", "99999999999999999999B", "99999999999GiB", "1MiB1KiB"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_the_same(nanos: u64, bytes in 0usize..usize::MAX / 2) {
            let duration = Duration::from_nanos(nanos);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
            prop_assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse_duration(&text);
            let _ = parse_bytes(&text);
        }
    }
}
