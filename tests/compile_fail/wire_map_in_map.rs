use std::collections::{BTreeMap, BTreeSet};

#[derive(atoll::Wire)]
struct Nested {
    teams: BTreeMap<String, BTreeSet<String>>,
}

fn main() {}
