//! Tables on the terminal, with numbers that fit.

/// One row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// The cells, left to right.
    pub cells: Vec<String>,
}

/// A table whose first column is aligned to the left and the others to the right.
pub fn table(header: &[&str], rows: &[Row]) -> String {
    let header = Row { cells: header.iter().map(|cell| (*cell).to_owned()).collect() };
    let width = |column: usize| {
        let cells = core::iter::once(&header).chain(rows).filter_map(|row| row.cells.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.cells.len()).map(width).collect();
    let mut text = String::new();
    let rule = Row { cells: widths.iter().map(|width| "─".repeat(*width)).collect() };
    for row in [&header, &rule].into_iter().chain(rows) {
        let mut line = String::new();
        for (column, width) in widths.iter().enumerate() {
            let cell = row.cells.get(column).map_or("", String::as_str);
            let gap = if column == 0 { "" } else { "  " };
            let padding = " ".repeat(width - cell.chars().count());
            line += &if column == 0 { format!("{cell}{padding}") } else { format!("{gap}{padding}{cell}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A time in the unit that suits it.
pub fn time(ns: f64) -> String {
    match ns {
        ns if !ns.is_finite() => "–".to_owned(),
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e4 => format!("{:.2} µs", ns / 1e3),
        ns if ns < 1e6 => format!("{:.1} µs", ns / 1e3),
        ns if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// A count or a rate in three digits.
pub fn quantity(value: f64) -> String {
    match value {
        value if !value.is_finite() => "–".to_owned(),
        value if value < 1e3 => format!("{value:.0}"),
        value if value < 1e6 => format!("{:.1} k", value / 1e3),
        value => format!("{:.2} M", value / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [Row { cells: vec!["a".into(), "1".into()] }, Row { cells: vec!["long".into(), "12.5 µs".into()] }];
        let text = table(&["name", "p50"], &rows);
        assert_eq!(text, "name      p50\n────  ───────\na           1\nlong  12.5 µs\n");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([time(99.6), time(1_234.0), time(12_345.0), time(2e6)], ["100 ns", "1.23 µs", "12.3 µs", "2.0 ms"]);
        assert_eq!([quantity(999.0), quantity(12_345.0), quantity(12.5e6)], ["999", "12.3 k", "12.50 M"]);
        assert_eq!(time(f64::INFINITY), "–");
    }
}
