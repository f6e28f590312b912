use std::sync::Arc;

#[derive(atoll::Wire)]
struct Shared {
    text: Arc<String>,
}

fn main() {}
