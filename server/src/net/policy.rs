//! The url policy: which urls may be called for somebody else. Promises a verdict on a url and on every address that
//! its host stands for; it neither resolves nor connects, which is [`super::guard`]'s.

use crate::allow_list::AllowList;
use ipnet::Ipv4Net;
use reqwest::Url;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a url is not called. Its text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Neither http nor https.
    #[error("{0} is not fetched: only http and https urls are")]
    Scheme(String),
    /// A user name or password in the url.
    #[error("a url with a user name or password in it is not fetched; leave them out")]
    Credentials,
    /// No host.
    #[error("the url names no host")]
    NoHost,
    /// Plain http to a host that is not listed.
    #[error(
        "plain http to {0} is not allowed: use https, or have the host listed in general.a2a.url_allowlist \
         (settings.yaml)"
    )]
    PlainHttp(String),
    /// An address that nothing opens.
    #[error("{host} is at {address}, which is {kind}: it is never fetched")]
    Never {
        /// The host of the url.
        host: String,
        /// The address.
        address: IpAddr,
        /// What kind of address that is.
        kind: &'static str,
    },
    /// An address that only the allow list opens.
    #[error(
        "{host} is at {address}, which is {kind}: it is not fetched unless general.a2a.url_allowlist \
         (settings.yaml) holds the address"
    )]
    NotPublic {
        /// The host of the url.
        host: String,
        /// The address.
        address: IpAddr,
        /// What kind of address that is.
        kind: &'static str,
    },
}

/// What an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// On the public internet.
    Public,
    /// Only opened by the allow list.
    Listed(&'static str),
    /// Opened by nothing.
    Never(&'static str),
}

/// Checks what can be told without its addresses: the scheme, and that it holds no credentials.
pub fn check_url(url: &Url) -> Result<(), Refusal> {
    if !matches!(url.scheme(), "http" | "https") {
        return Err(Refusal::Scheme(format!("{}:", url.scheme())));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(Refusal::Credentials);
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(Refusal::NoHost);
    }
    Ok(())
}

/// Checks every address that the host of a checked url stands for. One bad address refuses them all: which of them
/// a connection would take is not for the host to choose.
pub fn check_addresses(url: &Url, addresses: &[IpAddr], allowed: &AllowList) -> Result<(), Refusal> {
    let host = url.host_str().unwrap_or_default();
    for address in addresses.iter().map(IpAddr::to_canonical) {
        let host = host.to_owned();
        match reach(address) {
            Reach::Never(kind) => return Err(Refusal::Never { host, address, kind }),
            Reach::Listed(kind) if !allowed.holds_address(address) => {
                return Err(Refusal::NotPublic { host, address, kind });
            }
            _ => {}
        }
    }
    let listed = |address: &IpAddr| allowed.holds_address(address.to_canonical());
    if url.scheme() == "http" && !allowed.holds_host(host) && !addresses.iter().all(listed) {
        return Err(Refusal::PlainHttp(host.to_owned()));
    }
    Ok(())
}

/// Addresses at which clouds hand out credentials, beside the link-local one.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
const METADATA: &str = "where a cloud hands out credentials";

/// Addresses of IPv4 at which clouds hand out credentials, link-local ones as a whole: what nobody below full access
/// may reach, whatever asks.
pub fn credential_ranges_v4() -> impl Iterator<Item = Ipv4Net> {
    let link_local = Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16);
    METADATA_V4.into_iter().map(Ipv4Net::from).chain([link_local])
}

fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => reach_v4(address),
        IpAddr::V6(address) => reach_v6(address),
    }
}

fn reach_v4(address: Ipv4Addr) -> Reach {
    if METADATA_V4.contains(&address) {
        return Reach::Never(METADATA);
    }
    match address.octets() {
        [0, 0, 0, 0] => Reach::Never("no address"),
        [169, 254, ..] => Reach::Never("a link-local address"),
        [224..=239, ..] => Reach::Never("a multicast address"),
        [255, 255, 255, 255] => Reach::Never("the broadcast address"),
        [127, ..] => Reach::Listed("a loopback address"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Reach::Listed("a private address"),
        [100, 64..=127, ..] => Reach::Listed("an address of a carrier's or overlay network"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Reach::Listed("an address of documentation"),
        [198, 18..=19, ..] => Reach::Listed("an address of benchmarks"),
        [0 | 240..=255, ..] | [192, 0, 0, _] | [192, 88, 99, _] => Reach::Listed("a reserved address"),
        _ => Reach::Public,
    }
}

fn reach_v6(address: Ipv6Addr) -> Reach {
    if address == METADATA_V6 {
        return Reach::Never(METADATA);
    }
    if address.is_unspecified() {
        return Reach::Never("no address");
    }
    let segments = address.segments();
    // An address of IPv4 inside: what nothing opens stays closed on this way too.
    let inside = match segments {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some((v4(high, low), true)),
        // Far ends of tunnels of old, at which nothing public is found any more.
        [0x2002, high, low, ..] | [0, 0, 0, 0, 0 | 0xffff, 0, high, low] if !address.is_loopback() => {
            Some((v4(high, low), false))
        }
        [0x2001, 0, .., high, low] => Some((v4(!high, !low), false)),
        _ => None,
    };
    if let Some((inside, in_use)) = inside {
        return match reach_v4(inside) {
            Reach::Public if in_use => Reach::Public,
            Reach::Public => Reach::Listed("an address of a tunnel"),
            other => other,
        };
    }
    match segments {
        [0xfe80..=0xfebf, ..] => Reach::Never("a link-local address"),
        [0xff00..=0xffff, ..] => Reach::Never("a multicast address"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Reach::Listed("a loopback address"),
        [0xfc00..=0xfdff, ..] => Reach::Listed("a private address"),
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] => Reach::Listed("an address of documentation"),
        [0x2001, 0..=0x1ff, ..] => Reach::Listed("a reserved address"),
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Listed("a reserved address"),
    }
}

fn v4(high: u16, low: u16) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low))
}

#[cfg(test)]
mod tests;
