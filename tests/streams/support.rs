//! A phase that runs nothing and records everything: which operators came in which order, in which island, with which
//! attributes, and who is wired to whom. It also asserts what every phase may rely on.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use atoll::stream::materializer::{
    InletWire, IslandSetup, LocalSlot, MaterializationError, Materializer, OpenWire, OutletWire, PhaseIsland, Phases,
    Publisher,
};
use atoll::stream::traversal::builder::{LinearBuilder, TraversalBuilder};
use atoll::stream::traversal::{Blueprint, IslandTag, TransformFunction};
use atoll::stream::{AtomicModule, Attributes, MaterializedValue};

pub const I1: IslandTag = IslandTag("I1");
pub const I2: IslandTag = IslandTag("I2");

/// An operator whose materialized value is its name.
#[derive(Clone)]
pub struct Operator {
    pub name: String,
    pub inlets: usize,
    pub outlets: usize,
}

impl AtomicModule for Operator {
    fn name(&self) -> &str {
        &self.name
    }

    fn inlets(&self) -> usize {
        self.inlets
    }

    fn outlets(&self) -> usize {
        self.outlets
    }

    fn arena_bytes(&self) -> usize {
        100
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub fn operator(name: &str, inlets: usize, outlets: usize) -> Operator {
    Operator { name: name.to_owned(), inlets, outlets }
}

/// As chain: the ports follow from the first letter: **S**ource, **F**low, sin**K**.
pub fn linear(name: &str) -> LinearBuilder {
    LinearBuilder::of(by_letter(name))
}

/// The same as part that is no chain.
pub fn composite(name: &str) -> TraversalBuilder {
    TraversalBuilder::atomic(Arc::new(by_letter(name)))
}

fn by_letter(name: &str) -> Operator {
    let kind = name.trim_start_matches('c');
    match kind.as_bytes().first() {
        Some(b'S') => operator(name, 0, 1),
        Some(b'F') => operator(name, 1, 1),
        Some(b'K') => operator(name, 1, 0),
        _ => panic!("no kind of operator: {name}"),
    }
}

/// Prefixes the value, which is a text.
pub fn prefix(prefix: &'static str) -> TransformFunction {
    TransformFunction::new(move |value: String| format!("{prefix}{value}"))
}

#[derive(Default, Debug)]
pub struct Trace {
    pub operators: Vec<Visited>,
    /// Index of the operator and position of the port, for outlet and inlet.
    pub wires: Vec<((usize, usize), (usize, usize))>,
    pub crossings: usize,
    pub ready: Vec<usize>,
    pub islands: Vec<String>,
    pub sizes: Vec<atoll::stream::traversal::GraphSize>,
    /// Phases that were dropped.
    pub dropped: usize,
}

#[derive(Debug)]
pub struct Visited {
    pub name: String,
    pub inlets: usize,
    pub outlets: usize,
    pub island: usize,
    /// `Default` for the outermost island.
    pub tag: &'static str,
    /// Names from the outermost level to the innermost.
    pub names: Vec<String>,
}

impl Trace {
    /// `outlet -> inlet`, in the order of the inlets. Ports are named where the operator has several.
    pub fn wiring(&self) -> Vec<String> {
        let mut wires = self.wires.clone();
        wires.sort_by_key(|wire| wire.1);
        wires.iter().map(|(from, to)| format!("{} -> {}", self.outlet(*from), self.inlet(*to))).collect()
    }

    fn outlet(&self, (operator, outlet): (usize, usize)) -> String {
        let operator = &self.operators[operator];
        if operator.outlets > 1 { format!("{}.{outlet}", operator.name) } else { operator.name.clone() }
    }

    fn inlet(&self, (operator, inlet): (usize, usize)) -> String {
        let operator = &self.operators[operator];
        if operator.inlets > 1 { format!("{}.{inlet}", operator.name) } else { operator.name.clone() }
    }

    /// `operator: outer and inner`, in the order of the walk.
    pub fn attributes(&self) -> Vec<String> {
        self.operators.iter().map(|visited| format!("{}: {}", visited.name, visited.names.join(" and "))).collect()
    }

    /// `operator: attributes, tag`, in the order of the walk.
    pub fn assignments(&self) -> Vec<String> {
        let text = |visited: &Visited| {
            let names = if visited.names.is_empty() { "none".to_owned() } else { visited.names.join(" and ") };
            format!("{}: {names}, {}", visited.name, visited.tag)
        };
        self.operators.iter().map(text).collect()
    }
}

pub struct Tracer {
    trace: Rc<RefCell<Trace>>,
    island: usize,
    tag: &'static str,
    name: String,
    /// By local slot: operator and position.
    inlets: Vec<(usize, usize)>,
    open: HashMap<OpenWire, (usize, usize)>,
    /// Refuses operators with this name.
    pub refuses: Option<&'static str>,
}

impl Tracer {
    pub fn root(trace: &Rc<RefCell<Trace>>) -> Tracer {
        Tracer::new(trace, 0, "Default", "root".to_owned())
    }

    fn new(trace: &Rc<RefCell<Trace>>, island: usize, tag: &'static str, name: String) -> Tracer {
        let (inlets, open) = (Vec::new(), HashMap::new());
        Tracer { trace: Rc::clone(trace), island, tag, name, inlets, open, refuses: None }
    }

    pub fn island(trace: &Rc<RefCell<Trace>>, setup: &IslandSetup<'_>) -> Tracer {
        let mut recorded = trace.borrow_mut();
        recorded.islands.push(setup.name.to_owned());
        recorded.sizes.push(setup.size);
        Tracer::new(trace, recorded.islands.len(), setup.tag.0, setup.name.to_owned())
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.trace.borrow_mut().dropped += 1;
    }
}

impl PhaseIsland for Tracer {
    fn name(&self) -> &str {
        &self.name
    }

    fn materialize_atomic(
        &mut self,
        module: &dyn AtomicModule,
        inlets: &[InletWire],
        outlets: &[OutletWire],
        attributes: &Attributes,
    ) -> Result<MaterializedValue, MaterializationError> {
        if self.refuses == Some(module.name()) {
            return Err(MaterializationError::ModuleRefused {
                phase: self.name.clone(),
                module: module.name().to_owned(),
                reason: "it is told to".to_owned(),
            });
        }
        assert_eq!((inlets.len(), outlets.len()), (module.inlets(), module.outlets()));
        let mut trace = self.trace.borrow_mut();
        let index = trace.operators.len();
        for (position, wire) in inlets.iter().enumerate() {
            assert_eq!(wire.slot.0 as usize, self.inlets.len(), "local slots are contiguous");
            self.inlets.push((index, position));
            if let Some(open) = wire.from {
                let from = self.open.remove(&open).expect("an outlet of this island that was left open");
                trace.wires.push((from, (index, position)));
            }
        }
        for (position, wire) in outlets.iter().enumerate() {
            match wire {
                OutletWire::Slot(slot) => trace.wires.push(((index, position), self.inlets[slot.0 as usize])),
                OutletWire::Open(open) => {
                    assert_eq!(self.open.insert(*open, (index, position)), None, "the name of a wire is unique");
                }
            }
        }
        let names = attributes.all::<atoll::stream::attributes::Name>().map(|name| name.as_str().to_owned());
        let mut names: Vec<String> = names.collect();
        names.reverse();
        trace.operators.push(Visited {
            name: module.name().to_owned(),
            inlets: inlets.len(),
            outlets: outlets.len(),
            island: self.island,
            tag: self.tag,
            names,
        });
        Ok(Box::new(module.name().to_owned()))
    }

    fn create_publisher(&mut self, outlet: OpenWire) -> Result<Publisher, MaterializationError> {
        let from = self.open.remove(&outlet).expect("an outlet of this island that was left open");
        Ok(Publisher(Box::new(from)))
    }

    fn take_publisher(&mut self, inlet: LocalSlot, publisher: Publisher) -> Result<(), MaterializationError> {
        let from = *publisher.0.downcast::<(usize, usize)>().expect("a publisher of a tracer");
        let mut trace = self.trace.borrow_mut();
        trace.wires.push((from, self.inlets[inlet.0 as usize]));
        trace.crossings += 1;
        Ok(())
    }

    fn on_island_ready(&mut self) -> Result<(), MaterializationError> {
        assert!(self.open.is_empty(), "every open outlet was asked for");
        self.trace.borrow_mut().ready.push(self.island);
        Ok(())
    }
}

/// Materializes with tracers for every tag of these tests.
pub fn trace(blueprint: &Blueprint) -> (Trace, MaterializedValue) {
    try_trace(blueprint).expect("it materializes")
}

pub fn try_trace(blueprint: &Blueprint) -> Result<(Trace, MaterializedValue), MaterializationError> {
    let shared = Rc::new(RefCell::new(Trace::default()));
    let factory = |setup: IslandSetup<'_>| -> Result<Box<dyn PhaseIsland>, MaterializationError> {
        Ok(Box::new(Tracer::island(&shared, &setup)))
    };
    let phases = Phases::new().with(I1, factory).with(I2, factory).with(IslandTag::FUSED, factory);
    let mut root = Tracer::root(&shared);
    let value = Materializer::new(&phases).materialize(blueprint, &mut root)?;
    drop(root);
    Ok((shared.take(), value))
}

/// The value as a text.
pub fn text(value: MaterializedValue) -> String {
    *value.downcast().expect("a text")
}

/// Whether it is the unit value.
pub fn is_unit(value: &MaterializedValue) -> bool {
    value.is::<()>()
}

pub fn named(name: &str) -> Attributes {
    Attributes::named(name)
}
