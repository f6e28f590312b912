#[derive(atoll::Wire)]
struct Count {
    number: usize,
}

fn main() {}
