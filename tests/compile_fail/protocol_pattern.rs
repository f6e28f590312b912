#[atoll::protocol]
trait Guild {
    async fn join(&mut self, _: String);
}

fn main() {}
