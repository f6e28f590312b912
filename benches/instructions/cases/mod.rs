//! The operations. Each function prepares what it needs, warms it up, and hands the operation to the meter.

mod control;
mod engine;
mod entity;
mod small;
mod stream;
mod wire;

use crate::meter::Meter;

/// One operation.
pub struct Case {
    pub name: &'static str,
    pub run: fn(&mut Meter),
}

const fn case(name: &'static str, run: fn(&mut Meter)) -> Case {
    Case { name, run }
}

/// All of them, from the lowest layer up.
pub const CASES: &[Case] = &[
    case("base/timer-arm-cancel", small::timer_arm_cancel),
    case("base/timer-arm-fire", small::timer_arm_fire),
    case("wire/checksum-64", wire::checksum_64),
    case("wire/checksum-4096", wire::checksum_4096),
    case("wire/request-encode-64", wire::request_encode),
    case("wire/request-decode-64", wire::request_decode),
    case("wire/reply-encode-64", wire::reply_encode),
    case("wire/reply-decode-64", wire::reply_decode),
    case("mesh/parcel-hop", small::parcel_hop),
    case("sharding/hash-and-lookup", small::hash_and_lookup),
    case("entity/ask", entity::ask),
    case("entity/ask-that-yields", entity::ask_that_yields),
    case("entity/tell", entity::tell),
    case("entity/start", entity::start),
    case("engine/ask-across-cores", engine::ask_across_cores),
    case("engine/ask-over-link", engine::ask_over_link),
    case("engine/ask-over-link-in-64", engine::ask_over_link_in_64),
    case("stream/hop-element-wise", stream::hop_element_wise),
    case("stream/hop-general", stream::hop_general),
    case("stream/boundary-ring", stream::boundary_ring),
    case("stream/materialize-operator", stream::materialize_operator),
    case("control/plan-1024-shards-8-pods", control::place),
    case("control/rebalance-1024-shards-8-pods", control::rebalance),
];
