#[derive(atoll::Wire, Debug, PartialEq)]
pub struct GuildFull { pub max: u32, names: std::collections::BTreeMap<String, u64>, o: Option<Vec<std::collections::HashSet<u32>>> }
#[derive(atoll::Wire, Debug, PartialEq)]
pub enum PayError { NotAMember, NoFunds { left: u64 }, Other(String, GuildFull) }
#[derive(atoll::Wire, Debug, PartialEq)]
pub struct Unit;
#[derive(atoll::Wire, Debug, PartialEq)]
pub struct Tuple(pub u32, Vec<PayError>);
#[test] fn x() { let _: Option<&ArchivedTuple> = None; }
