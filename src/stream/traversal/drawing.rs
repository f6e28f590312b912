//! Drawings of blueprints: operators as nodes, wires as arrows, islands as boxes.

use std::fmt::Write;

use super::Traversal;
use super::layout::Layout;

/// A Mermaid flowchart of the graph. A wire that stays within a cycle shows as an arrow back.
pub fn draw_mermaid(traversal: &Traversal) -> String {
    let layout = Layout::of(traversal);
    let mut text = String::from("flowchart LR\n");
    draw_islands(&layout, &mut text, &MERMAID);
    for wire in wires(&layout) {
        let _ = match wire.label {
            Some(label) => writeln!(text, "  m{} -- \"{}\" --> m{}", wire.from, mermaid_text(&label), wire.to),
            None => writeln!(text, "  m{} --> m{}", wire.from, wire.to),
        };
    }
    text
}

/// A Graphviz digraph of the graph.
pub fn draw_dot(traversal: &Traversal) -> String {
    let layout = Layout::of(traversal);
    let mut text = String::from("digraph stream {\n  rankdir=LR;\n  node [shape=box];\n");
    draw_islands(&layout, &mut text, &DOT);
    for wire in wires(&layout) {
        let label = wire.label.map(|label| format!(" [label=\"{}\"]", dot_text(&label))).unwrap_or_default();
        let _ = writeln!(text, "  m{} -> m{}{label};", wire.from, wire.to);
    }
    text.push_str("}\n");
    text
}

/// What differs between the two languages.
struct Language {
    node: fn(&mut String, usize, &str),
    open_island: fn(&mut String, usize, &str),
    close_island: &'static str,
}

const MERMAID: Language = Language {
    node: |text, index, name| {
        let _ = writeln!(text, "  m{index}[\"{}\"]", mermaid_text(name));
    },
    open_island: |text, index, tag| {
        let _ = writeln!(text, "  subgraph i{index}[\"island {index}: {}\"]", mermaid_text(tag));
    },
    close_island: "  end\n",
};

const DOT: Language = Language {
    node: |text, index, name| {
        let _ = writeln!(text, "  m{index} [label=\"{}\"];", dot_text(name));
    },
    open_island: |text, index, tag| {
        let _ = writeln!(text, "  subgraph cluster_{index} {{\n  label=\"island {index}: {}\";", dot_text(tag));
    },
    close_island: "  }\n",
};

fn mermaid_text(text: &str) -> String {
    text.replace('"', "#quot;").replace(['\n', '\r'], " ")
}

fn dot_text(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace(['\n', '\r'], " ")
}

/// The islands one inside the other, each with its operators.
fn draw_islands(layout: &Layout<'_>, text: &mut String, language: &Language) {
    let mut members = vec![Vec::new(); layout.islands.len()];
    for (index, module) in layout.modules.iter().enumerate() {
        members[module.island].push(index);
    }
    let mut children = vec![Vec::new(); layout.islands.len()];
    for (index, island) in layout.islands.iter().enumerate() {
        if let Some(parent) = island.parent {
            children[parent].push(index);
        }
    }
    enum Task {
        Open(usize),
        Close,
    }
    let mut tasks = vec![Task::Open(0)];
    while let Some(task) = tasks.pop() {
        let Task::Open(island) = task else {
            text.push_str(language.close_island);
            continue;
        };
        if let Some(tag) = layout.islands[island].tag {
            (language.open_island)(text, island, tag.0);
            tasks.push(Task::Close);
        }
        for &member in &members[island] {
            (language.node)(text, member, layout.modules[member].operator.module().name());
        }
        tasks.extend(children[island].iter().rev().map(|&child| Task::Open(child)));
    }
}

struct Wire {
    from: usize,
    to: usize,
    /// The ports, where one of the operators has several.
    label: Option<String>,
}

fn wires<'l>(layout: &'l Layout<'_>) -> impl Iterator<Item = Wire> + 'l {
    layout.modules.iter().enumerate().flat_map(move |(from, module)| {
        module.outlets.iter().enumerate().filter_map(move |(outlet, &slot)| {
            let (to, inlet) = layout.inlet(slot)?;
            let target = layout.modules[to].operator;
            let several = module.operator.outlets() > 1 || target.inlets() > 1;
            let label = several.then(|| {
                let outlet = module.operator.module().outlet_name(outlet);
                format!("{outlet} to {}", target.module().inlet_name(inlet))
            });
            Some(Wire { from, to, label })
        })
    })
}
