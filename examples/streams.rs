//! A small graph, from the language to the slots of the interpreter. `docs/streams.md` explains what it prints.
//!
//! `cargo run --example streams`

use atoll::runtime::StreamRuntime;
use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::operators::ElementwiseOps;
use atoll::stream::traversal::{draw_mermaid, print_traversal, print_wiring};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A blueprint: nothing runs yet, and it can run any number of times.
    let graph = Source::from_iterator(|| 1..=10_u64)
        .map(|n| n * n)
        .filter(|n| n % 2 == 1)
        .named("odd squares")
        .async_boundary()
        .take(3)
        .to_right(Sink::fold(Vec::new(), |mut all, n| {
            all.push(n);
            all
        }));

    let blueprint = graph.blueprint()?;
    println!("The traversal:\n{}", print_traversal(blueprint.traversal()));
    println!("The wiring:\n{}", print_wiring(blueprint.traversal(), 0).0);
    println!("As a drawing (Mermaid):\n{}", draw_mermaid(blueprint.traversal()));

    let runtime = StreamRuntime::with_cores(2)?;
    let result = runtime.run(&graph)?;
    println!("The result: {:?}", runtime.block_on(result)?);
    Ok(())
}
