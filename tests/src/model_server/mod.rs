//! A model server that says what a test wants: Chat Completions at `/v1/chat/completions`, Messages at
//! `/v1/messages`, Responses at `/v1/responses`, and Bedrock at `/model/<id>/invoke-with-response-stream`, on an address of its own. A call is answered by the next reply in the queue; when the queue
//! is empty, by what the last line of the last user message orders (see [`script::Script::ordered`]). Requests
//! are kept for a look, and conversations that a strict provider would refuse are refused.

pub mod bedrock;
pub mod reply;
pub mod script;
mod strict;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::HeaderMap;
use axum::response::Response;
use axum::serve::ListenerExt;
use reply::Reply;
use script::Script;
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The largest request that is taken.
const MAX_BODY: usize = 64 * 1024 * 1024;

/// What a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Chat Completions.
    OpenAi,
    /// Messages.
    Anthropic,
    /// Responses.
    Responses,
    /// Messages within the frames of Bedrock.
    Bedrock,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// The other end of the connection.
    pub peer: SocketAddr,
    /// The path with its query.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body; null when it was no JSON.
    pub body: Value,
}

/// What answers a call.
#[derive(Clone, Debug)]
pub enum Queued {
    /// Exactly these bytes.
    Raw(Reply),
    /// This content, in the protocol of the call.
    Script(Script),
}

impl From<Reply> for Queued {
    fn from(reply: Reply) -> Self {
        Self::Raw(reply)
    }
}

impl From<Script> for Queued {
    fn from(script: Script) -> Self {
        Self::Script(script)
    }
}

/// The server; stops when dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    queue: Mutex<VecDeque<Queued>>,
    requests: Mutex<Vec<Recorded>>,
    /// What was refused, as a strict provider says it.
    refused: Mutex<Vec<String>>,
    /// How often `FAIL` failed already, by its line.
    failures: Mutex<HashMap<String, u32>>,
    strict: AtomicBool,
    count: watch::Sender<usize>,
    open: watch::Sender<usize>,
    released: watch::Sender<u64>,
}

impl ModelServer {
    /// Starts on a free port of 127.0.0.1.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        // Without this, small chunks wait 40 ms for each other.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let shared = Arc::new(Shared {
            queue: Mutex::default(),
            requests: Mutex::default(),
            refused: Mutex::default(),
            failures: Mutex::default(),
            strict: AtomicBool::new(true),
            count: watch::Sender::new(0),
            open: watch::Sender::new(0),
            released: watch::Sender::new(0),
        });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let task = tokio::spawn(async move {
            // Ends with the task; an error of the listener shows as refused connections.
            let _ = axum::serve(listener, service).await;
        });
        Ok(Self { address, shared, task })
    }

    /// The base address for a provider of the runtime `openai-chat` or `openai-responses`.
    pub fn openai_endpoint(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The base address for a provider of the runtime `anthropic-messages`.
    pub fn anthropic_endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The base address for a provider of the runtime `bedrock-invoke`.
    pub fn bedrock_endpoint(&self) -> String {
        self.anthropic_endpoint()
    }

    /// Answers the next call that has no answer yet.
    pub fn push(&self, reply: impl Into<Queued>) {
        lock(&self.shared.queue).push_back(reply.into());
    }

    /// Every request so far, in the order of their arrival.
    pub fn requests(&self) -> Vec<Recorded> {
        lock(&self.shared.requests).clone()
    }

    /// Forgets the answers that no call has taken.
    pub fn forget_the_rest(&self) {
        lock(&self.shared.queue).clear();
    }

    /// Why conversations were refused, in the order of their arrival.
    pub fn refused(&self) -> Vec<String> {
        lock(&self.shared.refused).clone()
    }

    /// The newest request, when there was one.
    pub fn last_request(&self) -> Option<Recorded> {
        lock(&self.shared.requests).last().cloned()
    }

    /// Waits until so many requests have come in all.
    pub async fn wait_for_requests(&self, count: usize) {
        wait(&self.shared.count, |seen| *seen >= count).await;
    }

    /// Waits until no answer is being streamed, because all have ended or their clients went away.
    pub async fn wait_until_idle(&self) {
        wait(&self.shared.open, |open| *open == 0).await;
    }

    /// Lets every stream go on that holds now, or whose request is in.
    pub fn release(&self) {
        self.shared.released.send_modify(|count| *count += 1);
    }

    /// Whether conversations are refused (400) in which a tool call has not exactly one result right after it.
    /// On from the start.
    pub fn set_strict(&self, strict: bool) {
        self.shared.strict.store(strict, Ordering::Relaxed);
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn wait<T>(sender: &watch::Sender<T>, ready: impl FnMut(&T) -> bool) {
    // An error would mean that the sender is gone, which the borrow rules out.
    let _ = sender.subscribe().wait_for(ready).await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the answers that are being streamed.
struct Open(Arc<Shared>);

impl Open {
    fn new(shared: &Arc<Shared>) -> Self {
        shared.open.send_modify(|open| *open += 1);
        Self(Arc::clone(shared))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}

async fn answer(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response {
    let open = Open::new(&shared);
    let released = shared.released.subscribe();
    let (parts, body) = request.into_parts();
    let body = to_bytes(body, MAX_BODY).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = parts.uri.path_and_query().map_or_else(String::new, ToString::to_string);
    lock(&shared.requests).push(Recorded { peer, path, headers: parts.headers, body: body.clone() });
    let reply = match parts.uri.path() {
        "/v1/chat/completions" => reply_to(&shared, Protocol::OpenAi, &body),
        "/v1/messages" => reply_to(&shared, Protocol::Anthropic, &body),
        "/v1/responses" => reply_to(&shared, Protocol::Responses, &body),
        path if path.starts_with("/model/") && path.ends_with("/invoke-with-response-stream") => {
            reply_to(&shared, Protocol::Bedrock, &body)
        }
        _ => Reply::status(404, "no such path"),
    };
    shared.count.send_modify(|count| *count += 1);
    reply.into_response(released, open)
}

fn reply_to(shared: &Shared, protocol: Protocol, body: &Value) -> Reply {
    if shared.strict.load(Ordering::Relaxed)
        && let Err(message) = strict::check(protocol, body)
    {
        lock(&shared.refused).push(message.clone());
        let error = json!({"type": "error", "error": {"type": "invalid_request_error", "message": message}});
        return Reply::status(400, &error.to_string());
    }
    match lock(&shared.queue).pop_front() {
        Some(Queued::Raw(reply)) => reply,
        Some(Queued::Script(script)) => script.reply(protocol),
        None => {
            let order = script::last_order(protocol, body);
            let times = lock(&shared.failures).entry(order.clone()).or_default().to_owned();
            match script::failure(&order, times) {
                Some(reply) => {
                    lock(&shared.failures).insert(order, times + 1);
                    reply
                }
                None => Script::ordered(&order).reply(protocol),
            }
        }
    }
}

/// For [`Reply::into_response`].
fn body_of(stream: impl futures_util::Stream<Item = std::io::Result<bytes::Bytes>> + Send + 'static) -> Body {
    Body::from_stream(stream)
}
