//! One dot for each round, in their order: whether a figure wanders, and which rounds other load disturbed.

use super::curve::axis_time;
use super::markup::{Markup, at};
use super::scale::Scale;
use super::{Role, frame};
use crate::report::time;
use crate::rounds::median;

const HEIGHT: f64 = 220.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = HEIGHT - 46.0;
/// Most rounds with a number below.
const NUMBERED_MAX: usize = 20;

/// The rounds of a scenario.
#[derive(Clone, Debug, Default)]
pub struct Strip {
    /// What the vertical axis is, as in `time of an operation`.
    pub figure: &'static str,
    /// The subject's name.
    pub subject: String,
    /// The floor's name.
    pub floor: String,
    /// The rounds.
    pub dots: Vec<Dot>,
}

/// One round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// The subject's figure in nanoseconds.
    pub subject_ns: Option<f64>,
    /// The floor's.
    pub floor_ns: Option<f64>,
    /// Whether other load disturbed the round and it counts even so.
    pub disturbed: bool,
    /// How often it was tried before.
    pub repeats: u32,
}

impl Dot {
    fn value(&self, role: Role) -> Option<f64> {
        let value = if role == Role::Subject { self.subject_ns } else { self.floor_ns };
        value.filter(|ns| ns.is_finite() && *ns >= 0.0)
    }

    fn say(&self, number: usize, name: &str, ns: f64) -> String {
        let repeats = if self.repeats > 0 { format!(", tried {} times", self.repeats + 1) } else { String::new() };
        let disturbed = if self.disturbed { ", disturbed by other load" } else { "" };
        format!("round {number}, {name}: {}{repeats}{disturbed}", time(ns))
    }
}

impl Strip {
    /// Whether there is nothing to draw.
    pub fn is_empty(&self) -> bool {
        self.values(Role::Subject).chain(self.values(Role::Floor)).next().is_none()
    }

    fn values(&self, role: Role) -> impl Iterator<Item = f64> {
        self.dots.iter().filter_map(move |dot| dot.value(role))
    }

    fn name(&self, role: Role) -> &str {
        if role == Role::Subject { &self.subject } else { &self.floor }
    }

    /// Draws it.
    pub(super) fn draw(&self, out: &mut Markup) {
        let most = self.values(Role::Subject).chain(self.values(Role::Floor)).fold(0.0, f64::max);
        let y = Scale::linear(most, BOTTOM, TOP);
        let count = self.dots.len().max(1) as f64;
        let x = |number: usize| frame::LEFT + (frame::RIGHT - frame::LEFT) * (number as f64 - 0.5) / count;
        let disturbed = self.dots.iter().filter(|dot| dot.disturbed).count();
        let label = format!("{} of each of {} rounds, {disturbed} of them disturbed", self.figure, self.dots.len());
        frame::svg(out, HEIGHT, &label, |out| {
            frame::axes(out, (TOP, BOTTOM));
            for tick in y.ticks() {
                frame::across(out, y.at(tick), &axis_time(tick));
            }
            let every = self.dots.len().div_ceil(NUMBERED_MAX).max(1);
            for number in (1..=self.dots.len()).step_by(every) {
                let place = (at(x(number)), at(BOTTOM + 17.0));
                let attributes = [("x", place.0.as_str()), ("y", place.1.as_str()), ("text-anchor", "middle")];
                out.leaf("text", &attributes, &number.to_string());
            }
            frame::titles(out, (TOP, BOTTOM), "time (from 0)", "round, in the order of the run");
            self.legend(disturbed > 0, out);
            for role in [Role::Floor, Role::Subject] {
                if let Some(middle) = median(self.values(role)) {
                    let class = format!("median {}", role.class());
                    frame::line(out, &class, (frame::LEFT, y.at(middle)), (frame::RIGHT, y.at(middle)));
                }
                for (dot, number) in self.dots.iter().zip(1..) {
                    if let Some(ns) = dot.value(role) {
                        self.dot(dot, number, role, (x(number), y.at(ns)), ns, out);
                    }
                }
            }
        });
    }

    fn dot(&self, dot: &Dot, number: usize, role: Role, place: (f64, f64), ns: f64, out: &mut Markup) {
        out.element("g", &[], |out| {
            out.leaf("title", &[], &dot.say(number, self.name(role), ns));
            mark(role, place, out);
            if dot.disturbed && role == Role::Subject {
                cross(place, out);
            }
        });
    }

    fn legend(&self, disturbed: bool, out: &mut Markup) {
        let mut from = frame::LEFT + 6.0;
        let mut entry = |out: &mut Markup, draw: &dyn Fn((f64, f64), &mut Markup), text: &str| {
            draw((from, 14.0), out);
            out.leaf("text", &[("class", "name"), ("x", &at(from + 12.0)), ("y", "18")], text);
            from += 42.0 + frame::text_width(text);
        };
        for role in [Role::Subject, Role::Floor] {
            if self.values(role).next().is_some() {
                entry(out, &|place, out| mark(role, place, out), self.name(role));
            }
        }
        if disturbed {
            entry(out, &cross, "disturbed by other load");
        }
        out.leaf("text", &[("x", &at(from)), ("y", "18")], "line: median");
    }
}

fn mark(role: Role, (x, y): (f64, f64), out: &mut Markup) {
    let class = format!("dot {}", role.class());
    if role == Role::Subject {
        out.void("circle", &[("class", &class), ("cx", &at(x)), ("cy", &at(y)), ("r", "4.5")]);
    } else {
        let corner = (at(x - 4.0), at(y - 4.0));
        out.void("rect", &[("class", &class), ("x", &corner.0), ("y", &corner.1), ("width", "8"), ("height", "8")]);
    }
}

fn cross((x, y): (f64, f64), out: &mut Markup) {
    let (left, right, top, bottom) = (at(x - 7.0), at(x + 7.0), at(y - 7.0), at(y + 7.0));
    let path = format!("M{left} {top} L{right} {bottom} M{left} {bottom} L{right} {top}");
    out.void("path", &[("class", "cross"), ("d", &path)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(dots: Vec<Dot>) -> String {
        let strip =
            Strip { figure: "time of an operation", subject: "atoll".to_owned(), floor: "bare ring".to_owned(), dots };
        let mut out = Markup::default();
        strip.draw(&mut out);
        out.finish()
    }

    fn dot(ns: f64) -> Dot {
        Dot { subject_ns: Some(ns), floor_ns: Some(ns / 2.0), disturbed: false, repeats: 0 }
    }

    #[test]
    fn each_round_has_a_dot_and_a_disturbed_one_a_cross() {
        let drawn = drawn(vec![dot(100.0), Dot { disturbed: true, repeats: 3, ..dot(300.0) }, dot(200.0)]);
        // One more of each in the legend.
        assert_eq!(drawn.matches("<circle").count(), 3 + 1);
        assert_eq!(drawn.matches("<rect").count(), 3 + 1);
        assert_eq!(drawn.matches("class=\"cross\"").count(), 1 + 1);
        assert!(drawn.contains("round 2, atoll: 300 ns, tried 4 times, disturbed by other load"), "{drawn}");
    }

    #[test]
    fn calm_rounds_have_no_cross_and_no_word_of_it() {
        let drawn = drawn(vec![dot(100.0)]);
        assert!(!drawn.contains("cross") && !drawn.contains("disturbed by"), "{drawn}");
    }

    #[test]
    fn the_axis_begins_at_zero() {
        let drawn = drawn(vec![dot(100.0), dot(200.0)]);
        let heights: Vec<f64> =
            drawn.split("cy=\"").skip(2).map(|rest| rest.split('"').next().unwrap().parse().unwrap()).collect();
        assert!(((BOTTOM - heights[0]) * 2.0 - (BOTTOM - heights[1])).abs() < 0.3, "{heights:?}");
    }

    #[test]
    fn many_rounds_have_few_numbers() {
        let drawn = drawn(vec![dot(100.0); 1_000]);
        assert!(drawn.matches("text-anchor=\"middle\"").count() < 30);
    }

    #[test]
    fn rounds_without_figures_are_an_empty_strip() {
        let none = Dot { subject_ns: None, floor_ns: Some(f64::NAN), disturbed: false, repeats: 0 };
        assert!(Strip { dots: vec![none], ..Strip::default() }.is_empty());
    }
}
