//! Writes HTML and SVG so that it is well formed: an element is closed where its closure ends, text and attribute values
//! are escaped, and a coordinate is always a number.

use core::fmt::Write;

/// Elements without content.
const VOID: [&str; 6] = ["meta", "line", "rect", "circle", "path", "br"];

/// A document that grows.
#[derive(Clone, Debug, Default)]
pub(super) struct Markup {
    text: String,
}

impl Markup {
    /// The start of a page.
    pub(super) fn page() -> Self {
        Self { text: "<!DOCTYPE html>\n".to_owned() }
    }

    /// An element and what `content` puts into it.
    pub(super) fn element(&mut self, name: &str, attributes: &[(&str, &str)], content: impl FnOnce(&mut Self)) {
        debug_assert!(!VOID.contains(&name), "{name} has no content");
        self.open(name, attributes);
        self.text.push('>');
        content(self);
        let _ = write!(self.text, "</{name}>");
    }

    /// An element that contains text alone.
    pub(super) fn leaf(&mut self, name: &str, attributes: &[(&str, &str)], text: &str) {
        self.element(name, attributes, |inside| inside.text(text));
    }

    /// An element without content.
    pub(super) fn void(&mut self, name: &str, attributes: &[(&str, &str)]) {
        debug_assert!(VOID.contains(&name), "{name} has content");
        self.open(name, attributes);
        self.text.push_str("/>");
    }

    /// Text, escaped.
    pub(super) fn text(&mut self, text: &str) {
        escape(text, &mut self.text);
    }

    /// Style rules of our own. They contain no text from elsewhere: nothing is escaped.
    pub(super) fn style(&mut self, rules: &'static str) {
        debug_assert!(!rules.contains('<'), "rules end at the first tag");
        let _ = write!(self.text, "<style>{rules}</style>");
    }

    /// A line break in the source, for whoever reads it.
    pub(super) fn new_line(&mut self) {
        self.text.push('\n');
    }

    /// The document.
    pub(super) fn finish(self) -> String {
        self.text
    }

    fn open(&mut self, name: &str, attributes: &[(&str, &str)]) {
        let _ = write!(self.text, "<{name}");
        for (attribute, value) in attributes {
            let _ = write!(self.text, " {attribute}=\"");
            escape(value, &mut self.text);
            self.text.push('"');
        }
    }
}

/// A coordinate with a tenth of a unit; 0 for what is no number.
pub(super) fn at(value: f64) -> String {
    let rounded = if value.is_finite() { (value * 10.0).round() / 10.0 } else { 0.0 };
    format!("{rounded}")
}

fn escape(text: &str, out: &mut String) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in a document, not even escaped.
            control if control.is_control() && control != '\n' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_values_are_escaped() {
        let mut markup = Markup::default();
        markup.element("p", &[("title", "a\"<b>&'")], |inside| {
            inside.text("<script>\u{0}&amp;");
            inside.void("br", &[]);
        });
        assert_eq!(markup.finish(), "<p title=\"a&quot;&lt;b&gt;&amp;&#39;\">&lt;script&gt;\u{fffd}&amp;amp;<br/></p>");
    }

    #[test]
    fn coordinates_are_numbers() {
        assert_eq!([at(1.26), at(-0.04), at(3.0), at(f64::NAN), at(f64::INFINITY)], ["1.3", "-0", "3", "0", "0"]);
    }
}
