#[derive(atoll::Wire)]
struct Tree {
    children: Vec<Tree>,
}

fn main() {}
