//! Sockets: making, listening, and the options that decide their latency.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Connections that the kernel keeps for us before they are accepted.
const BACKLOG: c_int = 1024;

/// Congestion control for peers in one rack, best first. Where the default is bbr it costs half of the latency.
const CONGESTION_CONTROLS: [&str; 2] = ["cubic", "reno"];

/// An address as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) union SocketAddress {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

impl SocketAddress {
    /// Bytes of the address that count.
    pub fn length(&self) -> libc::socklen_t {
        // SAFETY: both variants begin with the family, which `From` set.
        let v6 = i32::from(unsafe { self.v4.sin_family }) == libc::AF_INET6;
        if v6 { size_of::<libc::sockaddr_in6>() as u32 } else { size_of::<libc::sockaddr_in>() as u32 }
    }
}

impl From<SocketAddr> for SocketAddress {
    fn from(address: SocketAddr) -> SocketAddress {
        match address {
            SocketAddr::V4(address) => SocketAddress {
                v4: libc::sockaddr_in {
                    sin_family: libc::AF_INET as u16,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                    sin_zero: [0; 8],
                },
            },
            SocketAddr::V6(address) => SocketAddress {
                v6: libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as u16,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: address.flowinfo(),
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                },
            },
        }
    }
}

/// Listens on an address; accepted sockets inherit the options that are set here.
///
/// # Errors
/// When the address is in use, not ours, or privileged.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    // The standard library sets SO_REUSEADDR, so that a pod can come back at once.
    let listener = TcpListener::bind(address)?;
    // SAFETY: the descriptor is open, and the call takes two numbers. On a listening socket it only changes the backlog.
    if unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) } < 0 {
        return Err(io::Error::last_os_error());
    }
    set_link_options(listener.as_raw_fd());
    Ok(listener)
}

/// A socket that `Ring::connect` can connect to an address.
///
/// # Errors
/// When there is no descriptor left or the address family is not supported.
pub(crate) fn socket_for(address: SocketAddr) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: the call takes three numbers.
    let descriptor = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above succeeded, so this is an open descriptor that nobody else owns.
    let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
    set_link_options(descriptor.as_raw_fd());
    Ok(TcpStream::from(descriptor))
}

/// No delay for small frames, and a congestion control without one either. Both are wishes: a host that refuses them is slower,
/// not broken.
fn set_link_options(descriptor: RawFd) {
    let on: c_int = 1;
    set_option(descriptor, libc::TCP_NODELAY, &on.to_ne_bytes());
    for name in CONGESTION_CONTROLS {
        if set_option(descriptor, libc::TCP_CONGESTION, name.as_bytes()) {
            return;
        }
    }
}

fn set_option(descriptor: RawFd, option: c_int, value: &[u8]) -> bool {
    // SAFETY: the kernel reads `value.len()` bytes from `value`, which lives across the call; a descriptor that is no socket
    // makes the call fail.
    let result = unsafe {
        libc::setsockopt(descriptor, libc::IPPROTO_TCP, option, value.as_ptr().cast(), value.len() as libc::socklen_t)
    };
    result == 0
}

/// The congestion controls that this process may choose.
pub(crate) fn congestion_controls() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn option_text(descriptor: RawFd, option: c_int) -> Vec<u8> {
        let mut value = [0_u8; 16];
        let mut length = value.len() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `value`.
        let result =
            unsafe { libc::getsockopt(descriptor, libc::IPPROTO_TCP, option, value.as_mut_ptr().cast(), &mut length) };
        assert_eq!(result, 0);
        value[..length as usize].to_vec()
    }

    #[test]
    fn accepted_sockets_inherit_the_options_of_the_listener() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
        let same = option_text(accepted.as_raw_fd(), libc::TCP_CONGESTION);
        assert_eq!(same, option_text(listener.as_raw_fd(), libc::TCP_CONGESTION));
    }

    #[test]
    fn a_second_listener_is_refused() {
        let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = listen(listener.local_addr().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
