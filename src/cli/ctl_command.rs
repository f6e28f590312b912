//! Executes `atoll ctl`: asks a pod, or has it give an order to the cluster, and prints a table or JSON.

use std::collections::BTreeMap;

use anyhow::bail;
use serde_json::Value;

use super::arguments::{CtlArguments, CtlCommand};
use super::call_command::connect;
use crate::wire::Inspect;

/// Most entities that are listed.
const ENTITIES_MAX: u32 = 10_000;

/// Asks and prints.
///
/// # Errors
/// If the cluster cannot be reached, or the question makes no sense to it.
pub fn run(arguments: &CtlArguments) -> anyhow::Result<()> {
    let question = match &arguments.command {
        CtlCommand::Pods => Inspect::Pods,
        CtlCommand::Shards => Inspect::Shards,
        CtlCommand::Entities { entity_type } => {
            Inspect::Entities { entity_type: entity_type.clone(), limit: ENTITIES_MAX }
        }
        CtlCommand::Locate { entity_type, entity_id } => {
            Inspect::Locate { entity_type: entity_type.clone(), entity_id: entity_id.to_string() }
        }
        CtlCommand::Counters => Inspect::Counters,
        CtlCommand::Drain { pod } => Inspect::Drain { pod: pod.clone() },
        CtlCommand::Cordon { pod } => Inspect::Cordon { pod: pod.clone() },
        CtlCommand::Uncordon { pod } => Inspect::Uncordon { pod: pod.clone() },
        CtlCommand::Rebalance { dry_run } => Inspect::Rebalance { dry_run: *dry_run },
    };
    let client = connect(&arguments.client)?;
    let json = client.inspect(question, arguments.client.timeout)?;
    let answer: Value = serde_json::from_str(&json)?;
    if let Some(error) = answer.get("error").and_then(Value::as_str) {
        bail!(error.to_owned());
    }
    let text = if arguments.json {
        format!("{}\n", serde_json::to_string_pretty(&answer)?)
    } else {
        match &arguments.command {
            CtlCommand::Pods => {
                let columns = ["uid", "address", "role", "version", "state", "cores", "shards", "planned"];
                rows(&answer["pods"], &columns)
            }
            CtlCommand::Shards => shards_by_owner(&answer["shards"]),
            CtlCommand::Entities { .. } => rows(&answer["entities"], &["id", "core"]),
            CtlCommand::Locate { .. }
            | CtlCommand::Drain { .. }
            | CtlCommand::Cordon { .. }
            | CtlCommand::Uncordon { .. }
            | CtlCommand::Rebalance { dry_run: false } => fields(&answer),
            CtlCommand::Rebalance { dry_run: true } => {
                let rest = cell(&answer["until_balanced"]);
                rows(&answer["moves"], &["shard", "from", "to"]) + &format!("{rest} until the pods are balanced\n")
            }
            CtlCommand::Counters => counters(&answer["cores"]),
        }
    };
    Ok(super::print(&text)?)
}

fn cell(value: &Value) -> String {
    match value {
        // An id is any text: what would move the cursor or colour the terminal is shown as an escape.
        Value::String(text) if text.contains(char::is_control) => text.escape_debug().to_string(),
        Value::String(text) => text.clone(),
        Value::Null => "-".to_owned(),
        other => other.to_string(),
    }
}

/// A table with aligned columns.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let head: Vec<String> = head.iter().map(|name| name.to_uppercase()).collect();
    let body: String = rows.iter().map(|row| line(row)).collect();
    line(&head) + &body
}

fn rows(values: &Value, columns: &[&str]) -> String {
    let values = values.as_array().map_or(&[][..], Vec::as_slice);
    let rows: Vec<Vec<String>> =
        values.iter().map(|value| columns.iter().map(|column| cell(&value[*column])).collect()).collect();
    table(columns, &rows) + &format!("{} in all\n", rows.len())
}

/// Shards listed for one owner before the rest is left out.
const SHARDS_LISTED_MAX: usize = 12;

/// One line for each core: how many shards it owns, and the first of them.
fn shards_by_owner(shards: &Value) -> String {
    let mut owners: BTreeMap<(String, u64), Vec<u64>> = BTreeMap::new();
    for shard in shards.as_array().map_or(&[][..], Vec::as_slice) {
        let owner = (cell(&shard["pod"]), shard["core"].as_u64().unwrap_or_default());
        owners.entry(owner).or_default().push(shard["shard"].as_u64().unwrap_or_default());
    }
    let rows: Vec<Vec<String>> = owners
        .into_iter()
        .map(|((pod, core), shards)| {
            let listed: Vec<String> = shards.iter().take(SHARDS_LISTED_MAX).map(u64::to_string).collect();
            let rest = if shards.len() > SHARDS_LISTED_MAX { ", …" } else { "" };
            vec![pod, core.to_string(), shards.len().to_string(), listed.join(", ") + rest]
        })
        .collect();
    table(&["pod", "core", "shards", "which"], &rows)
}

fn fields(value: &Value) -> String {
    let fields = value.as_object().into_iter().flatten();
    fields.map(|(name, value)| format!("{name:<12} {}\n", cell(value))).collect()
}

/// One column for each core.
fn counters(cores: &Value) -> String {
    let cores = cores.as_array().map_or(&[][..], Vec::as_slice);
    let Some(names) = cores.first().and_then(Value::as_object) else { return String::new() };
    let head: Vec<String> = cores.iter().map(|core| format!("core {}", cell(&core["core"]))).collect();
    let head: Vec<&str> = ["counter"].into_iter().chain(head.iter().map(String::as_str)).collect();
    let names = names.keys().filter(|name| *name != "core");
    let rows: Vec<Vec<String>> = names
        .map(|name| [name.clone()].into_iter().chain(cores.iter().map(|core| cell(&core[name]))).collect())
        .collect();
    table(&head, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_stays_aligned_and_writes_no_control_characters() {
        let values = serde_json::json!([{ "id": "a\n\u{1b}[31m", "core": 0 }, { "id": "ünï☃", "core": 1 }]);
        let text = rows(&values, &["id", "core"]);
        assert_eq!(text, "ID             CORE\na\\n\\u{1b}[31m  0\nünï☃           1\n2 in all\n");
    }
}
