use std::rc::Rc;
use std::sync::Arc;

fn travels<T: atoll::Wire>() {}

fn main() {
    travels::<Rc<String>>();
    travels::<Arc<String>>();
}
