#[derive(atoll::Wire)]
struct Pair<T> {
    left: T,
    right: T,
}

fn main() {}
