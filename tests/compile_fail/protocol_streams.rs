#[atoll::protocol]
trait Guild {
    async fn watch(&mut self) -> Streamed<String>;
    async fn deposit(&mut self) -> Result<Duplex<i64, i64>, String>;
}

fn main() {}
