use super::*;
use ipnet::IpNet;
use rstest::rstest;
use std::collections::HashSet;

/// What becomes of an address where nothing is listed, and where all is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Public,
    OnlyListed,
    Never,
}

/// Ranges of which the first, the last and a middle address are tried.
const V4: &[(Fate, &str)] = &[
    (Fate::Never, "0.0.0.0/32"),
    (Fate::OnlyListed, "0.0.0.1/32"),
    (Fate::OnlyListed, "0.128.0.0/9"),
    (Fate::Public, "1.0.0.0/8"),
    (Fate::Public, "8.8.8.0/24"),
    (Fate::Public, "9.0.0.0/8"),
    (Fate::OnlyListed, "10.0.0.0/8"),
    (Fate::Public, "11.0.0.0/8"),
    (Fate::Public, "100.0.0.0/10"),
    (Fate::OnlyListed, "100.64.0.0/11"),
    (Fate::Never, "100.100.100.200/32"),
    (Fate::OnlyListed, "100.96.0.0/11"),
    (Fate::Public, "100.128.0.0/9"),
    (Fate::Public, "126.0.0.0/8"),
    (Fate::OnlyListed, "127.0.0.0/8"),
    (Fate::OnlyListed, "127.0.0.1/32"),
    (Fate::Public, "128.0.0.0/8"),
    (Fate::Public, "168.63.129.15/32"),
    (Fate::Never, "168.63.129.16/32"),
    (Fate::Public, "169.253.0.0/16"),
    (Fate::Never, "169.254.0.0/16"),
    (Fate::Never, "169.254.169.254/32"),
    (Fate::Never, "169.254.170.2/32"),
    (Fate::Public, "169.255.0.0/16"),
    (Fate::Public, "172.0.0.0/12"),
    (Fate::OnlyListed, "172.16.0.0/12"),
    (Fate::Public, "172.32.0.0/11"),
    (Fate::Public, "191.255.255.0/24"),
    (Fate::OnlyListed, "192.0.0.0/24"),
    (Fate::Public, "192.0.1.0/24"),
    (Fate::OnlyListed, "192.0.2.0/24"),
    (Fate::Public, "192.0.3.0/24"),
    (Fate::OnlyListed, "192.88.99.0/24"),
    (Fate::Public, "192.88.100.0/24"),
    (Fate::Public, "192.167.0.0/16"),
    (Fate::OnlyListed, "192.168.0.0/16"),
    (Fate::Public, "192.169.0.0/16"),
    (Fate::Public, "198.17.0.0/16"),
    (Fate::OnlyListed, "198.18.0.0/15"),
    (Fate::Public, "198.20.0.0/16"),
    (Fate::Public, "198.51.99.0/24"),
    (Fate::OnlyListed, "198.51.100.0/24"),
    (Fate::Public, "198.51.101.0/24"),
    (Fate::Public, "203.0.112.0/24"),
    (Fate::OnlyListed, "203.0.113.0/24"),
    (Fate::Public, "203.0.114.0/24"),
    (Fate::Public, "223.0.0.0/8"),
    (Fate::Never, "224.0.0.0/4"),
    (Fate::OnlyListed, "240.0.0.0/5"),
    (Fate::OnlyListed, "255.255.255.254/32"),
    (Fate::Never, "255.255.255.255/32"),
];

const V6: &[(Fate, &str)] = &[
    (Fate::Never, "::/128"),
    (Fate::OnlyListed, "::1/128"),
    (Fate::OnlyListed, "0:0:0:1::/64"),
    (Fate::OnlyListed, "64:ff9b:1::/48"),
    (Fate::OnlyListed, "100::/64"),
    (Fate::OnlyListed, "1000::/4"),
    (Fate::Public, "2000::/16"),
    (Fate::OnlyListed, "2001:1::/32"),
    (Fate::OnlyListed, "2001:20::/28"),
    (Fate::OnlyListed, "2001:1ff::/32"),
    (Fate::Public, "2001:200::/23"),
    (Fate::Public, "2001:4860:4860::8888/128"),
    (Fate::Public, "2001:db7::/32"),
    (Fate::OnlyListed, "2001:db8::/32"),
    (Fate::Public, "2001:db9::/32"),
    (Fate::Public, "2003::/16"),
    (Fate::Public, "2606:4700:4700::1111/128"),
    (Fate::Public, "2a00::/12"),
    (Fate::Public, "3ffe::/16"),
    (Fate::OnlyListed, "3fff::/20"),
    (Fate::Public, "3fff:1000::/20"),
    (Fate::OnlyListed, "4000::/3"),
    (Fate::OnlyListed, "5f00::/16"),
    (Fate::OnlyListed, "8000::/1"),
    (Fate::OnlyListed, "fc00::/7"),
    (Fate::Never, "fd00:ec2::254/128"),
    (Fate::OnlyListed, "fd7a:115c:a1e0::/48"),
    (Fate::OnlyListed, "fe00::/9"),
    (Fate::Never, "fe80::/10"),
    (Fate::OnlyListed, "fec0::/10"),
    (Fate::Never, "ff00::/8"),
];

fn samples(range: &str) -> Vec<IpAddr> {
    let net: IpNet = range.parse().unwrap();
    let (first, last) = (net.network(), net.broadcast());
    let middle = match (first, last) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            Ipv4Addr::from_bits(a.to_bits() + (b.to_bits() - a.to_bits()) / 2).into()
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            Ipv6Addr::from_bits(a.to_bits() + (b.to_bits() - a.to_bits()) / 2).into()
        }
        _ => unreachable!(),
    };
    let mut all = vec![first, middle, last];
    // The last of 8000::/1 is multicast: it has its own row.
    all.retain(|address| range != "8000::/1" || !matches!(address, IpAddr::V6(a) if a.is_multicast()));
    all
}

fn fate(address: IpAddr) -> Fate {
    let url: Url = "https://host.example/".parse().unwrap();
    let all = AllowList::new(["0.0.0.0/0", "::/0"]);
    match (check_addresses(&url, &[address], &AllowList::default()), check_addresses(&url, &[address], &all))
    {
        (Ok(()), Ok(())) => Fate::Public,
        (Err(Refusal::NotPublic { .. }), Ok(())) => Fate::OnlyListed,
        (Err(Refusal::Never { .. }), Err(Refusal::Never { .. })) => Fate::Never,
        other => panic!("{address}: {other:?}"),
    }
}

#[test]
fn every_range_has_its_fate() {
    let mut tried = HashSet::new();
    for (expected, range) in V4.iter().chain(V6) {
        for address in samples(range) {
            assert_eq!(fate(address), *expected, "{address} of {range}");
            tried.insert(address);
        }
    }
    assert!(tried.len() > 150, "{}", tried.len());
}

#[test]
fn an_address_of_ipv4_inside_of_one_of_ipv6_is_judged_as_well() {
    for (expected, range) in V4 {
        for address in samples(range) {
            let IpAddr::V4(v4) = address else { unreachable!() };
            let [a, b, c, d] = v4.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            let form = |segments: [u16; 8]| fate(Ipv6Addr::from(segments).into());
            assert_eq!(form([0, 0, 0, 0, 0, 0xffff, high, low]), *expected, "mapped {v4}");
            assert_eq!(form([0x64, 0xff9b, 0, 0, 0, 0, high, low]), *expected, "NAT64 {v4}");
            let tunnel = if *expected == Fate::Public { Fate::OnlyListed } else { *expected };
            assert_eq!(form([0x2002, high, low, 0, 0, 0, 0, 1]), tunnel, "6to4 {v4}");
            assert_eq!(form([0x2001, 0, 0x4136, 0xe378, 0x8000, 0x63bf, !high, !low]), tunnel, "Teredo {v4}");
            assert_eq!(form([0, 0, 0, 0, 0xffff, 0, high, low]), tunnel, "translated {v4}");
            if v4.to_bits() > 1 {
                assert_eq!(form([0, 0, 0, 0, 0, 0, high, low]), tunnel, "compatible {v4}");
            }
        }
    }
}

#[rstest]
#[case("https://a.example/", None)]
#[case("http://a.example:8080/x?y#z", None)]
#[case("ftp://a.example/", Some("ftp: is not fetched: only http and https urls are"))]
#[case("file:///etc/passwd", Some("file: is not fetched: only http and https urls are"))]
#[case("data:text/plain,x", Some("data: is not fetched: only http and https urls are"))]
#[case("gopher://a.example/", Some("gopher: is not fetched: only http and https urls are"))]
#[case(
    "https://u@a.example/",
    Some("a url with a user name or password in it is not fetched; leave them out")
)]
#[case(
    "https://:p@a.example/",
    Some("a url with a user name or password in it is not fetched; leave them out")
)]
fn only_http_without_credentials_is_fetched(#[case] url: &str, #[case] refusal: Option<&str>) {
    let checked = check_url(&url.parse().unwrap()).map_err(|refusal| refusal.to_string());
    assert_eq!(checked.err().as_deref(), refusal);
}

#[rstest]
#[case("https://a.example/", "8.8.8.8", "", true)]
#[case("http://a.example/", "8.8.8.8", "", false)]
#[case("http://a.example/", "8.8.8.8", "a.example", true)]
#[case("http://a.example/", "8.8.8.8", "*.example", true)]
#[case("http://b.example/", "8.8.8.8", "a.example", false)]
#[case("http://a.example/", "8.8.8.8", "8.8.8.0/24", true)]
#[case("http://a.example/", "8.8.8.8,9.9.9.9", "8.8.8.0/24", false)]
#[case("https://a.example/", "8.8.8.8,10.0.0.1", "", false)]
#[case("https://a.example/", "10.0.0.1", "a.example", false)]
#[case("https://a.example/", "10.0.0.1", "10.0.0.0/8", true)]
#[case("http://a.example/", "10.0.0.1", "10.0.0.0/8", true)]
#[case("http://h.ts.net/", "100.64.0.9", "100.64.0.0/10,*.ts.net", true)]
#[case("http://h.ts.net/", "10.0.0.1", "100.64.0.0/10,*.ts.net", false)]
#[case("https://a.example/", "127.0.0.1", "100.64.0.0/10,*.ts.net", false)]
#[case("https://a.example/", "::1", "127.0.0.0/8", false)]
#[case("https://a.example/", "::1", "::1/128", true)]
#[case("https://a.example/", "127.0.0.1", "::1/128", false)]
#[case("http://a.example/", "::ffff:127.0.0.1", "127.0.0.0/8", true)]
#[case("https://a.example/", "64:ff9b::7f00:1", "127.0.0.0/8", false)]
#[case("https://a.example/", "169.254.169.254", "169.254.0.0/16,a.example", false)]
fn the_allow_list_opens_addresses_by_range_and_plain_http_by_either(
    #[case] url: &str,
    #[case] addresses: &str,
    #[case] list: &str,
    #[case] open: bool,
) {
    let addresses: Vec<IpAddr> = addresses.split(',').map(|address| address.parse().unwrap()).collect();
    let checked = check_addresses(&url.parse().unwrap(), &addresses, &AllowList::new(list.split(',')));
    assert_eq!(checked.is_ok(), open, "{checked:?}");
}
