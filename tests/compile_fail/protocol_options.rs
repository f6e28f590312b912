#[atoll::protocol(nam = "guild")]
trait A {
    async fn join(&mut self);
}

#[atoll::protocol(name = "My Guild")]
trait B {
    async fn join(&mut self);
}

#[atoll::protocol]
trait C {}

#[atoll::protocol]
trait D<T> {
    async fn join(&mut self);
}

fn main() {}
