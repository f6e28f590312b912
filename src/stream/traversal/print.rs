//! Traversals and their wiring as text.

use std::fmt::Write;

use super::{Placed, Step, Traversal, ValueUse, Walk};

/// Margins are not wider than this: chains that keep values nest one level for each operator, and the text would grow
/// with the square of their length.
const INDENT_MAX: usize = 16;

/// The commands, one a line; the first part of a pair is indented by one more ` | `, up to 16.
///
/// `materialize M [slots]` has the relative slot of each outlet.
pub fn print_traversal(traversal: &Traversal) -> String {
    let mut text = String::new();
    let mut pending = vec![(traversal, 0)];
    while let Some((mut current, indent)) = pending.pop() {
        loop {
            match current {
                Traversal::Empty => break,
                Traversal::Concat(pair) => {
                    pending.push((&pair.second, indent));
                    pending.push((&pair.first, indent + 1));
                    break;
                }
                command => {
                    // An operator is the only command that has a next one; its walk begins with itself.
                    if let Some(step) = Walk::new(command).next() {
                        print_step(&mut text, indent, &step);
                    }
                    let Traversal::Operator { node, .. } = command else { break };
                    current = &node.next;
                }
            }
        }
    }
    text
}

fn print_step(text: &mut String, indent: usize, step: &Step<'_>) {
    let margin = " | ".repeat(indent.min(INDENT_MAX));
    // Writing to a `String` does not fail.
    let _ = match step {
        Step::Materialize(placed) => {
            let name = placed.operator().module().name();
            let dropped =
                if placed.value_use() == ValueUse::Drop { format!("{margin}pop mat\n") } else { String::new() };
            write!(text, "{margin}materialize {name} {:?}\n{dropped}", relative_slots(placed))
        }
        Step::PushNotUsed => writeln!(text, "{margin}push NotUsed"),
        Step::Pop => writeln!(text, "{margin}pop mat"),
        Step::Transform(_) => writeln!(text, "{margin}transform mat"),
        Step::Compose(_, false) => writeln!(text, "{margin}compose mat"),
        Step::Compose(_, true) => writeln!(text, "{margin}compose reversed mat"),
        Step::PushAttributes(attributes) => writeln!(text, "{margin}push attr {attributes:?}"),
        Step::PopAttributes => writeln!(text, "{margin}pop attr"),
        Step::EnterIsland(tag) => writeln!(text, "{margin}enter island {tag}"),
        Step::ExitIsland => writeln!(text, "{margin}exit island"),
    };
}

fn relative_slots(placed: &Placed<'_>) -> Vec<i32> {
    (0..placed.operator().outlets()).map(|outlet| placed.relative_slot(outlet)).collect()
}

/// The operators with the slot of each inlet and the slot that each outlet leads to. The first slot is `base`; the second
/// value is the slot that would follow.
pub fn print_wiring(traversal: &Traversal, base: i64) -> (String, i64) {
    let (mut text, mut slot) = (String::new(), base);
    for step in traversal.walk() {
        let Step::Materialize(placed) = step else { continue };
        let operator = placed.operator();
        let module = operator.module();
        let _ = writeln!(text, "materialize {}", module.name());
        let base = slot;
        for inlet in 0..operator.inlets() {
            let _ = writeln!(text, "  wiring {} to {slot}", module.inlet_name(inlet));
            slot += 1;
        }
        for outlet in 0..operator.outlets() {
            let target = base + i64::from(placed.relative_slot(outlet));
            let _ = writeln!(text, "  wiring {} to {target}", module.outlet_name(outlet));
        }
    }
    (text, slot)
}
