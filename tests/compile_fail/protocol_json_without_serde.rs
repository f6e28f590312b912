#[derive(atoll::Wire, Debug)]
struct User {
    name: String,
}

#[atoll::protocol(json)]
trait Guild {
    async fn first(&self) -> User;
}

fn main() {}
