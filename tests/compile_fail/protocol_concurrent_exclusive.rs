#[atoll::protocol]
trait Guild {
    #[concurrent]
    async fn join(&mut self);
}

fn main() {}
