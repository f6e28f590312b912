//! Answers to operators: what the pod is and holds, as JSON.
//!
//! Called by the thread for questions (which come over links) and by `Pod`. Asks the cores, with a timeout, from a thread
//! that may wait; the control thread may not.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::cluster::Shared;
use crate::base::hash::entity_hash;
use crate::base::{ClusterError, CoreIndex, EntityId, ShardId};
use crate::client::node::Node;
use crate::engine::{Command, Question};
use crate::sharding::ShardTable;
use crate::wire::Inspect;

pub(super) fn local_entities(node: &Node, type_name: &str, limit: usize) -> Result<Vec<EntityId>, ClusterError> {
    let mut ids = Vec::new();
    for core in 0..node.cores() {
        ids.extend(ids_on(node, CoreIndex(core), type_name, limit)?);
    }
    Ok(ids)
}

fn ids_on(node: &Node, core: CoreIndex, type_name: &str, limit: usize) -> Result<Vec<EntityId>, ClusterError> {
    let name = type_name.to_owned();
    node.ask_core(core, move |core| {
        let kind = core.host().type_index(&name).and_then(|index| core.host().types().get(usize::from(index)));
        kind.map_or(Vec::new(), |kind| kind.ids(limit))
    })
}

pub(super) fn answer(node: &Node, shared: &Shared, question: &Inspect) -> Value {
    match question {
        Inspect::Pods => pods(shared),
        Inspect::Shards => shards(&shared.table()),
        Inspect::Entities { entity_type, limit } => entities(node, entity_type, *limit as usize),
        Inspect::Locate { entity_type, entity_id } => locate(node, shared, entity_type, entity_id),
        Inspect::Counters => counters(node),
        _ => json!({ "error": "this is an order, which the control thread takes" }),
    }
}

/// Gives an answer to the core that has to send it.
pub(super) fn reply(node: &Node, question: &Question, answer: Value) {
    let (link, correlation, json) = (question.link, question.correlation, answer.to_string());
    let answered = node
        .command(question.core, Command::OnCore(Box::new(move |core| core.answer_question(link, correlation, json))));
    if let Err(error) = answered {
        tracing::debug!(%error, "an answer found no core");
    }
}

fn pods(shared: &Shared) -> Value {
    let (uid, registered) = (shared.uid(), shared.registered());
    let pods = registered.iter().map(|pod| {
        json!({
            "uid": pod.uid.to_string(), "address": pod.address, "role": pod.role, "version": pod.version,
            "state": pod.status(), "cores": pod.cores, "weight": pod.weight, "shards": pod.shards,
            "planned": pod.planned, "manager": pod.manager, "asked": pod.uid == uid,
        })
    });
    json!({ "epoch": shared.table().epoch().0, "pods": pods.collect::<Vec<_>>() })
}

fn shards(table: &ShardTable) -> Value {
    let owners = table.owners().iter().enumerate().map(|(shard, owner)| {
        let pod = table.pod(owner.pod).map(|pod| pod.address.clone());
        json!({ "shard": shard, "pod": pod, "core": owner.core.0, "token": owner.token.0 })
    });
    json!({ "epoch": table.epoch().0, "shards": owners.collect::<Vec<_>>() })
}

fn entities(node: &Node, entity_type: &str, limit: usize) -> Value {
    if !node.type_names.contains(&entity_type) {
        return unknown_type(node, entity_type);
    }
    let mut found = Vec::new();
    for core in 0..node.cores() {
        match ids_on(node, CoreIndex(core), entity_type, limit) {
            Ok(ids) => found.extend(ids.iter().map(|id| json!({ "id": id.as_str(), "core": core }))),
            Err(error) => return json!({ "error": format!("core {core} does not answer: {error}") }),
        }
    }
    found.truncate(limit);
    json!({ "entity_type": entity_type, "entities": found })
}

fn unknown_type(node: &Node, entity_type: &str) -> Value {
    let known = node.type_names.join(", ");
    json!({ "error": format!("there is no entity type `{entity_type}` at this pod; there are: {known}") })
}

fn locate(node: &Node, shared: &Shared, entity_type: &str, entity_id: &str) -> Value {
    if let Err(error) = EntityId::new(entity_id) {
        return json!({ "error": error.to_string() });
    }
    let table = shared.table();
    let shard = table.shard_of(entity_hash(table.hash_seed(), entity_id.as_bytes()));
    let mut located = json!({ "entity_type": entity_type, "entity_id": entity_id, "shard": shard.0 });
    let Some(owner) = table.owner(ShardId(shard.0)) else {
        located["pod"] = Value::Null;
        return located;
    };
    let pod = table.pod(owner.pod);
    located["pod"] = json!(pod.map(|pod| pod.address.clone()));
    located["core"] = json!(owner.core.0);
    located["token"] = json!(owner.token.0);
    if pod.is_some_and(|pod| pod.uid == shared.uid()) {
        if !node.type_names.contains(&entity_type) {
            return unknown_type(node, entity_type);
        }
        let (name, id) = (entity_type.to_owned(), entity_id.to_owned());
        let running = node.ask_core(owner.core, move |core| core.host().is_running(&name, &id));
        located["running"] = json!(running.ok());
    }
    located
}

fn counters(node: &Node) -> Value {
    let loops = node.loop_counters();
    let cores = node.views().iter().zip(loops).enumerate().map(|(core, (view, turns))| {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let refusals = view.engine.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut refusals: BTreeMap<_, _> = refusals.iter().map(|(reason, count)| (*reason, *count)).collect();
        // These never became links, so the loop counts them.
        let hellos = [("hello_timeout", turns.hellos_late), ("hello_broken", turns.hellos_broken)];
        refusals.extend(hellos.into_iter().filter(|(_, count)| *count > 0));
        json!({
            "core": core,
            "entities": of(&view.host.live), "messages": of(&view.host.messages),
            "started": of(&view.host.started), "stopped": of(&view.host.stopped), "defects": of(&view.host.defects),
            "links_open": of(&view.engine.links_open), "links_refused": refusals,
            "requests_received": of(&view.engine.requests_received), "requests_sent": of(&view.engine.requests_sent),
            "requests_expired": of(&view.host.expired), "json_calls_open": of(&view.engine.json_calls_open), "resends": of(&view.engine.resends), "parcels_sent": of(&view.engine.parcels_sent),
            "turns": turns.turns, "busy_turns": turns.busy_turns, "busy_ns": turns.busy_nanos,
            "parks": turns.parks, "enters": turns.enters, "late_slices": turns.late_slices,
            "bytes_received": turns.bytes_received, "bytes_sent": turns.bytes_sent,
        })
    });
    json!({ "cores": cores.collect::<Vec<_>>() })
}
