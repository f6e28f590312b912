//! The program as operators meet it: signals, restarts, kills, and commands that go wrong.
#![cfg(feature = "runtime")]

mod support;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};
use std::time::Duration;

use atoll::client::{ClientOptions, ConnectError};
use atoll::services::echo::EchoRef;
use atoll::services::guild::GuildRef;
use atoll::{Client, ClusterError, SendError};
use serde_json::{Value, json};
use support::*;

fn ended_with(output: &std::process::Output, code: i32) {
    assert_eq!(output.status.code(), Some(code), "{}{}", out(output), err(output));
}

/// An error is one sentence on standard error, nothing on standard output.
fn one_sentence(output: &std::process::Output, code: i32) -> String {
    ended_with(output, code);
    assert_eq!(out(output), "");
    let text = err(output);
    assert!(text.starts_with("error: ") && text.lines().count() == 1, "{text}");
    text
}

fn json(output: &std::process::Output) -> Value {
    ended_with(output, 0);
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_signal_stops_a_pod_cleanly_while_asks_are_in_flight() {
    for signal in ["TERM", "INT"] {
        let mut pod = PodProcess::start(&[]);
        let client = Client::connect([pod.address]).unwrap();
        let echoes = client.messenger::<EchoRef>().timeout(Duration::from_secs(20));
        let asks: Vec<_> = (0..50_u64)
            .map(|n| {
                let echo = echoes.entity(&format!("e{n}"));
                std::thread::spawn(move || block_on(echo.sleep(if n % 2 == 0 { 200 } else { 3_600_000 })))
            })
            .collect();
        until("all are in flight", || (sum_of(&counters(&client), "messages") >= 50).then_some(()));
        pod.signal(signal);
        assert_eq!(pod.wait().code(), Some(0), "{}", pod.log());
        assert!(pod.line_with("stopped").is_some());
        for (n, ask) in asks.into_iter().enumerate() {
            let outcome = ask.join().unwrap();
            match outcome {
                Ok(()) => assert!(n % 2 == 0),
                Err(SendError::Cluster(_)) => {}
                Err(SendError::Declared(never)) => match never {},
            }
            assert!(n % 2 != 0 || outcome.is_ok(), "what ends soon is answered before the pod goes: {n} {outcome:?}");
        }
    }
}

#[test]
fn asks_at_a_killed_pod_end_in_time_and_the_same_client_finds_the_next_one() {
    let address = lasting_address();
    let mut pod = PodProcess::start_at(&address, &[]);
    let client = Client::connect([&address]).unwrap();
    let echoes = client.messenger::<EchoRef>();
    assert_eq!(block_on(echoes.entity("e").add(5)), Ok(5));
    let asks: Vec<_> = (0..20)
        .map(|n| {
            let echo = echoes.timeout(Duration::from_secs(3)).entity(&format!("e{n}"));
            std::thread::spawn(move || block_on(echo.sleep(3_600_000)))
        })
        .collect();
    until("all are in flight", || (sum_of(&counters(&client), "messages") >= 20).then_some(()));
    pod.signal("KILL");
    pod.wait();
    for ask in asks {
        match ask.join().unwrap() {
            Err(SendError::Cluster(ClusterError::SendTimeout | ClusterError::Transport)) => {}
            other => panic!("{other:?}"),
        }
    }
    let nobody = block_on(echoes.entity("e").add(1).timeout(Duration::from_millis(300)));
    assert_eq!(nobody, Err(SendError::Cluster(ClusterError::SendTimeout)));

    for run in 0..3 {
        let mut next = PodProcess::start_at(&address, &[]);
        let sum = block_on(echoes.entity("e").add(1).timeout(PATIENCE));
        assert_eq!(sum, Ok(1), "run {run}: the new pod starts the entity anew");
        assert_eq!(block_on(echoes.entity("e").add(1)), Ok(2));
        next.signal(if run == 1 { "TERM" } else { "KILL" });
        next.wait();
    }
}

#[test]
fn every_core_of_a_client_finds_the_next_pod() {
    let address = lasting_address();
    let mut pod = PodProcess::start_at(&address, &["--cores", "2"]);
    let placement = atoll::runtime::CorePlacement::Unpinned(2);
    let client = Client::connect_with([&address], ClientOptions { placement, ..ClientOptions::default() }).unwrap();
    let echoes = client.messenger::<EchoRef>().timeout(PATIENCE);
    for core in [0, 1] {
        for n in 0..8 {
            let echo = echoes.entity(&format!("e{core}{n}"));
            assert_eq!(run_on(&client, core, move || async move { echo.add(1).await }), Ok(1));
        }
    }
    pod.signal("KILL");
    pod.wait();
    let _next = PodProcess::start_at(&address, &["--cores", "2"]);
    for core in [1, 0] {
        for n in 0..8 {
            let echo = echoes.entity(&format!("e{core}{n}"));
            assert_eq!(run_on(&client, core, move || async move { echo.add(1).await }), Ok(1), "core {core}");
        }
    }
}

#[test]
fn a_call_finds_a_pod_that_was_restarted() {
    let address = lasting_address();
    let mut pod = PodProcess::start_at(&address, &[]);
    let client = Client::connect([&address]).unwrap();
    pod.signal("KILL");
    pod.wait();
    let _next = PodProcess::start_at(&address, &[]);
    let call = atoll::wire::control::JsonCall {
        entity_type: "echo".to_owned(),
        entity_id: "e".to_owned(),
        method: "add".to_owned(),
        body: "{\"value\":4}".to_owned(),
        timeout_ms: 0,
    };
    // A call that is on its way when the pod dies fails; it is not made twice.
    let outcome = until("the call succeeds", || match client.call_json(call.clone(), PATIENCE) {
        Err(ClusterError::Transport) => None,
        outcome => Some(outcome),
    });
    assert_eq!(outcome, Ok(atoll::wire::JsonOutcome::Reply("4".to_owned())));
    assert_eq!(sum_of(&counters(&client), "entities"), 1);
}

#[test]
fn asks_at_a_pod_that_hangs_time_out_and_succeed_when_it_goes_on() {
    let pod = PodProcess::start(&[]);
    let client = Client::connect([pod.address]).unwrap();
    let echo = client.messenger::<EchoRef>().entity("e");
    assert_eq!(block_on(echo.add(1)), Ok(1));
    pod.freeze();
    for _ in 0..5 {
        let late = block_on(echo.total().timeout(Duration::from_millis(50)));
        assert_eq!(late, Err(SendError::Cluster(ClusterError::SendTimeout)));
    }
    let options = ClientOptions { connect_timeout: Duration::from_millis(300), ..ClientOptions::default() };
    let silent = Client::connect_with([pod.address], options).map(drop);
    assert!(matches!(silent, Err(ConnectError::TimedOut { .. })), "{silent:?}");
    pod.signal("CONT");
    assert_eq!(block_on(echo.add(1)), Ok(2));
}

/// Set only for a child of this test program: the pod that it is a client of.
const CLIENT_OF: &str = "TEST_CLIENT_OF";

/// In a child process of these tests this is a client that asks for more than it gets; otherwise it is nothing.
#[test]
fn a_client_of_these_tests() {
    let Ok(address) = std::env::var(CLIENT_OF) else { return };
    let client = Client::connect([address.parse::<SocketAddr>().unwrap()]).unwrap();
    let echoes = client.messenger::<EchoRef>().timeout(Duration::from_secs(3));
    let (asleep, behind) = (echoes.entity("shared"), echoes.entity("shared"));
    let asleep = std::thread::spawn(move || block_on(asleep.sleep(60_000)));
    until("it is in flight", || (sum_of(&counters(&client), "messages") >= 1).then_some(()));
    let behind = std::thread::spawn(move || block_on(behind.add(100)));
    until("so is the next", || (sum_of(&counters(&client), "messages") >= 2).then_some(()));
    eprintln!("the client waits for the pod that serves at {address} now");
    assert!(asleep.join().unwrap().is_err() && behind.join().unwrap().is_err());
}

#[test]
fn what_a_client_that_hangs_asked_for_ends_with_the_time_that_it_would_wait() {
    let pod = PodProcess::start(&[]);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "a_client_of_these_tests", "--nocapture"]).env(CLIENT_OF, pod.address_text());
    let hung = PodProcess::try_start(command).expect("a client");
    hung.freeze();
    let client = Client::connect([pod.address]).unwrap();
    let echo = client.messenger::<EchoRef>().timeout(PATIENCE).entity("shared");
    assert_eq!(block_on(echo.add(1)), Ok(1), "its turn comes, and what waited before it was never started");
    assert_eq!(sum_of(&counters(&client), "requests_expired"), 2, "neither ended with its link");
    hung.signal("CONT");
}

#[test]
fn a_busy_port_is_one_sentence_that_names_the_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = one_sentence(&atoll(&["pod", "--dev", "--listen", &address]), 1);
    let port = taken.local_addr().unwrap().port().to_string();
    assert!(text.contains(&port) && text.contains("--listen"), "{text}");
    let pod = PodProcess::start(&[]);
    let text = one_sentence(&atoll(&["pod", "--dev", "--listen", &pod.address_text()]), 1);
    assert!(text.contains("--listen"), "{text}");
}

#[test]
fn an_address_of_another_host_is_one_sentence_that_names_its_cause_once() {
    let text = one_sentence(&atoll(&["pod", "--dev", "--listen", "192.0.2.1:7400"]), 1);
    assert!(text.contains("--listen") && text.matches("os error").count() == 1, "{text}");
}

#[test]
fn a_pod_serves_though_nobody_reads_what_it_says() {
    let address = lasting_address();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = atoll_command();
    command.args(["pod", "--dev", "--log-level", "debug", "--listen", &address]);
    let mut pod = command.stdout(Stdio::null()).stderr(full).spawn().unwrap();
    let joined = atoll(&["call", "guild", "g1", "join", r#"{"user":"ann"}"#, "--pods", &address]);
    let stopped = Command::new("kill").arg(pod.id().to_string()).status().unwrap();
    let status = pod.wait().unwrap();
    assert_eq!(out(&joined), "[\"ann\"]\n", "{}", err(&joined));
    assert!(stopped.success() && status.success(), "{status}");
}

#[test]
fn a_data_folder_has_one_pod_and_its_tokens_grow_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().join("state");
    let folder = folder.to_str().unwrap();
    let mut tokens = Vec::new();
    for signal in ["TERM", "KILL", "TERM"] {
        let mut pod = PodProcess::start(&["--data-dir", folder]);
        let located = json(&pod.atoll(&["ctl", "locate", "guild", "g1", "--json"]));
        tokens.push(located["token"].as_u64().unwrap());
        let refused = atoll(&["pod", "--dev", "--listen", "127.0.0.1:0", "--data-dir", folder]);
        ended_with(&refused, 1);
        let text = err(&refused);
        assert!(text.starts_with("error: ") && text.lines().count() == 3 && text.contains(folder), "{text}");
        pod.signal(signal);
        pod.wait();
    }
    assert!(tokens[0] > 0 && tokens.is_sorted_by(|older, newer| older < newer), "{tokens:?}");
}

#[test]
fn calls_print_replies_and_errors() {
    let pod = PodProcess::start(&[]);
    let join = pod.atoll(&["call", "guild", "g1", "join", r#"{"user":"ann"}"#]);
    ended_with(&join, 0);
    assert_eq!(out(&join), "[\"ann\"]\n");
    let members = pod.atoll(&["call", "guild", "g1", "members"]);
    assert_eq!(out(&members), "[\"ann\"]\n");
    assert_eq!(out(&pod.atoll(&["call", "guild", "g1", "leave", r#"{"user":"ann"}"#])), "null\n");

    let declared = pod.atoll(&["call", "guild", "g1", "pay", r#"{"user":"bob","coins":1}"#]);
    let declared = one_sentence(&declared, 3);
    assert!(declared.contains("g1") && declared.contains("NotAMember"), "{declared}");
    let fails = |arguments: &[&str]| one_sentence(&pod.atoll(&[&["call"], arguments].concat()), 1);
    let kind = fails(&["gild", "g1", "join", "{}"]);
    assert!(kind.contains("no entity type `gild`") && kind.contains("account, echo, guild"), "{kind}");
    let method = fails(&["guild", "g1", "joyn", "{}"]);
    assert!(method.contains("no message `joyn`") && method.contains("join, leave, members, pay"), "{method}");
    for wrong in [r#"{"user":7}"#, "{}", r#"{"user":"a","colour":"red"}"#, r#"{"usr":"a"}"#] {
        let text = fails(&["guild", "g1", "join", wrong]);
        assert!(text.contains("`join` does not take this"), "{wrong}: {text}");
    }
    let defect = fails(&["echo", "e", "panic", r#"{"text":"boo"}"#]);
    assert!(defect.contains("panicked"), "{defect}");
    let late = fails(&["echo", "e", "sleep", r#"{"milliseconds":3600000}"#, "--timeout", "300ms"]);
    assert!(late.contains("within the timeout"), "{late}");
    for wrong in ["[1]", "{", "nonsense"] {
        one_sentence(&pod.atoll(&["call", "guild", "g1", "join", wrong]), 2);
    }
}

#[test]
fn ctl_shows_pods_shards_entities_and_places() {
    let pod = PodProcess::start(&["--cores", "2"]);
    pod.atoll(&["call", "guild", "g1", "members"]);
    let ctl = |arguments: &[&str]| json(&pod.atoll(&[&["ctl", "--json"], arguments].concat()));
    let pods = ctl(&["pods"]);
    assert_eq!(pods["pods"].as_array().unwrap().len(), 1);
    let shown = &pods["pods"][0];
    assert_eq!(
        (&shown["address"], &shown["cores"], &shown["shards"]),
        (&json!(pod.address_text()), &json!(2), &json!(1024))
    );
    let shards = ctl(&["shards"]);
    let cores: Vec<u64> = shards["shards"].as_array().unwrap().iter().map(|s| s["core"].as_u64().unwrap()).collect();
    assert_eq!(cores.len(), 1024);
    assert!((0..2).all(|core| cores.iter().filter(|owner| **owner == core).count() == 512));
    let entities = ctl(&["entities", "guild"]);
    assert_eq!(entities["entities"].as_array().unwrap().len(), 1);
    assert_eq!(entities["entities"][0]["id"], "g1");
    let located = ctl(&["locate", "guild", "g1"]);
    assert_eq!((&located["running"], &located["pod"]), (&json!(true), &json!(pod.address_text())));
    assert_eq!(located["core"], entities["entities"][0]["core"]);
    assert_eq!(ctl(&["locate", "guild", "g2"])["running"], json!(false));
    for words in [&["pods"][..], &["shards"], &["entities", "guild"], &["locate", "guild", "g1"], &["counters"]] {
        let table = pod.atoll(&[&["ctl"], words].concat());
        ended_with(&table, 0);
        assert!(!out(&table).is_empty() && !out(&table).starts_with('{'), "{words:?}");
    }
    let text = one_sentence(&pod.atoll(&["ctl", "entities", "gild"]), 1);
    assert!(text.contains("no entity type `gild`") && text.contains("account, echo, guild"), "{text}");
    let text = one_sentence(&pod.atoll(&["ctl", "locate", "gild", "g1"]), 1);
    assert!(text.contains("no entity type `gild`"), "{text}");
}

#[test]
fn an_unreachable_pod_is_one_sentence() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for command in [&["call", "guild", "g1", "members"][..], &["ctl", "pods"]] {
        let text = one_sentence(&atoll(&[command, &["--pods", &free, "--timeout", "2s"]].concat()), 1);
        assert!(text.contains(&free) && text.contains("no pod answered"), "{text}");
        assert!(text.contains("could not connect"), "{text}");
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        stream.write_all(&[b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), &[b' '; 100]].concat()).unwrap();
        (stream, other)
    });
    let text = one_sentence(&atoll(&["ctl", "pods", "--pods", &address, "--timeout", "2s"]), 1);
    assert!(text.contains("does not speak as a pod does"), "{text}");
    let silent = answers.join().unwrap();
    let text = one_sentence(&atoll(&["ctl", "pods", "--pods", &address, "--timeout", "2s"]), 1);
    assert!(text.contains("says nothing"), "{text}");
    drop(silent);
    let pod = PodProcess::start(&["--set", "pod.cluster_name=other"]);
    let text = one_sentence(&pod.atoll(&["ctl", "pods"]), 1);
    assert!(text.contains("cluster `other`"), "{text}");
    ended_with(&pod.atoll(&["ctl", "pods", "--cluster-name", "other"]), 0);
}

#[test]
fn the_first_address_that_answers_is_enough() {
    let pod = PodProcess::start(&[]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for order in [[free.clone(), pod.address_text()], [pod.address_text(), free.clone()]] {
        let client = Client::connect(&order).unwrap();
        assert_eq!(block_on(client.messenger::<GuildRef>().entity("g").members()), Ok(Vec::new()));
    }
    assert!(matches!(Client::connect(Vec::<String>::new()).map(drop), Err(ConnectError::NoAddress)));
}

#[test]
fn a_handler_that_does_not_return_is_logged_with_its_entity_type() {
    let pod = PodProcess::start(&[]);
    let client = Client::connect([pod.address]).unwrap();
    let spin = client.messenger::<EchoRef>().entity("e").spin(1500);
    assert_eq!(block_on(spin), Ok(()));
    let line = until("the stall is logged", || pod.line_with("does not return"));
    assert!(line.contains("WARN") && line.contains("`echo`"), "{line}");
    let quick = client.messenger::<EchoRef>().entity("e").add(1);
    assert_eq!(block_on(quick), Ok(1));
}
