//! Orders of an operator, as they come over a link: which pod a text means, and what a round of rebalancing would do.
//!
//! Called by the control thread.

use serde_json::{Value, json};

use crate::base::PodUid;
use crate::control::ownership::planner_input;
use crate::control::view::ClusterView;
use crate::control::{ControlConfig, Order, OrderError, plan};
use crate::wire::Inspect;

/// Shortest beginning of a uid that names a pod.
const UID_DIGITS_MIN: usize = 4;

/// What a question asks the control thread to do.
pub(super) enum Asked {
    Order(Order),
    /// The answer is here already.
    Answer(Value),
}

/// Whether the control thread has to take it: it changes the cluster, or needs all its records.
pub(super) fn is_order(question: &Inspect) -> bool {
    matches!(
        question,
        Inspect::Cordon { .. } | Inspect::Drain { .. } | Inspect::Uncordon { .. } | Inspect::Rebalance { .. }
    )
}

pub(super) fn read(question: &Inspect, view: &ClusterView, config: &ControlConfig) -> Asked {
    let of_pod = |pod: &str, order: fn(PodUid) -> Order| match find_pod(view, pod) {
        Ok(uid) => Asked::Order(order(uid)),
        Err(error) => Asked::Answer(json!({ "error": error })),
    };
    match question {
        Inspect::Cordon { pod } => of_pod(pod, Order::Cordon),
        Inspect::Drain { pod } => of_pod(pod, Order::Drain),
        Inspect::Uncordon { pod } => of_pod(pod, Order::Uncordon),
        Inspect::Rebalance { dry_run: false } => Asked::Order(Order::Rebalance(config.role.clone())),
        Inspect::Rebalance { dry_run: true } => Asked::Answer(next_round(view, config)),
        _ => Asked::Answer(json!({ "error": "this is not an order" })),
    }
}

/// The pod with an address, or with a uid that begins so.
fn find_pod(view: &ClusterView, text: &str) -> Result<PodUid, String> {
    let pods = || view.roles.values().flat_map(|role| &role.pods);
    let found: Vec<PodUid> = pods()
        .filter(|(uid, pod)| {
            pod.record.address == text || (text.len() >= UID_DIGITS_MIN && uid.to_string().starts_with(text))
        })
        .map(|(uid, _)| *uid)
        .collect();
    match found[..] {
        [one] => Ok(one),
        [] => {
            let known: Vec<String> = pods().take(20).map(|(_, pod)| pod.record.address.clone()).collect();
            Err(format!("there is no pod `{text}`; there are: {}", known.join(", ")))
        }
        _ => Err(format!("`{text}` means {} pods; write more of the uid (`atoll ctl pods`)", found.len())),
    }
}

/// What a round of rebalancing would move now, and how much is missing to the balance.
fn next_round(view: &ClusterView, config: &ControlConfig) -> Value {
    let Some(role) = view.role(&config.role) else {
        return json!({ "error": OrderError::NotMember.to_string() });
    };
    let address = |uid: PodUid| role.pods.get(&uid).map(|pod| pod.record.address.clone());
    let round = plan(&planner_input(role, true, config.rebalance_rate_per_mille));
    let all = plan(&planner_input(role, true, 1000));
    let moves = round
        .moves
        .iter()
        .map(|change| json!({ "shard": change.shard.0, "from": change.from.map(address), "to": address(change.to) }));
    json!({
        "role": config.role, "dry_run": true, "moves": moves.collect::<Vec<_>>(), "until_balanced": all.moves.len(),
    })
}

/// The answer to an order that the store took.
pub(super) fn done(order: &Order, view: &ClusterView) -> Value {
    let (what, uid) = match order {
        Order::Cordon(uid) => ("cordoned", *uid),
        Order::Drain(uid) => ("draining", *uid),
        Order::Uncordon(uid) => ("uncordoned", *uid),
        Order::Rebalance(role) => return json!({ "done": "rebalancing", "role": role }),
    };
    let role = view.roles.values().find(|role| role.pods.contains_key(&uid));
    let pod = role.and_then(|role| role.pods.get(&uid)).map(|pod| pod.record.address.clone());
    let shards = role.map_or(0, |role| role.owners.values().filter(|owner| owner.record.owner == uid).count());
    let mut answer = json!({ "done": what, "pod": pod, "uid": uid.to_string(), "shards": shards });
    if matches!(order, Order::Drain(_)) && role.is_some_and(|role| role.pods.len() < 2) {
        answer["note"] = json!("no other pod of its role can take them");
    }
    answer
}
