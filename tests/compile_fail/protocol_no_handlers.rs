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

fn main() {}
