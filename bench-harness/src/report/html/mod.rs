//! One page with everything a reader needs to judge a run: figures, bars of the ratios, latency by percentile, every
//! round, the machine and the command line. It is one file without scripts and loads nothing; the charts are SVG inside
//! it, and its colours follow the reader's light or dark setting.
//!
//! `scenarios` and `floors` make a [`Page`] of what was measured, as do the stream engine and the cluster run, and
//! [`Page::render`] makes the text. Invariants, which the tests hold: every element is closed, names are escaped, no
//! coordinate is anything but a number, and there is no address in it.

mod curve;
mod floors;
mod frame;
mod markup;
mod ratios;
mod scale;
mod scenarios;
mod strip;

pub use curve::Curve;
pub use ratios::Bar;
pub use strip::{Dot, Strip};

use super::{Machine, Provenance, Row};
use markup::Markup;

/// Whose line, bar or dot it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// What is measured.
    Subject,
    /// What it is compared with.
    Floor,
}

impl Role {
    fn class(self) -> &'static str {
        match self {
            Self::Subject => "subject",
            Self::Floor => "floor",
        }
    }
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// Where it comes from.
    pub provenance: Provenance,
    /// Where it was measured.
    pub machine: Machine,
    /// Circumstances of all sections: name and value.
    pub facts: Vec<(&'static str, String)>,
    /// The head of the table.
    pub columns: Vec<&'static str>,
    /// The table of figures.
    pub rows: Vec<Row>,
    /// What a reader has to know besides the table.
    pub notes: Vec<String>,
    /// The ratios of all sections that have one.
    pub bars: Vec<Bar>,
    /// One for each scenario.
    pub sections: Vec<Section>,
}

/// What is shown of one scenario.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its name.
    pub name: String,
    /// Its figures in one line.
    pub lead: String,
    /// Why its figures must not be used.
    pub refused: Option<String>,
    /// Latency by percentile.
    pub curve: Curve,
    /// Every round.
    pub strip: Strip,
}

impl Page {
    /// The text of the page.
    pub fn render(&self) -> String {
        let mut out = Markup::page();
        out.element("html", &[("lang", "en")], |out| {
            out.element("head", &[], |out| {
                out.void("meta", &[("charset", "utf-8")]);
                out.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
                out.leaf("title", &[], &self.title);
                out.style(include_str!("page.css"));
            });
            out.new_line();
            out.element("body", &[], |out| {
                out.leaf("h1", &[], &self.title);
                self.facts(out);
                self.table(out);
                self.bars(out);
                for section in &self.sections {
                    out.new_line();
                    section.render(out);
                }
            });
        });
        out.new_line();
        out.finish()
    }

    fn facts(&self, out: &mut Markup) {
        let fact = |name: &str, out: &mut Markup, value: &dyn Fn(&mut Markup)| {
            out.leaf("dt", &[], name);
            out.element("dd", &[], value);
        };
        out.element("dl", &[], |out| {
            fact("command line", out, &|out| out.leaf("code", &[], &self.provenance.command_line));
            fact("measured", out, &|out| out.text(&self.provenance.measured_at));
            fact("machine", out, &|out| out.text(&self.machine.line()));
            for (name, value) in &self.facts {
                fact(name, out, &|out| out.text(value));
            }
        });
        if !self.machine.optimised {
            out.leaf("p", &[("class", "bad")], "Built without optimisation: these figures say nothing.");
        }
    }

    fn table(&self, out: &mut Markup) {
        out.element("div", &[("class", "wide")], |out| {
            out.element("table", &[], |out| {
                out.element("thead", &[], |out| {
                    out.element("tr", &[], |out| {
                        self.columns.iter().for_each(|column| out.leaf("th", &[("scope", "col")], column));
                    });
                });
                out.element("tbody", &[], |out| {
                    for row in &self.rows {
                        out.new_line();
                        out.element("tr", &[], |out| row.cells.iter().for_each(|cell| out.leaf("td", &[], cell)));
                    }
                });
            });
        });
        for note in &self.notes {
            out.leaf("p", &[("class", "quiet")], note);
        }
    }

    fn bars(&self, out: &mut Markup) {
        if self.bars.is_empty() {
            return;
        }
        out.new_line();
        out.element("section", &[], |out| {
            out.leaf("h2", &[], "Over the floor");
            out.element("figure", &[], |out| {
                ratios::draw(&self.bars, out);
                out.leaf(
                    "figcaption",
                    &[],
                    "The floor is the same work written by hand, run in alternating rounds. A vertical stroke is the \
                     target, where there is one; a bar beyond it is red.",
                );
            });
        });
    }
}

impl Section {
    fn render(&self, out: &mut Markup) {
        out.element("section", &[], |out| {
            out.leaf("h2", &[], &self.name);
            out.leaf("p", &[], &self.lead);
            if let Some(refused) = &self.refused {
                out.leaf("p", &[("class", "bad")], refused);
            }
            if !self.curve.is_empty() {
                out.leaf("h3", &[], "Latency by percentile");
                out.element("figure", &[], |out| {
                    self.curve.draw(out);
                    out.leaf(
                        "figcaption",
                        &[],
                        "The latencies of all reported rounds, merged. The table above has the medians of the rounds' \
                         percentiles instead, which one bad round does not move.",
                    );
                });
            }
            if !self.strip.is_empty() {
                out.leaf("h3", &[], &format!("Every round: {}", self.strip.figure));
                out.element("figure", &[], |out| self.strip.draw(out));
            }
        });
    }
}

#[cfg(test)]
mod tests;
