//! Shapes: how many ports of which element types a stage has.
//!
//! A [`Shape`] is the description (in a blueprint); its `Ports` are what the running stage gets. Used by the materializer
//! through [`super::erased`].

use std::marker::PhantomData;

use crate::stream::interpreter::{Inlet, Outlet, PortWiring};

/// The ports of a stage, as a description.
pub trait Shape: Clone + Send + Sync + 'static {
    /// The running ports.
    type Ports: 'static;

    /// Number of inlets.
    fn inlets(&self) -> usize;

    /// Number of outlets.
    fn outlets(&self) -> usize;

    /// Bytes that its connections take, for sizing an island.
    fn connection_bytes(&self) -> usize;

    /// Makes the running ports: all inlets in order, then all outlets.
    fn connect(&self, wiring: &mut PortWiring<'_>) -> Self::Ports;
}

/// Bytes of the header of a connection; its element comes on top.
const HEADER_BYTES: usize = 64;

const fn slot_bytes<T>() -> usize {
    HEADER_BYTES + size_of::<T>().next_multiple_of(HEADER_BYTES)
}

macro_rules! described {
    ($(#[$about:meta])* $name:ident<$($element:ident),*> $(, $field:ident)?) => {
        $(#[$about])*
        pub struct $name<$($element),*> {
            $($field: u16,)?
            elements: PhantomData<fn() -> ($($element,)*)>,
        }
        impl<$($element),*> Clone for $name<$($element),*> {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl<$($element),*> Copy for $name<$($element),*> {}
    };
}

described!(
    /// One outlet.
    SourceShape<O>
);
described!(
    /// One inlet.
    SinkShape<I>
);
described!(
    /// One inlet and one outlet.
    FlowShape<I, O>
);
described!(
    /// Two inlets and two outlets: a pair of flows in opposite directions.
    BidiShape<I1, O1, I2, O2>
);
described!(
    /// Several inlets of one type and one outlet.
    FanInShape<I, O>, inlets
);
described!(
    /// One inlet and several outlets of one type.
    FanOutShape<I, O>, outlets
);
described!(
    /// Two inlets of two types and one outlet.
    ZipShape<A, B, O>
);
described!(
    /// One inlet and two outlets of two types.
    UnzipShape<I, A, B>
);

/// No ports.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClosedShape;

macro_rules! new {
    ($($name:ident<$($element:ident),*>),*) => {
        $(
            impl<$($element),*> $name<$($element),*> {
                /// The shape.
                #[must_use]
                pub const fn new() -> Self {
                    $name { elements: PhantomData }
                }
            }
            impl<$($element),*> Default for $name<$($element),*> {
                fn default() -> Self {
                    Self::new()
                }
            }
        )*
    };
}
new!(SourceShape<O>, SinkShape<I>, FlowShape<I, O>, BidiShape<I1, O1, I2, O2>, ZipShape<A, B, O>, UnzipShape<I, A, B>);

impl<I, O> FanInShape<I, O> {
    /// A shape with so many inlets.
    #[must_use]
    pub const fn new(inlets: u16) -> Self {
        FanInShape { inlets, elements: PhantomData }
    }
}

impl<I, O> FanOutShape<I, O> {
    /// A shape with so many outlets.
    #[must_use]
    pub const fn new(outlets: u16) -> Self {
        FanOutShape { outlets, elements: PhantomData }
    }
}

impl Shape for ClosedShape {
    type Ports = ();

    fn inlets(&self) -> usize {
        0
    }

    fn outlets(&self) -> usize {
        0
    }

    fn connection_bytes(&self) -> usize {
        0
    }

    fn connect(&self, _: &mut PortWiring<'_>) {}
}

impl<O: 'static> Shape for SourceShape<O> {
    type Ports = Outlet<O>;

    fn inlets(&self) -> usize {
        0
    }

    fn outlets(&self) -> usize {
        1
    }

    fn connection_bytes(&self) -> usize {
        0
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Outlet<O> {
        wiring.outlet()
    }
}

impl<I: 'static> Shape for SinkShape<I> {
    type Ports = Inlet<I>;

    fn inlets(&self) -> usize {
        1
    }

    fn outlets(&self) -> usize {
        0
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<I>()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Inlet<I> {
        wiring.inlet()
    }
}

/// The ports of a flow.
pub struct FlowPorts<I, O> {
    /// Elements come in here.
    pub inlet: Inlet<I>,
    /// Elements go out here.
    pub outlet: Outlet<O>,
}

impl<I: 'static, O: 'static> Shape for FlowShape<I, O> {
    type Ports = FlowPorts<I, O>;

    fn inlets(&self) -> usize {
        1
    }

    fn outlets(&self) -> usize {
        1
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<I>()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> FlowPorts<I, O> {
        FlowPorts { inlet: wiring.inlet(), outlet: wiring.outlet() }
    }
}

/// The ports of a pair of flows. Inlet 0 and outlet 0 are the way down, inlet 1 and outlet 1 the way back.
pub struct BidiPorts<I1, O1, I2, O2> {
    /// Inlet 0.
    pub inlet_down: Inlet<I1>,
    /// Outlet 0.
    pub outlet_down: Outlet<O1>,
    /// Inlet 1.
    pub inlet_back: Inlet<I2>,
    /// Outlet 1.
    pub outlet_back: Outlet<O2>,
}

impl<I1: 'static, O1: 'static, I2: 'static, O2: 'static> Shape for BidiShape<I1, O1, I2, O2> {
    type Ports = BidiPorts<I1, O1, I2, O2>;

    fn inlets(&self) -> usize {
        2
    }

    fn outlets(&self) -> usize {
        2
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<I1>() + slot_bytes::<I2>()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> BidiPorts<I1, O1, I2, O2> {
        let (inlet_down, inlet_back) = (wiring.inlet(), wiring.inlet());
        BidiPorts { inlet_down, inlet_back, outlet_down: wiring.outlet(), outlet_back: wiring.outlet() }
    }
}

impl<I: 'static, O: 'static> Shape for FanInShape<I, O> {
    type Ports = (Vec<Inlet<I>>, Outlet<O>);

    fn inlets(&self) -> usize {
        usize::from(self.inlets)
    }

    fn outlets(&self) -> usize {
        1
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<I>() * self.inlets()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Self::Ports {
        ((0..self.inlets).map(|_| wiring.inlet()).collect(), wiring.outlet())
    }
}

impl<I: 'static, O: 'static> Shape for FanOutShape<I, O> {
    type Ports = (Inlet<I>, Vec<Outlet<O>>);

    fn inlets(&self) -> usize {
        1
    }

    fn outlets(&self) -> usize {
        usize::from(self.outlets)
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<I>()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Self::Ports {
        (wiring.inlet(), (0..self.outlets).map(|_| wiring.outlet()).collect())
    }
}

/// The ports of a stage that joins two types.
pub struct ZipPorts<A, B, O> {
    /// Inlet 0.
    pub first: Inlet<A>,
    /// Inlet 1.
    pub second: Inlet<B>,
    /// The outlet.
    pub outlet: Outlet<O>,
}

impl<A: 'static, B: 'static, O: 'static> Shape for ZipShape<A, B, O> {
    type Ports = ZipPorts<A, B, O>;

    fn inlets(&self) -> usize {
        2
    }

    fn outlets(&self) -> usize {
        1
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<A>() + slot_bytes::<B>()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Self::Ports {
        ZipPorts { first: wiring.inlet(), second: wiring.inlet(), outlet: wiring.outlet() }
    }
}

/// The ports of a stage that takes a type apart.
pub struct UnzipPorts<I, A, B> {
    /// The inlet.
    pub inlet: Inlet<I>,
    /// Outlet 0.
    pub first: Outlet<A>,
    /// Outlet 1.
    pub second: Outlet<B>,
}

impl<I: 'static, A: 'static, B: 'static> Shape for UnzipShape<I, A, B> {
    type Ports = UnzipPorts<I, A, B>;

    fn inlets(&self) -> usize {
        1
    }

    fn outlets(&self) -> usize {
        2
    }

    fn connection_bytes(&self) -> usize {
        slot_bytes::<I>()
    }

    fn connect(&self, wiring: &mut PortWiring<'_>) -> Self::Ports {
        UnzipPorts { inlet: wiring.inlet(), first: wiring.outlet(), second: wiring.outlet() }
    }
}
