//! Finds the client's address behind the operator's proxies.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use axum::http::HeaderMap;
use ipnet::IpNet;

/// Networks of proxies whose `X-Forwarded-For` entries are trusted. Each proxy appends on the right, so entries that
/// the client itself wrote are left of theirs.
#[derive(Clone, Debug)]
pub(crate) struct TrustedProxies(Arc<[IpNet]>);

/// Where the requests of a connection come from.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub peer: IpAddr,
    pub proxies: TrustedProxies,
}

impl Source {
    /// The address of a request's client.
    pub(crate) fn client(&self, headers: &HeaderMap) -> IpAddr {
        self.proxies.client(self.peer, headers)
    }
}

impl TrustedProxies {
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        Self(networks.into())
    }

    /// The nearest address that is not a trusted proxy: starts with the peer and goes through `X-Forwarded-For` from
    /// right to left, up to an entry that cannot be parsed.
    pub(crate) fn client(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let mut nearest = peer.to_canonical();
        let lines = headers.get_all("x-forwarded-for").iter().rev();
        let mut entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        while self.has(nearest)
            && let Some(next) = entries.next().and_then(address)
        {
            nearest = next;
        }
        nearest
    }

    fn has(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address))
    }
}

/// Parses an address, with or without brackets and port.
fn address(entry: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(entry).ok()?.trim();
    let bracketed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let alone = bracketed.unwrap_or(text).parse::<IpAddr>().ok();
    let address = alone.or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()));
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    const NAME: HeaderName = HeaderName::from_static("x-forwarded-for");

    /// The client's address if `10.0.0.0/8` and `::1` are trusted.
    fn client(peer: &str, lines: &[&str]) -> String {
        let networks = ["10.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(NAME, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        let proxies = TrustedProxies::new(&networks);
        proxies.client(peer.parse().unwrap(), &headers).to_string()
    }

    #[test]
    fn the_client_is_the_nearest_address_that_is_not_a_proxy() {
        for (peer, lines, expected) in [
            // An untrusted peer: its header is ignored.
            ("203.0.113.7", vec!["198.51.100.1"], "203.0.113.7"),
            ("10.0.0.1", vec!["198.51.100.1"], "198.51.100.1"),
            ("::1", vec!["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", vec!["198.51.100.1"], "198.51.100.1"),
            // The proxy appends the address that it saw; entries left of it are the client's own.
            ("10.0.0.1", vec!["1.2.3.4, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", vec!["1.2.3.4", "198.51.100.1"], "198.51.100.1"),
            (
                "10.0.0.1",
                vec!["1.2.3.4, 198.51.100.1,10.0.0.2", "10.0.0.3"],
                "198.51.100.1",
            ),
            // A client in a trusted network.
            ("10.0.0.1", vec!["10.0.0.9, 10.0.0.2"], "10.0.0.9"),
            ("10.0.0.1", vec![], "10.0.0.1"),
            // An invalid entry ends the search.
            ("10.0.0.1", vec!["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", vec!["198.51.100.1, junk, 10.0.0.2"], "10.0.0.2"),
            ("10.0.0.1", vec!["198.51.100.1,"], "10.0.0.1"),
            ("10.0.0.1", vec!["\u{e9}"], "10.0.0.1"),
            // With ports, IPv4 and IPv6.
            ("10.0.0.1", vec!["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", vec!["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", vec!["[2001:db8::1]"], "2001:db8::1"),
            ("10.0.0.1", vec!["1.2.3.4, ::ffff:10.0.0.2"], "1.2.3.4"),
        ] {
            assert_eq!(client(peer, &lines), expected, "{peer} {lines:?}");
        }
    }
}
