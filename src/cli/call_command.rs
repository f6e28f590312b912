//! Executes `atoll call`.

use anyhow::bail;

use super::arguments::{CallArguments, ClientArguments};
use crate::client::{Client, ClientOptions};
use crate::wire::JsonOutcome;
use crate::wire::control::JsonCall;

/// Sends one message and prints its reply.
///
/// # Errors
/// If the cluster cannot be reached, or the entity or the cluster answers with an error.
pub fn run(arguments: &CallArguments) -> anyhow::Result<()> {
    let body = arguments.body()?.to_string();
    let client = connect(&arguments.client)?;
    let call = JsonCall {
        entity_type: arguments.entity_type.clone(),
        entity_id: arguments.entity_id.to_string(),
        method: arguments.method.clone(),
        body,
        timeout_ms: 0,
    };
    match client.call_json(call, arguments.client.timeout)? {
        JsonOutcome::Reply(reply) => Ok(super::print(&format!("{reply}\n"))?),
        JsonOutcome::Declared(error) => {
            bail!("the entity `{}` answered with its error: {error}", arguments.entity_id)
        }
        JsonOutcome::Failed { text, .. } => bail!(text),
    }
}

/// Connects as the arguments say.
///
/// # Errors
/// If no pod answers.
pub(super) fn connect(arguments: &ClientArguments) -> anyhow::Result<Client> {
    let options = ClientOptions {
        cluster_name: arguments.cluster_name.clone(),
        connect_timeout: arguments.timeout,
        ..ClientOptions::default()
    };
    Ok(Client::connect_with(&arguments.pods, options)?)
}
