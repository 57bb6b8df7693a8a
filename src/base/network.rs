//! The network of a client's address, by which clients are counted.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
};

/// An IPv4 address, also if it is mapped to IPv6; or the /64 of an IPv6 address, because one customer has all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Network {
    V4([u8; 4]),
    V6([u16; 4]),
}

impl Network {
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(octets) => Ipv4Addr::from(*octets).fmt(formatter),
            Self::V6([a, b, c, d]) => write!(formatter, "{a:x}:{b:x}:{c:x}:{d:x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_customer_are_one_network() {
        let network = |text: &str| Network::of(text.parse().unwrap());
        assert_eq!(network("203.0.113.7"), network("::ffff:203.0.113.7"));
        assert_ne!(network("203.0.113.7"), network("203.0.113.8"));
        assert_eq!(network("2001:db8:1:2::1"), network("2001:db8:1:2:ffff::9"));
        assert_ne!(network("2001:db8:1:2::1"), network("2001:db8:1:3::1"));
        assert_eq!(network("203.0.113.7").to_string(), "203.0.113.7");
        assert_eq!(network("2001:db8:1:2::1").to_string(), "2001:db8:1:2");
    }
}
