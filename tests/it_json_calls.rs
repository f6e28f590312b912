//! `atoll call` against a pod, over real sockets: how a call ends when nobody waits for it any more, and the exit codes.
#![cfg(feature = "runtime")]

mod support;

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use atoll::wire::JsonOutcome;
use atoll::wire::control::JsonCall;
use atoll::{Client, ClusterError, Entity, EntityId, EntityOptions, Pod, Scope, StartError};
use support::*;

/// Where the handlers of one entity are; each test has its own.
struct Counts {
    begun: AtomicU32,
    dropped: AtomicU32,
    finished: AtomicU32,
}

static COUNTS: [Counts; 8] =
    [const { Counts { begun: AtomicU32::new(0), dropped: AtomicU32::new(0), finished: AtomicU32::new(0) } }; 8];

/// Handlers of an entity that began, that were dropped before their end, and that came to it.
fn handlers(of: usize) -> (u32, u32, u32) {
    let Counts { begun, dropped, finished } = &COUNTS[of];
    (begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst), finished.load(Ordering::SeqCst))
}

struct Witness {
    of: usize,
    finished: bool,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let counts = &COUNTS[self.of];
        let counter = if self.finished { &counts.finished } else { &counts.dropped };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

#[derive(atoll::Wire, serde::Serialize, serde::Deserialize, Debug, Clone, PartialEq)]
pub struct Refusal {
    why: String,
}

/// A service of this test. Its entities are called by the number of their counters.
#[atoll::protocol(json)]
pub trait Work {
    async fn nap(&mut self, milliseconds: u64) -> u64;
    #[uninterruptible]
    async fn finish(&mut self, milliseconds: u64) -> u64;
    async fn refuse(&mut self) -> Result<u64, Refusal>;
}

struct WorkEntity(usize);

impl WorkEntity {
    async fn work(&self, milliseconds: u64) -> u64 {
        COUNTS[self.0].begun.fetch_add(1, Ordering::SeqCst);
        let mut witness = Witness { of: self.0, finished: false };
        atoll::entity::sleep(Duration::from_millis(milliseconds)).await;
        witness.finished = true;
        milliseconds
    }
}

impl Entity for WorkEntity {
    type Protocol = WorkProtocol;

    async fn start(id: &EntityId, _: Scope<Self>) -> Result<Self, StartError> {
        Ok(WorkEntity(id.as_str().parse().unwrap_or(7)))
    }
}

impl Work for WorkEntity {
    async fn nap(&mut self, milliseconds: u64) -> u64 {
        self.work(milliseconds).await
    }

    async fn finish(&mut self, milliseconds: u64) -> u64 {
        self.work(milliseconds).await
    }

    async fn refuse(&mut self) -> Result<u64, Refusal> {
        Err(Refusal { why: "no".to_owned() })
    }
}

fn pod() -> (Pod, Client) {
    let pod = Pod::builder().config(config(2)).entity::<WorkEntity>(EntityOptions::default()).start().unwrap();
    let client = Client::connect([pod.address()]).unwrap();
    (pod, client)
}

/// A running `atoll call`.
fn calling(pod: &Pod, words: &[&str]) -> Child {
    let mut command = atoll_command();
    command.arg("call").arg("work").args(words).args(["--pods", &pod.address().to_string()]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Exit code, standard output, standard error.
fn called(pod: &Pod, words: &[&str]) -> (Option<i32>, String, String) {
    let output = calling(pod, words).wait_with_output().unwrap();
    (output.status.code(), out(&output), err(&output))
}

fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &child.id().to_string()]).status().unwrap().success());
}

fn open_calls(client: &Client) -> u64 {
    sum_of(&counters(client), "json_calls_open")
}

fn nothing_is_open(client: &Client) {
    until("no call is open", || (open_calls(client) == 0).then_some(()));
}

const HOUR: &str = r#"{"milliseconds":3600000}"#;

#[test]
fn the_timeout_of_a_call_interrupts_its_handler() {
    let (pod, client) = pod();
    let (code, printed, said) = called(&pod, &["0", "nap", HOUR, "--timeout", "1s"]);
    assert_eq!((code, printed.as_str()), (Some(1), ""), "{said}");
    assert!(said.starts_with("error: ") && said.contains("within the timeout"), "{said}");
    until("the handler is dropped", || (handlers(0) == (1, 1, 0)).then_some(()));
    nothing_is_open(&client);
    assert_eq!(called(&pod, &["0", "nap", r#"{"milliseconds":1}"#]), (Some(0), "1\n".to_owned(), String::new()));
}

#[test]
fn a_call_that_is_killed_or_stopped_interrupts_its_handler_and_leaves_the_mailbox() {
    let (pod, client) = pod();
    // Not SIGINT, which is ignored below a shell that runs the tests in its background.
    for (at, name) in [(1, "TERM"), (2, "KILL")] {
        let id = at.to_string();
        let mut running = calling(&pod, &[&id, "nap", HOUR, "--timeout", "1h"]);
        until("it runs", || (handlers(at) == (1, 0, 0)).then_some(()));
        let mut queued = calling(&pod, &[&id, "nap", HOUR, "--timeout", "1h"]);
        until("another waits behind it", || (open_calls(&client) == 2).then_some(()));
        signal(&queued, name);
        until("the pod has noticed", || (open_calls(&client) == 1).then_some(()));
        signal(&running, name);
        until("the handler is dropped", || (handlers(at).1 == 1).then_some(()));
        nothing_is_open(&client);
        assert_eq!(handlers(at), (1, 1, 0), "{name}: the other one never began");
        for child in [&mut running, &mut queued] {
            assert_eq!(child.wait().unwrap().code(), None, "the signal ended it");
        }
    }
}

#[test]
fn a_call_whose_process_hangs_ends_when_its_time_is_over() {
    let (pod, client) = pod();
    let mut hanging = calling(&pod, &["3", "nap", HOUR, "--timeout", "4s"]);
    until("it runs", || (handlers(3) == (1, 0, 0)).then_some(()));
    signal(&hanging, "STOP");
    until("the handler is dropped", || (handlers(3) == (1, 1, 0)).then_some(()));
    nothing_is_open(&client);
    hanging.kill().unwrap();
    hanging.wait().unwrap();
}

#[test]
fn what_is_uninterruptible_completes_after_its_call() {
    let (pod, client) = pod();
    let mut killed = calling(&pod, &["4", "finish", r#"{"milliseconds":1500}"#, "--timeout", "1h"]);
    until("it runs", || (handlers(4) == (1, 0, 0)).then_some(()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    nothing_is_open(&client);
    let mut queued = calling(&pod, &["4", "finish", r#"{"milliseconds":1500}"#, "--timeout", "1h"]);
    until("another waits behind it, or runs", || (open_calls(&client) == 1).then_some(()));
    queued.kill().unwrap();
    queued.wait().unwrap();
    nothing_is_open(&client);
    until("both came to their end", || (handlers(4) == (2, 0, 2)).then_some(()));
}

#[test]
fn exit_codes_tell_what_happened() {
    let (pod, _client) = pod();
    assert_eq!(called(&pod, &["6", "nap", r#"{"milliseconds":0}"#]).0, Some(0));
    let (code, printed, said) = called(&pod, &["6", "refuse"]);
    assert_eq!((code, printed.as_str()), (Some(3), ""));
    assert!(said.starts_with("error: ") && said.contains(r#"{"why":"no"}"#), "{said}");
    assert_eq!(called(&pod, &["6", "snooze"]).0, Some(1));
    assert_eq!(called(&pod, &["6", "nap", r#"{"milliseconds":"long"}"#]).0, Some(1));
    assert_eq!(called(&pod, &["6", "nap", "nonsense"]).0, Some(2));
    assert_eq!(called(&pod, &["6", "nap", HOUR, "--timeout", "never"]).0, Some(2));
    let help = out(&atoll(&["call", "--help"]));
    for words in
        ["Exit code: 0 for a reply; 3 for an error that the message declares; 1 for", "ns, us, ms, s, m, h or d"]
    {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn a_thousand_calls_that_time_out_leave_nothing_open() {
    let (_pod, client) = pod();
    let call = JsonCall {
        entity_type: "work".to_owned(),
        entity_id: "5".to_owned(),
        method: "nap".to_owned(),
        body: HOUR.to_owned(),
        timeout_ms: 0,
    };
    // More at once than one link may have open.
    let threads: Vec<_> = (0..100)
        .map(|_| {
            let (client, call) = (client.clone(), call.clone());
            std::thread::spawn(move || {
                for n in 0..10 {
                    let outcome = client.call_json(call.clone(), Duration::from_millis(20 + n));
                    assert_eq!(outcome, Err(ClusterError::SendTimeout));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    nothing_is_open(&client);
    let (begun, dropped, finished) = handlers(5);
    assert!(begun > 0 && begun == dropped && finished == 0, "{begun} began, {dropped} were dropped");
    let counters = counters(&client);
    assert_eq!((refused(&counters, "questions_max"), refused(&counters, "call_twice")), (0, 0));
    let quick = client.call_json(JsonCall { body: r#"{"milliseconds":1}"#.to_owned(), ..call }, PATIENCE);
    assert_eq!(quick, Ok(JsonOutcome::Reply("1".to_owned())), "the same client goes on");
}
