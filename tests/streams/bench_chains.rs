//! Single stages and chains of them between two probes: the table of `InterpreterSpec`.
//!
//! Left out: nothing. The stages are written for the test, after the reference.

use atoll::stream::Attributes;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::Logic;
use atoll::stream::testkit::{InterpreterBench, StageHandle};

use super::bench_stages::*;
use super::bench_support::*;

type Stages = fn(&mut InterpreterBench) -> Vec<StageHandle>;

/// Name, stages, script. A script is `action: events` in lines; `init` is the start; actions are `r` (pull), `n` with an
/// element (push), `nc` with an element (push and complete), `c` (complete), `x` (cancel).
struct Row<O> {
    name: &'static str,
    stages: Stages,
    script: &'static [(&'static str, &'static str)],
    output: std::marker::PhantomData<O>,
}

fn row<O>(name: &'static str, stages: Stages, script: &'static [(&'static str, &'static str)]) -> Row<O> {
    Row { name, stages, script, output: std::marker::PhantomData }
}

/// `Req` and so on in the events of the table.
fn spelled(events: &str) -> String {
    let mut events: Vec<String> = events
        // Between events; the commas of a list have a digit behind them.
        .replace(", ", ",")
        .replace(",C", ";C")
        .replace(",N", ";N")
        .replace(",R", ";R")
        .replace(',', ", ")
        .split(';')
        .filter(|event| !event.is_empty())
        .map(|event| match event {
            "Req" => "Request source".to_owned(),
            "Compl" => "Complete sink".to_owned(),
            "Cancel" => "Cancel source: no more".to_owned(),
            "Cancel SWC" => "Cancel source: completed".to_owned(),
            event => match event.strip_prefix("Next ") {
                Some(element) => format!("Next sink {element}"),
                None => event.to_owned(),
            },
        })
        .collect();
    events.sort();
    events.join(", ")
}

fn run<O: std::fmt::Debug + 'static>(rows: &[Row<O>], modes: &[Attributes]) {
    for mode in modes {
        for Row { name, stages, script, .. } in rows {
            let mut chain = Chain::<i64, O>::of(mode, stages);
            let mut done = String::new();
            for (action, expected) in *script {
                done.push_str(action);
                let mut words = action.split(' ');
                let events = match (words.next(), words.next().map(|element| element.parse::<i64>().unwrap())) {
                    (Some("init"), None) => chain.events(),
                    (Some("r"), None) => chain.pull(),
                    (Some("n"), Some(element)) => chain.push(element),
                    (Some("nc"), Some(element)) => chain.push_and_complete(element),
                    (Some("c"), None) => chain.complete(),
                    (Some("x"), None) => chain.cancel(),
                    other => panic!("no such action: {other:?}"),
                };
                assert_eq!(events, spelled(expected), "{name}, {mode:?}: {done}");
                done.push_str(" → ");
            }
        }
    }
}

fn not_zero(element: &i64) -> bool {
    *element != 0
}

fn repeat(element: i64) -> Numbers {
    Box::new(std::iter::repeat(element))
}

fn count_from(element: i64) -> Numbers {
    Box::new(element..)
}

fn sums() -> Vec<Row<i64>> {
    vec![
        row(
            "map",
            |b| vec![map(b, |x: i64| x + 1)],
            &[("init", ""), ("r", "Req"), ("n 0", "Next 1"), ("r", "Req"), ("n 1", "Next 2"), ("c", "Compl")],
        ),
        row(
            "maps",
            |b| vec![map(b, |x: i64| x + 1), map(b, |x: i64| x * 2), map(b, |x: i64| x + 1)],
            &[("r", "Req"), ("n 0", "Next 3"), ("r", "Req"), ("n 1", "Next 5"), ("x", "Cancel")],
        ),
        row("nothing", |_| vec![], &[("r", "Req"), ("n 0", "Next 0"), ("c", "Compl")]),
        row(
            "doubler, filter",
            |b| vec![doubler::<i64>(b), filter(b, not_zero)],
            &[
                ("init", "Req"),
                ("r", ""),
                ("n 0", "Req"),
                ("n 1", "Next 1"),
                ("r", "Next 1, Req"),
                ("r", ""),
                ("c", "Compl"),
            ],
        ),
        row(
            "filter, doubler",
            |b| vec![filter(b, not_zero), doubler::<i64>(b)],
            &[
                ("init", "Req"),
                ("r", ""),
                ("n 0", "Req"),
                ("n 1", "Next 1, Req"),
                ("r", "Next 1"),
                ("r", ""),
                ("x", "Cancel"),
            ],
        ),
        row(
            "take 2",
            |b| vec![take::<i64>(b, 2)],
            &[("r", "Req"), ("n 0", "Next 0"), ("r", "Req"), ("n 1", "Next 1, Cancel SWC, Compl")],
        ),
        row(
            "filter, take 2, map",
            |b| vec![filter(b, not_zero), take::<i64>(b, 2), map(b, |x: i64| x + 1)],
            &[
                ("init", "Req"),
                ("r", ""),
                ("n 0", "Req"),
                ("n 1", "Next 2, Req"),
                ("r", ""),
                ("n 2", "Req, Cancel SWC, Compl, Next 3"),
            ],
        ),
        row(
            "fold",
            |b| vec![fold_sum(b)],
            &[("r", "Req"), ("n 0", "Req"), ("n 1", "Req"), ("n 2", "Req"), ("c", "Next 3, Compl")],
        ),
        row(
            "fold, cancelled",
            |b| vec![fold_sum(b)],
            &[("r", "Req"), ("n 0", "Req"), ("n 1", "Req"), ("n 2", "Req"), ("x", "Cancel")],
        ),
        row("fold, complete before it is asked", |b| vec![fold_sum(b)], &[("c", ""), ("r", "Next 0, Compl")]),
        row("batch", |b| vec![batch(b)], BATCH),
        row("batch, batch", |b| vec![batch(b), batch(b)], BATCH),
        row(
            "expand by repeating",
            |b| vec![expand(b, repeat)],
            &[
                ("init", "Req"),
                ("n 0", ""),
                ("r", "Req, Next 0"),
                ("r", "Next 0"),
                ("n 1", ""),
                ("r", "Req, Next 1"),
                ("r", "Next 1"),
                ("c", "Compl"),
            ],
        ),
        row(
            "expand, expand",
            |b| vec![expand(b, count_from), expand(b, count_from)],
            &[
                ("init", "Req"),
                ("n 0", "Req"),
                ("r", "Next 0"),
                ("r", "Next 1"),
                ("n 10", ""),
                ("r", "Req, Next 2"),
                ("r", "Next 10"),
                ("r", "Next 11"),
                ("c", ""),
                ("r", "Compl, Next 12"),
            ],
        ),
        row(
            "batch, expand",
            |b| vec![batch(b), expand(b, repeat)],
            &[
                ("init", "Req"),
                ("n 0", "Req"),
                ("n 1", "Req"),
                ("r", "Next 0"),
                ("r", "Next 1"),
                ("r", "Next 1"),
                ("n 2", "Req"),
                ("r", "Next 2"),
                ("x", "Cancel"),
            ],
        ),
        row(
            "doubler, batch",
            |b| vec![doubler::<i64>(b), batch(b)],
            &[("init", "Req"), ("n 1", "Req"), ("n 2", "Req"), ("r", "Next 6")],
        ),
        row(
            "keep going between maps",
            |b| {
                let identity = |b: &mut InterpreterBench| map(b, |x: i64| x);
                vec![identity(b), identity(b), keep_going::<i64>(b), identity(b), identity(b)]
            },
            &[
                ("r", "Req"),
                ("n 1", "Next 1"),
                ("r", "Req"),
                ("n 2", "Next 2"),
                ("c", ""),
                ("r", "Next 2"),
                ("r", "Next 2"),
            ],
        ),
        row(
            "push and finish",
            |b| vec![push_and_finish::<i64>(b, Log::default())],
            &[("r", "Req"), ("nc 0", "Next 0, Compl")],
        ),
        row(
            "push and finish between maps",
            |b| vec![map(b, |x: i64| x), push_and_finish::<i64>(b, Log::default()), map(b, |x: i64| x)],
            &[("r", "Req"), ("nc 0", "Next 0, Compl")],
        ),
        row(
            "push and finish before fold",
            |b| vec![push_and_finish::<i64>(b, Log::default()), fold_sum(b)],
            &[("r", "Req"), ("nc 3", "Next 3, Compl")],
        ),
        row(
            "take 1, take 1",
            |b| vec![take::<i64>(b, 1), take::<i64>(b, 1)],
            &[("r", "Req"), ("n 1", "Next 1, Compl, Cancel SWC")],
        ),
        row(
            "take 1, take 1, complete at once",
            |b| vec![take::<i64>(b, 1), take::<i64>(b, 1)],
            &[("r", "Req"), ("nc 1", "Next 1, Compl")],
        ),
        // Not in the table of the reference: the end that comes with the element, through stages that pass pulls on.
        row(
            "maps, complete at once",
            |b| vec![map(b, |x: i64| x + 1), map(b, |x: i64| x + 1)],
            &[("r", "Req"), ("nc 1", "Next 3, Compl")],
        ),
        row(
            "take 1 between maps",
            |b| vec![map(b, |x: i64| x + 1), take::<i64>(b, 1), map(b, |x: i64| x * 2), map(b, |x: i64| x + 1)],
            &[("r", "Req"), ("n 1", "Next 5, Compl, Cancel SWC")],
        ),
    ]
}

const BATCH: &[(&str, &str)] = &[
    ("init", "Req"),
    ("r", ""),
    ("n 0", "Next 0, Req"),
    ("n 1", "Req"),
    ("n 2", "Req"),
    ("r", "Next 3"),
    ("r", ""),
    ("n 4", "Next 4, Req"),
    ("x", "Cancel"),
];

/// Stages that answer differently when the order of events is another: only in the order of the queue.
const ORDER_MATTERS: &[&str] = &["batch, expand", "expand, expand", "doubler, batch", "filter, take 2, map"];

#[test]
fn chains_behave_as_the_table_says() {
    run(&sums(), &exact_modes());
}

#[test]
fn chains_behave_so_in_any_order_of_events() {
    let rows: Vec<_> = sums().into_iter().filter(|row| !ORDER_MATTERS.contains(&row.name)).collect();
    run(&rows, &all_modes());
}

#[test]
fn groups_are_pushed_when_full_and_at_the_end() {
    let rows = [row::<Vec<i64>>(
        "grouped",
        |b| vec![grouped::<i64>(b, 3)],
        &[
            ("r", "Req"),
            ("n 0", "Req"),
            ("n 1", "Req"),
            ("n 2", "Next [0, 1, 2]"),
            ("r", "Req"),
            ("n 3", "Req"),
            ("c", "Next [3], Compl"),
        ],
    )];
    run(&rows, &all_modes());
}

/// A stage that pulls when it must not.
struct PullsAtTheEnd {
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
}

impl Logic for PullsAtTheEnd {
    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn on_upstream_finish(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }
}

#[test]
fn a_stage_that_pulls_a_closed_port_fails_with_its_name() {
    for mode in all_modes() {
        let mut chain = Chain::<i64, i64>::of(&mode, |bench| {
            vec![flow(bench, "careless", |ports| PullsAtTheEnd { inlet: ports.inlet, outlet: ports.outlet })]
        });
        assert_eq!(chain.pull(), "Request source");
        assert_eq!(chain.complete(), "Failure sink stage [careless]: cannot pull a closed port (in0)");
        assert!(chain.bench.is_completed());
    }
}
