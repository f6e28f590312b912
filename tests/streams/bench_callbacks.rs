//! Asynchronous callbacks, from the test's thread and from others: the table of `AsyncCallbackSpec`.

use std::cell::OnceCell;
use std::rc::Rc;

use atoll::stream::Attributes;
use atoll::stream::error::Detached;
use atoll::stream::interpreter::{Context, Inlet, Outlet};
use atoll::stream::stage::{AsyncCallback, Feedback, Logic};

use super::bench_support::*;

enum Told {
    Text(String),
    Throw,
    Fail,
}

struct Listener {
    inlet: Inlet<i64>,
    outlet: Outlet<i64>,
    log: Log,
}

impl Listener {
    fn told(&mut self, context: &mut Context, told: Told) {
        match told {
            Told::Text(text) => self.log.add(text),
            Told::Throw => throw("TE"),
            Told::Fail => context.fail_stage(boom()),
        }
    }
}

impl Logic for Listener {
    fn pre_start(&mut self, _: &mut Context) {
        self.log.add("started");
    }

    fn on_push(&mut self, context: &mut Context, _: usize) {
        let element = self.inlet.grab(context);
        self.outlet.push(context, element);
    }

    fn on_pull(&mut self, context: &mut Context, _: usize) {
        self.inlet.pull(context);
    }

    fn post_stop(&mut self, _: &mut Context) {
        self.log.add("stopped");
    }
}

struct Setup {
    chain: Chain<i64, i64>,
    callback: AsyncCallback<Listener, Told>,
    log: Log,
}

impl Setup {
    /// `early` is called when the stage is created, before it starts.
    fn new(mode: &Attributes, early: impl FnOnce(&AsyncCallback<Listener, Told>) + 'static) -> Setup {
        let (log, made) = (Log::default(), Rc::new(OnceCell::new()));
        let (logged, given) = (log.clone(), Rc::clone(&made));
        let mut chain = Chain::of(mode, |bench| {
            let shape = atoll::stream::stage::FlowShape::<i64, i64>::new();
            vec![bench.stage("listener", shape, move |ports, setup| {
                let callback = setup.callback(Listener::told);
                early(&callback);
                let _ = given.set(callback);
                Listener { inlet: ports.inlet, outlet: ports.outlet, log: logged }
            })]
        });
        chain.bench.run();
        let callback = made.get().unwrap().clone();
        Setup { chain, callback, log }
    }

    fn tell(&self, text: impl Into<String>) {
        self.callback.invoke(Told::Text(text.into())).unwrap();
    }

    fn ask(&self, text: impl Into<String>) -> Feedback {
        self.callback.invoke_with_feedback(Told::Text(text.into()))
    }
}

fn is_detached(feedback: &Feedback) -> bool {
    matches!(feedback.outcome(), Some(Err(error)) if error.downcast_ref::<Detached>().is_some())
}

fn is_done(feedback: &Feedback) -> bool {
    matches!(feedback.outcome(), Some(Ok(())))
}

#[test]
fn callbacks_run_in_order() {
    for mode in all_modes() {
        let mut setup = Setup::new(&mode, |_| {});
        let expected: Vec<String> = (0..=10).map(|number| number.to_string()).collect();
        expected.iter().for_each(|text| setup.tell(text.clone()));
        assert_eq!(setup.log.take(), ["started"]);
        setup.chain.bench.run();
        assert_eq!(setup.log.take(), expected);
    }
}

#[test]
fn feedback_comes_when_the_function_has_run() {
    for mode in all_modes() {
        let mut setup = Setup::new(&mode, |_| {});
        let feedback: Vec<Feedback> = (0..=10).map(|number| setup.ask(number.to_string())).collect();
        assert!(feedback.iter().all(|feedback| feedback.outcome().is_none()));
        setup.chain.bench.run();
        assert!(feedback.iter().all(is_done));
    }
}

#[test]
fn after_the_stop_there_is_nobody() {
    for mode in all_modes() {
        let mut setup = Setup::new(&mode, |_| {});
        setup.chain.complete();
        assert!(setup.chain.bench.is_completed());
        let feedback = setup.ask("late");
        let _ = setup.callback.invoke(Told::Text("late".to_owned()));
        setup.chain.bench.run();
        assert!(is_detached(&feedback));
        assert_eq!(setup.log.take(), ["started", "stopped"]);

        // The island is gone, too.
        setup.chain.bench.close();
        assert!(is_detached(&setup.ask("later")));
        assert!(setup.callback.invoke(Told::Throw).is_err());
    }
}

#[test]
fn early_calls_wait_for_the_start() {
    for mode in all_modes() {
        let early: Rc<OnceCell<Feedback>> = Rc::default();
        let kept = Rc::clone(&early);
        let mut setup = Setup::new(&mode, move |callback| {
            callback.invoke(Told::Text("early".to_owned())).unwrap();
            let _ = kept.set(callback.invoke_with_feedback(Told::Text("early, asked".to_owned())));
        });
        setup.tell("later");
        setup.chain.bench.run();
        assert_eq!(setup.log.take(), ["started", "early", "early, asked", "later"]);
        assert!(early.get().is_some_and(is_done));
    }
}

#[test]
fn calls_of_other_threads_all_come_each_in_its_order() {
    let (threads, calls) = if cfg!(miri) { (2, 5) } else { (4, 250) };
    let mut setup = Setup::new(&Attributes::none(), |_| {});
    setup.log.take();
    let callers: Vec<_> = (0..threads)
        .map(|thread| {
            let callback = setup.callback.clone();
            std::thread::spawn(move || {
                (0..calls)
                    .map(|call| callback.invoke_with_feedback(Told::Text(format!("{thread} {call:04}"))))
                    .collect::<Vec<_>>()
            })
        })
        .collect();
    // The island runs while they call.
    while callers.iter().any(|caller| !caller.is_finished()) {
        setup.chain.bench.run();
        std::thread::yield_now();
    }
    setup.chain.bench.run();
    let feedback: Vec<Feedback> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    assert!(feedback.iter().all(is_done));
    let lines = setup.log.take();
    assert_eq!(lines.len(), threads * calls);
    for thread in 0..threads {
        let of_thread: Vec<&String> = lines.iter().filter(|line| line.starts_with(&format!("{thread} "))).collect();
        assert!(of_thread.is_sorted() && of_thread.len() == calls);
    }
}

#[test]
fn no_caller_hangs_when_the_island_ends_under_it() {
    let calls = if cfg!(miri) { 10 } else { 2000 };
    for close in [false, true] {
        let mut setup = Setup::new(&Attributes::none(), |_| {});
        let callback = setup.callback.clone();
        let caller = std::thread::spawn(move || {
            (0..calls).map(|_| callback.invoke_with_feedback(Told::Text(String::new()))).collect::<Vec<_>>()
        });
        setup.chain.bench.run();
        setup.chain.cancel();
        if close {
            setup.chain.bench.close();
        }
        let feedback = caller.join().unwrap();
        if !close {
            setup.chain.bench.run();
        }
        assert!(feedback.iter().all(|feedback| is_done(feedback) || is_detached(feedback)));
    }
}

#[test]
fn a_function_that_throws_fails_the_stage_and_the_feedback() {
    for mode in all_modes() {
        let mut setup = Setup::new(&mode, |_| {});
        let before = setup.ask("before");
        let throwing = setup.callback.invoke_with_feedback(Told::Throw);
        let after = setup.ask("after");
        setup.chain.bench.run();
        assert!(is_done(&before));
        let error = throwing.outcome().unwrap().unwrap_err();
        assert_eq!(error.downcast_ref::<TestError>(), Some(&TestError("TE")));
        assert_eq!(setup.chain.events(), "Cancel source: TE, Failure sink TE");
        assert!(is_detached(&after));
    }
}

#[test]
fn a_function_that_fails_the_stage_is_done_and_the_next_is_not() {
    for mode in all_modes() {
        let mut setup = Setup::new(&mode, |_| {});
        let failing = setup.callback.invoke_with_feedback(Told::Fail);
        let again = setup.callback.invoke_with_feedback(Told::Fail);
        setup.chain.bench.run();
        assert!(is_done(&failing));
        assert!(is_detached(&again));
        assert_eq!(setup.chain.events(), "Cancel source: boom, Failure sink boom");
    }
}

#[test]
fn feedback_is_a_future() {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context as TaskContext, Poll, Waker};

    let mut setup = Setup::new(&Attributes::none(), |_| {});
    let mut feedback = pin!(setup.ask("once"));
    let mut task = TaskContext::from_waker(Waker::noop());
    assert!(feedback.as_mut().poll(&mut task).is_pending());
    setup.chain.bench.run();
    assert!(matches!(feedback.as_mut().poll(&mut task), Poll::Ready(Ok(()))));
}
