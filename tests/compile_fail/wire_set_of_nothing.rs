use std::collections::BTreeSet;

#[derive(atoll::Wire)]
struct Many {
    markers: BTreeSet<()>,
}

fn main() {}
