use atoll::View;


#[atoll::protocol]
trait Guild {
    fn last(&self) -> View<'_, String>;
    fn forever(&self, user: View<'static, String>);
    fn of_a_borrow(&self, user: View<'_, &'static str>);
    fn inside(&self, users: Vec<View<'_, String>>);
}

fn main() {}
