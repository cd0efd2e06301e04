//! One streaming call over HTTP, for every provider alike: sends the body, watches the clock, classifies a
//! refusal, and feeds what comes to a [`Fold`], which alone knows the provider's JSON. Promises that a stream
//! ends with exactly one [`Event::Done`] or one error, that no error holds the key, and that half an answer is
//! an error.

use super::error::{self, plain};
use super::sse::{Decoder, MAX_EVENT_BYTES, SseEvent, TooLarge};
use super::{Completion, ErrorKind, Event, ModelError};
use crate::clock::Clock;
use crate::net::{self, Fault, causes, innermost};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, header};
use reqwest::{Response, Url};
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;
use std::time::Duration;

/// How long trailers (usage, `[DONE]`, the end of the body) may take once the answer itself is whole.
const SETTLE: Duration = Duration::from_secs(5);

/// How much of an error's body is read.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Folds the events of one provider into a completion.
pub(super) trait Fold: Send + 'static {
    /// Takes one event; adds what a watcher wants to see.
    fn event(&mut self, event: SseEvent, out: &mut Vec<Event>) -> Result<(), ModelError>;

    /// Whether the answer is whole, so that a cut connection costs nothing any more.
    fn settled(&self) -> bool;

    /// Whether the closing event came, so that nothing more needs to be read.
    fn closed(&self) -> bool;

    /// The whole, after the last event. An answer that is not whole is an error.
    fn finish(&mut self) -> Result<Completion, ModelError>;
}

/// Signs requests, for endpoints that take a signature in place of a key.
pub(super) trait Sign: Send + Sync {
    /// The headers that a `POST` needs beside `headers`.
    fn sign<'a>(
        &'a self,
        url: &'a Url,
        headers: &'a HeaderMap,
        body: &'a [u8],
    ) -> BoxFuture<'a, Result<HeaderMap, ModelError>>;

    /// A refusal, explained as far as it is about the signature.
    fn refused(&self, error: ModelError) -> ModelError;
}

/// What every model over HTTP has: where to call, and as whom.
#[derive(Clone)]
pub(super) struct Endpoint {
    /// The provider's id, which begins every error message.
    pub provider: Arc<str>,
    /// The full address.
    pub url: Url,
    /// The headers, the key's among them (marked sensitive).
    pub headers: HeaderMap,
    /// The key, to strike it out of what the provider says.
    pub key: Option<SecretString>,
    /// Who signs, where there is no key.
    pub signer: Option<Arc<dyn Sign>>,
    /// How long the provider may be silent.
    pub idle_timeout: Duration,
    /// For dates in `retry-after`.
    pub clock: Arc<dyn Clock>,
}

impl Endpoint {
    /// Calls with `body` (JSON) and streams the folded answer. Dropping the stream closes the connection.
    pub(super) fn stream<F: Fold>(
        self,
        body: Result<Vec<u8>, serde_json::Error>,
        fold: F,
    ) -> BoxStream<'static, Result<Event, ModelError>> {
        Box::pin(async_stream::try_stream! {
            let body = body.map_err(|why| self.named(plain(ErrorKind::Fatal, format!("cannot write the request: {why}"))))?;
            let mut response = self.open(body).await?;
            let mut reader = Reader::new(fold);
            loop {
                let patience = if reader.settled() { SETTLE.min(self.idle_timeout) } else { self.idle_timeout };
                let mut events = Vec::new();
                let read = match tokio::time::timeout(patience, response.chunk()).await {
                    Ok(Ok(Some(chunk))) => reader.push(chunk, &mut events),
                    Ok(Ok(None)) => break,
                    _ if reader.settled() => break,
                    Ok(Err(why)) => Err(self.cut(&why))?,
                    Err(_) => Err(self.silent())?,
                };
                if events.is_empty() {
                    yield Event::Activity;
                }
                for event in events {
                    yield event;
                }
                read.map_err(|error| self.named(error))?;
                if reader.closed() {
                    // Read to the end, so that the next call finds this connection ready.
                    tokio::spawn(tokio::time::timeout(SETTLE, drain(response)));
                    break;
                }
            }
            let mut events = Vec::new();
            let end = reader.end(&mut events);
            for event in events {
                yield event;
            }
            end.map_err(|error| self.named(error))?;
        })
        .boxed()
    }

    async fn open(&self, body: Vec<u8>) -> Result<Response, ModelError> {
        let failed = |fault, message: String| {
            self.named(ModelError { fault: Some(fault), ..plain(ErrorKind::Network, message) })
        };
        let client = net::model_client(&self.url).map_err(|why| {
            self.named(plain(ErrorKind::Fatal, format!("no HTTP client: {}", causes(&why))))
        })?;
        let mut headers = self.headers.clone();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(signer) = &self.signer {
            headers.extend(signer.sign(&self.url, &headers, &body).await.map_err(|error| self.named(error))?);
        }
        let sending = client.post(self.url.clone()).headers(headers).body(body).send();
        let response = match tokio::time::timeout(self.idle_timeout, sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(why)) => {
                let host = self.url.host_str().unwrap_or("?");
                let fault = Fault::of(&why);
                return Err(failed(
                    fault,
                    match self.url.port_or_known_default() {
                        Some(port) if why.is_connect() => {
                            format!("cannot connect to {host}:{port}: {}", innermost(&why))
                        }
                        _ => format!("the request failed at {host}: {}", causes(&why.without_url())),
                    },
                ));
            }
            Err(_) => return Err(self.silent()),
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let wait = error::retry_after(response.headers(), self.clock.as_ref());
        let body = if status.is_redirection() {
            "the provider answers with a redirect, which is not followed; set the endpoint to the final address"
                .to_owned()
        } else {
            let reading = tokio::time::timeout(SETTLE, read_head(response, MAX_ERROR_BYTES));
            String::from_utf8_lossy(&reading.await.unwrap_or_default()).into_owned()
        };
        let body = self.strike_key(body);
        let refusal = error::from_response(status.as_u16(), &body, wait);
        Err(self.named(match &self.signer {
            Some(signer) => signer.refused(refusal),
            None => refusal,
        }))
    }

    fn silent(&self) -> ModelError {
        let seconds = self.idle_timeout.as_secs_f32();
        let silent = plain(ErrorKind::Network, format!("the model was silent for {seconds} s"));
        self.named(ModelError { fault: Some(Fault::Silent), ..silent })
    }

    fn cut(&self, why: &reqwest::Error) -> ModelError {
        let cut = plain(ErrorKind::Network, format!("the connection was cut: {}", causes(why)));
        self.named(ModelError { fault: Some(Fault::Cut), ..cut })
    }

    fn named(&self, mut error: ModelError) -> ModelError {
        error.message = self.strike_key(format!("{}: {}", self.provider, error.message));
        error
    }

    fn strike_key(&self, text: String) -> String {
        match &self.key {
            Some(key) => strike(text, key.expose_secret()),
            None => text,
        }
    }
}

/// Takes a secret out of a text, and what is left of it where the text was cut within it.
pub(super) fn strike(mut text: String, secret: &str) -> String {
    if secret.is_empty() {
        return text;
    }
    if text.contains(secret) {
        text = text.replace(secret, "[key]");
    }
    let starts = (4..secret.len()).rev().filter(|length| secret.is_char_boundary(*length));
    if let Some(length) = starts.into_iter().find(|length| text.ends_with(&secret[..*length])) {
        text.truncate(text.len() - length);
        text.push_str("[key]");
    }
    text
}

async fn read_head(mut response: Response, max: usize) -> Vec<u8> {
    let mut head = Vec::new();
    while head.len() < max
        && let Ok(Some(chunk)) = response.chunk().await
    {
        head.extend_from_slice(&chunk[..chunk.len().min(max - head.len())]);
    }
    head
}

async fn drain(mut response: Response) {
    let mut left = MAX_ERROR_BYTES;
    while let Ok(Some(chunk)) = response.chunk().await {
        left = left.saturating_sub(chunk.len());
        if left == 0 {
            return;
        }
    }
}

/// Bytes in, events of the model out: the part of a call that needs no network.
pub(super) struct Reader<F> {
    fold: F,
    shape: Shape,
}

/// What the body turned out to be. Some gateways answer a streaming call with one JSON object.
enum Shape {
    Unknown,
    Events(Box<Decoder>),
    Json(Vec<u8>),
}

impl<F: Fold> Reader<F> {
    pub(super) fn new(fold: F) -> Self {
        Self { fold, shape: Shape::Unknown }
    }

    pub(super) fn settled(&self) -> bool {
        self.fold.settled()
    }

    pub(super) fn closed(&self) -> bool {
        self.fold.closed()
    }

    /// Adds what came of the bytes, also what came before an error in them.
    pub(super) fn push(&mut self, chunk: Bytes, out: &mut Vec<Event>) -> Result<(), ModelError> {
        if matches!(self.shape, Shape::Unknown) {
            self.shape = match chunk.iter().find(|byte| !byte.is_ascii_whitespace()) {
                None => return Ok(()),
                Some(b'{') => Shape::Json(Vec::new()),
                Some(b'<') => {
                    let message = "the answer is a web page, not a stream of events; check the endpoint";
                    return Err(plain(ErrorKind::Fatal, message));
                }
                Some(_) => Shape::Events(Box::default()),
            };
        }
        let too_large = |why: TooLarge| plain(ErrorKind::Fatal, why.to_string());
        match &mut self.shape {
            Shape::Events(decoder) => {
                let events = decoder.push(chunk).map_err(too_large)?;
                self.feed(events, out)
            }
            Shape::Json(body) if body.len() + chunk.len() > MAX_EVENT_BYTES => {
                Err(too_large(TooLarge(MAX_EVENT_BYTES)))
            }
            Shape::Json(body) => {
                body.extend_from_slice(&chunk);
                Ok(())
            }
            Shape::Unknown => Ok(()),
        }
    }

    /// The end of the body: what was still to come, then [`Event::Done`].
    pub(super) fn end(mut self, out: &mut Vec<Event>) -> Result<(), ModelError> {
        let last = match &mut self.shape {
            Shape::Unknown => Vec::new(),
            Shape::Events(decoder) => decoder.finish(),
            Shape::Json(body) => {
                vec![SseEvent { name: String::new(), data: String::from_utf8_lossy(body).into_owned() }]
            }
        };
        self.feed(last, out)?;
        out.push(Event::Done(self.fold.finish()?));
        Ok(())
    }

    fn feed(&mut self, events: Vec<SseEvent>, out: &mut Vec<Event>) -> Result<(), ModelError> {
        for event in events {
            if self.fold.closed() {
                break;
            }
            self.fold.event(event, out)?;
        }
        Ok(())
    }
}

/// The error for an event that is no JSON of the expected shape.
pub(super) fn unreadable(data: &str, why: &serde_json::Error) -> ModelError {
    let start = crate::text::head_chars(data, 200);
    plain(ErrorKind::Server, format!("an unreadable event in the stream ({why}): {start}"))
}

/// The error for a body that ended before the answer did.
pub(super) fn unfinished() -> ModelError {
    plain(ErrorKind::EmptyResponse, "the stream ended before the answer did")
}

/// The error for an answer with nothing in it.
pub(super) fn empty() -> ModelError {
    plain(ErrorKind::EmptyResponse, "the model answered with nothing")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_with_its_port_and_one_reason() {
        let (url, place) = ("http://user:pw@127.0.0.1:1/v1", "127.0.0.1:1");
        let endpoint = Endpoint {
            provider: "stub".into(),
            url: url.parse().unwrap(),
            headers: HeaderMap::new(),
            key: None,
            signer: None,
            idle_timeout: Duration::from_secs(20),
            clock: Arc::new(SystemClock),
        };
        let error = endpoint.open(Vec::new()).await.unwrap_err();
        assert_eq!((error.kind, error.fault), (ErrorKind::Network, Some(Fault::Refused)));
        assert_eq!(error.message, format!("stub: cannot connect to {place}: connection refused"));
    }
}
