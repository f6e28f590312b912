//! The loop of a core over real sockets, with an engine that sends back what it gets.
#![cfg(feature = "runtime")]

mod runtime_support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::Duration;

use atoll::base::LinkId;
use atoll::runtime::{
    CloseReason, CorePlacement, CoresOptions, PumpOptions, SocketCommand, Spin, StartError, start_cores,
};
use runtime_support::*;

#[test]
fn a_client_says_hello_and_gets_its_bytes_back() {
    let core = Running::start(quick());
    let mut client = core.client();
    for length in [1, 16, 64, 1000, 16 << 10, 100_000] {
        let sent = pattern(length);
        client.write_all(&sent).unwrap();
        assert_eq!(read(&mut client, length), sent);
    }
    let local = client.local_addr().unwrap();
    assert_eq!(core.shared.events()[0], Event::Accepted(HELLO, local));
}

#[test]
fn bytes_behind_the_hello_in_one_packet_are_not_lost() {
    let core = Running::start(quick());
    let mut client = core.silent_client();
    let mut bytes = HELLO.to_vec();
    bytes.extend_from_slice(b"at once");
    client.write_all(&bytes).unwrap();
    assert_eq!(read(&mut client, 7), b"at once");
}

#[test]
fn a_hello_may_come_byte_by_byte() {
    let core = Running::start(quick());
    let mut client = core.silent_client();
    for byte in HELLO {
        client.write_all(&[byte]).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
    client.write_all(b"x").unwrap();
    assert_eq!(read(&mut client, 1), b"x");
}

#[test]
fn who_says_no_hello_is_shown_the_door() {
    let core = Running::start(with_limits(|limits| limits.hello_timeout = Duration::from_millis(50)));
    let mut silent = core.silent_client();
    let mut half = core.silent_client();
    half.write_all(&HELLO[..63]).unwrap();
    let mut gone = core.silent_client();
    gone.write_all(&HELLO[..3]).unwrap();
    gone.shutdown(Shutdown::Write).unwrap();
    for client in [&mut silent, &mut half, &mut gone] {
        assert!(client.read(&mut [0; 1]).map_or(true, |count| count == 0));
    }
    until("counters", || (core.values().hellos_late == 2 && core.values().hellos_broken == 1).then_some(()));
    assert!(core.shared.events().is_empty(), "the engine heard nothing of them");
    // Others are served meanwhile and afterwards.
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    assert_eq!(read(&mut client, 1), b"x");
}

#[test]
fn silent_connections_beyond_the_limit_wait_and_come_later() {
    let options = with_limits(|limits| {
        limits.hello_pending_max = 2;
        limits.hello_timeout = Duration::from_millis(50);
    });
    let core = Running::start(options);
    let silent: Vec<TcpStream> = (0..20).map(|_| core.silent_client()).collect();
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    assert_eq!(read(&mut client, 1), b"x", "served once the silent ones are gone");
    drop(silent);
}

#[test]
fn a_slow_reader_gets_all_of_it_in_order() {
    let core = Running::start(quick());
    let mut client = core.client();
    let sent = pattern(12 << 20);
    let mut writer = client.try_clone().unwrap();
    let copy = sent.clone();
    let thread = std::thread::spawn(move || writer.write_all(&copy).unwrap());
    // Nothing is read for a while: the kernel's buffers fill, sends wait, and the engine pauses the link.
    std::thread::sleep(Duration::from_millis(150));
    let mut got = vec![0; sent.len()];
    for (turn, part) in got.chunks_mut(300_007).enumerate() {
        if turn % 8 == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
        client.read_exact(part).unwrap();
    }
    thread.join().unwrap();
    assert!(got == sent, "the bytes are others");
    assert_eq!(core.values().bytes_received, core.values().bytes_sent);
}

#[test]
fn few_small_buffers_serve_many_links() {
    let options = PumpOptions { receive_buffers: 2, receive_buffer_bytes: 1024, ..quick() };
    let core = Running::start(options);
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let mut client = core.client();
            std::thread::spawn(move || {
                for _ in 0..20 {
                    let sent = pattern(20_000);
                    client.write_all(&sent).unwrap();
                    assert_eq!(read(&mut client, sent.len()), sent);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn each_link_closes_exactly_once_and_its_place_is_used_again() {
    let core = Running::start(quick());
    for round in 0..200 {
        let mut client = core.client();
        if round % 3 != 0 {
            client.write_all(b"ping").unwrap();
        }
        if round % 3 == 1 {
            read(&mut client, 4);
        }
    }
    until("the links to close", || (core.shared.closed().len() == 200).then_some(()));
    let mut closed: Vec<_> = core.shared.closed().into_iter().map(|(link, _)| (link.index, link.generation)).collect();
    let all = closed.len();
    closed.sort_unstable();
    closed.dedup();
    assert_eq!(closed.len(), all);
    assert_eq!(core.values().links_opened, core.values().links_closed);
}

#[test]
fn closing_sends_the_rest_first() {
    // It ends because the peer does, not because its time is over.
    let core = Running::start(with_limits(|limits| limits.linger = Duration::from_secs(60)));
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    read(&mut client, 1);
    let link = LinkId { index: 0, generation: 1 };
    let goodbye = pattern(3 << 20);
    let close = Order::Command(SocketCommand::Close { link });
    core.shared.tell_all([Order::Send(link, goodbye.clone()), close]);
    let mut got = read(&mut client, 1);
    // What the peer still sends is thrown away and does not reset the connection.
    client.write_all(b"too late").unwrap();
    client.read_to_end(&mut got).unwrap();
    assert!(got == goodbye, "{} of {} bytes", got.len(), goodbye.len());
    drop(client);
    until("closed", || (core.shared.closed() == [(link, CloseReason::Requested)]).then_some(()));
}

#[test]
fn a_peer_that_never_reads_cannot_keep_a_closing_link() {
    let core = Running::start(with_limits(|limits| limits.linger = Duration::from_millis(50)));
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    read(&mut client, 1);
    let link = LinkId { index: 0, generation: 1 };
    core.shared.tell(Order::Send(link, pattern(32 << 20)));
    core.shared.tell(Order::Command(SocketCommand::Close { link }));
    until("closed", || (core.shared.closed() == [(link, CloseReason::Requested)]).then_some(()));
    // A new link in the same place is not touched by what the old one still had in flight.
    let mut other = core.client();
    for _ in 0..100 {
        other.write_all(b"fresh").unwrap();
        assert_eq!(read(&mut other, 5), b"fresh");
    }
    assert_eq!(core.shared.closed().len(), 1);
}

#[test]
fn two_cores_connect_and_the_hello_goes_first() {
    let server = Running::start(quick());
    let dialer = Running::start(quick());
    let name = format!("localhost:{}", server.address.port());
    for address in [server.address.to_string(), name] {
        dialer.shared.events.lock().unwrap().clear();
        dialer.shared.tell(Order::Connect { address, hello: HELLO });
        let link = dialer.shared.wait(|event| match event {
            Event::Connected(link) => Some(*link),
            _ => None,
        });
        server.shared.wait(|event| matches!(event, Event::Accepted(HELLO, _)).then_some(()));
        dialer.shared.keep_received.store(true, std::sync::atomic::Ordering::Relaxed);
        dialer.shared.tell(Order::Send(link, b"once around".to_vec()));
        // Both echo, so the bytes go round and round until one side closes.
        dialer.shared.wait(|event| matches!(event, Event::Received(..)).then_some(()));
        dialer.shared.keep_received.store(false, std::sync::atomic::Ordering::Relaxed);
        dialer.shared.tell(Order::Command(SocketCommand::Close { link }));
        dialer.shared.wait(|event| (*event == Event::Closed(link, CloseReason::Requested)).then_some(()));
    }
}

#[test]
fn a_connect_that_cannot_succeed_says_why() {
    let core = Running::start(with_limits(|limits| limits.connect_timeout = Duration::from_millis(200)));
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let reason = |address: &str| {
        core.shared.events.lock().unwrap().clear();
        core.shared.tell(Order::Connect { address: address.to_owned(), hello: HELLO });
        core.shared.wait(|event| match event {
            Event::Closed(_, reason) => Some(*reason),
            _ => None,
        })
    };
    assert!(matches!(reason(&free.to_string()), CloseReason::ConnectFailed(_)));
    assert_eq!(reason("no port"), CloseReason::AddressUnknown);
    assert!(reason("127.0.0.1:0").to_string().contains("could not connect"));
    assert_eq!(core.values().links_opened, 0);
}

#[test]
fn numbers_that_were_never_handed_out_do_no_harm() {
    let core = Running::start(quick());
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    read(&mut client, 1);
    let link = LinkId { index: 5, generation: 9 };
    for descriptor in [-1, 0, 1, 2, 3, 1000] {
        core.shared.tell(Order::Command(SocketCommand::Discard { descriptor }));
        core.shared.tell(Order::Command(SocketCommand::Adopt { link, descriptor }));
    }
    until("refusals", || (core.shared.closed() == vec![(link, CloseReason::UnknownDescriptor); 6]).then_some(()));
    core.shared.tell(Order::Command(SocketCommand::Close { link }));
    client.write_all(b"y").unwrap();
    assert_eq!(read(&mut client, 1), b"y");
    assert_eq!(core.shared.closed().len(), 6, "closing a link that is none is silent");
}

#[test]
fn a_discarded_connection_is_closed() {
    let core = Running::start(quick());
    core.shared.tell(Order::Discard(true));
    until("sleep", || core.shared.is_sleeping().then_some(()));
    let mut client = core.client();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_sleeping_core_wakes_by_socket_bell_and_timer() {
    let core = Running::start(PumpOptions::dev());
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    read(&mut client, 1);
    let asleep = || until("sleep", || core.shared.is_sleeping().then_some(()));
    for round in 1..=50 {
        asleep();
        client.write_all(b"socket").unwrap();
        assert_eq!(read(&mut client, 6), b"socket");
        asleep();
        core.shared.tell(Order::Send(LinkId { index: 0, generation: 1 }, b"bell".to_vec()));
        assert_eq!(read(&mut client, 4), b"bell");
        asleep();
        core.shared.tell(Order::Timer(Duration::from_millis(1)));
        until("the timer", || {
            (core.shared.events().iter().filter(|event| **event == Event::Timer).count() == round).then_some(())
        });
    }
    assert!(core.values().parks >= 100);
}

#[test]
fn a_shorter_timer_wakes_before_a_longer_one_that_is_armed() {
    let core = Running::start(PumpOptions::dev());
    core.shared.tell(Order::Timer(Duration::from_secs(3600)));
    until("sleep", || core.shared.is_sleeping().then_some(()));
    for round in 1..=20 {
        core.shared.tell(Order::Timer(Duration::from_millis(2)));
        until("the timer", || (core.shared.events().len() == round).then_some(()));
    }
}

#[test]
fn work_runs_in_slices_and_sockets_are_served_between() {
    let core = Running::start(quick());
    let mut client = core.client();
    core.shared.tell(Order::Work(Duration::from_millis(300)));
    std::thread::sleep(Duration::from_millis(10));
    for _ in 0..20 {
        client.write_all(b"x").unwrap();
        assert_eq!(read(&mut client, 1), b"x");
    }
    assert!(core.values().busy() > Duration::from_millis(5));
}

#[test]
fn a_stopping_core_sends_what_it_has_and_closes_its_links() {
    let core = Running::start(quick());
    let mut client = core.client();
    client.write_all(b"x").unwrap();
    read(&mut client, 1);
    core.shared.tell(Order::Send(LinkId { index: 0, generation: 1 }, pattern(1 << 20)));
    until("the order", || (core.values().sends >= 2).then_some(()));
    let reader = std::thread::spawn(move || {
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        got
    });
    let shared = core.stop();
    assert!(reader.join().unwrap() == pattern(1 << 20));
    assert_eq!(shared.closed(), [(LinkId { index: 0, generation: 1 }, CloseReason::Stopped)]);
}

#[test]
fn a_port_in_use_is_one_sentence() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = CoresOptions {
        placement: CorePlacement::Unpinned(1),
        listen: Some(taken.local_addr().unwrap()),
        pump: PumpOptions { spin: Spin::Always, ..PumpOptions::default() },
    };
    let error = start_cores(options, |plan| {
        let shared = Shared::new(plan.bells()[0].clone());
        vec![move |_context| Ok(Echo::new(shared))]
    })
    .unwrap_err();
    assert!(matches!(error, StartError::AddressInUse(_)));
    assert!(error.to_string().contains("is in use: stop the other process or pass --listen"), "{error}");
}

#[test]
fn all_cores_start_or_none() {
    let options = CoresOptions { placement: CorePlacement::Unpinned(3), listen: None, pump: quick() };
    let error = start_cores(options, |plan| {
        let made = |core: usize| {
            let shared = Shared::new(plan.bells()[core].clone());
            move |context: atoll::runtime::CoreContext| {
                if context.core.0 == 1 { Err("no table".into()) } else { Ok(Echo::new(shared)) }
            }
        };
        (0..3).map(made).collect()
    })
    .unwrap_err();
    assert_eq!(error.to_string(), "the engine of core 1 could not start: no table");
    let options = CoresOptions { placement: CorePlacement::Pinned(vec![100_000]), listen: None, pump: quick() };
    let error = start_cores(options, |plan| {
        let shared = Shared::new(plan.bells()[0].clone());
        vec![move |_context| Ok(Echo::new(shared))]
    })
    .unwrap_err();
    assert!(matches!(error, StartError::Executor { core: 0, .. }), "{error}");
}

#[test]
fn a_connection_is_served_by_the_core_that_it_is_passed_to() {
    let cores = Running::start_many(2, quick());
    cores.shared.tell(Order::Forward(std::sync::Arc::clone(&cores.all[1])));
    until("the order", || cores.shared.is_sleeping().then_some(()));
    let mut clients: Vec<_> = (0..20).map(|_| cores.client()).collect();
    for client in &mut clients {
        client.write_all(b"over there").unwrap();
        assert_eq!(read(client, 10), b"over there");
    }
    let counters = cores.handle.as_ref().unwrap().counters();
    assert_eq!((counters[0].values().accepted, counters[0].values().links_opened), (20, 0));
    assert_eq!(counters[1].values().links_opened, 20);
}

#[test]
fn a_panic_of_the_loop_ends_the_process_with_a_message() {
    const CHILD: &str = "ATOLL_TEST_PANICS";
    if std::env::var_os(CHILD).is_some() {
        let core = Running::start(quick());
        core.shared.tell(Order::Panic);
        std::thread::sleep(Duration::from_secs(10));
        return;
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_panic_of_the_loop_ends_the_process_with_a_message", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(text.contains("core 0 failed") && text.contains("planted by the test"), "{text}");
}

#[test]
fn buffers_that_make_no_sense_are_one_sentence() {
    let pump = PumpOptions { receive_buffers: 3, ..quick() };
    let options = CoresOptions { placement: CorePlacement::Unpinned(1), listen: None, pump };
    let error = start_cores(options, |plan| {
        let shared = Shared::new(plan.bells()[0].clone());
        vec![move |_context| Ok(Echo::new(shared))]
    })
    .unwrap_err();
    assert!(error.to_string().contains("receive_buffers must be a power of two"), "{error}");
}
