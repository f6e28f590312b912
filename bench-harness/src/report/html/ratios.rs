//! Bars of floor ratios: each begins at 1, the floor, and goes to the right as far as the scenario is slower.

use super::frame;
use super::markup::{Markup, at};
use super::scale::Scale;
use crate::report::html::curve::axis_time;

const ROW: f64 = 28.0;
const TOP: f64 = 12.0;
/// Where the names end and the bars begin.
const BARS: f64 = 252.0;
/// Where the bars end and the figures begin.
const BARS_END: f64 = frame::WIDTH - 170.0;

/// One scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// Its name.
    pub name: String,
    /// Its figure over the floor's.
    pub ratio: f64,
    /// The most that it shall be.
    pub target: Option<f64>,
}

impl Bar {
    /// Whether the ratio is above its target.
    pub(super) fn is_over(&self) -> bool {
        self.target.is_some_and(|target| self.ratio > target)
    }

    fn figures(&self) -> String {
        let target = match self.target {
            Some(target) if self.is_over() => format!(", over {target}"),
            Some(target) => format!(" (≤ {target})"),
            None => String::new(),
        };
        format!("{} ×{target}", number(self.ratio))
    }
}

/// A ratio in three digits.
pub(super) fn number(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.1}") }
}

/// Draws all bars; ratios that are no positive number are left out.
pub(super) fn draw(bars: &[Bar], out: &mut Markup) {
    let bars: Vec<&Bar> = bars.iter().filter(|bar| bar.ratio.is_finite() && bar.ratio > 0.0).collect();
    let values = || bars.iter().flat_map(|bar| core::iter::once(bar.ratio).chain(bar.target));
    let (least, most) = (values().fold(1.0, f64::min), values().fold(2.0, f64::max));
    let x = Scale::logarithmic(least.min(0.9), most, BARS, BARS_END);
    let bottom = TOP + ROW * bars.len() as f64;
    frame::svg(out, bottom + 46.0, "Bars: time of each scenario over the time of its floor", |out| {
        for tick in x.ticks() {
            frame::line(out, "grid", (x.at(tick), TOP), (x.at(tick), bottom));
            let place = [("x", at(x.at(tick))), ("y", at(bottom + 17.0)), ("text-anchor", "middle".to_owned())];
            let place = place.each_ref().map(|(name, value)| (*name, value.as_str()));
            out.leaf("text", &place, &format!("{} ×", axis_time(tick).trim_end_matches(" ns")));
        }
        for (bar, number) in bars.iter().zip(0_u32..) {
            draw_bar(bar, &x, TOP + ROW * f64::from(number), out);
        }
        frame::line(out, "one", (x.at(1.0), TOP), (x.at(1.0), bottom));
        let centre = at((BARS + BARS_END) / 2.0);
        let title = "time over the floor's (log scale): right of 1 × is slower than the floor";
        out.leaf("text", &[("x", &centre), ("y", &at(bottom + 38.0)), ("text-anchor", "middle")], title);
    });
}

fn draw_bar(bar: &Bar, x: &Scale, top: f64, out: &mut Markup) {
    let middle = top + ROW / 2.0;
    let name = frame::fitted(&bar.name, BARS - 12.0);
    let baseline = at(middle + 4.0);
    out.leaf("text", &[("class", "name"), ("x", &at(BARS - 10.0)), ("y", &baseline), ("text-anchor", "end")], &name);
    let (one, end) = (x.at(1.0), x.at(bar.ratio));
    let (start, width) = (one.min(end), (end - one).abs().max(1.0));
    let class = if bar.is_over() { "bar over" } else { "bar" };
    out.void(
        "rect",
        &[
            ("class", class),
            ("x", &at(start)),
            ("y", &at(middle - 7.0)),
            ("width", &at(width)),
            ("height", "14"),
            ("rx", "2"),
        ],
    );
    if let Some(target) = bar.target {
        frame::line(out, "target", (x.at(target), middle - 11.0), (x.at(target), middle + 11.0));
    }
    out.leaf("text", &[("class", "value"), ("x", &at(BARS_END + 12.0)), ("y", &baseline)], &bar.figures());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(ratio: f64, target: Option<f64>) -> Bar {
        Bar { name: "a".to_owned(), ratio, target }
    }

    #[test]
    fn figures_say_whether_the_target_is_met() {
        assert_eq!(bar(2.414, Some(3.3)).figures(), "2.41 × (≤ 3.3)");
        assert_eq!(bar(4.73, Some(3.3)).figures(), "4.73 ×, over 3.3");
        assert_eq!(bar(119.57, None).figures(), "119.6 ×");
    }

    #[test]
    fn a_bar_goes_from_one_to_its_ratio_and_the_target_has_its_line() {
        let mut out = Markup::default();
        draw(&[bar(4.0, Some(2.0)), bar(0.5, None)], &mut out);
        let drawn = out.finish();
        let number = |element: &str, name: &str| -> f64 {
            element.split(&format!(" {name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        let elements = |start: &str| drawn.split('<').filter(|part| part.starts_with(start)).collect::<Vec<_>>();
        let (bars, one) = (elements("rect"), number(elements("line class=\"one\"")[0], "x1"));
        let target = number(elements("line class=\"target\"")[0], "x1");
        let (start, width) = (number(bars[0], "x"), number(bars[0], "width"));
        assert!((start - one).abs() < 0.2, "slower goes right from 1");
        // On a logarithmic axis 2 is half the way to 4.
        assert!((target - (start + width / 2.0)).abs() < 0.3, "{target} in {start} + {width}");
        assert!((number(bars[1], "x") + number(bars[1], "width") - one).abs() < 0.2, "faster goes left from 1");
        assert!(bars[0].contains("bar over") && !bars[1].contains("over"), "{drawn}");
    }

    #[test]
    fn no_number_is_no_bar() {
        let mut out = Markup::default();
        draw(&[bar(f64::NAN, None), bar(0.0, None), bar(f64::INFINITY, None)], &mut out);
        assert!(!out.finish().contains("rect"));
    }
}
