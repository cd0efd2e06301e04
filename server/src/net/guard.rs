//! Requests to urls that somebody else chose. Promises that the policy has judged every address that is connected to:
//! names are resolved once, judged, and the connection goes to just those addresses. No redirect is followed and no
//! proxy of the environment counts. Time limits and what becomes of redirects are the caller's.

use super::policy::{self, Refusal};
use super::{CONNECT_TIMEOUT, USER_AGENT, causes, innermost};
use crate::allow_list::AllowList;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// How many addresses of one name are looked at; the rest is not connected to.
const MAX_ADDRESSES: usize = 32;

/// Why there is no answer. Its text names the host and no more of the url.
#[derive(Debug, thiserror::Error)]
pub enum GuardError {
    /// The policy refuses the url.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The name has no address.
    #[error("{host} was not found: {reason}")]
    NotFound {
        /// The host of the url.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// No connection, or no answer on it.
    #[error("{0}")]
    Failed(String),
}

/// Finds the addresses of a name.
pub trait Lookup: Send + Sync {
    /// Its addresses. `host` may end in a dot.
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup<'a>(&'a self, host: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        async move { Ok(tokio::net::lookup_host((host, 0)).await?.map(|found| found.ip()).collect()) }.boxed()
    }
}

/// Sends requests under the policy.
pub struct Guard<'a> {
    /// What may be called beyond the public internet.
    pub allowed: &'a AllowList,
    /// Who finds addresses.
    pub lookup: &'a dyn Lookup,
}

impl Guard<'_> {
    /// Sends one request without a body and gives the head of its answer; a redirect is an answer like any other.
    /// Dropping the answer closes the connection.
    pub async fn send(&self, method: Method, url: &Url, headers: HeaderMap) -> Result<Response, GuardError> {
        let addresses = self.judge(url).await?;
        let client = tokio::task::spawn_blocking(move || client(addresses))
            .await
            .map_err(|error| GuardError::Failed(format!("no HTTP client: {error}")))?
            .map_err(|error| GuardError::Failed(format!("no HTTP client: {}", causes(&error))))?;
        client.request(method, url.clone()).headers(headers).send().await.map_err(|error| {
            let host = url.host_str().unwrap_or_default();
            GuardError::Failed(match url.port_or_known_default() {
                Some(port) if error.is_connect() => {
                    format!("cannot connect to {host}:{port}: {}", innermost(&error))
                }
                _ => format!("the request failed at {host}: {}", causes(&error.without_url())),
            })
        })
    }

    /// The addresses that the policy lets the url be called at.
    async fn judge(&self, url: &Url) -> Result<Vec<IpAddr>, GuardError> {
        policy::check_url(url)?;
        let host = url.host_str().unwrap_or_default();
        let literal = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let mut addresses = match literal {
            Ok(address) => vec![address],
            Err(_) => self
                .lookup
                .lookup(host)
                .await
                .map_err(|error| GuardError::NotFound { host: host.to_owned(), reason: error.to_string() })?,
        };
        addresses.truncate(MAX_ADDRESSES);
        if addresses.is_empty() {
            let reason = "the name has no address".to_owned();
            return Err(GuardError::NotFound { host: host.to_owned(), reason });
        }
        policy::check_addresses(url, &addresses, self.allowed)?;
        Ok(addresses)
    }
}

/// A client for one request: whatever name it asks for, it finds the judged addresses.
#[allow(clippy::disallowed_methods, reason = "net/ builds the clients")]
fn client(addresses: Vec<IpAddr>) -> Result<Client, reqwest::Error> {
    Client::builder()
        .user_agent(USER_AGENT)
        .redirect(Policy::none())
        .no_proxy()
        .referer(false)
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(0)
        .dns_resolver(Arc::new(Judged(addresses)))
        .build()
}

struct Judged(Vec<IpAddr>);

impl Resolve for Judged {
    fn resolve(&self, _: Name) -> Resolving {
        // With port 0 the connection takes the url's.
        let addresses: Vec<SocketAddr> = self.0.iter().map(|address| (*address, 0).into()).collect();
        async move { Ok(Box::new(addresses.into_iter()) as Addrs) }.boxed()
    }
}

#[cfg(test)]
mod tests;
