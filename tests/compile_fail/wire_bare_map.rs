use std::collections::BTreeMap;

fn travels<T: atoll::Wire>() {}

fn main() {
    travels::<BTreeMap<u32, String>>();
}
