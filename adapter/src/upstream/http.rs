//! The web channel over HTTP: one client, one token, one workspace.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::history::SessionPage;
use super::sse::{self, Block, Parser};
use super::{Error, Event, Events, Frame, History, Message, Upstream};
use crate::args::{Args, Token};

/// How long a TCP and TLS connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may think before it opens a stream; a long message has to get there first.
const OPEN: Duration = Duration::from_secs(120);
/// How long a whole short answer may take.
const SHORT: Duration = Duration::from_secs(30);
/// How long a whole log may take.
const LONG: Duration = Duration::from_secs(120);
/// The largest log that is read, in bytes.
const MAX_LOG: usize = 256 << 20;
/// The largest of any other answer, in bytes.
const MAX_ANSWER: usize = 4 << 20;
/// How much of an error answer is read, in bytes.
const MAX_ERROR: usize = 16 << 10;

/// The server that the command line names. Cheap to clone.
#[derive(Clone)]
pub struct Server(Arc<Inner>);

struct Inner {
    client: Client,
    base: Url,
    at: String,
    token: Token,
    workspace: Option<String>,
    agent_id: Option<String>,
    /// The stop requests that are on their way.
    stops: TaskTracker,
}

impl Server {
    /// A client for the server of `args`. Contacts nobody. The error is a system without usable TLS roots.
    pub fn new(args: &Args) -> Result<Self, reqwest::Error> {
        let mut headers = args.headers.clone();
        if let Ok(mut token) = HeaderValue::from_str(args.token.reveal()) {
            token.set_sensitive(true);
            headers.insert("x-token", token);
        }
        #[allow(clippy::disallowed_methods, reason = "the adapter's only place that builds an HTTP client")]
        let mut builder = Client::builder()
            .default_headers(headers)
            .user_agent(concat!("halo-acp/", env!("CARGO_PKG_VERSION")))
            // A redirect could carry the token to another server.
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .tcp_keepalive(Duration::from_secs(30))
            .pool_max_idle_per_host(2)
            // Shorter than the 5 s after which common servers close: no request meets a closing connection.
            .pool_idle_timeout(Duration::from_secs(4));
        if args.base.scheme() == "http" && !proxy_wants_tls() {
            // No root certificate is needed, so none is loaded: they cost memory and start time.
            builder = builder.tls_certs_only([]);
        }
        if is_this_machine(&args.base) {
            // No proxy could reach it.
            builder = builder.no_proxy();
        }
        Ok(Self(Arc::new(Inner {
            client: builder.build()?,
            at: args.base.as_str().trim_end_matches('/').to_owned(),
            base: args.base.clone(),
            token: args.token.clone(),
            workspace: args.workspace.clone(),
            agent_id: args.agent_id.clone(),
            stops: TaskTracker::new(),
        })))
    }

    /// `<scheme>://<host>:<port>`, for texts.
    pub fn at(&self) -> &str {
        &self.0.at
    }

    /// Waits until every stop request is answered.
    pub async fn stopped(&self) {
        self.0.stops.close();
        self.0.stops.wait().await;
    }

    /// What `/api/health` says.
    pub async fn health(&self) -> Result<Value, Error> {
        self.json(self.request(Method::GET, "api/health", &[]).timeout(SHORT), MAX_ANSWER).await
    }

    /// Makes a session and returns its id.
    pub async fn new_session(&self) -> Result<String, Error> {
        let mut body = Map::new();
        if let Some(workspace) = &self.0.workspace {
            body.insert("workspace".into(), json!(workspace));
        }
        if let Some(agent) = &self.0.agent_id {
            body.insert("agentId".into(), json!(agent));
        }
        let request = self.request(Method::POST, "api/web/sessions", &[]).json(&body).timeout(SHORT);
        let answer: Value = self.json(request, MAX_ANSWER).await?;
        match answer.get("sessionId").and_then(Value::as_str).filter(|id| !id.is_empty()) {
            Some(id) => Ok(id.to_owned()),
            None => Err(self.strange("no session id")),
        }
    }

    /// A page of the token's sessions, from `cursor` on.
    pub async fn sessions(&self, cursor: Option<&str>) -> Result<SessionPage, Error> {
        let query: Vec<_> = self.workspace().chain(cursor.map(|cursor| ("cursor", cursor))).collect();
        self.json(self.request(Method::GET, "api/web/sessions", &query).timeout(SHORT), MAX_ANSWER).await
    }

    fn workspace(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.workspace.as_deref().map(|workspace| ("workspace", workspace)).into_iter()
    }

    fn request(&self, method: Method, path: &str, query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = self.0.base.clone();
        url.set_path(path);
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.0.client.request(method, url)
    }

    /// Sends a request and turns every status but 200 into an error.
    async fn send(&self, request: RequestBuilder) -> Result<Response, Error> {
        let response = request.send().await.map_err(|error| self.unreachable(error))?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response);
        }
        let seconds = retry_after(response.headers());
        let said = self.said(response).await;
        let (at, status_code) = (self.0.at.clone(), status.as_u16());
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Error::Refused { at, status: status_code, said }
            }
            StatusCode::TOO_MANY_REQUESTS => Error::Locked { at, seconds },
            _ => Error::Status { at, status: status_code, said },
        })
    }

    async fn json<T: DeserializeOwned>(&self, request: RequestBuilder, max: usize) -> Result<T, Error> {
        let response = self.send(request).await?;
        let body = self.body(response, max).await?;
        serde_json::from_slice(&body).map_err(|error| self.strange(&format!("no valid JSON ({error})")))
    }

    async fn body(&self, response: Response, max: usize) -> Result<Vec<u8>, Error> {
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| self.unreachable(error))?;
            if body.len() + chunk.len() > max {
                return Err(self.strange(&format!("more than {} MiB", max >> 20)));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// The `error` of an error answer, on one line, without the token. A page of HTML says nothing.
    async fn said(&self, response: Response) -> String {
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while body.len() < MAX_ERROR
            && let Some(Ok(chunk)) = chunks.next().await
        {
            body.extend_from_slice(&chunk);
        }
        let value: Option<Value> = serde_json::from_slice(&body).ok();
        let text = value.as_ref().and_then(|value| value.get("error")).and_then(Value::as_str);
        let flat: String = text.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
        self.0.token.redact(&flat).chars().take(500).collect()
    }

    fn unreachable(&self, error: reqwest::Error) -> Error {
        if error.is_timeout() {
            return Error::Unreachable { at: self.0.at.clone(), why: "no answer in time".to_owned() };
        }
        // The address holds no token, but it would say twice where the server is.
        let error = error.without_url();
        let mut cause: &dyn std::error::Error = &error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        Error::Unreachable { at: self.0.at.clone(), why: self.0.token.redact(&cause.to_string()) }
    }

    fn strange(&self, what: &str) -> Error {
        Error::Strange { at: self.0.at.clone(), what: self.0.token.redact(what) }
    }

    /// A stream that sends `request` when it is first polled.
    fn events(&self, request: RequestBuilder) -> Events {
        let server = self.clone();
        let opening = async move {
            let send = server.send(request.header(ACCEPT, "text/event-stream"));
            let response = match tokio::time::timeout(OPEN, send).await {
                Ok(response) => response?,
                Err(_) => {
                    return Err(Error::Unreachable {
                        at: server.0.at.clone(),
                        why: format!("no answer within {} s", OPEN.as_secs()),
                    });
                }
            };
            let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
            if kind.starts_with("text/html") {
                return Err(server.strange("a web page in place of a stream"));
            }
            let opened = Event::Opened { date: date(response.headers()) };
            let bytes = response.bytes_stream().map_err(move |error| server.unreachable(error));
            Ok(stream::once(std::future::ready(Ok(opened))).chain(decoded(bytes)))
        };
        Box::pin(stream::once(opening).try_flatten())
    }
}

impl Upstream for Server {
    fn chat(&self, session: &str, message: &Message) -> Events {
        let mut body = json!({ "message": message.text, "sessionId": session });
        if !message.images.is_empty() {
            body["images"] = json!(message.images);
        }
        if let Some(workspace) = &self.0.workspace {
            body["workspace"] = json!(workspace);
        }
        self.events(self.request(Method::POST, "api/web/chat", &[]).json(&body))
    }

    fn subscribe(&self, session: &str, after: Option<&str>) -> Events {
        let query: Vec<_> = self.workspace().chain([("sessionId", session)]).collect();
        let mut request = self.request(Method::GET, "api/web/subscribe", &query);
        if let Some(after) = after.and_then(|after| HeaderValue::from_str(after).ok()) {
            request = request.header("last-event-id", after);
        }
        self.events(request)
    }

    async fn history(&self, session: &str, since: Option<i64>) -> Result<History, Error> {
        let since = since.map(|since| since.max(0).to_string());
        let query: Vec<_> = self
            .workspace()
            .chain([("sessionId", session)])
            .chain(since.as_deref().map(|since| ("since", since)))
            .collect();
        self.json(self.request(Method::GET, "api/web/history", &query).timeout(LONG), MAX_LOG).await
    }

    fn stop(&self, session: &str) {
        let mut body = json!({ "sessionId": session });
        if let Some(workspace) = &self.0.workspace {
            body["workspace"] = json!(workspace);
        }
        let request = self.request(Method::POST, "api/web/stop", &[]).json(&body).timeout(SHORT);
        let server = self.clone();
        self.0.stops.spawn(async move {
            match server.json::<Value>(request, MAX_ANSWER).await {
                Ok(answer) => debug!(%answer, "stop"),
                Err(error) => warn!("the stop request failed: {error}"),
            }
        });
    }
}

/// The events of a body. After a frame at the limit nothing more is read.
fn decoded(
    bytes: impl futures_util::Stream<Item = Result<Bytes, Error>> + Send + 'static,
) -> impl futures_util::Stream<Item = Result<Event, Error>> + Send {
    let start = (Box::pin(bytes), Parser::new(sse::MAX_EVENT));
    stream::try_unfold(start, |(mut bytes, mut parser)| async move {
        let Some(chunk) = bytes.try_next().await? else { return Ok::<_, Error>(None) };
        let mut blocks = Vec::new();
        let fault = parser.push(&chunk, &mut blocks).err();
        let mut events: Vec<Result<Event, Error>> = blocks.into_iter().filter_map(event).map(Ok).collect();
        if let Some(fault) = fault {
            events.push(Err(fault.into()));
        } else if events.is_empty() {
            events.push(Ok(Event::Bytes));
        }
        Ok(Some((stream::iter(events), (bytes, parser))))
    })
    .try_flatten()
}

/// A frame that is no JSON, or not of the shape of its kind, is skipped with a warning; the turn goes on.
fn event(block: Block) -> Option<Event> {
    match block {
        Block::Comment => Some(Event::Keepalive),
        Block::Event { data, id } => match serde_json::from_str::<Frame>(&data) {
            Ok(frame) => Some(Event::Frame { id, frame }),
            Err(error) => {
                warn!("skipped a frame of {} bytes that cannot be read: {error}", data.len());
                None
            }
        },
    }
}

fn date(headers: &HeaderMap) -> Option<i64> {
    let text = headers.get(reqwest::header::DATE)?.to_str().ok()?;
    let date = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc2822).ok()?;
    Some(date.unix_timestamp() * 1000)
}

fn retry_after(headers: &HeaderMap) -> Option<u64> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
}

fn is_this_machine(base: &Url) -> bool {
    let host = base.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a proxy of the environment is itself reached over TLS.
fn proxy_wants_tls() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
        .iter()
        .any(|name| std::env::var(name).is_ok_and(|proxy| proxy.starts_with("https:")))
}
