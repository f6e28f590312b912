use atoll::{Entity, EntityId, Scope, StartError};

#[atoll::protocol]
trait Guild {
    async fn join(&mut self, user: String) -> u64;
    #[concurrent]
    async fn count(&self) -> u64;
}

struct GuildEntity {
    count: u64,
}

impl Entity for GuildEntity {
    type Protocol = GuildProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(GuildEntity { count: 0 })
    }
}

impl Guild for GuildEntity {
    async fn join(&mut self, _: String) -> u64 {
        self.count
    }

    async fn count(&self) -> u64 {
        self.count
    }
}

async fn call(guild: GuildRef) -> u64 {
    let _ = guild.join(7).await;
    let _ = guild.leave();
    let count: String = guild.count().await.unwrap();
    count.len() as u64
}

fn main() {}
