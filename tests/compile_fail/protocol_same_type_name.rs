#[atoll::protocol]
trait Guild {
    async fn join_all(&mut self);
    async fn join__all(&mut self);
}

fn main() {}
