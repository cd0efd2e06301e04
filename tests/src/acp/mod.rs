//! The real `halo-acp`, driven as an editor drives it: by the client side of the official crate, over its pipes.
//! Every line that it writes is also checked by [`wire`] and kept.

pub mod raw;
pub mod wire;

use crate::place::Place;
use crate::{server, within};
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::ConnectionTo;
use agent_client_protocol::v1::schema::{
    CancelNotification, ContentBlock, InitializeRequest, InitializeResponse, ListSessionsRequest,
    ListSessionsResponse, LoadSessionRequest, NewSessionRequest, PromptRequest, SessionNotification,
    SessionUpdate, StopReason, TextContent,
};
use agent_client_protocol::{Agent, Client, Error, JsonRpcRequest, Lines};
use futures_util::{SinkExt, StreamExt};
use serde_json::Value;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::codec::{FramedRead, FramedWrite, LinesCodec};
use wire::Wire;

/// A running adapter with a client on its pipes.
pub struct Adapter {
    child: Child,
    connection: ConnectionTo<Agent>,
    shared: Arc<Shared>,
    stderr: Arc<Mutex<String>>,
    cwd: PathBuf,
    close: Option<oneshot::Sender<()>>,
    client: JoinHandle<()>,
    reader: JoinHandle<()>,
}

#[derive(Default)]
struct Shared {
    wire: Mutex<Wire>,
    updates: watch::Sender<Vec<SessionNotification>>,
}

/// The command of the adapter for a server at this host and port, with the token in its environment.
pub fn command(place: &Place, (host, port): &(String, u16), token: &str) -> Command {
    let mut command = Command::new(&crate::binaries::binaries().halo_acp);
    place.settle(&mut command);
    command.args(["--host", host, "--port", &port.to_string()]).env("HALO_ACP_TOKEN", token);
    command
}

impl Adapter {
    /// Starts the adapter for a server at this address and initializes the connection.
    pub async fn start(place: &Place, address: &(String, u16), token: &str) -> Self {
        let adapter = Self::spawn(command(place, address, token), place.workspace()).await;
        let answer = adapter.initialize().await;
        assert_eq!(answer.protocol_version, ProtocolVersion::V1);
        adapter
    }

    /// Starts the command, and a client on its pipes that has said nothing yet.
    pub async fn spawn(mut command: Command, cwd: PathBuf) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("halo-acp can be started");
        let stderr = Arc::new(Mutex::new(String::new()));
        let reader =
            tokio::spawn(server::keep(child.stderr.take().expect("stderr is piped"), Arc::clone(&stderr)));
        let shared = Arc::new(Shared::default());
        let (ready, connection) = oneshot::channel();
        let (close, closed) = oneshot::channel();
        let transport = transport(&mut child, &shared);
        let seen = Arc::clone(&shared);
        let client = Client.v1().name("halo-tests").on_receive_notification(
            async move |notification: SessionNotification, _cx| {
                seen.updates.send_modify(|updates| updates.push(notification));
                Ok(())
            },
            agent_client_protocol::on_receive_notification!(),
        );
        let client = tokio::spawn(async move {
            let run = client.connect_with(transport, async move |connection: ConnectionTo<Agent>| {
                // Nobody waits any more when the test has failed already.
                let _ = ready.send(connection);
                let _ = closed.await;
                Ok(())
            });
            // What breaks here shows as failed requests.
            let _ = run.await;
        });
        let connection = within("the connection", connection).await.expect("the client runs");
        Self { child, connection, shared, stderr, cwd, close: Some(close), client, reader }
    }

    /// Sends a request and waits for its answer.
    pub async fn request<R: JsonRpcRequest>(&self, request: R) -> Result<R::Response, Error> {
        let method = request.method().to_owned();
        within(&method, self.connection.send_request(request).block_task()).await
    }

    /// `initialize`.
    pub async fn initialize(&self) -> InitializeResponse {
        self.request(InitializeRequest::new(ProtocolVersion::V1)).await.expect("initialize")
    }

    /// `session/new`; answers the id.
    pub async fn new_session(&self) -> String {
        let answer = self.request(NewSessionRequest::new(&self.cwd)).await.expect("session/new");
        answer.session_id.0.to_string()
    }

    /// `session/prompt` of one text; answers why it ended.
    pub async fn prompt(&self, session: &str, text: &str) -> StopReason {
        self.try_prompt(session, text).await.expect("session/prompt")
    }

    /// The same where it may be refused.
    pub async fn try_prompt(&self, session: &str, text: &str) -> Result<StopReason, Error> {
        let content = vec![ContentBlock::Text(TextContent::new(text))];
        let answer = self.request(PromptRequest::new(session.to_owned(), content)).await?;
        Ok(answer.stop_reason)
    }

    /// `session/cancel`.
    pub fn cancel(&self, session: &str) {
        let cancel = CancelNotification::new(session.to_owned());
        self.connection.send_notification(cancel).expect("session/cancel");
    }

    /// `session/load`.
    pub async fn load(&self, session: &str) -> Result<(), Error> {
        self.request(LoadSessionRequest::new(session.to_owned(), &self.cwd)).await.map(|_| ())
    }

    /// `session/list`, the first page.
    pub async fn list(&self) -> ListSessionsResponse {
        self.request(ListSessionsRequest::new()).await.expect("session/list")
    }

    /// The updates of a session so far.
    pub fn updates(&self, session: &str) -> Vec<SessionUpdate> {
        of_session(&self.shared.updates.borrow(), session)
    }

    /// Waits until the updates of a session are as wanted.
    pub async fn wait_for(&self, what: &str, session: &str, wanted: impl Fn(&[SessionUpdate]) -> bool) {
        let mut updates = self.shared.updates.subscribe();
        let seen = updates.wait_for(|updates| wanted(&of_session(updates, session)));
        let outcome = tokio::time::timeout(crate::PATIENCE, seen).await;
        let Ok(Ok(_)) = outcome else {
            panic!("{what}: not in {:?}\n{}", self.updates(session), server::text(&self.stderr))
        };
    }

    /// The text that the agent has said in a session.
    pub fn said(&self, session: &str) -> String {
        said(&self.updates(session))
    }

    /// Every line that the adapter wrote.
    pub fn lines(&self) -> Vec<String> {
        lock(&self.shared.wire).lines().to_vec()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// What it said on stderr so far.
    pub fn stderr(&self) -> String {
        server::text(&self.stderr)
    }

    /// Closes its stdin as an editor that quits does, checks every line that it wrote and that it ends within
    /// a second; answers how it ended.
    pub async fn quit(mut self) -> ExitStatus {
        drop(self.close.take());
        within("the client ends", &mut self.client).await.expect("the client does not panic");
        let ended = tokio::time::timeout(Duration::from_secs(1), self.child.wait()).await;
        let status = ended.unwrap_or_else(|_| panic!("halo-acp still runs a second after the end of stdin"));
        lock(&self.shared.wire).assert_valid();
        status.expect("it can be waited for")
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.client.abort();
        self.reader.abort();
        if std::thread::panicking() {
            eprintln!("--- stderr of halo-acp ---\n{}", server::text(&self.stderr));
        } else {
            lock(&self.shared.wire).assert_valid();
        }
    }
}

/// The text of all the agent's messages among the updates.
pub fn said(updates: &[SessionUpdate]) -> String {
    let texts = updates.iter().filter_map(|update| match update {
        SessionUpdate::AgentMessageChunk(chunk) => match &chunk.content {
            ContentBlock::Text(text) => Some(text.text.as_str()),
            _ => None,
        },
        _ => None,
    });
    texts.collect()
}

/// The updates as JSON, with neighbouring chunks of one kind joined: what a reader sees, however it was cut.
pub fn joined(updates: &[SessionUpdate]) -> Vec<Value> {
    let mut joined: Vec<Value> = Vec::new();
    for update in updates {
        let next = serde_json::to_value(update).expect("an update is JSON");
        if let Some(last) = joined.last_mut()
            && next["sessionUpdate"].as_str().is_some_and(|kind| kind.ends_with("_chunk"))
            && next["sessionUpdate"] == last["sessionUpdate"]
            && let Some(more) = next["content"]["text"].as_str()
            && let Some(text) = last["content"]["text"].as_str()
        {
            last["content"]["text"] = format!("{text}{more}").into();
            continue;
        }
        joined.push(next);
    }
    joined
}

fn of_session(updates: &[SessionNotification], session: &str) -> Vec<SessionUpdate> {
    let of = updates.iter().filter(|notification| &*notification.session_id.0 == session);
    of.map(|notification| notification.update.clone()).collect()
}

fn transport(
    child: &mut Child,
    shared: &Arc<Shared>,
) -> Lines<
    impl futures_util::Sink<String, Error = std::io::Error> + Send + 'static,
    impl futures_util::Stream<Item = std::io::Result<String>> + Send + 'static,
> {
    let stdin = FramedWrite::new(child.stdin.take().expect("stdin is piped"), LinesCodec::new());
    let stdout = FramedRead::new(child.stdout.take().expect("stdout is piped"), LinesCodec::new());
    let sent = Arc::clone(shared);
    let stdin = SinkExt::<String>::sink_map_err(stdin, std::io::Error::other);
    let outgoing = stdin.with(move |line: String| {
        lock(&sent.wire).sent(&line);
        std::future::ready(Ok::<_, std::io::Error>(line))
    });
    let received = Arc::clone(shared);
    let incoming = stdout.map(move |line| {
        let line = line.map_err(std::io::Error::other)?;
        lock(&received.wire).received(&line);
        Ok(line)
    });
    Lines::new(outgoing, incoming)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
