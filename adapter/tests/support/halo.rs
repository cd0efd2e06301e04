//! A halo server that plays what a test scripts: it answers each route from a queue, notes every request, and
//! can break a stream off in the middle.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use futures_util::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// The session that `POST /api/web/sessions` makes unless a test says otherwise.
pub const SESSION: &str = "web_acct_s1";

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Such as `POST chat`: method and last segment of the path.
    pub call: String,
    pub query: HashMap<String, String>,
    pub headers: HeaderMap,
    pub body: Value,
}

/// What a route answers.
pub enum Answer {
    Json(u16, Value),
    Text(u16, &'static str),
    Locked(u64),
    /// An event stream that the test feeds through the other end, byte by byte if it likes. Dropping the other
    /// end ends the stream properly.
    Stream(mpsc::UnboundedReceiver<Part>),
    /// Never answered.
    Hang,
}

/// A part of a stream.
pub enum Part {
    Bytes(Vec<u8>),
    /// The connection breaks.
    Break,
}

/// The writing end of a stream.
#[derive(Clone)]
pub struct Feed(mpsc::UnboundedSender<Part>);

impl Feed {
    pub fn raw(&self, bytes: impl Into<Vec<u8>>) -> &Self {
        let _ = self.0.send(Part::Bytes(bytes.into()));
        self
    }

    pub fn frame(&self, frame: Value) -> &Self {
        self.raw(format!("data: {frame}\n\n"))
    }

    pub fn numbered(&self, id: &str, frame: Value) -> &Self {
        self.raw(format!("id: {id}\ndata: {frame}\n\n"))
    }

    pub fn session(&self) -> &Self {
        self.frame(json!({"type": "session", "sessionId": SESSION}))
    }

    pub fn text(&self, text: &str) -> &Self {
        self.frame(json!({"type": "stream", "text": text}))
    }

    pub fn complete(&self) {
        self.frame(json!({"type": "complete"}));
    }

    pub fn cut(&self) {
        let _ = self.0.send(Part::Break);
    }

    /// Whether the reader is gone.
    pub async fn closed(&self) {
        self.0.closed().await;
    }
}

/// A stream to answer with, and its writing end.
pub fn stream() -> (Feed, Answer) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Feed(sender), Answer::Stream(receiver))
}

#[derive(Default)]
struct Script {
    answers: Mutex<HashMap<String, VecDeque<Answer>>>,
    seen: Mutex<Vec<Seen>>,
    count: watch::Sender<usize>,
}

/// The server. It ends with this value.
pub struct Halo {
    pub port: u16,
    script: Arc<Script>,
    task: JoinHandle<()>,
}

impl Drop for Halo {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Halo {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let script = Arc::new(Script::default());
        let app = Router::new().fallback(answer).with_state(script.clone());
        let task = tokio::spawn(async move { axum::serve(listener, app).await.expect("serves") });
        Self { port, script, task }
    }

    /// The next `call` (such as `GET history`) gets `answer`. What is not scripted gets a plain default.
    pub fn on(&self, call: &str, answer: Answer) -> &Self {
        self.script.answers.lock().expect("lock").entry(call.to_owned()).or_default().push_back(answer);
        self
    }

    pub fn json(&self, call: &str, value: Value) -> &Self {
        self.on(call, Answer::Json(200, value))
    }

    /// The next chat is fed by the returned end.
    pub fn chat(&self) -> Feed {
        self.fed("POST chat")
    }

    pub fn subscribe(&self) -> Feed {
        self.fed("GET subscribe")
    }

    fn fed(&self, call: &str) -> Feed {
        let (feed, answer) = stream();
        self.on(call, answer);
        feed
    }

    /// The requests of one kind so far.
    pub fn seen(&self, call: &str) -> Vec<Seen> {
        self.script.seen.lock().expect("lock").iter().filter(|seen| seen.call == call).cloned().collect()
    }

    /// Waits until `call` came in `n` times and returns the last.
    pub async fn wait_for(&self, call: &str, n: usize) -> Seen {
        let mut count = self.script.count.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(20), async {
            loop {
                count.borrow_and_update();
                if let Some(seen) = self.seen(call).into_iter().nth(n - 1) {
                    return seen;
                }
                count.changed().await.expect("the server lives");
            }
        });
        waited.await.unwrap_or_else(|_| panic!("no {call} number {n}"))
    }
}

async fn answer(
    State(script): State<Arc<Script>>,
    method: Method,
    uri: Uri,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let call = format!("{method} {}", uri.path().rsplit('/').next().unwrap_or_default());
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    script.seen.lock().expect("lock").push(Seen { call: call.clone(), query, headers, body });
    script.count.send_modify(|count| *count += 1);
    let scripted = script.answers.lock().expect("lock").get_mut(&call).and_then(VecDeque::pop_front);
    match scripted.unwrap_or_else(|| default(&call)) {
        Answer::Json(status, value) => (code(status), axum::Json(value)).into_response(),
        Answer::Text(status, text) => (code(status), text).into_response(),
        Answer::Locked(seconds) => {
            let text = axum::Json(json!({"error": "too many failed attempts, try again later"}));
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", seconds.to_string())], text).into_response()
        }
        Answer::Stream(parts) => {
            let headers = [("content-type", "text/event-stream"), ("cache-control", "no-cache")];
            (headers, Body::from_stream(body_of(parts))).into_response()
        }
        Answer::Hang => std::future::pending().await,
    }
}

fn body_of(parts: mpsc::UnboundedReceiver<Part>) -> impl Stream<Item = Result<Bytes, std::io::Error>> {
    let parts = futures_util::stream::unfold(parts, |mut parts| async move {
        let part = parts.recv().await?;
        Some((Ok::<_, Infallible>(part), parts))
    });
    parts.map(|part| match part {
        Ok(Part::Bytes(bytes)) => Ok(bytes.into()),
        Ok(Part::Break) => Err(std::io::ErrorKind::ConnectionReset.into()),
        Err(never) => match never {},
    })
}

fn code(status: u16) -> StatusCode {
    StatusCode::from_u16(status).expect("a status")
}

fn default(call: &str) -> Answer {
    match call {
        "GET health" => Answer::Json(200, json!({"status": "ok", "version": "0.1.0"})),
        "POST sessions" => Answer::Json(200, json!({"sessionId": SESSION})),
        "POST stop" => Answer::Json(200, json!({"stopped": true})),
        "GET history" => Answer::Json(200, json!({"sessionId": SESSION, "messages": [], "running": false})),
        _ => Answer::Text(404, "Not Found"),
    }
}
