//! The allow list of urls: addresses, ranges and host names that may be called beyond the public internet. Promises
//! how an entry reads and what it matches; what follows from that is [`crate::net::policy`]'s.

use ipnet::IpNet;
use reqwest::Url;
use std::net::IpAddr;

/// One entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    /// An address, or a range of them.
    Network(IpNet),
    /// This host alone.
    Host(String),
    /// Every name below this one, with the dot before it.
    Below(String),
}

/// The entries in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AllowList(Vec<Entry>);

impl AllowList {
    /// The list of these entries. One that is none (see [`is_entry`]) allows nothing.
    pub fn new<T: AsRef<str>>(entries: impl IntoIterator<Item = T>) -> Self {
        Self(entries.into_iter().filter_map(|entry| Entry::parse(entry.as_ref())).collect())
    }

    /// Whether an address, as it is written, is in a listed range. Ranges of IPv4 hold no IPv6 addresses.
    pub fn holds_address(&self, address: IpAddr) -> bool {
        self.0.iter().any(|entry| matches!(entry, Entry::Network(network) if network.contains(&address)))
    }

    /// Whether a host name, in lower case, is listed. A dot at its end does not count.
    pub fn holds_host(&self, host: &str) -> bool {
        let host = host.strip_suffix('.').unwrap_or(host);
        self.0.iter().any(|entry| match entry {
            Entry::Network(_) => false,
            Entry::Host(known) => host == known,
            Entry::Below(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        })
    }
}

/// Whether `text` is an address (`10.1.2.3`, `::1`), a range (`10.0.0.0/8`), a host name, or `*.` and a name.
pub fn is_entry(text: &str) -> bool {
    Entry::parse(text).is_some()
}

impl Entry {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(Self::Network(network.trunc()));
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Self::Network(address.to_canonical().into()));
        }
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        let name = name.strip_suffix('.').unwrap_or(name);
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | '_');
        if name.is_empty() || name.split('.').any(str::is_empty) || !name.chars().all(fits) {
            return None;
        }
        // As urls write it: lower case, and with its letters beyond ASCII in their ASCII form.
        let url = Url::parse(&format!("http://{name}/")).ok()?;
        let host = url.host_str()?;
        if let Ok(address) = host.parse::<IpAddr>() {
            return (!below).then_some(Self::Network(address.into()));
        }
        Some(if below { Self::Below(format!(".{host}")) } else { Self::Host(host.to_owned()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("10.0.0.0/8", "10.255.1.2", true)]
    #[case("10.9.9.9/8", "10.255.1.2", true)]
    #[case("10.0.0.0/8", "11.0.0.1", false)]
    #[case("10.1.2.3", "10.1.2.3", true)]
    #[case("10.1.2.3", "10.1.2.4", false)]
    #[case("::1/128", "::1", true)]
    #[case("[::1]", "::1", true)]
    #[case("127.0.0.0/8", "::1", false)]
    #[case("127.0.0.0/8", "::ffff:127.0.0.1", false)]
    #[case("::ffff:10.0.0.1", "10.0.0.1", true)]
    #[case("0x7f.1", "127.0.0.1", true)]
    #[case("localhost", "127.0.0.1", false)]
    fn addresses_are_in_their_ranges(#[case] entry: &str, #[case] address: &str, #[case] held: bool) {
        assert_eq!(AllowList::new([entry]).holds_address(address.parse().unwrap()), held);
    }

    #[rstest]
    #[case("*.ts.net", "a.ts.net", true)]
    #[case("*.ts.net", "a.b.ts.net.", true)]
    #[case("*.ts.net", "ts.net", false)]
    #[case("*.ts.net", "evilts.net", false)]
    #[case("*.ts.net", "a.ts.net.evil.example", false)]
    #[case("Lab.Example.", "lab.example", true)]
    #[case("lab.example", "a.lab.example", false)]
    #[case("bücher.example", "xn--bcher-kva.example", true)]
    #[case("10.0.0.0/8", "10.0.0.1", false)]
    fn hosts_are_listed_by_name_or_by_what_they_are_below(
        #[case] entry: &str,
        #[case] host: &str,
        #[case] held: bool,
    ) {
        assert_eq!(AllowList::new([entry]).holds_host(host), held);
    }

    #[rstest]
    #[case("")]
    #[case("*")]
    #[case("*.")]
    #[case("*.1.2.3.4")]
    #[case("a.*.example")]
    #[case("a..example")]
    #[case("10.0.0.0/33")]
    #[case("https://a.example")]
    #[case("a.example:443")]
    #[case("a.example/x")]
    #[case("user@a.example")]
    fn anything_else_is_no_entry_and_allows_nothing(#[case] text: &str) {
        assert!(!is_entry(text));
        assert_eq!(AllowList::new([text]), AllowList::default());
    }
}
