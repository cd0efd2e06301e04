//! Stop within two seconds, wherever a run is: one terminal frame, and nothing runs on.

use halo_tests::model_server::reply::Reply;
use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::{ALL_TOOLS, Place};
use halo_tests::processes::running_in;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, Frames, kinds_of};
use halo_tests::within;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What the contract allows.
const LIMIT: Duration = Duration::from_secs(2);

struct Stack {
    server: Server,
    model: ModelServer,
    client: Client,
}

async fn stack() -> Stack {
    let model = ModelServer::start().await.expect("a model server");
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    let choice = "model: { provider: scripted, id: some-model }";
    place.agent("default", &format!("{choice}\ntools: {ALL_TOOLS}\nteam: [default]\n"));
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    Stack { server, model, client }
}

impl Stack {
    /// Stops the session in time; the stream ends in one terminal frame, the session is idle, no model is asked
    /// any more and no process is left.
    async fn stop(&self, session: &str, stream: Option<Frames>) -> Vec<Frame> {
        let began = Instant::now();
        assert!(self.client.stop(session).await);
        let took = began.elapsed();
        assert!(took < LIMIT, "{took:?}");
        let frames = match stream {
            Some(stream) => stream.rest().await,
            None => Vec::new(),
        };
        let ends = frames.iter().filter(|frame| frame.is_last()).count();
        assert!(frames.is_empty() || ends == 1, "{:?}", kinds_of(&frames));
        assert!(frames.last().is_none_or(|frame| frame.kind() == "complete"), "{:?}", kinds_of(&frames));
        assert_eq!(self.client.history(session).await["running"], false);
        within("the model's streams end", self.model.wait_until_idle()).await;
        let left = running_in(&self.server.workspace(), "sleep");
        assert!(left.is_empty(), "processes that run on: {left:?}");
        let asked = self.model.requests().len();
        assert!(!self.client.stop(session).await, "there is nothing left to stop");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(self.model.requests().len(), asked, "nothing runs on");
        frames
    }

    /// The session works again, and what the model gets is what a strict provider takes.
    async fn works(&self, session: &str) {
        let frames = self.client.turn(session, "and now?").await;
        assert_eq!(frames.last().map(Frame::kind), Some("complete"), "{frames:?}");
    }
}

#[tokio::test]
async fn in_the_middle_of_the_models_text() {
    let stack = stack().await;
    let session = stack.client.mint().await;
    let mut stream = stack.client.chat(&session, "HOLD").await;
    stream.until("stream").await;
    stack.stop(&session, Some(stream)).await;
    stack.works(&session).await;
}

#[tokio::test]
async fn in_a_shell_command_with_a_child_in_the_background() {
    let stack = stack().await;
    let session = stack.client.mint().await;
    let order = r#"TOOL shell_exec {"command": "sleep 301 & sleep 302"}"#;
    let mut stream = stack.client.chat(&session, order).await;
    stream.until("tool_call").await;
    wait_for_sleepers(&stack, 2).await;
    let frames = stack.stop(&session, Some(stream)).await;
    let result = frames.iter().find(|frame| frame.kind() == "tool_result").expect("a result");
    assert_eq!(result.data["result"], "[interrupted by user]");
    stack.works(&session).await;
}

#[tokio::test]
async fn in_two_parallel_sub_agents_one_level_deeper() {
    let stack = stack().await;
    let session = stack.client.mint().await;
    let sleep = r#"TOOL shell_exec {"command": "sleep 303"}"#;
    let order =
        |task: &str| format!("TOOL start_session {}", json!({"agent_id": "default", "message": task}));
    // The session starts one, that one starts two, and each of these runs a command.
    let two = format!("{}\n{}", order(sleep), order(sleep));
    let frames = stack.client.turn(&session, &order(&two)).await;
    assert_eq!(frames.last().map(Frame::kind), Some("complete"));
    wait_for_sleepers(&stack, 2).await;
    stack.stop(&session, None).await;
    let history = stack.client.history(&session).await;
    let rows = history["messages"].as_array().expect("messages");
    let count = |kind: &str| rows.iter().filter(|row| row["type"] == kind).count();
    assert_eq!((count("agent_start"), count("agent_done")), (3, 3));
    assert!(
        !rows.iter().any(|row| content(row).starts_with("(from: session ")),
        "nobody reports after a stop"
    );
    stack.works(&session).await;
}

#[tokio::test]
async fn in_a_wait_that_the_provider_asks_for() {
    let stack = stack().await;
    let session = stack.client.mint().await;
    stack
        .model
        .push(Reply::status(429, r#"{"error":{"message":"slow down"}}"#).header("retry-after", "3600"));
    let stream = stack.client.chat(&session, "hello").await;
    let told = async {
        loop {
            let history = stack.client.history(&session).await;
            let rows = history["messages"].as_array().expect("messages");
            if rows.iter().any(|row| content(row).starts_with("Rate limited, retrying in 3600s")) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the notice about the wait", told).await;
    stack.stop(&session, Some(stream)).await;
    stack.works(&session).await;
}

#[tokio::test]
async fn in_a_compaction_that_a_command_asked_for() {
    let stack = stack().await;
    let session = stack.client.mint().await;
    for turn in 0..6 {
        stack.client.turn(&session, &format!("turn {turn}")).await;
    }
    stack.model.push(Script::text(["a summ", "ary"]).hold_after(1));
    let asked = stack.model.requests().len();
    let command = {
        let (client, session) = (stack.client.clone(), session.clone());
        tokio::spawn(async move { client.turn(&session, "/session compact").await })
    };
    stack.model.wait_for_requests(asked + 1).await;
    let watcher = stack.client.subscribe(&session, None).await;
    stack.stop(&session, Some(watcher)).await;
    let answer = within("the command's answer", command).await.expect("no panic");
    assert_eq!(kinds_of(&answer), ["stream", "complete"]);
    assert_eq!(notices(&stack, &session).await, ["Compacting context…", "Compact cancelled"]);
    stack.works(&session).await;
}

#[tokio::test]
async fn in_a_compaction_in_the_middle_of_a_run() {
    let stack = stack().await;
    let session = stack.client.mint().await;
    for turn in 0..6 {
        stack.client.turn(&session, &format!("turn {turn}")).await;
    }
    // The window of the model has 100,000 tokens.
    stack.model.push(Script::text(["nearly full"]).usage(95_000, 10));
    stack.client.turn(&session, "fill it").await;
    stack.model.push(Script::text(["a summ", "ary"]).hold_after(1));
    let asked = stack.model.requests().len();
    let stream = stack.client.chat(&session, "one more").await;
    stack.model.wait_for_requests(asked + 1).await;
    stack.stop(&session, Some(stream)).await;
    assert_eq!(notices(&stack, &session).await, ["Compacting context…", "Compact cancelled"]);
}

async fn notices(stack: &Stack, session: &str) -> Vec<String> {
    let history = stack.client.history(session).await;
    let rows = history["messages"].as_array().expect("messages").iter();
    rows.filter(|row| row["type"] == "notification").map(|row| content(row).to_owned()).collect()
}

fn content(row: &Value) -> &str {
    row["content"].as_str().unwrap_or_default()
}

/// Waits until so many commands sleep in the workspace.
async fn wait_for_sleepers(stack: &Stack, count: usize) {
    let sleepers = async {
        // A shell that runs `sleep` has the word in its own command line too.
        while running_in(&stack.server.workspace(), "sleep 30").len() < count {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("the commands run", sleepers).await;
}
