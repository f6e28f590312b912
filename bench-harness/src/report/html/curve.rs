//! Latency by percentile: the longer tail a reader looks at, the more room it has.

use super::markup::{Markup, at};
use super::scale::Scale;
use super::{Role, frame};
use crate::measure::Latencies;
use crate::report::time;

/// Points for each halving of what is longer.
const POINTS_PER_HALF: u32 = 10;
const HEIGHT: f64 = 330.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = HEIGHT - 46.0;

/// Lines over one axis of percentiles.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    lines: Vec<Line>,
}

#[derive(Clone, Debug)]
struct Line {
    name: String,
    role: Role,
    /// 1/(1−share), and nanoseconds.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Adds the line of a distribution; an empty one has none.
    pub fn line(&mut self, name: &str, role: Role, latencies: &Latencies) {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for step in latencies.distribution(POINTS_PER_HALF) {
            let rest = 1.0 - step.quantile;
            let before = points.last().map_or(1.0, |point| point.0);
            // The longest of n stands for the share (n−1)/n: nothing is known beyond.
            let x = if rest > 0.0 { 1.0 / rest } else { (step.count as f64).max(before) };
            points.push((x, (step.ns as f64).max(1.0)));
        }
        if !points.is_empty() {
            self.lines.push(Line { name: name.to_owned(), role, points });
        }
    }

    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Draws it.
    pub(super) fn draw(&self, out: &mut Markup) {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let least = points().map(|point| point.1).fold(f64::INFINITY, f64::min);
        let most = points().map(|point| point.1).fold(0.0, f64::max);
        let rarest = points().map(|point| point.0).fold(10.0, f64::max);
        let x = Scale::between(1.0, rarest, frame::LEFT, frame::RIGHT);
        let y = Scale::logarithmic(least, most, BOTTOM, TOP);
        let names = self.lines.iter().map(|line| line.name.as_str()).collect::<Vec<_>>().join(" and ");
        let label = format!("Latency by percentile of {names}, {} to {}", time(least), time(most));
        frame::svg(out, HEIGHT, &label, |out| {
            frame::axes(out, (TOP, BOTTOM));
            for tick in y.ticks() {
                frame::across(out, y.at(tick), &axis_time(tick));
            }
            for (share, text) in percentiles(x.ends().1) {
                frame::upright(out, x.at(share), (TOP, BOTTOM), &text);
            }
            frame::titles(out, (TOP, BOTTOM), "latency (log scale)", "percentile of operations (log scale of 1/(1−p))");
            let mut from = frame::LEFT;
            for line in &self.lines {
                let class = format!("line {}", line.role.class());
                out.void(
                    "line",
                    &[("class", &class), ("x1", &at(from)), ("x2", &at(from + 28.0)), ("y1", "14"), ("y2", "14")],
                );
                out.leaf("text", &[("class", "name"), ("x", &at(from + 34.0)), ("y", "18")], &line.name);
                from += 60.0 + frame::text_width(&line.name);
                out.void("path", &[("class", &class), ("d", &path(line, &x, &y))]);
            }
        });
    }
}

fn path(line: &Line, x: &Scale, y: &Scale) -> String {
    let mut path = String::new();
    for (number, point) in line.points.iter().enumerate() {
        path.push_str(if number == 0 { "M" } else { " L" });
        path.push_str(&format!("{} {}", at(x.at(point.0)), at(y.at(point.1))));
    }
    path
}

/// Where the axis of percentiles has a tick, and what it says: the half, then nines.
fn percentiles(most: f64) -> Vec<(f64, String)> {
    let mut ticks = vec![(1.0, "0 %".to_owned()), (2.0, "50 %".to_owned())];
    for nines in 1..=12_usize {
        let rest = 10_f64.powi(nines as i32);
        if rest > most * (1.0 + 1e-9) {
            break;
        }
        let text = match nines {
            1 => "90 %".to_owned(),
            2 => "99 %".to_owned(),
            _ => format!("99.{} %", "9".repeat(nines - 2)),
        };
        ticks.push((rest, text));
    }
    ticks
}

/// A round time, as short as it can be.
pub(super) fn axis_time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    // A sum of steps may be a hair beside the round value.
    format!("{} {unit}", (value * 1e3).round() / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_axis_counts_nines() {
        let ticks = percentiles(100_000.0);
        let texts: Vec<&str> = ticks.iter().map(|tick| tick.1.as_str()).collect();
        assert_eq!(texts, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %"]);
        assert_eq!([axis_time(20.0), axis_time(1e3), axis_time(5e6), axis_time(2e9)], ["20 ns", "1 µs", "5 ms", "2 s"]);
    }

    #[test]
    fn a_line_rises_from_the_left_to_the_right_and_stays_inside() {
        let mut latencies = Latencies::new();
        (1..=50_000_u64).for_each(|number| latencies.record(50 + 30_000_000 / number));
        let mut curve = Curve::default();
        curve.line("atoll", Role::Subject, &latencies);
        let mut out = Markup::default();
        curve.draw(&mut out);
        let drawn = out.finish();
        let path = drawn.split("d=\"").nth(1).unwrap().split('"').next().unwrap();
        let points: Vec<(f64, f64)> = path
            .split(['M', 'L'])
            .filter(|point| !point.trim().is_empty())
            .map(|point| {
                let (x, y) = point.trim().split_once(' ').unwrap();
                (x.parse().unwrap(), y.parse().unwrap())
            })
            .collect();
        assert!(points.len() > 50);
        // A longer latency lies higher, which is a smaller coordinate.
        assert!(points.is_sorted_by(|a, b| a.0 <= b.0 && a.1 >= b.1), "{points:?}");
        assert!(points.iter().all(|(x, y)| (frame::LEFT..=frame::RIGHT).contains(x) && (TOP..=BOTTOM).contains(y)));
        assert!((points[0].0, points.last().unwrap().0) == (frame::LEFT, frame::RIGHT), "the axis is used whole");
    }

    #[test]
    fn nothing_recorded_is_no_line() {
        let mut curve = Curve::default();
        curve.line("atoll", Role::Subject, &Latencies::new());
        assert!(curve.is_empty());
    }
}
