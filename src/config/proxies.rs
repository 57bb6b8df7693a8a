//! `server.trusted_proxies`: the proxies whose `X-Forwarded-For` header is trusted.

use std::net::IpAddr;

use ipnet::IpNet;

use super::values::list;
use crate::base::checked_toml::Section;

pub(crate) fn trusted_proxies(section: &mut Section) -> Vec<IpNet> {
    let expected = "a list of addresses or networks, e.g. `[\"10.0.0.0/8\", \"::1\"]`";
    list(section, "trusted_proxies", expected, network)
}

/// Parses a network, or an address as a network of one host.
fn network(text: &str) -> Option<IpNet> {
    let address = text.parse::<IpAddr>().ok().map(IpNet::from);
    address.or_else(|| text.parse().ok())
}
