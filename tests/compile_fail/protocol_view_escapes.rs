use atoll::{Entity, EntityId, Scope, StartError, View};

#[atoll::protocol]
trait Guild {
    async fn kept(&mut self, user: View<'_, Vec<u8>>);
    async fn spawned(&mut self, user: View<'_, Vec<u8>>);
    async fn answered(&self, user: View<'_, Vec<u8>>) -> Vec<u8>;
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
    async fn kept(&mut self, user: View<'_, Vec<u8>>) {
        self.last = Some(user);
    }

    async fn spawned(&mut self, user: View<'_, Vec<u8>>) {
        let _ = atoll::spawn(async move {
            user.as_bytes();
        });
    }

    async fn answered(&self, user: View<'_, Vec<u8>>) -> Vec<u8> {
        std::thread::spawn(move || user.as_bytes().to_vec()).join().unwrap()
    }
}

fn main() {}
