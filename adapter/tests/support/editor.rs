//! The real `halo-acp` behind pipes, driven line by line. Every line it writes is parsed by the official
//! crate's types, and must come out of them as it went in: nothing unknown, nothing that is silently dropped.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    AuthenticateResponse, InitializeResponse, ListSessionsResponse, LoadSessionResponse, NewSessionResponse,
    PromptResponse, SessionNotification,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use super::halo::{Halo, SESSION};

/// How long any one line may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The token of every test.
pub const TOKEN: &str = "tok-3n_secret";

/// The binary under test.
pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_halo-acp"));
    command.kill_on_drop(true).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What the machine of the tests has set is not part of them.
    for name in [
        "HALO_ACP_TOKEN",
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
        "no_proxy",
        "NO_PROXY",
    ] {
        command.env_remove(name);
    }
    command
}

/// An editor that started the adapter.
pub struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: JoinHandle<String>,
    next_id: i64,
    methods: Vec<(i64, String)>,
}

impl Editor {
    /// Starts the adapter against `halo`, with more flags.
    pub fn start(halo: &Halo, flags: &[&str]) -> Self {
        Self::start_at(halo.port, flags)
    }

    pub fn start_at(port: u16, flags: &[&str]) -> Self {
        let mut command = command();
        command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--token", TOKEN]).args(flags);
        Self::spawn(command)
    }

    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.spawn().expect("starts");
        let stdout = BufReader::new(child.stdout.take().expect("stdout")).lines();
        let mut errors = child.stderr.take().expect("stderr");
        let stderr = tokio::spawn(async move {
            let mut text = String::new();
            errors.read_to_string(&mut text).await.expect("stderr is text");
            text
        });
        let stdin = child.stdin.take();
        Self { child, stdin, stdout, stderr, next_id: 0, methods: Vec::new() }
    }

    /// An editor with one session, [`SESSION`].
    pub async fn with_session(halo: &Halo) -> Self {
        let mut editor = Self::start(halo, &[]);
        assert_eq!(editor.open_session().await, SESSION);
        editor
    }

    pub async fn open_session(&mut self) -> String {
        let made = self.call("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
        made["result"]["sessionId"].as_str().expect("an id").to_owned()
    }

    /// Writes bytes as they are.
    pub async fn raw(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        stdin.write_all(bytes).await.expect("writes");
        stdin.flush().await.expect("flushes");
    }

    /// The line of a request, noted but not sent.
    pub fn request(&mut self, method: &str, params: Value) -> (i64, String) {
        self.next_id += 1;
        self.methods.push((self.next_id, method.to_owned()));
        let line = json!({"jsonrpc": "2.0", "id": self.next_id, "method": method, "params": params});
        (self.next_id, format!("{line}\n"))
    }

    pub async fn send(&mut self, method: &str, params: Value) -> i64 {
        let (id, line) = self.request(method, params);
        self.raw(line.as_bytes()).await;
        id
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        let line = json!({"jsonrpc": "2.0", "method": method, "params": params});
        self.raw(format!("{line}\n").as_bytes()).await;
    }

    /// Sends a prompt of one text to [`SESSION`].
    pub async fn prompt(&mut self, text: &str) -> i64 {
        self.prompt_blocks(json!([{"type": "text", "text": text}])).await
    }

    pub async fn prompt_blocks(&mut self, blocks: Value) -> i64 {
        self.send("session/prompt", json!({"sessionId": SESSION, "prompt": blocks})).await
    }

    pub async fn cancel(&mut self) {
        self.notify("session/cancel", json!({"sessionId": SESSION})).await;
    }

    /// The next line, checked.
    pub async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.stdout.next_line()).await.expect("a line in time");
        let line = line.expect("reads").expect("a line before the end");
        let value: Value = serde_json::from_str(&line).expect("a line of JSON");
        self.check(&value);
        value
    }

    /// Sends a request and returns its response; nothing else may come before it.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        let (updates, response) = self.until(id).await;
        assert!(updates.is_empty(), "unexpected updates: {updates:?}");
        response
    }

    /// All updates up to the response of `id`.
    pub async fn until(&mut self, id: i64) -> (Vec<Value>, Value) {
        let mut updates = Vec::new();
        loop {
            let line = self.line().await;
            if line["method"].is_null() {
                assert_eq!(line["id"], id, "another response: {line}");
                return (updates, line);
            }
            updates.push(line["params"]["update"].clone());
        }
    }

    /// The text and the stop reason of a prompt.
    pub async fn reply(&mut self, id: i64) -> (String, String) {
        let (updates, response) = self.until(id).await;
        (said(&updates), response["result"]["stopReason"].as_str().expect("a stop reason").to_owned())
    }

    /// Closes stdin and waits for the end: the rest of stdout, stderr, the exit.
    pub async fn end(mut self) -> (Vec<Value>, String, ExitStatus) {
        drop(self.stdin.take());
        let mut rest = Vec::new();
        while let Some(line) = self.stdout.next_line().await.expect("reads") {
            let value: Value = serde_json::from_str(&line).expect("a line of JSON");
            self.check(&value);
            rest.push(value);
        }
        let status = tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("ends").expect("ended");
        (rest, self.stderr.await.expect("stderr"), status)
    }

    /// Closes our end of its stdout and waits for the exit while stdin stays open.
    pub async fn hang_up(self, method: &str) -> (String, ExitStatus) {
        let Self { mut child, stdin, stdout, stderr, .. } = self;
        drop(stdout);
        let mut stdin = stdin.expect("stdin is open");
        let line = json!({"jsonrpc": "2.0", "id": 900, "method": method, "params": {}});
        stdin.write_all(format!("{line}\n").as_bytes()).await.expect("writes");
        let status = tokio::time::timeout(PATIENCE, child.wait()).await.expect("ends").expect("ended");
        (stderr.await.expect("stderr"), status)
    }

    fn check(&self, line: &Value) {
        assert_eq!(line["jsonrpc"], "2.0", "{line}");
        if let Some(method) = line.get("method") {
            assert_eq!(method, "session/update", "the only method that is sent");
            assert!(line.get("id").is_none(), "{line}");
            return same::<SessionNotification>(&line["params"]);
        }
        let id = line.get("id").unwrap_or_else(|| panic!("neither a call nor a response: {line}"));
        if let Some(error) = line.get("error") {
            assert!(line.get("result").is_none(), "{line}");
            return same::<agent_client_protocol::v1::schema::Error>(error);
        }
        let method = self.methods.iter().find(|(known, _)| id == known).map(|(_, method)| method.as_str());
        let result = &line["result"];
        match method.unwrap_or_else(|| panic!("a response that nobody asked for: {line}")) {
            "initialize" => same::<InitializeResponse>(result),
            "authenticate" => same::<AuthenticateResponse>(result),
            "session/new" => same::<NewSessionResponse>(result),
            "session/load" => same::<LoadSessionResponse>(result),
            "session/list" => same::<ListSessionsResponse>(result),
            "session/prompt" => same::<PromptResponse>(result),
            "session/cancel" => assert!(result.is_null(), "{line}"),
            other => panic!("{other} has no result: {line}"),
        }
    }
}

/// The text of all message chunks.
pub fn said(updates: &[Value]) -> String {
    let chunks = updates.iter().filter(|update| update["sessionUpdate"] == "agent_message_chunk");
    chunks.map(|update| update["content"]["text"].as_str().expect("text")).collect()
}

/// The types skip what they cannot read, so the value must also survive the round trip.
fn same<T: DeserializeOwned + Serialize>(value: &Value) {
    let typed: T = serde_json::from_value(value.clone()).unwrap_or_else(|error| panic!("{error}: {value}"));
    assert_eq!(&serde_json::to_value(typed).expect("writes"), value, "something is not of the protocol");
}
