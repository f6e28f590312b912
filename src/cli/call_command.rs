//! Executes `atoll call`.

use std::time::Instant;

use anyhow::bail;

use super::arguments::{CallArguments, ClientArguments};
use crate::base::ClusterError;
use crate::client::{Client, ClientOptions};
use crate::wire::JsonOutcome;
use crate::wire::control::JsonCall;

/// The entity answered with an error that its message declares, which is JSON.
#[derive(Debug, thiserror::Error)]
#[error("the entity `{entity_id}` answered with its error: {error}")]
pub struct DeclaredError {
    /// The entity.
    pub entity_id: String,
    /// The error.
    pub error: String,
}

/// Sends one message and prints its reply. The timeout of the arguments covers all of it.
///
/// # Errors
/// If the cluster cannot be reached, or it or the entity answers with an error; a [`DeclaredError`] if the message
/// declares that error.
pub fn run(arguments: &CallArguments) -> anyhow::Result<()> {
    let body = arguments.body()?;
    let started = Instant::now();
    let client = connect(&arguments.client)?;
    let remaining = arguments.client.timeout.saturating_sub(started.elapsed());
    if remaining.is_zero() {
        return Err(ClusterError::SendTimeout.into());
    }
    let call = JsonCall {
        entity_type: arguments.entity_type.clone(),
        entity_id: arguments.entity_id.to_string(),
        method: arguments.method.clone(),
        body,
        timeout_ms: 0,
    };
    match client.call_json(call, remaining)? {
        JsonOutcome::Reply(reply) => Ok(super::print(&format!("{reply}\n"))?),
        JsonOutcome::Declared(error) => Err(DeclaredError { entity_id: arguments.entity_id.to_string(), error }.into()),
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
