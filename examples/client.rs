//! A program that hosts nothing: it connects to any pod and talks to entities with the types of their protocol.
//!
//! Start a pod first (`cargo run -- pod --dev`), then `cargo run --example client`. An ask is an ordinary future:
//! any executor can await it; this one uses tokio's.

use std::time::Duration;

use atoll::services::guild::{GuildRef, PayError};
use atoll::{Client, SendError};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7400".to_owned());
    let client = Client::connect([address])?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(visit(&client))
}

async fn visit(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    let guild = client.messenger::<GuildRef>().entity("harbour");
    println!("members: {:?}", guild.join("ann".to_owned()).await?);

    // An error that the message declares comes back as a value, apart from what can go wrong in a cluster.
    match guild.pay("zoe".to_owned(), 3).await {
        Ok(treasury) => println!("the treasury holds {treasury}"),
        Err(SendError::Declared(PayError::NotAMember)) => println!("zoe is no member and pays nothing"),
        Err(error) => return Err(error.into()),
    }

    // Ready once the message is in the mailbox, without waiting for its reply.
    guild.leave("ann".to_owned()).discard().await?;
    let members = guild.members().timeout(Duration::from_millis(500)).await?;
    println!("members: {members:?}");
    Ok(())
}
