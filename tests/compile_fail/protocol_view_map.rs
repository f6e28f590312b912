use std::collections::BTreeMap;

use atoll::View;

#[atoll::protocol]
trait Guild {
    fn of_a_map(&self, users: View<'_, BTreeMap<u32, u64>>);
    fn beside_a_map(&self, user: View<'_, Vec<u8>>, users: BTreeMap<u32, u64>);
}

fn main() {}
