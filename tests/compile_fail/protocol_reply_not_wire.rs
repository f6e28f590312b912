#[derive(Debug)]
struct User;

#[atoll::protocol]
trait Guild {
    async fn join(&mut self) -> User;
}

fn main() {}
