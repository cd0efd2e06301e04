//! `web_fetch`: one page of the web as text. Public addresses only, save for what the allow list opens
//! ([`crate::net::guard`]); redirects are followed one by one, each judged anew. A body is read no further than it is
//! shown, and time limit and stop cut it at once.

mod body;
#[cfg(test)]
mod tests;

use super::args::Args;
use super::{Context, Output, Tool};
use crate::model::ToolSpec;
use crate::net::causes;
use crate::net::guard::{Guard, GuardError, Lookup, SystemLookup};
use crate::text::head_bytes;
use body::{Kind, Reading};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use reqwest::{Response, Url};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;

/// Redirects of one call.
const MAX_REDIRECTS: usize = 5;
/// Bytes of a url.
const MAX_URL_BYTES: usize = 8 * 1024;
/// Headers of a request, and bytes of them in all.
const MAX_HEADERS: usize = 50;
const MAX_HEADER_BYTES: usize = 8 * 1024;
/// Bytes of a content type that are shown.
const MAX_TYPE_BYTES: usize = 200;
/// The methods. None of them sends a body.
const METHODS: [Method; 7] =
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
/// Headers that say how the message is sent and to whom: the client's own affair.
const OWN_HEADERS: [HeaderName; 11] = [
    header::HOST,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::TRANSFER_ENCODING,
    header::TE,
    header::TRAILER,
    header::UPGRADE,
    header::EXPECT,
    header::ACCEPT_ENCODING,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
];

/// The tool.
pub struct WebFetch {
    lookup: Arc<dyn Lookup>,
}

impl Default for WebFetch {
    fn default() -> Self {
        Self { lookup: Arc::new(SystemLookup) }
    }
}

impl Tool for WebFetch {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "web_fetch".into(),
            description: "Fetches a url and gives status, content type and body as text; long bodies are cut. Only \
                          https to public addresses, and what the server's allow list opens beyond that. Follows up \
                          to 5 redirects. The headers go only to the host of the url. It sends no request body."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "The whole url, with https://"},
                    "method": {
                        "type": "string",
                        "enum": METHODS.map(|method| method.to_string()),
                        "description": "Default GET",
                    },
                    "headers": {
                        "type": "object",
                        "additionalProperties": {"type": "string"},
                        "description": "Headers of the request, by name",
                    },
                },
                "required": ["url"],
            }),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        async move {
            let order = match Order::read(&Args::new("web_fetch", &input)) {
                Ok(order) => order,
                Err(reason) => return Output::error(reason),
            };
            let guard = Guard { allowed: &context.url_allowlist, lookup: &*self.lookup };
            tokio::select! {
                biased;
                () = context.cancel.cancelled() => Output::error("stopped"),
                output = fetch(order, &guard, context) => output,
            }
        }
        .boxed()
    }
}

/// What is asked for.
struct Order {
    url: Url,
    method: Method,
    headers: HeaderMap,
}

impl Order {
    fn read(args: &Args<'_>) -> Result<Self, String> {
        let text = args.filled_text("url")?.trim();
        if text.len() > MAX_URL_BYTES {
            return Err(format!("web_fetch: the url is longer than {MAX_URL_BYTES} bytes"));
        }
        let url = Url::parse(text)
            .map_err(|error| format!("web_fetch: no whole url ({error}): give it with https://"))?;
        let method = match args.optional_text("method")?.map(|method| method.trim().to_ascii_uppercase()) {
            None => Method::GET,
            Some(text) => METHODS.into_iter().find(|method| method.as_str() == text).ok_or_else(|| {
                format!(
                    "web_fetch: \"method\" must be one of {}",
                    METHODS.map(|method| method.to_string()).join(", ")
                )
            })?,
        };
        let mut headers = HeaderMap::new();
        let given = args.optional_object("headers")?;
        let bytes: usize = given
            .into_iter()
            .flatten()
            .map(|(name, value)| name.len() + value.as_str().map_or(0, str::len))
            .sum();
        if bytes > MAX_HEADER_BYTES || given.is_some_and(|given| given.len() > MAX_HEADERS) {
            return Err(format!(
                "web_fetch: too many headers; {MAX_HEADERS} of {MAX_HEADER_BYTES} bytes in all may be sent"
            ));
        }
        for (name, value) in given.into_iter().flatten() {
            let (name, value) = read_header(name, value)?;
            headers.insert(name, value);
        }
        Ok(Self { url, method, headers })
    }

    /// What to ask for next when this answer sends elsewhere.
    fn follow(&mut self, status: StatusCode, location: &HeaderValue) -> Result<(), String> {
        let location = String::from_utf8_lossy(location.as_bytes());
        let next = self
            .url
            .join(&location)
            .ok()
            .filter(|_| location.len() <= MAX_URL_BYTES)
            .ok_or_else(|| format!("the answer ({status}) sends to a place that is no url"))?;
        if next.origin() != self.url.origin() {
            self.headers.clear();
        }
        let reads = matches!(self.method, Method::GET | Method::HEAD);
        let as_get = status == StatusCode::SEE_OTHER
            || (self.method == Method::POST
                && matches!(status, StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND));
        if as_get && !reads {
            self.method = Method::GET;
        }
        self.url = next;
        Ok(())
    }
}

fn read_header(name: &str, value: &Value) -> Result<(HeaderName, HeaderValue), String> {
    let shown = head_bytes(name, 60).escape_debug();
    let parsed = HeaderName::from_bytes(name.trim().as_bytes())
        .map_err(|_| format!("web_fetch: \"{shown}\" is no name of a header"))?;
    if OWN_HEADERS.contains(&parsed) {
        return Err(format!("web_fetch: the header \"{shown}\" cannot be set; leave it out"));
    }
    let text = value.as_str().ok_or_else(|| format!("web_fetch: the header \"{shown}\" must be a text"))?;
    let mut value = HeaderValue::from_str(text.trim())
        .map_err(|_| format!("web_fetch: the header \"{shown}\" holds characters that no header can"))?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

async fn fetch(order: Order, guard: &Guard<'_>, context: &Context) -> Output {
    let limit = context.limits.web_fetch_timeout;
    let deadline = tokio::time::Instant::now() + limit;
    let too_slow = || format!("timed out after {} s", limit.as_secs_f64());
    let method = order.method.clone();
    let (mut response, moved) = match tokio::time::timeout_at(deadline, open(order, guard)).await {
        Ok(Ok(opened)) => opened,
        Ok(Err(reason)) => return Output::error(reason),
        Err(_) => return Output::error(format!("{}; no answer came", too_slow())),
    };
    let mut text = head(&response, moved);
    if method == Method::HEAD {
        return Output::ok(text.trim_end());
    }
    let (kind, length) = (Kind::of(response.headers()), response.content_length());
    let mut reading = Reading::new(kind, context.limits.web_fetch_bytes);
    let mut failure = None;
    while reading.wants_more() {
        match tokio::time::timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => reading.push(&chunk),
            Ok(Ok(None)) => {
                reading.end();
                break;
            }
            Ok(Err(error)) => {
                failure = Some(format!("the connection was cut: {}", causes(&error.without_url())));
                break;
            }
            Err(_) => {
                failure = Some(too_slow());
                break;
            }
        }
    }
    text.push_str(&reading.into_text(length));
    match failure {
        None => Output::ok(text),
        Some(failure) => Output::error(format!("{text}\n[{failure}; this is what came until then]")),
    }
}

/// The first answer that is no redirect, and whether it is from another url than the one asked for.
async fn open(mut order: Order, guard: &Guard<'_>) -> Result<(Response, bool), String> {
    for hop in 0..=MAX_REDIRECTS {
        let response = guard.send(order.method.clone(), &order.url, order.headers.clone()).await;
        let response = response.map_err(|error| match error {
            GuardError::Refused(refusal) if hop > 0 => format!("refused to follow a redirect: {refusal}"),
            error => error.to_string(),
        })?;
        let status = response.status();
        let location = response.headers().get(header::LOCATION);
        match location.filter(|_| matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)) {
            Some(location) => order.follow(status, location)?,
            None => return Ok((response, hop > 0)),
        }
    }
    Err(format!(
        "more than {MAX_REDIRECTS} redirects, the last one to {}",
        order.url.host_str().unwrap_or("?")
    ))
}

/// The lines before the body.
fn head(response: &Response, moved: bool) -> String {
    let status = response.status();
    let mut text = format!("HTTP {}", status.as_u16());
    if let Some(reason) = status.canonical_reason() {
        let _ = write!(text, " {reason}");
    }
    if moved {
        let _ = write!(text, "\nURL: {}", response.url());
    }
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.map_or("(none given)".into(), |kind| String::from_utf8_lossy(kind.as_bytes()));
    let _ = write!(text, "\nContent-Type: {}\n\n", head_bytes(&kind, MAX_TYPE_BYTES));
    text
}
