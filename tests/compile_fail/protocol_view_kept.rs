use atoll::{Entity, EntityId, Scope, StartError, View};

#[atoll::protocol]
trait Guild {
    fn join(&mut self, user: View<'_, Vec<u8>>);
}

struct GuildEntity {
    last: Option<View<'static, Vec<u8>>>,
}

impl Entity for GuildEntity {
    type Protocol = GuildProtocol;

    async fn start(_: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(GuildEntity { last: None })
    }
}

impl Guild for GuildEntity {
    fn join(&mut self, user: View<'_, Vec<u8>>) {
        self.last = Some(user);
    }
}

fn main() {}
