//! Descriptors on their way from the core that accepted them to the core that serves them.
//!
//! An engine passes plain numbers. This set says which of them are real: a number is good for one [`claim`](Transit::claim), and
//! what nobody claims is closed with the set. So no number, however wrong, can close or take over somebody else's descriptor.

use std::collections::HashMap;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The descriptors between cores of one process. Locked once per accepted connection, never per message.
#[derive(Clone, Debug, Default)]
pub struct Transit {
    sockets: Arc<Mutex<HashMap<i32, TcpStream>>>,
}

impl Transit {
    /// Nothing is on its way.
    #[must_use]
    pub fn new() -> Transit {
        Transit::default()
    }

    /// Keeps a socket until it is claimed, under its number.
    pub fn hand_over(&self, socket: TcpStream) -> i32 {
        let descriptor = socket.as_raw_fd();
        self.lock().insert(descriptor, socket);
        descriptor
    }

    /// Takes a socket by its number.
    #[must_use]
    pub fn claim(&self, descriptor: i32) -> Option<TcpStream> {
        self.lock().remove(&descriptor)
    }

    /// How many are on their way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Is none on its way?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i32, TcpStream>> {
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_number_is_good_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let transit = Transit::new();
        let number = transit.hand_over(socket);
        assert!(transit.claim(number + 1).is_none());
        assert!(transit.claim(number).is_some());
        assert!(transit.claim(number).is_none());
        assert!(transit.is_empty());
    }
}
