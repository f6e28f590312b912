//! The table of attributes, as far as it is about the list and its levels.
//!
//! Not here: dispatchers of actors, which do not exist; which core an operator runs on, and the size of a boundary's
//! buffer, which belong to the island that reads [`Placement`] and [`InputBuffer`].

use atoll::stream::attributes::{
    AsyncBoundary, CancellationStrategy, Directive, InputBuffer, Name, Placement, Supervision, TransparentPull,
};
use atoll::stream::materializer::{IslandSetup, MaterializationError, Materializer, PhaseIsland, Phases};
use atoll::stream::traversal::builder::LinearBuilder;
use atoll::stream::traversal::{Combine, IslandTag};
use atoll::stream::{Attribute, Attributes, StreamError};
use std::cell::RefCell;
use std::rc::Rc;

use super::support::{Trace, Tracer, linear, named, trace};

#[derive(Debug, PartialEq)]
struct Whatever(&'static str);
impl Attribute for Whatever {}

#[test]
fn the_attribute_that_was_added_last_is_the_most_specific() {
    let attributes = named("first").and(&Attributes::of(Whatever("x"))).and(&named("last"));
    assert_eq!(attributes.get::<Name>().unwrap().as_str(), "last");
    assert_eq!(attributes.get_first::<Name>().unwrap().as_str(), "first");
    assert_eq!(attributes.get::<Whatever>(), Some(&Whatever("x")));
    assert_eq!((attributes.name(), attributes.nested_name()), (Some("last"), "first-last".to_owned()));
    assert!(attributes.contains::<Whatever>() && !attributes.contains::<AsyncBoundary>());
    assert_eq!(format!("{attributes:?}"), r#"[Name("last"), Whatever("x"), Name("first")]"#);
    assert_eq!((attributes.len(), Attributes::none().len(), Attributes::none().is_empty()), (3, 0, true));
    assert_eq!((Attributes::none().name(), Attributes::none().name_or("none")), (None, "none"));
}

#[test]
fn mandatory_attributes_have_a_default() {
    let none = Attributes::none();
    assert_eq!(none.mandatory::<InputBuffer>().max(), 64);
    assert_eq!(*none.mandatory::<Placement>(), Placement::Any);
    assert_eq!(*none.mandatory::<CancellationStrategy>(), CancellationStrategy::PropagateFailure);
    assert!(none.mandatory::<TransparentPull>().0);
    let error = StreamError::new(std::fmt::Error);
    assert_eq!(none.mandatory::<Supervision>().decide(&error), Directive::Stop);
    let resuming = none.with(Supervision::always(Directive::Resume));
    assert_eq!(resuming.mandatory::<Supervision>().decide(&error), Directive::Resume);
    assert_eq!(none.with(InputBuffer::new(1, 4).unwrap()).mandatory::<InputBuffer>().max(), 4);
}

#[test]
fn sizes_of_buffers_are_powers_of_two_within_bounds() {
    for (initial, max, fits) in [(1, 1, true), (4, 16, true), (0, 4, false), (1, 3, false), (8, 4, false)] {
        assert_eq!(InputBuffer::new(initial, max).is_ok(), fits, "{initial} {max}");
    }
    assert!(InputBuffer::new(1, 1 << 17).is_err());
}

#[test]
fn adding_keeps_what_a_level_has_and_setting_replaces_it() {
    let chain = |source: LinearBuilder| source.append(linear("K"), Combine::Left).unwrap().blueprint().unwrap();
    let added = linear("S").with_attributes(named("a")).adding_attributes(&Attributes::of(Whatever("x")));
    assert_eq!(trace(&chain(added.clone())).0.attributes(), ["K: ", "S: a"]);
    assert_eq!(trace(&chain(added.adding_attributes(&named("b")))).0.attributes(), ["K: ", "S: a and b"]);
    let set = linear("S").with_attributes(named("a")).with_attributes(Attributes::of(Whatever("x")));
    assert_eq!(trace(&chain(set)).0.attributes(), ["K: ", "S: "]);
}

#[test]
fn boundaries_and_placements_make_an_island_that_sees_the_attributes_of_its_level() {
    for attributes in [Attributes::of(AsyncBoundary), Attributes::of(Placement::Index(3))] {
        assert!(attributes.is_async());
        let flow = linear("F1").with_attributes(attributes.and(&named("flow")));
        let chain = linear("S").append(flow, Combine::Left).unwrap().append(linear("K"), Combine::Left).unwrap();
        let (trace, _) = trace(&chain.with_attributes(named("whole")).blueprint().unwrap());
        let expected = ["K: whole, Default", "F1: whole and flow, fused", "S: whole, Default"];
        assert_eq!(trace.assignments(), expected);
        assert_eq!(trace.islands, ["flow-1"]);
    }
}

#[test]
fn defaults_of_the_materializer_are_the_least_specific_and_reach_the_islands() {
    let shared = Rc::new(RefCell::new(Trace::default()));
    let buffers = Rc::new(RefCell::new(Vec::new()));
    let factory = |setup: IslandSetup<'_>| -> Result<Box<dyn PhaseIsland>, MaterializationError> {
        buffers.borrow_mut().push(setup.attributes.mandatory::<InputBuffer>().max());
        Ok(Box::new(Tracer::island(&shared, &setup)))
    };
    let phases = Phases::new().with(IslandTag::FUSED, factory);
    let own = Attributes::of(AsyncBoundary).with(InputBuffer::new(1, 2).unwrap());
    let chain = linear("S").with_attributes(Attributes::of(AsyncBoundary)).append(linear("F1"), Combine::Left).unwrap();
    let chain = chain.with_attributes(own).append(linear("K"), Combine::Left).unwrap();
    let defaults = named("default").with(InputBuffer::new(1, 8).unwrap());
    let blueprint = chain.blueprint().unwrap();
    let mut root = Tracer::root(&shared);
    Materializer::new(&phases).with_defaults(defaults).materialize(&blueprint, &mut root).unwrap();
    assert_eq!(*buffers.borrow(), [2, 2]);
    assert_eq!(shared.borrow().attributes(), ["K: default", "F1: default", "S: default"]);
}
