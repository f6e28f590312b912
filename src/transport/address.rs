//! `host:port` in all its spellings, checked when it is read and not when it is used.

use core::fmt;
use core::str::FromStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Longest name of a host (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No port, and no default for it.
    #[error("`{0}` has no port: write host:port, and [address]:port for IPv6")]
    PortMissing(String),
    /// Not a number from 1 to 65535.
    #[error("`{0}` has no valid port: a port is a number from 1 to 65535")]
    PortInvalid(String),
    /// Empty, too long, or with a character that no name has.
    #[error("`{0}` has no valid host: write a name, an IPv4 address or an IPv6 address in brackets")]
    HostInvalid(String),
    /// Only an address of this host can be listened on.
    #[error("`{0}` is no address to listen on: write an IP address and a port, like 0.0.0.0:7400 or [::]:7400")]
    NotAnAddress(String),
}

/// Where a peer listens: a name or an address, and a port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PeerAddress {
    host: String,
    port: u16,
}

impl PeerAddress {
    /// Reads `host:port`; a missing port is `default_port`, if there is one.
    ///
    /// # Errors
    /// When host or port are not valid.
    pub fn parse(text: &str, default_port: Option<u16>) -> Result<PeerAddress, AddressError> {
        let text = text.trim();
        let (host, port) = split(text)?;
        let port = match (port, default_port) {
            (Some(port), _) => port.parse().ok().filter(|port| *port != 0),
            (None, Some(port)) => Some(port),
            (None, None) => return Err(AddressError::PortMissing(text.to_owned())),
        };
        let port = port.ok_or_else(|| AddressError::PortInvalid(text.to_owned()))?;
        Ok(PeerAddress { host: host.to_owned(), port })
    }

    /// The name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if it needs no lookup.
    #[must_use]
    pub fn socket_address(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|address| SocketAddr::new(address, self.port))
    }
}

/// Host and port of a text; the host is checked.
fn split(text: &str) -> Result<(&str, Option<&str>), AddressError> {
    let invalid = || AddressError::HostInvalid(text.to_owned());
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or_else(invalid)?;
        host.parse::<Ipv6Addr>().map_err(|_| invalid())?;
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(invalid()),
        };
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok((text, None));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let valid = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'));
    if host.is_empty() || host.len() > HOST_BYTES_MAX || !valid {
        return Err(invalid());
    }
    Ok((host, port))
}

impl FromStr for PeerAddress {
    type Err = AddressError;
    fn from_str(text: &str) -> Result<PeerAddress, AddressError> {
        PeerAddress::parse(text, None)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Debug for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Reads an address to listen on: `address:port`, `:port` (all addresses), or a port alone. Port 0 takes a free one.
///
/// # Errors
/// When it is anything else.
pub fn listen_address(text: &str) -> Result<SocketAddr, AddressError> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    match text.strip_prefix(':').unwrap_or(text).parse() {
        Ok(port) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
        Err(_) => Err(AddressError::NotAnAddress(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_spellings_are_read() {
        for (text, host, port) in [
            ("pod-1:7400", "pod-1", 7400),
            (" 10.0.0.1:1 ", "10.0.0.1", 1),
            ("[::1]:7400", "::1", 7400),
            ("[::1]", "::1", 9),
            ("::1", "::1", 9),
            ("pod_2.example.com", "pod_2.example.com", 9),
        ] {
            let address = PeerAddress::parse(text, Some(9)).unwrap();
            assert_eq!((address.host(), address.port()), (host, port));
        }
        assert_eq!("[::1]:5".parse::<PeerAddress>().unwrap().to_string(), "[::1]:5");
        assert_eq!("1.2.3.4:5".parse::<PeerAddress>().unwrap().socket_address(), "1.2.3.4:5".parse().ok());
        assert_eq!("pod:5".parse::<PeerAddress>().unwrap().socket_address(), None);
    }

    #[test]
    fn what_is_none_says_why() {
        let error = |text: &str| text.parse::<PeerAddress>().unwrap_err();
        assert!(matches!(error("pod"), AddressError::PortMissing(_)));
        for text in ["pod:", "pod:0", "pod:65536", "pod:x", "pod:1:2"] {
            assert!(matches!(error(text), AddressError::PortInvalid(_)), "{text}");
        }
        for text in ["", ":1", "a b:1", "[::1:5", "[pod]:1", "[::1]x", &format!("{}:1", "x".repeat(254))] {
            assert!(matches!(error(text), AddressError::HostInvalid(_)), "{text}");
        }
    }

    #[test]
    fn listening_takes_addresses_only() {
        assert_eq!(listen_address("127.0.0.1:0").unwrap(), "127.0.0.1:0".parse::<SocketAddr>().unwrap());
        assert_eq!(listen_address(":7400").unwrap(), "0.0.0.0:7400".parse::<SocketAddr>().unwrap());
        assert_eq!(listen_address("7400").unwrap(), "0.0.0.0:7400".parse::<SocketAddr>().unwrap());
        assert!(listen_address("pod:7400").unwrap_err().to_string().contains("0.0.0.0:7400"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_and_what_is_read_reads_back(text in "[a-z0-9:.\\[\\]-]{0,24}") {
            if let Ok(address) = text.parse::<PeerAddress>() {
                prop_assert_eq!(address.to_string().parse::<PeerAddress>().unwrap(), address);
            }
        }
    }
}
