//! What all charts share: the size, the axes, the ticks and their labels.

use super::markup::{Markup, at};

/// Units across; the page scales them.
pub(super) const WIDTH: f64 = 760.0;
/// Where the plot begins.
pub(super) const LEFT: f64 = 76.0;
/// Where the plot ends.
pub(super) const RIGHT: f64 = WIDTH - 24.0;

/// A chart. `label` is what a screen reader says.
pub(super) fn svg(out: &mut Markup, height: f64, label: &str, content: impl FnOnce(&mut Markup)) {
    let view = format!("0 0 {WIDTH} {}", at(height));
    out.element("svg", &[("viewBox", &view), ("role", "img"), ("aria-label", label)], content);
    out.new_line();
}

/// The two axes of a plot whose vertical extent is `rows`, top and bottom.
pub(super) fn axes(out: &mut Markup, (top, bottom): (f64, f64)) {
    line(out, "axis", (LEFT, top), (LEFT, bottom));
    line(out, "axis", (LEFT, bottom), (RIGHT, bottom));
}

/// A line of the grid across, with its label on the left.
pub(super) fn across(out: &mut Markup, y: f64, text: &str) {
    line(out, "grid", (LEFT, y), (RIGHT, y));
    out.leaf("text", &[("x", &at(LEFT - 8.0)), ("y", &at(y + 4.0)), ("text-anchor", "end")], text);
}

/// A line of the grid from bottom to top, with its label below.
pub(super) fn upright(out: &mut Markup, x: f64, (top, bottom): (f64, f64), text: &str) {
    line(out, "grid", (x, top), (x, bottom));
    out.leaf("text", &[("x", &at(x)), ("y", &at(bottom + 17.0)), ("text-anchor", "middle")], text);
}

/// What the axes say they are.
pub(super) fn titles(out: &mut Markup, (top, bottom): (f64, f64), vertical: &str, horizontal: &str) {
    let (middle, turned) = ((top + bottom) / 2.0, 14.0);
    let turn = format!("rotate(-90 {turned} {})", at(middle));
    out.leaf(
        "text",
        &[("x", &at(turned)), ("y", &at(middle)), ("text-anchor", "middle"), ("transform", &turn)],
        vertical,
    );
    let centre = at((LEFT + RIGHT) / 2.0);
    out.leaf("text", &[("x", &centre), ("y", &at(bottom + 38.0)), ("text-anchor", "middle")], horizontal);
}

/// A straight line.
pub(super) fn line(out: &mut Markup, class: &str, from: (f64, f64), to: (f64, f64)) {
    let (x1, y1, x2, y2) = (at(from.0), at(from.1), at(to.0), at(to.1));
    out.void("line", &[("class", class), ("x1", &x1), ("y1", &y1), ("x2", &x2), ("y2", &y2)]);
}

/// About how wide a text is in the font of the charts.
pub(super) fn text_width(text: &str) -> f64 {
    6.6 * text.chars().count() as f64
}

/// A text that fits into `width`, cut with an ellipsis.
pub(super) fn fitted(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let kept = ((width / text_width("x")) as usize).saturating_sub(1);
    text.chars().take(kept).chain(core::iter::once('…')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_where_it_ends() {
        assert_eq!(fitted("short", 200.0), "short");
        let cut = fitted(&"µ".repeat(100), 66.0);
        assert!(cut.ends_with('…') && text_width(&cut) <= 66.0, "{cut}");
    }
}
