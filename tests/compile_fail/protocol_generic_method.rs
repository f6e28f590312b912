#[atoll::protocol]
trait Guild {
    async fn join<T>(&mut self, user: T);
    async fn leave(&mut self, user: impl Into<String>);
}

fn main() {}
