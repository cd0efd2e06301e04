//! HTTP clients. The only floor that builds them, so that redirects, proxies and time limits are decided in
//! one place. What is sent, and what an answer means, is the callers'.

mod fault;
pub mod guard;
pub mod policy;

use crate::config::problem::os_reason;
pub use fault::Fault;
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use std::sync::OnceLock;
use std::time::Duration;

/// How long a connection may take to come up, TLS included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// What we call ourselves.
const USER_AGENT: &str = concat!("halo/", env!("CARGO_PKG_VERSION"));

/// The client for calls of a model at `url`. It follows no redirects (a key must not travel to another host)
/// and has no overall time limit (answers stream as long as they last). The proxy variables of the environment
/// count, save for an address of this machine, which no proxy could reach.
///
/// Clients are built when first asked for and shared after that: an idle server holds no TLS roots. Fails where
/// the machine offers no usable TLS set-up.
pub fn model_client(url: &Url) -> Result<Client, reqwest::Error> {
    static OUTSIDE: OnceLock<Client> = OnceLock::new();
    static LOCAL: OnceLock<Client> = OnceLock::new();
    let local = is_local(url);
    let cell = if local { &LOCAL } else { &OUTSIDE };
    if let Some(client) = cell.get() {
        return Ok(client.clone());
    }
    let built = build(local)?;
    Ok(cell.get_or_init(|| built).clone())
}

#[allow(clippy::disallowed_methods, reason = "this is where clients are built")]
fn build(local: bool) -> Result<Client, reqwest::Error> {
    let builder = Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Duration::from_secs(60));
    if local { builder.no_proxy() } else { builder }.build()
}

fn is_local(url: &Url) -> bool {
    match url.host_str() {
        Some("localhost") => true,
        Some(host) => host
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback()),
        None => false,
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
        for url in ["http://127.0.0.1:1/", "https://api.example.com/"] {
            assert!(model_client(&url.parse().unwrap()).is_ok(), "{url}");
        }
    }

    #[rstest]
    #[case("http://localhost:11434/v1", true)]
    #[case("http://127.8.9.1/", true)]
    #[case("http://[::1]:80/", true)]
    #[case("https://127.0.0.1.example.com/", false)]
    #[case("https://api.example.com/", false)]
    fn only_addresses_of_this_machine_go_past_the_proxy(#[case] url: &str, #[case] local: bool) {
        assert_eq!(is_local(&url.parse().unwrap()), local);
    }
}
