//! Many messages that reply with nothing, in order.

use atoll::entity::SendStreamError;
use atoll::{ClusterError, EntityOptions};

use crate::probe::{self, ProbeTell, lines, plain_core, probe as the_probe, signal};
use crate::wire::Wire;

fn message(name: &str) -> probe::probe::Write {
    probe::probe::Write { name: name.to_owned() }
}

fn write(name: &str) -> ProbeTell {
    message(name).into()
}

#[test]
fn messages_arrive_in_order() {
    let core = plain_core();
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| signal(name).fire());
    let messenger = core.messenger::<probe::ProbeRef>();
    let sent = core.block(async move { messenger.send_stream("p", names.map(write)).await });
    assert_eq!(sent, Ok(3));
    core.run();
    assert_eq!(lines(), ["start p", "+a", "-a", "+b", "-b", "+c", "-c"]);
    assert!(core.block(the_probe(&core).sum()).unwrap() == 3);
}

#[test]
fn it_returns_when_all_are_in_the_mailbox() {
    let core = plain_core();
    let messenger = core.messenger::<probe::ProbeRef>();
    let sent = core.block(async move { messenger.send_stream("p", ["a", "b"].map(write)).await });
    assert_eq!(sent, Ok(2));
    assert_eq!(lines(), ["start p", "+a"]);
}

#[test]
fn it_stops_at_the_first_that_is_rejected() {
    let core = probe::core(EntityOptions::default().mailbox_capacity(2));
    let messenger = core.messenger::<probe::ProbeRef>();
    let sent = core.block(async move {
        let mut asked = 0;
        let messages = ["a", "b", "c", "d"].into_iter().inspect(|_| asked += 1).map(write);
        let sent = messenger.send_stream("p", messages).await;
        (sent, asked)
    });
    assert_eq!(sent, (Err(SendStreamError { accepted: 2, error: ClusterError::MailboxFull }), 3));
    ["a", "b", "c", "d"].iter().for_each(|name| signal(name).fire());
    core.run();
    assert_eq!(lines(), ["start p", "+a", "-a", "+b", "-b"]);
}

#[test]
fn messages_may_come_in_time() {
    let core = plain_core();
    let messenger = core.messenger::<probe::ProbeRef>();
    signal("a").fire();
    let sent = core.start(async move {
        let mut left = vec!["a", "a"];
        messenger
            .send_stream_from("p", async || {
                signal("next").fired().await;
                left.pop().map(message)
            })
            .await
    });
    assert!(sent.waits());
    signal("next").fire();
    core.run();
    assert_eq!(sent.take(), Some(Ok(2)));
    assert_eq!(lines(), ["start p", "+a", "-a", "+a", "-a"]);
}

#[test]
fn they_keep_their_order_over_a_link() {
    let wire = Wire::new::<probe::ProbeEntity>(EntityOptions::default());
    let names = ["a", "b", "c"];
    names.iter().for_each(|name| signal(name).fire());
    let messenger = wire.client.host().messenger::<probe::ProbeRef>();
    let sent = wire.block(async move { messenger.send_stream("p", names.map(write)).await });
    assert_eq!(sent, Ok(3));
    assert_eq!(lines(), ["start p", "+a", "-a", "+b", "-b", "+c", "-c"]);
}

#[test]
fn a_future_that_sends_may_move_to_any_thread() {
    fn assert_send<T: Send>(_: &T) {}
    let core = plain_core();
    let messenger = core.messenger::<probe::ProbeRef>();
    assert_send(&messenger.send_stream("p", vec![write("a")]));
}
