//! The first graph: from the language to a running stream.

use atoll::base::Nanos;
use atoll::stream::dsl::{FlowOps, Sink, Source};
use atoll::stream::host::{HostInbox, StreamHost};
use atoll::stream::operators::ElementwiseOps;

#[test]
fn a_chain_runs() {
    let host = StreamHost::new(HostInbox::new());
    let graph = Source::from_iterator(|| 0_u64..1000)
        .map(|n| n * 2)
        .filter(|n| n % 3 == 0)
        .seal()
        .map(|n| n + 1)
        .take(5)
        .to_right(Sink::fold(Vec::new(), |mut all, n| {
            all.push(n);
            all
        }));
    for _ in 0..2 {
        let mut result = graph.run_on(&host).unwrap();
        while host.run_one(Nanos::ZERO) {}
        assert_eq!(result.try_take().unwrap().unwrap(), [1, 7, 13, 19, 25]);
    }
    assert_eq!(host.islands(), 0);
}
