//! An engine on a temp folder with a model and a tool that do what the test says.

use bytes::Bytes;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use halo_server::access::AccessLevel;
use halo_server::agent::Agent;
use halo_server::agent::compact;
use halo_server::agent::profile::{DisabledItem, Visible};
use halo_server::clock::SystemClock;
use halo_server::model::{
    Block, Completion, Event, Message, Model, ModelError, Request, StopReason, ToolSpec, Usage,
};
use halo_server::session::ids::SessionId;
use halo_server::session::{
    AgentRequest, AgentSource, Engine, Feed, From, HistoryQuery, Inbound, Member, Parts, Sent, Unavailable,
    Workspace,
};
use halo_server::store::Database;
use halo_server::store::schema::Schema;
use halo_server::tool::sandbox::{NetworkUse, Sandbox};
use halo_server::tool::{Context, Limits, Output, Tool};
use halo_server::workspace::inbound::Saved;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

/// What the model says: text pieces, a wait for the test's permit, calls.
#[derive(Clone, Debug)]
pub enum Say {
    Text(String),
    /// Waits until the test adds a permit to `World::gate`.
    Gate,
    Call(&'static str, Value),
    /// A call whose arguments follow from the conversation.
    Ask(&'static str, fn(&[Arc<Message>]) -> Value),
    /// The call fails.
    Fail(ModelError),
    /// The provider counts this many tokens of input instead of 100; with 0, nothing at all.
    Count(u64),
}

pub fn text(text: &str) -> Say {
    Say::Text(text.into())
}

/// A message of a `full` sender.
pub fn inbound(message: &str) -> Inbound {
    Inbound {
        text: message.into(),
        images: vec![],
        saved: Saved::default(),
        access: AccessLevel::Full,
        agent_id: None,
    }
}

/// Everything a test holds.
pub struct World {
    pub folder: tempfile::TempDir,
    pub engine: Engine,
    pub workspace: Workspace,
    pub script: Arc<Script>,
}

/// The scripted side.
pub struct Script {
    answers: Mutex<Vec<Vec<Say>>>,
    /// Answers for calls whose last message holds a marker; they go before the others.
    marked: Mutex<Vec<(&'static str, Vec<Say>)>>,
    pub requests: Mutex<Vec<Vec<Arc<Message>>>>,
    pub gate: Semaphore,
    /// Told whenever the tool begins.
    pub tool_began: Notify,
    /// Whether the tool waits for its cancel token (or, stubbornly, for ever).
    pub tool: Mutex<ToolMode>,
    /// The context window, and how many messages a compaction keeps.
    pub window: Mutex<(u64, usize)>,
    /// Whether the model takes no images.
    pub blind: AtomicBool,
    pub look: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// The levels at which agents were built.
    pub levels: Mutex<Vec<AccessLevel>>,
}

#[derive(Clone, Copy)]
pub enum ToolMode {
    Answers,
    /// Answers with this many bytes.
    AnswersLong(usize),
    UntilCancelled,
    Stubborn,
}

struct Scripted(Arc<Script>);

impl Model for Scripted {
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>> {
        let script = self.0.clone();
        let messages = request.messages;
        script.requests.lock().unwrap().push(messages.clone());
        let answer = script.answer(&messages);
        async_stream::stream! {
            let mut content = Vec::new();
            let mut whole = String::new();
            let mut stop = StopReason::EndTurn;
            let mut input = 100;
            for (n, say) in answer.into_iter().enumerate() {
                match say {
                    Say::Text(text) => {
                        whole.push_str(&text);
                        yield Ok(Event::Text(text));
                    }
                    Say::Gate => script.gate.acquire().await.unwrap().forget(),
                    Say::Call(..) | Say::Ask(..) => {
                        let (name, arguments) = match say {
                            Say::Call(name, input) => (name, input),
                            Say::Ask(name, input) => (name, input(&messages)),
                            _ => unreachable!(),
                        };
                        stop = StopReason::ToolUse;
                        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
                        let id = format!("call_{n}");
                        content.push(Block::ToolUse { id, name: name.into(), input: arguments });
                    }
                    Say::Count(tokens) => input = tokens,
                    Say::Fail(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
            if !whole.is_empty() {
                content.insert(0, Block::Text { text: whole });
            }
            let counted = Usage { input, output: 10, ..Usage::default() };
            let usage = if input == 0 { Usage::default() } else { counted };
            yield Ok(Event::Done(Completion { content, malformed: vec![], stop, usage }));
        }
        .boxed()
    }

    fn id(&self) -> &'static str {
        "scripted"
    }

    fn takes_images(&self) -> bool {
        !self.0.blind.load(Ordering::SeqCst)
    }
}

struct Probe(Arc<Script>);

impl Tool for Probe {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "probe".into(), description: "looks".into(), parameters: json!({"type": "object"}) }
    }

    fn run<'a>(
        &'a self,
        _: Map<String, Value>,
        context: &'a Context,
    ) -> futures_util::future::BoxFuture<'a, Output> {
        async move {
            if let Some(look) = &*self.0.look.lock().unwrap() {
                look();
            }
            self.0.tool_began.notify_one();
            let mode = *self.0.tool.lock().unwrap();
            match mode {
                ToolMode::Answers => {}
                ToolMode::AnswersLong(bytes) => return Output::ok("x".repeat(bytes)),
                ToolMode::UntilCancelled => context.cancel.cancelled().await,
                ToolMode::Stubborn => std::future::pending().await,
            }
            Output::ok("seen")
        }
        .boxed()
    }
}

struct Source(Arc<Script>);

impl AgentSource for Source {
    fn choose(
        &self,
        _: &Path,
        wanted: Option<&str>,
        disabled: &[DisabledItem],
    ) -> Result<(String, String), Unavailable> {
        let id = wanted.unwrap_or("default");
        if id == "default" && disabled.is_empty() {
            Ok((id.to_owned(), "Default".to_owned()))
        } else {
            Err(Unavailable::No)
        }
    }

    fn visible(&self, _: &Path, _: &[DisabledItem]) -> Visible {
        Visible::default()
    }

    fn team(&self, _: &Path, _: &str, _: AccessLevel, _: &[DisabledItem]) -> Result<Vec<Member>, String> {
        Ok(vec![Member {
            id: "default".into(),
            name: "Default".into(),
            description: "does all".into(),
            model: None,
            tools: vec!["probe".into()],
            skills: vec![],
        }])
    }

    fn instructions(&self, _: &Path, folder: &str, _: AccessLevel) -> Result<(String, String), String> {
        if folder == "src" { Ok(("src".into(), "rules of src".into())) } else { Err("no such folder".into()) }
    }

    fn build(&self, request: AgentRequest<'_>) -> Result<Agent, String> {
        let AgentRequest { workspace, access, always, delegation, .. } = request;
        self.0.levels.lock().unwrap().push(access);
        let mut tools: Vec<Arc<dyn Tool>> = vec![Arc::new(Probe(self.0.clone()))];
        tools.extend(always);
        tools.extend(delegation);
        Ok(Agent {
            name: "Default".into(),
            model: Arc::new(Scripted(self.0.clone())),
            system: "be brief".into(),
            specs: tools.iter().map(|tool| tool.spec()).collect(),
            tools,
            context: Context {
                workspace: workspace.to_owned(),
                user_home: "/nonexistent".into(),
                halo_home: "/nonexistent".into(),
                access,
                hidden_dirs: Arc::new([]),
                hidden_files: Arc::new([]),
                writable_dirs: Arc::new([]),
                sandbox: Sandbox::new("/nonexistent".into(), "/nonexistent".into(), None),
                sandbox_network: NetworkUse::On,
                url_allowlist: Arc::default(),
                params: Arc::default(),
                limits: Limits::default(),
                cancel: CancellationToken::new(),
            },
            max_tries: 5,
            render_chars: 8000,
            display_bytes: 65_536,
            compaction: {
                let (window, keep_messages) = *self.0.window.lock().unwrap();
                compact::Limits {
                    window,
                    compress_at: 0.9,
                    keep_messages,
                    max_summary_input: 15_000,
                    max_message_slice: 800,
                }
            },
        })
    }
}

impl Script {
    pub fn new(answers: Vec<Vec<Say>>) -> Arc<Self> {
        Arc::new(Self {
            answers: Mutex::new(answers),
            marked: Mutex::default(),
            requests: Mutex::default(),
            gate: Semaphore::new(0),
            tool_began: Notify::new(),
            tool: Mutex::new(ToolMode::Answers),
            window: Mutex::new((100_000, 5)),
            blind: AtomicBool::new(false),
            look: Mutex::new(None),
            levels: Mutex::default(),
        })
    }
}

impl Script {
    /// Answers the next call whose last message holds `marker`; several of one marker in their order.
    pub fn when(&self, marker: &'static str, answer: Vec<Say>) {
        self.marked.lock().unwrap().push((marker, answer));
    }

    fn answer(&self, messages: &[Arc<Message>]) -> Vec<Say> {
        let last = format!("{:?}", messages.last());
        let mut marked = self.marked.lock().unwrap();
        if let Some(at) = marked.iter().position(|(marker, _)| last.contains(marker)) {
            return marked.remove(at).1;
        }
        let mut answers = self.answers.lock().unwrap();
        if answers.is_empty() { vec![text("ok")] } else { answers.remove(0) }
    }
}

impl World {
    pub async fn new(answers: Vec<Vec<Say>>) -> Self {
        Self::at(tempfile::tempdir().unwrap(), Script::new(answers)).await
    }

    /// A server's life on a folder that may have been used before.
    pub async fn at(folder: tempfile::TempDir, script: Arc<Script>) -> Self {
        let root = folder.path().join("ws");
        std::fs::create_dir_all(&root).unwrap();
        let runs = Database::open(&folder.path().join("runs.db"), Schema::Runs).unwrap();
        let engine = Engine::new(Parts {
            runs,
            agents: Arc::new(Source(script.clone())),
            clock: Arc::new(SystemClock),
        });
        let workspace = engine.workspace(&root).await.unwrap();
        Self { folder, engine, workspace, script }
    }

    /// The same workspace in another server.
    pub async fn second(&self, runs: Database) -> Workspace {
        let agents = Arc::new(Source(self.script.clone()));
        let engine = Engine::new(Parts { runs, agents, clock: Arc::new(SystemClock) });
        engine.workspace(self.workspace.path()).await.unwrap()
    }

    /// Ends the server in order; gives what the next life needs.
    pub async fn end(self) -> tempfile::TempDir {
        self.engine.shutdown().await;
        self.folder
    }

    pub async fn send(&self, id: &SessionId, message: &str) -> Sent {
        self.workspace.session(id).send(inbound(message)).await.unwrap()
    }

    pub async fn start(&self, id: &SessionId, message: &str) -> Feed {
        match self.send(id, message).await {
            Sent::Started(feed) => feed,
            Sent::Queued(_) => panic!("the session was busy"),
        }
    }

    pub async fn follow(&self, id: &SessionId, from: From) -> Vec<Frame> {
        match self.workspace.session(id).subscribe(from).await.unwrap() {
            Some(feed) => frames(feed).await,
            None => vec![],
        }
    }

    /// Waits until the log of the session has a row of which `found` says so.
    pub async fn row_where(&self, id: &SessionId, found: impl Fn(&Value) -> bool) -> Value {
        let look = async {
            loop {
                if self.workspace.exists(id).await.unwrap()
                    && let Some(row) = self.rows(id).await.into_iter().find(&found)
                {
                    return row;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), look).await.expect("no such row came")
    }

    /// Waits until nothing of the session runs and nothing waits.
    pub async fn quiet(&self, id: &SessionId) {
        let database = self.workspace.path().join(".halo/halo.db");
        let conn = rusqlite::Connection::open(database).unwrap();
        let busy =
            "SELECT (SELECT count(*) FROM runs) + (SELECT count(*) FROM queue) + (SELECT count(*) FROM mail)";
        let look = async {
            while conn.query_row(busy, [], |row| row.get::<_, i64>(0)).unwrap() > 0
                || self.workspace.session(id).snapshot().await.unwrap().is_some_and(|look| look.running)
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), look).await.expect("it does not come to rest");
    }

    pub async fn rows(&self, id: &SessionId) -> Vec<Value> {
        let look = self.workspace.session(id).snapshot().await.unwrap().unwrap();
        let (mut rows, _) = self.workspace.history(id, HistoryQuery::default(), look.top).await.unwrap();
        let mut all = vec![];
        while let Some(chunk) = rows.next().await {
            all.extend(chunk.unwrap().iter().map(|row| serde_json::from_str::<Value>(row).unwrap()));
        }
        all.extend(look.streaming.map(|row| serde_json::from_str::<Value>(&row).unwrap()));
        all
    }
}

/// A frame as a client reads it.
#[derive(Clone, Debug)]
pub struct Frame {
    pub id: Option<String>,
    pub json: Value,
}

impl Frame {
    pub fn kind(&self) -> &str {
        self.json["type"].as_str().unwrap()
    }
}

pub fn parse(bytes: &[u8]) -> Vec<Frame> {
    let text = std::str::from_utf8(bytes).unwrap();
    text.split("\n\n")
        .filter(|event| !event.is_empty() && !event.starts_with(':'))
        .map(|event| {
            let field =
                |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            Frame { id: field("id: "), json: serde_json::from_str(&field("data: ").unwrap()).unwrap() }
        })
        .collect()
}

/// All frames to the terminal one.
pub async fn frames(feed: Feed) -> Vec<Frame> {
    let all = tokio::time::timeout(Duration::from_secs(10), feed.0.collect::<Vec<Bytes>>()).await.unwrap();
    parse(&all.concat())
}

/// `user stream … complete`, neighbouring text joined.
pub fn outline(frames: &[Frame]) -> String {
    let mut kinds: Vec<&str> = frames.iter().map(Frame::kind).collect();
    kinds.dedup();
    kinds.join(" ")
}

pub fn streamed(frames: &[Frame]) -> String {
    frames
        .iter()
        .filter(|frame| frame.kind() == "stream")
        .filter_map(|frame| frame.json["text"].as_str())
        .collect()
}

pub fn kinds(rows: &[Value]) -> String {
    rows.iter().filter_map(|row| row["type"].as_str()).collect::<Vec<_>>().join(" ")
}

pub fn id(text: &str) -> SessionId {
    text.parse().unwrap()
}
