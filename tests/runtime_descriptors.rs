//! No descriptor is lost, whatever happens to connections. Alone in its process, so that it can count them.
#![cfg(feature = "runtime")]

mod runtime_support;

use std::io::Write;
use std::net::{Shutdown, TcpStream};

use runtime_support::*;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn connections_come_and_go_without_a_trace() {
    let core = Running::start(with_limits(|limits| limits.hello_timeout = std::time::Duration::from_millis(30)));
    drop(core.client());
    until("the first to close", || (core.shared.closed().len() == 1).then_some(()));
    let before = open_descriptors();
    let mut hellos = 1;
    for round in 0..10 {
        let mut clients: Vec<TcpStream> = Vec::new();
        for number in 0..50 {
            // A third says nothing, a third half of it, a third all of it and more.
            let mut client = core.silent_client();
            match (round + number) % 3 {
                0 => {}
                1 => client.write_all(&HELLO[..10]).unwrap(),
                _ => {
                    hellos += 1;
                    client.write_all(&HELLO).unwrap();
                    client.write_all(&pattern(50_000)).unwrap();
                }
            }
            clients.push(client);
        }
        for (number, client) in clients.iter().enumerate() {
            if number % 4 == 0 {
                let _ = client.shutdown(Shutdown::Both);
            }
        }
        until("all hellos", || {
            let values = core.values();
            (values.links_opened >= hellos).then_some(())
        });
    }
    until("all to close", || {
        let values = core.values();
        let ended = values.links_closed + values.hellos_broken + values.hellos_late;
        (ended == 501 && core.shared.closed().len() == hellos as usize).then_some(())
    });
    until("the descriptors", || (open_descriptors() <= before).then_some(()));
}
