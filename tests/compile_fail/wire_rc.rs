use std::rc::Rc;

#[derive(atoll::Wire)]
struct Shared {
    text: Rc<String>,
}

fn main() {}
