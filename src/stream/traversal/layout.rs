//! Who is wired to whom: the absolute slots of a traversal, computed by simulation. For printing, drawing, sizes and the
//! messages of errors; materializing does not need it.

use super::{GraphSize, IslandTag, Step, Traversal};

/// The operators of a traversal in the order of the walk, with absolute slots.
#[derive(Debug, Default)]
pub struct Layout<'t> {
    /// Operators in the order of the walk.
    pub modules: Vec<ModuleLayout<'t>>,
    /// Islands in the order in which they are entered; the first is the outermost.
    pub islands: Vec<IslandLayout>,
}

/// One operator.
#[derive(Debug)]
pub struct ModuleLayout<'t> {
    /// The operator.
    pub operator: &'t super::OperatorNode,
    /// Position of its island in [`Layout::islands`].
    pub island: usize,
    /// The slot of its first inlet; those of its other inlets follow.
    pub base: i64,
    /// The slot that each outlet leads to.
    pub outlets: Vec<i64>,
}

/// One island.
#[derive(Debug)]
pub struct IslandLayout {
    /// Its tag; `None` for the outermost.
    pub tag: Option<IslandTag>,
    /// The island that encloses it.
    pub parent: Option<usize>,
    /// What is in it, without what is in the islands it encloses.
    pub size: GraphSize,
}

impl<'t> Layout<'t> {
    /// Simulates a walk.
    pub fn of(traversal: &'t Traversal) -> Layout<'t> {
        let outermost = IslandLayout { tag: None, parent: None, size: GraphSize::default() };
        let mut layout = Layout { modules: Vec::new(), islands: vec![outermost] };
        let (mut island, mut slot) = (0, 0);
        for step in traversal.walk() {
            match step {
                Step::Materialize(placed) => {
                    let operator = placed.operator();
                    let outlets = 0..operator.outlets();
                    let outlets = outlets.map(|outlet| slot + i64::from(placed.relative_slot(outlet))).collect();
                    layout.modules.push(ModuleLayout { operator, island, base: slot, outlets });
                    layout.islands[island].size += GraphSize::of_operator(operator.module());
                    slot += operator.inlets() as i64;
                }
                Step::EnterIsland(tag) => {
                    let entered = IslandLayout { tag: Some(tag), parent: Some(island), size: GraphSize::default() };
                    layout.islands.push(entered);
                    island = layout.islands.len() - 1;
                }
                Step::ExitIsland => island = layout.islands[island].parent.unwrap_or(0),
                _ => {}
            }
        }
        layout
    }

    /// The operator that has the inlet with this slot, as position in [`Layout::modules`], and the position of the inlet.
    pub fn inlet(&self, slot: i64) -> Option<(usize, usize)> {
        let after = self.modules.partition_point(|module| module.base <= slot);
        // Operators without inlets share their base with the one that follows.
        let index = after.checked_sub(1)?;
        let module = &self.modules[index];
        let inlet = usize::try_from(slot - module.base).ok()?;
        (inlet < module.operator.inlets()).then_some((index, inlet))
    }

    /// `Operator.port` for the inlet with this slot.
    pub fn inlet_label(&self, slot: i64) -> Option<String> {
        let (module, inlet) = self.inlet(slot)?;
        let module = self.modules[module].operator.module();
        Some(format!("{}.{}", module.name(), module.inlet_name(inlet)))
    }
}
