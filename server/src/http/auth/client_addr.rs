//! The address that the lockout counts by. Without `trust_proxy` it is the socket's peer. With it, the right-most
//! entry of `X-Forwarded-For` that is no hop of our own: entries further left are the client's to write, so they
//! are never read. Hops of our own are loopback addresses and the peer itself.

use axum::extract::ConnectInfo;
use axum::http::request::Parts;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// The address to count by: IPv4 as it is (also when written as IPv6), IPv6 as its /64, since one client has
/// all of that.
pub fn client_addr(parts: &Parts, trust_proxy: bool) -> IpAddr {
    // A router that is called without a socket (only tests do) has no peer.
    let peer = parts
        .extensions
        .get::<ConnectInfo<SocketAddr>>()
        .map_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED), |ConnectInfo(peer)| peer.ip())
        .to_canonical();
    let client = if trust_proxy { forwarded_for(parts, peer).unwrap_or(peer) } else { peer };
    bucket(client)
}

/// The right-most entry that is not one of our hops. An entry that is no address ends the search: what stands
/// left of it is worth nothing.
fn forwarded_for(parts: &Parts, peer: IpAddr) -> Option<IpAddr> {
    let lines: Vec<_> = parts.headers.get_all("x-forwarded-for").iter().collect();
    for line in lines.into_iter().rev() {
        for entry in line.to_str().ok()?.rsplit(',') {
            let address = parse(entry.trim())?.to_canonical();
            if !address.is_loopback() && address != peer {
                return Some(address);
            }
        }
    }
    None
}

/// `1.2.3.4`, `1.2.3.4:80`, `2001:db8::1`, `[2001:db8::1]` or `[2001:db8::1]:80`.
fn parse(entry: &str) -> Option<IpAddr> {
    let bare = entry.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(entry);
    bare.parse::<IpAddr>().ok().or_else(|| entry.parse::<SocketAddr>().ok().map(|socket| socket.ip()))
}

fn bucket(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use rstest::rstest;

    fn parts(peer: &str, forwarded: &[&str]) -> Parts {
        let mut request = Request::builder();
        for line in forwarded {
            request = request.header("x-forwarded-for", *line);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        let peer: IpAddr = peer.parse().unwrap();
        parts.extensions.insert(ConnectInfo(SocketAddr::from((peer, 4000))));
        parts
    }

    #[rstest]
    #[case("203.0.113.9", &[], "203.0.113.9")]
    #[case("127.0.0.1", &["198.51.100.7"], "198.51.100.7")]
    // the left entry is what the client claimed
    #[case("127.0.0.1", &["9.9.9.9, 198.51.100.7"], "198.51.100.7")]
    #[case("127.0.0.1", &["9.9.9.9", "198.51.100.7"], "198.51.100.7")]
    // hops of our own are passed over
    #[case("127.0.0.1", &["9.9.9.9, 198.51.100.7, 127.0.0.1"], "198.51.100.7")]
    #[case("10.0.0.2", &["198.51.100.7, 10.0.0.2"], "198.51.100.7")]
    #[case("127.0.0.1", &["198.51.100.7:5123"], "198.51.100.7")]
    #[case("127.0.0.1", &["[2001:db8:1:2:3::4]:5123"], "2001:db8:1:2::")]
    #[case("127.0.0.1", &["2001:db8:1:2:3::4"], "2001:db8:1:2::")]
    // junk at the right end: nothing left of it counts
    #[case("127.0.0.1", &["9.9.9.9, junk"], "127.0.0.1")]
    #[case("127.0.0.1", &[""], "127.0.0.1")]
    fn behind_a_proxy_the_right_most_foreign_entry_counts(
        #[case] peer: &str,
        #[case] forwarded: &[&str],
        #[case] expected: &str,
    ) {
        assert_eq!(client_addr(&parts(peer, forwarded), true).to_string(), expected);
    }

    #[test]
    fn without_trust_a_forwarded_address_is_ignored() {
        assert_eq!(client_addr(&parts("203.0.113.9", &["9.9.9.9"]), false).to_string(), "203.0.113.9");
    }

    #[test]
    fn ipv6_counts_per_64_and_mapped_ipv4_as_ipv4() {
        let of = |peer| client_addr(&parts(peer, &[]), false);
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
        assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_eq!(of("::ffff:203.0.113.9"), of("203.0.113.9"));
    }
}
