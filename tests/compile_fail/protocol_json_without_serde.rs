#[derive(atoll::Wire, Debug)]
struct User {
    name: String,
}

#[atoll::protocol(json)]
trait Guild {
    async fn join(&mut self, user: User);
    async fn first(&self) -> User;
}

fn main() {}
