//! Slash commands on the real server: what they answer, to whom, and that they leave no trace. Where they move an
//! account is in `moves`, what they read of files in `files`.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod files;
mod moves;

use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, first, kinds_of, text_of};
use reqwest::{Method, RequestBuilder};
use rstest::rstest;
use rusqlite::{Connection, Params};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn chat(client: &Client, body: &Value) -> RequestBuilder {
    client.request(Method::POST, "/api/web/chat").json(body)
}

/// Sends a message that names no session; its frames to the end.
async fn say(client: &Client, message: &str) -> Vec<Frame> {
    client.stream(chat(client, &json!({"message": message}))).await.rest().await
}

/// The session that a message without one goes to.
async fn lands_in(client: &Client) -> String {
    first(&say(client, "hello").await, "session")["sessionId"].as_str().unwrap().to_owned()
}

/// The reply to a command, and the session that it moves to.
async fn command_with(client: &Client, body: &Value) -> (String, Option<String>) {
    let frames = client.stream(chat(client, body)).await.rest().await;
    assert!(frames.iter().all(|frame| frame.id.is_none()), "a command has no run: {frames:?}");
    let switch = frames.iter().find(|frame| frame.kind() == "switch");
    let kinds = kinds_of(&frames);
    match switch {
        None => assert_eq!(kinds, ["stream", "complete"], "{frames:?}"),
        Some(_) => assert_eq!(kinds, ["stream", "switch", "complete"], "{frames:?}"),
    }
    let switch = switch.map(|frame| frame.data["sessionId"].as_str().unwrap().to_owned());
    (text_of(&frames), switch)
}

async fn command(client: &Client, message: &str) -> (String, Option<String>) {
    command_with(client, &json!({"message": message})).await
}

/// The reply to a command that moves nowhere.
async fn reply(client: &Client, message: &str) -> String {
    let (text, switch) = command(client, message).await;
    assert_eq!(switch, None, "{text}");
    text
}

/// The session that a command moves to.
async fn moves(client: &Client, message: &str) -> String {
    let (text, switch) = command(client, message).await;
    switch.unwrap_or_else(|| panic!("{message} moves nowhere: {text}"))
}

/// Changes one row of a database behind the server's back.
fn change(database: &Path, sql: &str, values: impl Params) {
    let db = Connection::open(database).unwrap();
    db.busy_timeout(halo_tests::PATIENCE).unwrap();
    assert_eq!(db.execute(sql, values).unwrap(), 1, "{sql}");
}

fn halo_db(server: &Server) -> PathBuf {
    server.workspace().join(".halo/halo.db")
}

fn channels_db(server: &Server) -> PathBuf {
    server.place().home().join("secrets/channels/channels.db")
}

/// The id of the account that a session belongs to.
fn account_of(session: &str) -> &str {
    session.split('_').nth(1).unwrap()
}

/// A server whose agent uses a scripted model.
async fn scripted() -> (Server, ModelServer) {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    (Server::launch(place, Launch::default()).await, model)
}

#[tokio::test]
async fn asking_makes_no_session_and_no_workspace() {
    let server = Server::start().await;
    let client = server.client("full").await;
    for message in [
        "/help",
        "/session",
        "/session list",
        "/session info",
        "/session switch 1",
        "/session stop",
        "/session interrupt",
        "/session compact",
        "/session context",
        "/agent list",
        "/agent desc",
        "/skill list",
        "/workspace info",
        "/workspace switch nowhere",
        "/nope",
        "/",
    ] {
        reply(&client, message).await;
    }
    assert!(!server.workspace().join(".halo").exists());
    assert_eq!(client.sessions().await["sessions"], json!([]));
    let history = client.get("/api/web/history").await.body;
    assert_eq!(history, json!({"messages": [], "sessionId": null, "running": false}));
}

#[tokio::test]
async fn a_command_is_in_no_log_and_no_agent_sees_it() {
    let (server, model) = scripted().await;
    let client = server.client("full").await;
    let id = lands_in(&client).await;
    let before = client.history(&id).await;
    let (calls, sessions) = (model.requests().len(), client.sessions().await);
    for message in ["/help", "/session info", "/usr/bin/foo does not work", "/session context", "/s i"] {
        reply(&client, message).await;
        command_with(&client, &json!({"message": message, "sessionId": id})).await;
    }
    assert_eq!(client.history(&id).await, before);
    assert_eq!(client.sessions().await, sessions);
    assert_eq!(model.requests().len(), calls);
    // A space in front sends it to the agent.
    let frames = say(&client, " /usr/bin/foo does not work").await;
    assert_eq!(first(&frames, "user")["text"], " /usr/bin/foo does not work");
    assert_eq!(model.requests().len(), calls + 1);
}

#[tokio::test]
async fn an_unknown_command_is_named_and_points_to_help() {
    let server = Server::start().await;
    let client = server.client("readonly").await;
    for (message, name) in [
        ("/nope", "/nope"),
        ("/evo", "/evo"),
        ("/clear now", "/clear"),
        ("/session create", "/session create"),
        ("/workspace setup", "/workspace setup"),
        ("/usr/bin/foo does not work", "/usr/bin/foo"),
    ] {
        let text = reply(&client, message).await;
        assert!(text.starts_with(&format!("Unknown command: {name}\n")), "{text}");
        assert!(text.contains("/help"), "{text}");
    }
}

#[tokio::test]
async fn a_command_passes_the_same_checks_as_a_message() {
    let server = Server::start().await;
    let client = server.client("readonly").await;
    let refused = |body: Value| {
        let client = client.clone();
        async move { client.post("/api/web/chat", &body).await }
    };
    let foreign = refused(json!({"message": "/session info", "sessionId": "web_00000000_1"})).await;
    assert_eq!((foreign.status, &foreign.body["error"]), (403, &json!("session not owned by this token")));
    let misshapen = refused(json!({"message": "/help", "sessionId": "a/b"})).await;
    assert_eq!((misshapen.status, &misshapen.body["error"]), (400, &json!("invalid session id")));
    let body = json!({"message": "/help", "workspace": "/tmp"});
    let frames = client.stream(chat(&client, &body)).await.rest().await;
    assert_eq!(first(&frames, "error")["error"], "workspace override requires a full-access token");
    let body = json!({"message": "/session new", "agentId": "nobody"});
    let frames = client.stream(chat(&client, &body)).await.rest().await;
    assert_eq!(first(&frames, "error")["error"], "agent not available");
    assert_eq!(client.sessions().await["sessions"], json!([]));
}

#[rstest]
#[case("full", &["(info/switch/setup/tidy)", "(list/desc/enable/disable/delete/create/update)"], &[])]
#[case("workspace", &["(info/setup/tidy)", "(list/desc/enable/disable)"], &["(info/switch", "create"])]
#[case("readonly", &["(info)", "(list/desc)"], &["(info/switch", "enable"])]
#[case("observer", &["(info)", "(list/desc)"], &["(info/switch", "enable"])]
#[tokio::test]
async fn help_lists_what_the_level_may_use(
    #[case] access: &str,
    #[case] has: &[&str],
    #[case] has_not: &[&str],
) {
    let server = Server::start().await;
    let client = server.client(access).await;
    let help = reply(&client, "/help").await;
    for name in ["/help", "/session <verb>", "(new/list/info/switch/stop/interrupt/compact/context)"] {
        assert!(help.contains(name), "{help}");
    }
    assert!(has.iter().all(|part| help.contains(part)), "{help}");
    assert!(has_not.iter().all(|part| !help.contains(part)), "{help}");
    let workspace = reply(&client, "/workspace help").await;
    assert_eq!(workspace.contains("/workspace switch"), access == "full", "{workspace}");
    assert_eq!(reply(&client, "/workspace").await, workspace);
}

#[rstest]
#[case(
    "readonly",
    "/workspace switch /tmp",
    "/workspace switch requires full access; this session has readonly access."
)]
#[case("workspace", "/ws /tmp", "/workspace switch requires full access; this session has workspace access.")]
#[case(
    "observer",
    "/skill disable x",
    "/skill disable requires workspace access; this session has readonly access."
)]
#[tokio::test]
async fn a_refusal_names_the_level_that_is_needed(
    #[case] access: &str,
    #[case] message: &str,
    #[case] expected: &str,
) {
    let server = Server::start().await;
    assert_eq!(reply(&server.client(access).await, message).await, expected);
}

#[tokio::test]
async fn stop_ends_what_runs_and_its_stream() {
    let (server, _model) = scripted().await;
    let client = server.client("readonly").await;
    let mut running = client.stream(chat(&client, &json!({"message": "HOLD"}))).await;
    running.until("stream").await;
    let info = reply(&client, "/session info").await;
    assert!(info.contains("→ default · 🟢 running"), "{info}");
    assert_eq!(reply(&client, "/s st").await, "Stopped.");
    assert_eq!(kinds_of(&running.rest().await), ["complete"]);
    assert_eq!(reply(&client, "/session stop").await, "Nothing is running in this session.");
    let info = reply(&client, "/si").await;
    assert!(info.contains("⏹ stopped"), "{info}");
}

#[tokio::test]
async fn info_shows_sub_agents_and_stop_reaches_them() {
    let (server, model) = scripted().await;
    let choice =
        format!("model: {{ provider: scripted, id: some-model, endpoint: \"{}\" }}", model.openai_endpoint());
    server.place().agent("default", &format!("{choice}\ntools: [grep]\nteam: [default]\n"));
    let client = server.client("readonly").await;
    say(&client, r#"TOOL start_session {"agent_id": "default", "message": "HOLD", "title": "a part"}"#).await;
    let info = reply(&client, "/session info").await;
    let child = |info: &str| info.lines().find(|line| line.starts_with("  ├")).unwrap().to_owned();
    assert!(child(&info).starts_with("  ├ default · 🟢 running"), "{info}");
    assert!(child(&info).ends_with("· a part"), "{info}");
    assert_eq!(reply(&client, "/session stop").await, "Stopped.");
    let info = reply(&client, "/session info").await;
    assert!(child(&info).starts_with("  ├ default · ⏹ stopped"), "{info}");
    // The list is of roots.
    assert!(!reply(&client, "/session list").await.contains("2. "));
}

#[tokio::test]
async fn interrupt_cuts_what_runs_and_goes_on_with_what_waits() {
    let (server, _model) = scripted().await;
    let client = server.client("full").await;
    let id = moves(&client, "/new").await;
    let mut running = client.chat(&id, "HOLD").await;
    running.until("stream").await;
    assert_eq!(kinds_of(&say(&client, "SAY after it").await), ["session", "queued"]);
    assert!(reply(&client, "/session interrupt").await.starts_with("Interrupted."));
    let rest = running.rest().await;
    assert!(text_of(&rest).ends_with("after it"), "{rest:?}");
    assert_eq!(rest.last().unwrap().kind(), "complete");
    assert_eq!(reply(&client, "/s int").await, "Nothing is running in this session.");
}

#[tokio::test]
async fn compact_answers_when_the_summary_is_made_and_stop_ends_it() {
    let (server, model) = scripted().await;
    let client = server.client("readonly").await;
    let id = moves(&client, "/session new").await;
    assert_eq!(reply(&client, "/session compact").await, "There is nothing to compact yet.");
    for n in 0..4 {
        client.turn(&id, &format!("SAY {}", format!("turn {n} ").repeat(200))).await;
    }
    let calls = model.requests().len();
    model.push(Script::text(["held ", "free"]).hold_after(1));
    let compacting = tokio::spawn({
        let client = client.clone();
        async move { reply(&client, "/session compact").await }
    });
    model.wait_for_requests(calls + 1).await;
    assert_eq!(reply(&client, "/session stop").await, "Stopped.");
    let cancelled = compacting.await.unwrap();
    assert_eq!(cancelled, "Compaction was stopped; the context is unchanged.");
    let done = reply(&client, "/session compact").await;
    assert!(done.starts_with("Context compacted: a summary stands for "), "{done}");
    let log = client.history(&id).await.to_string();
    assert!(log.contains("Context compacted: ") && !log.contains("/session compact"), "{log}");

    let mut running = client.chat(&id, "HOLD").await;
    running.until("stream").await;
    assert!(reply(&client, "/session compact").await.contains("compacts by itself"));
    model.release();
    running.rest().await;
}

#[tokio::test]
async fn context_tells_how_full_it_is_and_who_works_in_it() {
    let (server, _model) = scripted().await;
    let client = server.client("readonly").await;
    lands_in(&client).await;
    let text = reply(&client, "/s ctx").await;
    // Whether a readonly session has a shell depends on the machine's sandbox.
    for part in ["tokens", "Agent: default", "Model: some-model", "file_read", "continue_task"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("web_fetch"), "its profile does not name it: {text}");
}

#[tokio::test]
async fn replies_are_in_the_language_of_the_account() {
    let server = Server::start().await;
    let client = server.client("readonly").await;
    let id = client.mint().await;
    let sql = "UPDATE channel_accounts SET language = 'zh' WHERE account_id = ?1";
    change(&channels_db(&server), sql, [account_of(&id)]);
    assert!(reply(&client, "/help").await.starts_with("可用命令"));
    assert!(reply(&client, "/nope").await.starts_with("未知命令：/nope"));
    assert!(reply(&client, "/workspace switch /").await.contains("需要 full 权限"));
    assert!(command(&client, "/new").await.0.starts_with("已开启新会话"));
}
