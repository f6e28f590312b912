#[atoll::protocol]
trait Guild {
    #[tag(7)]
    async fn join(&mut self);
    #[tag(7)]
    async fn leave(&mut self);
}

fn main() {}
