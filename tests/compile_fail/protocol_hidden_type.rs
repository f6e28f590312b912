#[atoll::protocol]
trait Guild {
    async fn string(&mut self, text: String);
}

fn main() {}
