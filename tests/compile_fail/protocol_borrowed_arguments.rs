#[atoll::protocol]
trait Guild {
    async fn join(&mut self, user: &str);
    async fn all(&mut self, users: Vec<std::borrow::Cow<'static, str>>);
    async fn first(&self) -> &str;
}

fn main() {}
