#[atoll::protocol]
trait Guild {
    type User;
    const MAX: u32;
}

fn main() {}
