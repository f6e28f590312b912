#[derive(atoll::Wire)]
struct Marker;

#[derive(atoll::Wire)]
struct Many {
    markers: Vec<Marker>,
}

fn main() {}
