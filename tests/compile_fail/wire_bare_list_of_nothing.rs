const _: u64 = <Vec<()> as atoll::Wire>::SCHEMA;

fn main() {}
