use std::collections::HashMap;

#[atoll::protocol]
trait Guild {
    async fn ranks(&self) -> HashMap<String, u64>;
}

fn main() {}
