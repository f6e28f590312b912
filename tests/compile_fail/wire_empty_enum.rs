#[derive(atoll::Wire)]
enum Nothing {}

fn main() {}
