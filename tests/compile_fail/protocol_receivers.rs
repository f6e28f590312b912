#[atoll::protocol]
trait Guild {
    async fn nothing();
    async fn consumes(self);
    async fn typed(self: Box<Self>);
    async fn lifetime(&'static self);
}

fn main() {}
