//! The links of a core: found by whom they lead to, dialed when a message needs one, and missed for a while when a peer
//! cannot be reached.
//!
//! Called by `routes` for every message to another pod, by `handshake` and by `core`. Invariants: at most one link that
//! this core dialed leads to a core of a pod; an id of a link that is gone finds nothing.

use std::collections::HashSet;
use std::rc::Rc;

use super::link::{Link, Peer, Phase};
use super::routes::{LinkCommand, Routes};
use crate::base::limits::{CLIENT_LINKS_MIN, LINKS_MAX, REDIAL_PAUSE};
use crate::base::{CoreIndex, LinkId, Nanos, PodUid};
use crate::wire::{ANY_CORE, Hello, PROTOCOL_VERSIONS};

/// How many links are remembered as recent.
pub(super) const RECENT_LINKS: usize = 16;
/// A link that a message went by, and whom it leads to. An id of a link that is gone finds nothing.
pub(super) type RecentLink = Option<((PodUid, CoreIndex), LinkId)>;

impl Routes {
    pub(super) fn link(&self, id: LinkId) -> Option<Rc<Link>> {
        let links = self.links.borrow();
        let (generation, link) = links.get(id.index as usize)?;
        if *generation == id.generation { link.clone() } else { None }
    }

    pub(super) fn all_links(&self) -> Vec<Rc<Link>> {
        self.links.borrow().iter().filter_map(|(_, link)| link.clone()).collect()
    }

    /// A new link, if there is room for one.
    pub(super) fn add_link(&self, peer: Peer, phase: Phase, now: Nanos) -> Option<Rc<Link>> {
        let mut links = self.links.borrow_mut();
        let index = match self.free_links.borrow_mut().pop() {
            Some(index) => index,
            None if links.len() < LINKS_MAX => {
                links.push((0, None));
                links.len() as u32 - 1
            }
            None => return None,
        };
        let entry = &mut links[index as usize];
        let id = LinkId { index, generation: entry.0 };
        let link = Link::new(id, peer, phase, now + self.limits.hello_timeout, self.limits);
        entry.1 = Some(Rc::clone(&link));
        Some(link)
    }

    /// Whether a client has no link to any pod.
    pub(super) fn is_lost(&self) -> bool {
        let links = self.links.borrow();
        !self.identity.is_pod && !links.iter().filter_map(|(_, link)| link.as_ref()).any(|link| link.is_open())
    }

    /// Forgets a link whose connection is gone.
    pub(super) fn remove_link(&self, id: LinkId) -> Option<Rc<Link>> {
        let link = self.link(id)?;
        let mut links = self.links.borrow_mut();
        let entry = &mut links[id.index as usize];
        *entry = (entry.0.wrapping_add(1), None);
        self.free_links.borrow_mut().push(id.index);
        if let Peer::Pod(uid, core) = link.peer {
            let mut by_peer = self.by_peer.borrow_mut();
            if by_peer.get(&(uid, core)) == Some(&id) {
                by_peer.remove(&(uid, core));
            }
        }
        Some(link)
    }

    /// The link to a core of a pod: open, being made (then a message must wait), or not to be had now.
    #[inline]
    pub(super) fn link_to(&self, uid: PodUid, core: CoreIndex, address: &str, now: Nanos) -> Option<Rc<Link>> {
        let recent = &self.recent[usize::from(core.0) % RECENT_LINKS];
        if let Some((peer, id)) = recent.get()
            && peer == (uid, core)
            && let Some(link) = self.link(id)
        {
            return Some(link);
        }
        let link = self.find_or_dial(uid, core, address, now)?;
        recent.set(Some(((uid, core), link.id)));
        Some(link)
    }

    fn find_or_dial(&self, uid: PodUid, core: CoreIndex, address: &str, now: Nanos) -> Option<Rc<Link>> {
        let known = self.by_peer.borrow().get(&(uid, core)).copied();
        if let Some(link) = known.and_then(|id| self.link(id)) {
            return Some(link);
        }
        if self.unreachable.borrow().get(&(uid, core)).is_some_and(|until| now < *until) {
            return None;
        }
        let link = self.dial(Peer::Pod(uid, core), core, address, now)?;
        self.by_peer.borrow_mut().insert((uid, core), link.id);
        Some(link)
    }

    pub(super) fn dial(&self, peer: Peer, core: CoreIndex, address: &str, now: Nanos) -> Option<Rc<Link>> {
        let link = self.add_link(peer, Phase::Connecting, now)?;
        let hello = Hello {
            versions: PROTOCOL_VERSIONS,
            target_core: core,
            sender_core: self.identity.core,
            cluster_name_hash: crate::base::hash::stable_hash(&self.identity.cluster_name),
            sender_uid: self.uid.get(),
            is_pod: self.identity.is_pod,
        };
        self.commands.borrow_mut().push(LinkCommand::Connect {
            link: link.id,
            address: address.to_owned(),
            hello: hello.encode(),
        });
        Some(link)
    }

    /// How many addresses [`Routes::dial_next`] chooses from.
    pub(super) fn dial_addresses(&self) -> usize {
        self.table.borrow().as_ref().map_or(0, |table| table.pods().len()) + self.bootstrap.len()
    }

    /// Whether a client needs one more link, and none is being made: it hears of newer tables over any, so one is too
    /// few as long as there are other pods.
    pub(super) fn wants_link(&self) -> bool {
        if self.identity.is_pod {
            return false;
        }
        let links = self.links.borrow();
        let is_new = |link: &Link| matches!(link.phase.get(), Phase::Connecting | Phase::Greeting);
        if links.iter().filter_map(|(_, link)| link.as_ref()).any(|link| is_new(link)) {
            return false;
        }
        let open = links.iter().filter_map(|(_, link)| link.as_ref()).filter(|link| link.is_open());
        let linked: HashSet<PodUid> = open.filter_map(|link| link.peer_uid.get()).collect();
        let pods = self.table.borrow().as_ref().map_or(1, |table| table.pods().len());
        linked.len() < CLIENT_LINKS_MIN.min(pods.max(1))
    }

    /// Dials the next pod of the table that has no link, or else the next bootstrap address, to learn the table.
    pub(super) fn dial_next(&self, now: Nanos) {
        let table = self.table.borrow().clone();
        let pods = table.as_ref().map_or(&[][..], |table| table.pods());
        let count = pods.len() + self.bootstrap.len();
        for _ in 0..count {
            let at = self.next_dial.get() % count;
            self.next_dial.set(at + 1);
            let address = match pods.get(at) {
                Some(pod) if self.has_link_to(pod.uid) => continue,
                Some(pod) => &pod.address,
                None => &self.bootstrap[at - pods.len()],
            };
            self.dial(Peer::Bootstrap(address.clone()), ANY_CORE, address, now);
            return;
        }
    }

    fn has_link_to(&self, uid: PodUid) -> bool {
        let links = self.links.borrow();
        links
            .iter()
            .filter_map(|(_, link)| link.as_ref())
            .any(|link| link.is_open() && link.peer_uid.get() == Some(uid))
    }

    /// Waits a little before it is dialed again.
    pub(super) fn mark_unreachable(&self, peer: &Peer, now: Nanos) {
        if let Peer::Pod(uid, core) = peer {
            self.unreachable.borrow_mut().insert((*uid, *core), now + REDIAL_PAUSE);
        }
    }

    /// Forgets pauses that are over; true if there was one, since its waiters may try again.
    pub(super) fn forgive(&self, now: Nanos) -> bool {
        let mut unreachable = self.unreachable.borrow_mut();
        let before = unreachable.len();
        unreachable.retain(|_, until| now < *until);
        unreachable.len() != before
    }

    pub(super) fn next_forgiveness(&self) -> Nanos {
        let unreachable = self.unreachable.borrow();
        if unreachable.is_empty() {
            return Nanos::NEVER;
        }
        unreachable.values().copied().min().unwrap_or(Nanos::NEVER)
    }
}
