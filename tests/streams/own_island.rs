//! An island of a user's own: a tag, a phase that reads lists of words, and an outermost phase that prints them.
//!
//! Nothing of this is in the library. The two phases agree that a publisher holds an iterator of words.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use atoll::stream::materializer::{
    InletWire, IslandSetup, LocalSlot, MaterializationError, Materializer, OpenWire, OutletWire, PhaseIsland, Phases,
    Publisher,
};
use atoll::stream::traversal::builder::{CompositeBuilder, LinearBuilder, TraversalBuilder};
use atoll::stream::traversal::{Blueprint, Combine, IslandTag};
use atoll::stream::{AtomicModule, Attributes, MaterializedValue, not_used};

const WORDS: IslandTag = IslandTag("words");

type WordIterator = Box<dyn Iterator<Item = String>>;

/// A source of words; understood by the phase for [`WORDS`].
struct Words(Arc<[&'static str]>);

impl AtomicModule for Words {
    fn name(&self) -> &str {
        "words"
    }

    fn inlets(&self) -> usize {
        0
    }

    fn outlets(&self) -> usize {
        1
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A sink whose value is a page, which holds the text of its inlets when the graph has started.
struct Print(usize);

impl AtomicModule for Print {
    fn name(&self) -> &str {
        "print"
    }

    fn inlets(&self) -> usize {
        self.0
    }

    fn outlets(&self) -> usize {
        0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

type Page = Rc<RefCell<String>>;

/// Turns lists into iterators; the values live on one core, so they need not be `Send`.
#[derive(Default)]
struct WordsIsland {
    open: BTreeMap<OpenWire, Arc<[&'static str]>>,
}

impl PhaseIsland for WordsIsland {
    fn name(&self) -> &str {
        "words"
    }

    fn materialize_atomic(
        &mut self,
        module: &dyn AtomicModule,
        _: &[InletWire],
        outlets: &[OutletWire],
        _: &Attributes,
    ) -> Result<MaterializedValue, MaterializationError> {
        let Some(words) = module.as_any().downcast_ref::<Words>() else {
            return Err(MaterializationError::ModuleRefused {
                phase: self.name().to_owned(),
                module: module.name().to_owned(),
                reason: "only lists of words are understood here".to_owned(),
            });
        };
        for outlet in outlets {
            match outlet {
                OutletWire::Open(open) => self.open.insert(*open, Arc::clone(&words.0)),
                OutletWire::Slot(_) => unreachable!("this island has no inlet"),
            };
        }
        Ok(not_used())
    }

    fn create_publisher(&mut self, outlet: OpenWire) -> Result<Publisher, MaterializationError> {
        let words = self.open.remove(&outlet).expect("an outlet of this island");
        let mut next = 0;
        let iterator: WordIterator = Box::new(std::iter::from_fn(move || {
            next += 1;
            words.get(next - 1).map(|word| (*word).to_owned())
        }));
        Ok(Publisher(Box::new(iterator)))
    }

    fn take_publisher(&mut self, _: LocalSlot, _: Publisher) -> Result<(), MaterializationError> {
        Err(MaterializationError::BoundaryRefused { phase: "words".to_owned(), operation: "take elements" })
    }

    fn on_island_ready(&mut self) -> Result<(), MaterializationError> {
        Ok(())
    }
}

/// Prints all words of each inlet when it starts.
#[derive(Default)]
struct Printer {
    /// By slot.
    inlets: Vec<(Page, Option<WordIterator>)>,
}

impl PhaseIsland for Printer {
    fn name(&self) -> &str {
        "printer"
    }

    fn materialize_atomic(
        &mut self,
        module: &dyn AtomicModule,
        inlets: &[InletWire],
        _: &[OutletWire],
        _: &Attributes,
    ) -> Result<MaterializedValue, MaterializationError> {
        let page = Page::default();
        self.inlets.extend(inlets.iter().map(|_| (Rc::clone(&page), None)));
        match module.as_any().is::<Print>() {
            true => Ok(Box::new(page)),
            false => Err(MaterializationError::ModuleRefused {
                phase: self.name().to_owned(),
                module: module.name().to_owned(),
                reason: "it only prints; put other operators into an island that runs them".to_owned(),
            }),
        }
    }

    fn create_publisher(&mut self, _: OpenWire) -> Result<Publisher, MaterializationError> {
        Err(MaterializationError::BoundaryRefused { phase: "printer".to_owned(), operation: "give elements" })
    }

    fn take_publisher(&mut self, inlet: LocalSlot, publisher: Publisher) -> Result<(), MaterializationError> {
        let words = publisher.0.downcast::<WordIterator>();
        let words = words.map_err(|_| MaterializationError::BoundaryRefused {
            phase: "printer".to_owned(),
            operation: "take elements that are no words",
        })?;
        self.inlets[inlet.0 as usize].1 = Some(*words);
        Ok(())
    }

    fn on_island_ready(&mut self) -> Result<(), MaterializationError> {
        for (page, words) in &mut self.inlets {
            for word in words.take().into_iter().flatten() {
                page.borrow_mut().push_str(&word);
                page.borrow_mut().push(' ');
            }
        }
        Ok(())
    }
}

fn words(words: &[&'static str]) -> TraversalBuilder {
    let mut source = TraversalBuilder::operator(Words(words.into()));
    source.make_island(WORDS);
    source
}

fn run(blueprint: &Blueprint) -> Result<MaterializedValue, MaterializationError> {
    let phases = Phases::new()
        .with(WORDS, |_: IslandSetup<'_>| -> Result<Box<dyn PhaseIsland>, _> { Ok(Box::new(WordsIsland::default())) });
    Materializer::new(&phases).materialize(blueprint, &mut Printer::default())
}

fn page(value: MaterializedValue) -> String {
    value.downcast::<Page>().expect("a page").borrow().clone()
}

#[test]
fn a_chain_leads_out_of_an_island_of_a_users_own() {
    let source = words(&["one", "two"]).into_linear().unwrap();
    let chain = source.append_operator(Print(1), Combine::Right).unwrap();
    let blueprint = chain.blueprint().unwrap();
    for _ in 0..2 {
        assert_eq!(page(run(&blueprint).unwrap()), "one two ");
    }
}

#[test]
fn wires_between_islands_lead_forward_and_backward() {
    for sources_first in [true, false] {
        let mut graph = CompositeBuilder::new();
        let print = TraversalBuilder::operator(Print(2));
        let before = (!sources_first).then(|| graph.add(print.clone(), Combine::Right));
        let first = graph.add(words(&["a", "b"]), Combine::Left);
        let second = graph.add(words(&["c"]), Combine::Left);
        let print = before.unwrap_or_else(|| graph.add(print, Combine::Right));
        graph.wire(first.outlet(0), print.inlet(1)).unwrap();
        graph.wire(second.outlet(0), print.inlet(0)).unwrap();
        assert_eq!(page(run(&graph.seal_all().blueprint().unwrap()).unwrap()), "c a b ");
    }
}

#[test]
fn phases_refuse_what_they_do_not_understand() {
    let source = LinearBuilder::of(Words(["stray"].into()));
    let chain = source.append_operator(Print(1), Combine::Right).unwrap();
    let error = run(&chain.blueprint().unwrap()).err().unwrap();
    let expected = "phase `printer` does not take operator `words`: it only prints; put other operators into an island \
                    that runs them";
    assert_eq!(error.to_string(), expected);

    let chain = words(&["x"]).into_linear().unwrap().append_operator(Print(1), Combine::Right).unwrap();
    let error = run(&chain.with_island(IslandTag("unheard")).blueprint().unwrap()).err().unwrap();
    let expected = "no phase is known for islands tagged `unheard`: give the materializer a factory for it";
    assert_eq!(error.to_string(), expected);

    let mut sink = LinearBuilder::of(Print(1)).with_island(WORDS);
    sink = words(&["x"]).into_linear().unwrap().append(sink, Combine::Right).unwrap();
    assert!(matches!(run(&sink.blueprint().unwrap()), Err(MaterializationError::ModuleRefused { .. })));
}
