#[derive(atoll::Wire)]
struct Folder {
    entries: Vec<Entry>,
}

#[derive(atoll::Wire)]
enum Entry {
    File,
    Folder(Box<Folder>),
}

fn main() {}
