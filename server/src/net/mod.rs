//! HTTP clients. The only floor that builds them, so that redirects, proxies and time limits are decided in
//! one place. What is sent, and what an answer means, is the callers'.

#[cfg(feature = "bedrock")]
pub mod aws;
mod fault;
pub mod guard;
pub mod policy;

use crate::config::problem::os_reason;
pub use fault::Fault;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use std::net::IpAddr;
use std::sync::OnceLock;
use std::time::Duration;

/// How long a connection may take to come up, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for an address that only the own network segment has: one that is there answers at once.
const LINK_LOCAL_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

/// What we call ourselves.
const USER_AGENT: &str = concat!("halo/", env!("CARGO_PKG_VERSION"));

/// The client for calls of a model at `url`. It follows no redirects (a key must not travel to another host)
/// and has no overall time limit (answers stream as long as they last). The proxy variables of the environment
/// count, save for an address of this machine or of its link (where clouds hand out credentials), which no proxy could
/// reach.
///
/// Clients are built when first asked for and shared after that: an idle server holds no TLS roots. Fails where
/// the machine offers no usable TLS set-up.
pub fn model_client(url: &Url) -> Result<Client, reqwest::Error> {
    static OUTSIDE: OnceLock<Client> = OnceLock::new();
    static LOCAL: OnceLock<Client> = OnceLock::new();
    static LINK: OnceLock<Client> = OnceLock::new();
    let reach = reach(url);
    let cell = match reach {
        Reach::Outside => &OUTSIDE,
        Reach::Local => &LOCAL,
        Reach::Link => &LINK,
    };
    if let Some(client) = cell.get() {
        return Ok(client.clone());
    }
    let built = build(reach)?;
    Ok(cell.get_or_init(|| built).clone())
}

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Outside,
    /// On this machine.
    Local,
    /// Beside it, without a router in between.
    Link,
}

#[allow(clippy::disallowed_methods, reason = "this is where clients are built")]
fn build(reach: Reach) -> Result<Client, reqwest::Error> {
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .connect_timeout(if reach == Reach::Link { LINK_LOCAL_CONNECT_TIMEOUT } else { CONNECT_TIMEOUT })
        .tcp_keepalive(Duration::from_secs(60));
    if reach == Reach::Outside { builder } else { builder.no_proxy() }.build()
}

fn reach(url: &Url) -> Reach {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match address {
        Ok(address) if address.is_loopback() => Reach::Local,
        Ok(IpAddr::V4(address)) if address.is_link_local() => Reach::Link,
        // The metadata of EC2 over IPv6 has an address of its own.
        Ok(IpAddr::V6(address))
            if address.is_unicast_link_local() || address.segments()[..2] == [0xfd00, 0x0ec2] =>
        {
            Reach::Link
        }
        _ if host == "localhost" => Reach::Local,
        _ => Reach::Outside,
    }
}

/// The causes of an error, outermost first; without the address, which may hold a password.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let text = match error.downcast_ref::<reqwest::Error>() {
            Some(error) if error.url().is_some() => "request error".to_owned(),
            _ => error.to_string(),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
        next = error.source();
    }
    texts.join(": ")
}

/// The cause of all others, which says why a connection did not come up.
pub fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    match cause.downcast_ref::<std::io::Error>() {
        Some(error) => os_reason(error),
        // An error of the HTTP client itself may name the address, which may hold a password.
        None => match cause.downcast_ref::<reqwest::Error>() {
            Some(_) => "no connection".to_owned(),
            None => cause.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn clients_can_be_built_for_this_machine_and_for_the_world() {
        for url in ["http://127.0.0.1:1/", "http://169.254.169.254/", "https://api.example.com/"] {
            assert!(model_client(&url.parse().unwrap()).is_ok(), "{url}");
        }
    }

    #[rstest]
    #[case("http://localhost:11434/v1", Reach::Local)]
    #[case("http://127.8.9.1/", Reach::Local)]
    #[case("http://[::1]:80/", Reach::Local)]
    #[case("http://169.254.169.254/latest", Reach::Link)]
    #[case("http://169.254.170.2/v2", Reach::Link)]
    #[case("http://[fd00:ec2::254]/latest", Reach::Link)]
    #[case("http://[fe80::1]/", Reach::Link)]
    #[case("http://[fd00:ec3::254]/", Reach::Outside)]
    #[case("https://127.0.0.1.example.com/", Reach::Outside)]
    #[case("https://169.254.169.254.example.com/", Reach::Outside)]
    #[case("https://api.example.com/", Reach::Outside)]
    fn only_addresses_of_this_machine_and_its_link_go_past_the_proxy(
        #[case] url: &str,
        #[case] expected: Reach,
    ) {
        assert_eq!(reach(&url.parse().unwrap()), expected);
    }
}
