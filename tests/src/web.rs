//! A small client of the web channel. It knows no more than any other client: paths, headers, event streams.

use crate::within;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{Stream, StreamExt};
use reqwest::header::HeaderMap;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use std::fmt::Display;
use std::net::IpAddr;

/// Speaks to one server with one token.
#[derive(Clone)]
pub struct Client {
    url: String,
    token: Option<String>,
    http: reqwest::Client,
}

/// An answer that is no stream.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, where it is JSON; else its text as a JSON string.
    pub body: Value,
}

/// One frame of an event stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its place, for resuming.
    pub id: Option<String>,
    /// What it says.
    pub data: Value,
}

impl Frame {
    /// Its `type`.
    pub fn kind(&self) -> &str {
        self.data["type"].as_str().unwrap_or_default()
    }

    /// Whether nothing follows it.
    pub fn is_last(&self) -> bool {
        matches!(self.kind(), "complete" | "error" | "queued")
    }
}

impl Client {
    /// A client of the server at `url`.
    pub fn new(url: &str, token: Option<&str>) -> Self {
        Self { url: url.to_owned(), token: token.map(str::to_owned), http: http(None) }
    }

    /// The same with connections from another address of this machine, such as `127.0.0.9`.
    #[must_use]
    pub fn from_address(self, address: IpAddr) -> Self {
        Self { http: http(Some(address)), ..self }
    }

    /// The same, from another address where one is given.
    #[must_use]
    pub fn from_address_or_same(&self, address: Option<IpAddr>) -> Self {
        address.map_or_else(|| self.clone(), |address| self.clone().from_address(address))
    }

    /// The same with another token, or none.
    #[must_use]
    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    /// The same for a server that listens elsewhere now.
    #[must_use]
    pub fn at(&self, url: &str) -> Self {
        Self { url: url.to_owned(), ..self.clone() }
    }

    /// The token.
    pub fn token(&self) -> &str {
        self.token.as_deref().unwrap_or_default()
    }

    /// A request with the token.
    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.header("x-token", token),
            None => request,
        }
    }

    /// `GET` of a path with its query.
    pub async fn get(&self, path: &str) -> Answer {
        answer(self.request(Method::GET, path)).await
    }

    /// `POST` of JSON.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(Method::POST, path).json(body)).await
    }

    /// A new session's id.
    pub async fn mint(&self) -> String {
        let answer = answer(self.request(Method::POST, "/api/web/sessions")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["sessionId"].as_str().expect("an id").to_owned()
    }

    /// Sends a message; the frames come as a stream.
    pub async fn chat(&self, session: &str, message: &str) -> Frames {
        let body = json!({"message": message, "sessionId": session});
        self.stream(self.request(Method::POST, "/api/web/chat").json(&body)).await
    }

    /// The frames of a turn, to its end.
    pub async fn turn(&self, session: &str, message: &str) -> Vec<Frame> {
        self.chat(session, message).await.rest().await
    }

    /// The frames of the session from `after` on.
    pub async fn subscribe(&self, session: &str, after: Option<&str>) -> Frames {
        let request = self.request(Method::GET, &format!("/api/web/subscribe?sessionId={session}"));
        let request = match after {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        };
        self.stream(request).await
    }

    /// The log of a session.
    pub async fn history(&self, session: &str) -> Value {
        let answer = self.get(&format!("/api/web/history?sessionId={session}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// The token's sessions.
    pub async fn sessions(&self) -> Value {
        let answer = self.get("/api/web/sessions").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// Whether there was something to stop.
    pub async fn stop(&self, session: &str) -> bool {
        let answer = self.post("/api/web/stop", &json!({"sessionId": session})).await;
        answer.body["stopped"].as_bool().unwrap_or_else(|| panic!("{answer:?}"))
    }

    /// Sends a request whose answer must be an event stream.
    pub async fn stream(&self, request: RequestBuilder) -> Frames {
        self.try_stream(request).await.unwrap_or_else(|error| panic!("no stream: {error}"))
    }

    /// The same where the server may be gone.
    pub async fn try_stream(&self, request: RequestBuilder) -> Result<Frames, String> {
        let response = within("an answer", request.send()).await.map_err(|error| error.to_string())?;
        if response.status() != StatusCode::OK {
            return Err(format!("{}: {}", response.status(), response.text().await.unwrap_or_default()));
        }
        let kind = response.headers().get("content-type").and_then(|value| value.to_str().ok());
        assert_eq!(kind, Some("text/event-stream"));
        Ok(Frames::of(response))
    }
}

/// The frames of a stream, one by one. Dropping it cuts the connection.
pub struct Frames {
    bytes: BoxStream<'static, Result<Bytes, String>>,
    buffer: Vec<u8>,
    broken: bool,
}

impl Frames {
    /// Those of an answer that has begun.
    pub fn of(response: Response) -> Self {
        Self::over(response.bytes_stream())
    }

    /// Those in the bytes of a body.
    pub fn over<E: Display + 'static>(bytes: impl Stream<Item = Result<Bytes, E>> + Send + 'static) -> Self {
        let bytes = bytes.map(|piece| piece.map_err(|error| error.to_string())).boxed();
        Self { bytes, buffer: Vec::new(), broken: false }
    }

    /// The whole body, where it is no event stream after all.
    pub async fn bytes(mut self) -> Vec<u8> {
        while let Some(bytes) = within("a body", self.bytes.next()).await {
            self.buffer.extend_from_slice(&bytes.expect("the whole body"));
        }
        self.buffer
    }

    /// The next frame; `None` at the end, also when the connection broke (see [`Self::is_broken`]).
    pub async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = self.buffer.drain(..end + 2).collect();
                match frame(&event[..end]) {
                    Some(frame) => return Some(frame),
                    None => continue,
                }
            }
            match within("a frame", self.bytes.next()).await {
                Some(Ok(bytes)) => self.buffer.extend_from_slice(&bytes),
                Some(Err(_)) => {
                    self.broken = true;
                    return None;
                }
                None => return None,
            }
        }
    }

    /// Whether the stream ended by a broken connection.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    /// Every frame up to and with the first of this type; panics when the stream ends before.
    pub async fn until(&mut self, kind: &str) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            let found = frame.kind() == kind;
            frames.push(frame);
            if found {
                return frames;
            }
        }
        panic!("the stream ended without {kind}: {frames:?}")
    }

    /// Every frame to the end, which must be a terminal one.
    pub async fn rest(mut self) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        let last = frames.last().map(Frame::is_last);
        assert_eq!(last, Some(true), "the stream ended in the middle: {frames:?}");
        frames
    }
}

/// The text that the frames stream.
pub fn text_of(frames: &[Frame]) -> String {
    let texts = frames.iter().filter(|frame| frame.kind() == "stream");
    texts.map(|frame| frame.data["text"].as_str().unwrap_or_default()).collect()
}

/// The types of the frames, with neighbours of one type as one.
pub fn kinds_of(frames: &[Frame]) -> Vec<&str> {
    let mut kinds: Vec<&str> = frames.iter().map(Frame::kind).collect();
    kinds.dedup();
    kinds
}

/// The first frame of this type.
pub fn first<'a>(frames: &'a [Frame], kind: &str) -> &'a Value {
    let found = frames.iter().find(|frame| frame.kind() == kind);
    &found.unwrap_or_else(|| panic!("no {kind}: {frames:?}")).data
}

/// Sends a request and reads the whole answer.
pub async fn answer(request: RequestBuilder) -> Answer {
    let response = within("an answer", request.send()).await.expect("the server answers");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = within("a body", response.text()).await.expect("the whole body");
    Answer { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}

#[allow(clippy::disallowed_methods, reason = "the rule is for the server; this is a client of it")]
fn http(from: Option<IpAddr>) -> reqwest::Client {
    let builder = reqwest::Client::builder().no_proxy().local_address(from);
    builder.build().expect("a client")
}

/// What one event says; `None` for comments.
fn frame(event: &[u8]) -> Option<Frame> {
    let text = std::str::from_utf8(event).expect("frames are UTF-8");
    let id = text.lines().find_map(|line| line.strip_prefix("id: ")).map(str::to_owned);
    let mut data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let found = data.next()?;
    assert_eq!(data.next(), None, "a frame is one line of data: {text}");
    let data = serde_json::from_str(found).unwrap_or_else(|error| panic!("{error}: {found}"));
    Some(Frame { id, data })
}
