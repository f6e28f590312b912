//! A distribution as text, in the percentile format of HdrHistogram (`.hgrm`), which its plotters read.
//!
//! Four columns: a latency in nanoseconds; the share of latencies that are at most this long; how many these are;
//! 1/(1−share), which plotters take as a logarithmic axis. The last line is the longest latency and has no fourth
//! column. The footer holds mean, deviation, maximum, count and the buckets of the histogram.
//!
//! The latencies are those of **all reported rounds, merged into one histogram**: the tail of one bad round is in it. The
//! percentiles in table and JSON are something else, the median of the rounds' percentiles, which one bad round does not
//! move. Latencies may be a sample of the operations (one in 17 or 31), so the count is not that of the operations.
//! Comments after the footer say the same to whoever finds only the file; plotters skip lines that begin with `#`.

use core::fmt::Write;

use crate::measure::Latencies;

/// Lines for each halving of what is longer: what the tools of HdrHistogram write.
const LINES_PER_HALF: u32 = 5;

/// The text of a distribution. `title` names what was measured and how often, in one line.
pub(super) fn text(title: &str, latencies: &Latencies) -> String {
    let mut text = format!("{:>12} {:>14} {:>10} {:>14}\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)");
    for step in latencies.distribution(LINES_PER_HALF) {
        let _ = write!(text, "{:12.3} {:.12} {:10}", step.ns as f64, step.quantile, step.count);
        let rest = 1.0 - step.quantile;
        if rest > 0.0 {
            let _ = write!(text, " {:14.2}", 1.0 / rest);
        }
        text.push('\n');
    }
    let ((mean, deviation), (buckets, sub_buckets)) = (latencies.mean_and_deviation(), latencies.buckets());
    let (max, count) = (latencies.percentiles().max as f64, latencies.count());
    let _ = writeln!(text, "#[Mean    = {mean:12.3}, StdDeviation   = {deviation:12.3}]");
    let _ = writeln!(text, "#[Max     = {max:12.3}, Total count    = {count:12}]");
    let _ = writeln!(text, "#[Buckets = {buckets:12}, SubBuckets     = {sub_buckets:12}]");
    let one_line = title.replace(['\n', '\r'], " ");
    let _ = writeln!(text, "# {one_line}");
    text.push_str("# values in nanoseconds; the histograms of all reported rounds, merged\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Parsed {
        rows: Vec<(f64, f64, u64, Option<f64>)>,
        footer: Vec<(String, f64)>,
    }

    /// As plotters read it: `#` apart, then columns between blanks; what is no number is the header.
    fn parse(text: &str) -> Parsed {
        let mut parsed = Parsed { rows: Vec::new(), footer: Vec::new() };
        for line in text.lines() {
            if let Some(fields) = line.strip_prefix("#[") {
                for field in fields.strip_suffix(']').expect("a closed bracket").split(',') {
                    let (name, value) = field.split_once('=').expect("name = value");
                    parsed.footer.push((name.trim().to_owned(), value.trim().parse().expect("a number")));
                }
                continue;
            }
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            if line.starts_with('#') || columns.first().is_none_or(|first| first.parse::<f64>().is_err()) {
                continue;
            }
            assert!(matches!(columns.len(), 3 | 4), "{line}");
            let number = |at: usize| columns[at].parse().expect("a number");
            parsed.rows.push((
                number(0),
                number(1),
                columns[2].parse().expect("a count"),
                columns.get(3).map(|_| number(3)),
            ));
        }
        parsed
    }

    fn skewed(count: u64) -> Latencies {
        let mut latencies = Latencies::new();
        (1..=count).for_each(|number| latencies.record(50 + number * number % 9_973 + 400_000_000 / number));
        latencies
    }

    #[test]
    fn what_is_written_reads_back() {
        let latencies = skewed(200_000);
        let parsed = parse(&text("ask-local-64, 5 rounds", &latencies));
        assert!(parsed.rows.len() > 50, "{} lines", parsed.rows.len());
        assert!(parsed.rows.is_sorted_by(|a, b| a.0 <= b.0 && a.1 <= b.1 && a.2 <= b.2), "all columns rise");
        let percentiles = latencies.percentiles();
        for (share, exact) in [(0.5, percentiles.p50), (0.99, percentiles.p99), (0.999, percentiles.p99_9)] {
            let row = parsed.rows.iter().rfind(|row| row.1 <= share).unwrap();
            let next = parsed.rows.iter().find(|row| row.1 >= share).unwrap();
            assert!(row.0 <= exact as f64 && exact as f64 <= next.0, "{share}: {exact} in {row:?}..{next:?}");
        }
        for row in &parsed.rows[..parsed.rows.len() - 1] {
            let rest = row.3.expect("only the last line has three columns");
            assert!((rest * (1.0 - row.1) - 1.0).abs() < 0.01, "{row:?}");
            assert!(row.2 as f64 >= (row.1 * 200_000.0).floor(), "{row:?}");
        }
        let last = parsed.rows.last().unwrap();
        assert_eq!((last.1, last.2, last.3), (1.0, 200_000, None));
        let (mean, deviation) = latencies.mean_and_deviation();
        for (name, value) in [
            ("Mean", mean),
            ("StdDeviation", deviation),
            ("Max", percentiles.max as f64),
            ("Total count", 200_000.0),
            ("SubBuckets", 2_048.0),
        ] {
            let found = parsed.footer.iter().find(|field| field.0 == name).unwrap_or_else(|| panic!("no {name}"));
            assert!((found.1 - value).abs() <= 0.001, "{name}: {} is not {value}", found.1);
        }
    }

    #[test]
    fn the_layout_is_that_of_the_format() {
        let mut latencies = Latencies::new();
        (0..4).for_each(|_| latencies.record(100));
        latencies.record(1_000);
        let text = text("a\nb", &latencies);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "       Value     Percentile TotalCount 1/(1-Percentile)");
        assert_eq!(lines[1], "");
        assert_eq!(lines[2], "     100.000 0.000000000000          4           1.00");
        let last = lines.iter().position(|line| line.starts_with("#[Mean")).unwrap() - 1;
        assert_eq!(lines[last], "    1000.000 1.000000000000          5");
        assert_eq!(lines[last + 1], "#[Mean    =      280.000, StdDeviation   =      360.000]");
        assert_eq!(lines[last + 2], "#[Max     =     1000.000, Total count    =            5]");
        assert!(lines[last + 3].starts_with("#[Buckets = "), "{text}");
        assert_eq!(lines[last + 4], "# a b");
    }

    #[test]
    fn an_empty_histogram_has_a_header_and_a_footer_of_zeros() {
        let parsed = parse(&text("nothing", &Latencies::new()));
        assert!(parsed.rows.is_empty() && parsed.footer.iter().any(|field| field == &("Total count".to_owned(), 0.0)));
    }
}
