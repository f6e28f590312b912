//! Attributes: what is said about a part of a graph beside its wiring, such as names, buffers and placement.
//!
//! Builders attach them to a level of a blueprint; the materializer hands the effective list to whoever creates an
//! operator. A list is immutable, ordered with the most specific attribute first, and cheap to clone. Attributes of an
//! enclosing level are less specific than those of the operator itself.

mod standard;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

pub use standard::{
    AsyncBoundary, CancellationStrategy, DebugLogging, Directive, Fuzzing, InputBuffer, InvalidInputBuffer, LogLevels,
    Name, Placement, SourceLocation, SubscriptionTimeout, SubscriptionTimeoutMode, SubstreamCancelStrategy,
    Supervision, TransparentPull,
};

/// A value that can be attached to a part of a graph. Users implement it for types of their own.
///
/// Its `Debug` text is what the printed traversal shows.
pub trait Attribute: Any + fmt::Debug + Send + Sync {}

/// An attribute that always has a value: the one of [`default_value`](Self::default_value) where none was set.
pub trait MandatoryAttribute: Attribute + Sized {
    /// The value that counts where no level of the graph sets one.
    fn default_value() -> &'static Self;
}

/// An immutable list of attributes, the most specific one first.
#[derive(Clone, Default)]
pub struct Attributes(Option<Arc<[Arc<dyn Attribute>]>>);

impl Attributes {
    /// No attributes. Does not allocate.
    pub const fn none() -> Attributes {
        Attributes(None)
    }

    /// One attribute.
    pub fn of(attribute: impl Attribute) -> Attributes {
        let attribute: Arc<dyn Attribute> = Arc::new(attribute);
        Attributes(Some(Arc::from([attribute])))
    }

    /// The attribute [`Name`].
    pub fn named(name: impl Into<Arc<str>>) -> Attributes {
        Attributes::of(Name::new(name))
    }

    /// Both lists, where those of `more_specific` come first and so win.
    #[must_use]
    pub fn and(&self, more_specific: &Attributes) -> Attributes {
        match (&self.0, &more_specific.0) {
            (None, _) => more_specific.clone(),
            (_, None) => self.clone(),
            (Some(less), Some(more)) => Attributes(Some(more.iter().chain(less.iter()).cloned().collect())),
        }
    }

    /// As [`and`](Self::and), for one attribute.
    #[must_use]
    pub fn with(&self, more_specific: impl Attribute) -> Attributes {
        self.and(&Attributes::of(more_specific))
    }

    /// The most specific attribute of type `A`.
    pub fn get<A: Attribute>(&self) -> Option<&A> {
        self.iter().find_map(downcast)
    }

    /// The least specific attribute of type `A`: the one that was set first, or furthest outside.
    pub fn get_first<A: Attribute>(&self) -> Option<&A> {
        self.iter().rev().find_map(downcast)
    }

    /// The most specific attribute of type `A`, or its default.
    pub fn mandatory<A: MandatoryAttribute>(&self) -> &A {
        match self.get() {
            Some(attribute) => attribute,
            None => A::default_value(),
        }
    }

    /// Whether there is an attribute of type `A`.
    pub fn contains<A: Attribute>(&self) -> bool {
        self.get::<A>().is_some()
    }

    /// All attributes of type `A`, the most specific one first.
    pub fn all<A: Attribute>(&self) -> impl Iterator<Item = &A> {
        self.iter().filter_map(downcast)
    }

    /// The most specific [`Name`].
    pub fn name(&self) -> Option<&str> {
        self.get::<Name>().map(Name::as_str)
    }

    /// The most specific [`Name`], or `default`.
    pub fn name_or<'a>(&'a self, default: &'a str) -> &'a str {
        self.name().unwrap_or(default)
    }

    /// All names from the outermost level to the innermost, joined by `-`; empty if there is none.
    pub fn nested_name(&self) -> String {
        let mut names: Vec<&str> = self.all::<Name>().map(Name::as_str).collect();
        names.reverse();
        names.join("-")
    }

    /// All attributes, the most specific one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &dyn Attribute> {
        self.0.iter().flat_map(|list| list.iter()).map(|attribute| &**attribute)
    }

    /// How many attributes there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a level with these attributes is an island of its own: it has an [`AsyncBoundary`] or a [`Placement`].
    pub fn is_async(&self) -> bool {
        self.contains::<AsyncBoundary>() || self.contains::<Placement>()
    }
}

fn downcast<A: Attribute>(attribute: &dyn Attribute) -> Option<&A> {
    (attribute as &dyn Any).downcast_ref()
}

impl fmt::Debug for Attributes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
