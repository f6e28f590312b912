use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn id(index: u32, generation: u32) -> LinkId {
    LinkId { index, generation }
}

#[test]
fn an_adopted_link_receives_and_sends() {
    let mut links = Links::new(4);
    let link = id(0, 1);
    links.adopt(link, "descriptor").unwrap();
    assert_eq!(links.next_step(link), Step::Receive);
    links.receive_started(link, OperationId(1));
    assert_eq!(links.next_step(link), Step::Wait);
    links.dirty(link);
    assert_eq!(links.next_step(link), Step::Send);
    links.output_taken(link);
    links.send_started(link, OperationId(2), Nanos::ZERO);
    links.dirty(link);
    assert_eq!(links.next_step(link), Step::Wait, "one send at a time");
    links.send_ended(link);
    assert_eq!(links.next_step(link), Step::Send);
}

#[test]
fn a_closing_link_keeps_its_descriptor_until_nothing_is_in_flight() {
    let mut links = Links::new(4);
    let link = id(0, 1);
    links.adopt(link, "descriptor").unwrap();
    links.receive_started(link, OperationId(1));
    links.send_started(link, OperationId(2), Nanos::ZERO);
    links.close(link, CloseReason::PeerClosed);
    assert!(matches!(links.next_step(link), Step::CancelAll(_)));
    assert_eq!(links.next_step(link), Step::Wait);
    links.receive_ended(link);
    assert_eq!(links.next_step(link), Step::Wait);
    assert!(links.release(link).is_none());
    links.send_ended(link);
    assert_eq!(links.next_step(link), Step::Release);
    assert_eq!(links.release(link), Some((Some("descriptor"), CloseReason::PeerClosed)));
    assert!(links.release(link).is_none());
}

#[test]
fn a_link_that_took_the_place_is_not_touched_by_the_old_id() {
    let mut links = Links::new(1);
    links.adopt(id(0, 1), 1).unwrap();
    assert_eq!(links.adopt(id(0, 2), 2), Err(2), "the place is taken");
    assert_eq!(links.adopt(id(1, 1), 3), Err(3), "beyond the limit");
    links.close(id(0, 1), CloseReason::Requested);
    assert_eq!(links.next_step(id(0, 1)), Step::Release);
    links.release(id(0, 1)).unwrap();
    links.adopt(id(0, 2), 2).unwrap();
    links.close(id(0, 1), CloseReason::PeerClosed);
    links.receive_ended(id(0, 1));
    links.pause(id(0, 1), true);
    assert_eq!(links.next_step(id(0, 2)), Step::Receive);
}

#[test]
fn lingering_sends_the_rest_and_waits_for_the_peers_end() {
    let mut links = Links::new(1);
    let link = id(0, 1);
    links.adopt(link, ()).unwrap();
    links.pause(link, true);
    links.linger(link, CloseReason::Requested, Nanos(5));
    assert!(!links.is_open(link), "the engine gets no bytes any more");
    assert_eq!(links.next_step(link), Step::Send);
    links.output_taken(link);
    links.send_started(link, OperationId(2), Nanos::ZERO);
    assert_eq!(links.next_step(link), Step::Receive, "even a paused link takes (and throws away) what comes");
    links.receive_started(link, OperationId(1));
    assert_eq!(links.next_step(link), Step::Wait, "the send is in flight");
    links.send_ended(link);
    assert_eq!(links.next_step(link), Step::ShutdownWrite);
    assert_eq!(links.next_step(link), Step::Wait, "the peer has not ended yet");
    links.close(link, CloseReason::PeerClosed);
    links.receive_ended(link);
    assert_eq!(links.next_step(link), Step::Release);
    assert_eq!(links.release(link).unwrap().1, CloseReason::Requested, "the first reason counts");
}

#[test]
fn pausing_ends_the_receive_and_resuming_starts_one() {
    let mut links = Links::new(1);
    let link = id(0, 1);
    links.adopt(link, ()).unwrap();
    links.receive_started(link, OperationId(1));
    links.pause(link, true);
    assert_eq!(links.next_step(link), Step::CancelReceive(OperationId(1)));
    links.pause(link, false);
    assert_eq!(links.next_step(link), Step::Wait, "the old receive has not ended yet");
    links.receive_ended(link);
    assert_eq!(links.next_step(link), Step::Receive);
}

#[test]
fn a_connect_that_is_closed_waits_for_the_kernel() {
    let mut links = Links::new(1);
    let link = id(0, 1);
    assert!(links.connecting(link, Nanos(9)));
    links.connect_started(link, (), OperationId(7));
    links.linger(link, CloseReason::Requested, Nanos(1));
    assert!(matches!(links.next_step(link), Step::CancelAll(_)));
    assert!(!links.connect_ended(link, None), "it is no success for the engine any more");
    assert_eq!(links.next_step(link), Step::Release);
}

/// A descriptor that says when it was closed.
struct Descriptor(Rc<RefCell<bool>>);
impl Drop for Descriptor {
    fn drop(&mut self) {
        *self.0.borrow_mut() = true;
    }
}

/// What the model of the kernel works on: operation, link, and which of the three kinds it is.
type InKernel = Vec<(OperationId, LinkId, u8)>;

fn settle(
    links: &mut Links<Descriptor>,
    link: LinkId,
    kernel: &mut InKernel,
    next: &mut u64,
    closed: &mut Vec<LinkId>,
) {
    for _ in 0..10 {
        let operation = OperationId(*next);
        *next += 1;
        match links.next_step(link) {
            Step::Wait => return,
            Step::Receive => {
                links.receive_started(link, operation);
                kernel.push((operation, link, 0));
            }
            Step::Send => {
                links.output_taken(link);
                if !next.is_multiple_of(3) {
                    links.send_started(link, operation, Nanos::ZERO);
                    kernel.push((operation, link, 1));
                }
            }
            Step::CancelReceive(_) | Step::CancelAll(_) | Step::ShutdownWrite => {}
            Step::Release => {
                assert!(kernel.iter().all(|(_, other, _)| *other != link), "closed under an operation");
                links.release(link).expect("it said so");
                closed.push(link);
            }
        }
    }
    panic!("it does not settle");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 8 } else { 1000 }, failure_persistence: None, ..ProptestConfig::default() })]
    /// Whatever the engine asks and in whatever order the kernel answers: no descriptor closes under an operation, there are
    /// never two of a kind, each link closes exactly once, and all of them end when asked to.
    #[test]
    fn no_order_of_events_breaks_the_life_of_a_link(steps in proptest::collection::vec((0u8..8, any::<u8>()), 0..120)) {
        let mut links: Links<Descriptor> = Links::new(3);
        let mut current = [id(0, 0), id(1, 0), id(2, 0)];
        let mut alive = Vec::new();
        let (mut kernel, mut next, mut closed): (InKernel, u64, Vec<LinkId>) = (Vec::new(), 1, Vec::new());
        let mut opened = Vec::new();
        for (step, choice) in steps {
            let at = usize::from(choice % 3);
            let mut link = current[at];
            match step {
                0 => {
                    let fresh = LinkId { generation: link.generation + 1, ..link };
                    let dropped = Rc::new(RefCell::new(false));
                    if links.adopt(fresh, Descriptor(Rc::clone(&dropped))).is_ok() {
                        current[at] = fresh;
                        link = fresh;
                        opened.push(fresh);
                        alive.push((fresh, dropped));
                    }
                }
                1 => {
                    let fresh = LinkId { generation: link.generation + 1, ..link };
                    if links.connecting(fresh, Nanos(100)) {
                        current[at] = fresh;
                        link = fresh;
                        opened.push(fresh);
                        let dropped = Rc::new(RefCell::new(false));
                        let operation = OperationId(next);
                        next += 1;
                        links.connect_started(fresh, Descriptor(Rc::clone(&dropped)), operation);
                        kernel.push((operation, fresh, 2));
                        alive.push((fresh, dropped));
                    }
                }
                2 => links.dirty(link),
                3 => links.pause(link, choice > 127),
                4 => links.linger(link, CloseReason::Requested, Nanos(10)),
                5 => links.close(link, CloseReason::PeerClosed),
                _ => {
                    if !kernel.is_empty() {
                        let (_, owner, kind) = kernel.swap_remove(usize::from(choice) % kernel.len());
                        match kind {
                            0 => links.receive_ended(owner),
                            1 => links.send_ended(owner),
                            _ => { links.connect_ended(owner, (choice > 200).then_some(CloseReason::ConnectFailed(1))); }
                        }
                        link = owner;
                    }
                }
            }
            settle(&mut links, link, &mut kernel, &mut next, &mut closed);
            for kind in 0..3 {
                let mut owners: Vec<_> = kernel.iter().filter(|entry| entry.2 == kind).map(|entry| entry.1).collect();
                let all = owners.len();
                owners.sort_by_key(|owner| (owner.index, owner.generation));
                owners.dedup();
                prop_assert_eq!(all, owners.len(), "two of a kind in flight");
            }
            for (link, dropped) in &alive {
                prop_assert_eq!(*dropped.borrow(), closed.contains(link));
            }
        }
        for link in links.ids() {
            links.close(link, CloseReason::Stopped);
            settle(&mut links, link, &mut kernel, &mut next, &mut closed);
        }
        while let Some((_, owner, kind)) = kernel.pop() {
            match kind {
                0 => links.receive_ended(owner),
                1 => links.send_ended(owner),
                _ => { links.connect_ended(owner, None); }
            }
            settle(&mut links, owner, &mut kernel, &mut next, &mut closed);
        }
        prop_assert_eq!(links.len(), 0);
        let key = |link: &LinkId| (link.index, link.generation);
        closed.sort_by_key(key);
        opened.sort_by_key(key);
        prop_assert_eq!(closed, opened, "each closes exactly once");
    }
}

#[test]
fn output_gathers_for_a_short_time_after_a_send() {
    let mut links = Links::new(1);
    let link = id(0, 1);
    links.adopt(link, ()).unwrap();
    assert!(!links.has_just_sent(link, Nanos(5)), "nothing was sent yet");
    links.send_started(link, OperationId(1), Nanos(5));
    assert!(links.has_just_sent(link, Nanos(5) + LINK_GATHER - Duration::from_nanos(1)));
    assert!(!links.has_just_sent(link, Nanos(5) + LINK_GATHER));
    assert!(links.gather(link, true));
    assert!(!links.gather(link, true), "it is in the list once");
    assert!(links.gather(link, false));
    links.linger(link, CloseReason::Requested, Nanos(9));
    assert!(!links.has_just_sent(link, Nanos(6)), "a link that ends waits for nothing more");
}
