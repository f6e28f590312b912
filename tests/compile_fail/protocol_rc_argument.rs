use std::rc::Rc;

#[atoll::protocol]
trait Guild {
    async fn join(&mut self, user: Rc<String>);
}

fn main() {}
