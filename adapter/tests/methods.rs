//! Every method of the protocol: what it asks the server, what it answers, what it answers when that fails.

mod support;

use rstest::rstest;
use serde_json::{Value, json};
use support::editor::{Editor, TOKEN, command};
use support::halo::{Answer, Halo, SESSION};

fn code(response: &Value) -> i64 {
    response["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {response}"))
}

fn message(response: &Value) -> String {
    response["error"]["message"].as_str().expect("a message").to_owned()
}

#[rstest]
#[case::its_own(1)]
#[case::a_later_one(7)]
#[tokio::test]
async fn initialize_answers_version_1_and_what_there_is(#[case] offered: u16) {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    let answer =
        editor.call("initialize", json!({"protocolVersion": offered, "clientCapabilities": {}})).await;
    let result = &answer["result"];
    assert_eq!(result["protocolVersion"], 1);
    assert_eq!(result["agentCapabilities"]["loadSession"], true);
    assert_eq!(result["agentCapabilities"]["sessionCapabilities"], json!({"list": {}}));
    assert_eq!(
        result["agentCapabilities"]["promptCapabilities"],
        json!({"image": true, "audio": false, "embeddedContext": true})
    );
    assert_eq!(result["authMethods"], json!([]));
    assert_eq!(
        result["agentInfo"],
        json!({"name": "halo", "title": "Halo", "version": env!("CARGO_PKG_VERSION")})
    );
}

#[tokio::test]
async fn authenticate_does_nothing() {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    assert_eq!(editor.call("authenticate", json!({"methodId": "x"})).await["result"], json!({}));
}

#[tokio::test]
async fn a_new_session_is_the_servers_with_workspace_profile_and_headers() {
    let halo = Halo::start().await;
    let flags = ["--workspace=/ws", "--agent-id", "coder", "--header", "Cookie: a=b", "--header=x-token: no"];
    let mut editor = Editor::start(&halo, &flags);
    assert_eq!(editor.open_session().await, SESSION);
    let seen = halo.wait_for("POST sessions", 1).await;
    assert_eq!(seen.body, json!({"workspace": "/ws", "agentId": "coder"}));
    assert_eq!(seen.headers["x-token"], TOKEN);
    assert_eq!(seen.headers["cookie"], "a=b");
    assert_eq!(seen.headers["content-type"], "application/json");
    let probe = halo.wait_for("GET health", 1).await;
    assert_eq!(probe.headers["cookie"], "a=b");
    let (_, stderr, _) = editor.end().await;
    assert!(stderr.contains("--header x-token is ignored"), "{stderr}");
}

#[tokio::test]
async fn the_token_of_the_environment_serves_and_nothing_is_sent_that_was_not_given() {
    let halo = Halo::start().await;
    let mut command = command();
    command
        .args(["--host=127.0.0.1", &format!("--port={}", halo.port), "--agent="])
        .env("HALO_ACP_TOKEN", "env-token");
    let mut editor = Editor::spawn(command);
    editor.open_session().await;
    let seen = halo.wait_for("POST sessions", 1).await;
    assert_eq!((seen.body, &seen.headers["x-token"]), (json!({}), &"env-token".parse().expect("a value")));
}

#[tokio::test]
async fn a_relative_working_directory_is_warned_of_once_and_used_for_nothing() {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    let made =
        editor.call("session/new", json!({"cwd": "rel/dir", "mcpServers": [{"type": "future"}]})).await;
    assert_eq!(made["result"]["sessionId"], SESSION);
    let (_, stderr, _) = editor.end().await;
    assert_eq!(stderr.matches("rel/dir").count(), 1, "{stderr}");
}

#[rstest]
#[case::unknown(Answer::Json(401, json!({"error": "invalid token"})), &["token refused by http://127.0.0.1:", "invalid token"])]
#[case::forbidden(
    Answer::Json(403, json!({"error": format!("no override for {TOKEN}")})),
    &["token refused by http://127.0.0.1:", "no override for [token]"]
)]
#[case::locked(Answer::Locked(840), &["try again in 840 s"])]
#[case::workspace(Answer::Json(404, json!({"error": "workspace not found"})), &["HTTP 404: workspace not found"])]
#[case::page(Answer::Text(502, "<html>bad gateway</html>"), &["HTTP 502"])]
#[case::no_json(Answer::Text(200, "hello"), &["no valid JSON"])]
#[tokio::test]
async fn what_the_server_refuses_says_what_to_check(#[case] answer: Answer, #[case] parts: &[&str]) {
    let halo = Halo::start().await;
    halo.on("POST sessions", answer);
    let mut editor = Editor::start(&halo, &[]);
    let answer = editor.call("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
    assert_eq!(code(&answer), -32603);
    for part in parts {
        assert!(message(&answer).contains(part), "{part}: {answer}");
    }
    let (_, stderr, _) = editor.end().await;
    assert!(!stderr.contains(TOKEN) && !answer.to_string().contains(TOKEN));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_with_host_and_port() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.local_addr().expect("an address").port()
    };
    let mut editor = Editor::start_at(port, &[]);
    for (method, params) in [
        ("session/new", json!({"cwd": "/w", "mcpServers": []})),
        ("session/load", json!({"sessionId": "x", "cwd": "/w", "mcpServers": []})),
        ("session/list", json!({})),
    ] {
        let answer = editor.call(method, params).await;
        assert!(
            message(&answer).contains(&format!("cannot reach halo at http://127.0.0.1:{port}")),
            "{answer}"
        );
    }
}

/// An adapter for `host` whose environment names `halo` as its proxy.
fn behind_a_proxy(halo: &Halo, host: &str, no_proxy: &str) -> Editor {
    let mut command = command();
    command.args(["--host", host, &format!("--port={}", halo.port), "--token", TOKEN]);
    command.env("http_proxy", format!("http://127.0.0.1:{}", halo.port)).env("no_proxy", no_proxy);
    Editor::spawn(command)
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_unless_it_is_excepted() {
    let halo = Halo::start().await;
    let mut editor = behind_a_proxy(&halo, "halo.invalid", "");
    assert_eq!(editor.open_session().await, SESSION);
    let mut editor = behind_a_proxy(&halo, "halo.invalid", "halo.invalid");
    let answer = editor.call("session/new", json!({"cwd": "/w", "mcpServers": []})).await;
    assert!(message(&answer).contains("cannot reach halo at http://halo.invalid:"), "{answer}");
}

#[tokio::test]
async fn no_proxy_is_asked_for_this_machine() {
    let halo = Halo::start().await;
    let mut command = command();
    command.args(["--host=localhost", &format!("--port={}", halo.port), "--token", TOKEN]);
    command.env("http_proxy", "http://127.0.0.1:9");
    let mut editor = Editor::spawn(command);
    assert_eq!(editor.open_session().await, SESSION);
}

#[tokio::test]
async fn load_replays_the_log_before_its_answer_and_the_session_takes_prompts() {
    let halo = Halo::start().await;
    halo.json("GET history", json!({"sessionId": "old", "running": true, "messages": [
        {"id": "u", "type": "user", "role": "user", "content": "run ls"},
        {"id": "m", "type": "assistant", "role": "assistant", "content": "One.", "streaming": true, "contentBlocks": [
            {"type": "thinking", "text": "hm"},
            {"type": "tool_call", "toolCall": {"name": "shell_exec", "input": "{\"command\":\"ls\"}", "output": "a", "toolUseId": "t"}},
            {"type": "text", "text": "One."}]},
    ]}));
    let mut editor = Editor::start(&halo, &["--workspace", "/ws"]);
    let id = editor.send("session/load", json!({"sessionId": "old", "cwd": "/w", "mcpServers": []})).await;
    let (updates, answer) = editor.until(id).await;
    assert_eq!(answer["result"], json!({}));
    let kinds: Vec<_> =
        updates.iter().map(|update| update["sessionUpdate"].as_str().expect("a kind")).collect();
    assert_eq!(kinds, ["user_message_chunk", "agent_thought_chunk", "tool_call", "agent_message_chunk"]);
    assert_eq!(updates[2]["title"], "shell_exec: ls");
    let seen = halo.wait_for("GET history", 1).await;
    assert_eq!((seen.query["sessionId"].as_str(), seen.query["workspace"].as_str()), ("old", "/ws"));
    assert!(!seen.query.contains_key("since"));

    halo.chat().text("ok").complete();
    let params = json!({"sessionId": "old", "prompt": [{"type": "text", "text": "hi"}]});
    let id = editor.send("session/prompt", params).await;
    assert_eq!(editor.reply(id).await, ("ok".into(), "end_turn".into()));
    assert_eq!(
        halo.seen("POST chat")[0].body,
        json!({"message": "hi", "sessionId": "old", "workspace": "/ws"})
    );
}

#[rstest]
#[case::unknown(404, json!({"error": "session not found"}))]
#[case::of_no_shape(400, json!({"error": "invalid session id"}))]
#[tokio::test]
async fn a_session_that_cannot_be_loaded_is_invalid(#[case] status: u16, #[case] body: Value) {
    let halo = Halo::start().await;
    halo.on("GET history", Answer::Json(status, body));
    let mut editor = Editor::start(&halo, &[]);
    let answer = editor.call("session/load", json!({"sessionId": "no", "cwd": "/w", "mcpServers": []})).await;
    assert_eq!(code(&answer), -32602);
    let params = json!({"sessionId": "no", "prompt": [{"type": "text", "text": "hi"}]});
    assert_eq!(code(&editor.call("session/prompt", params).await), -32602);
}

fn page() -> Value {
    json!({"workspace": "/ws", "nextCursor": 1700, "sessions": [
        {"sessionId": "a", "title": "First", "updatedAt": 1_700_000_000_123_i64},
        {"sessionId": "b", "title": null, "updatedAt": 1_700_000_000_000_i64}]})
}

#[tokio::test]
async fn the_list_is_the_servers_page_by_page() {
    let halo = Halo::start().await;
    halo.json("GET sessions", page())
        .json("GET sessions", json!({"workspace": "/ws", "sessions": [], "nextCursor": null}));
    let mut editor = Editor::start(&halo, &[]);
    let answer = editor.call("session/list", json!({"cursor": ""})).await;
    assert_eq!(
        answer["result"],
        json!({"nextCursor": "1700", "sessions": [
            {"sessionId": "a", "cwd": "/ws", "title": "First", "updatedAt": "2023-11-14T22:13:20.123Z"},
            {"sessionId": "b", "cwd": "/ws", "updatedAt": "2023-11-14T22:13:20.000Z"}]})
    );
    let answer = editor.call("session/list", json!({"cursor": "1700"})).await;
    assert_eq!(answer["result"], json!({"sessions": []}));
    let seen = halo.seen("GET sessions");
    assert_eq!((seen[0].query.get("cursor"), seen[1].query["cursor"].as_str()), (None, "1700"));
    // An id that was only listed is not open here.
    let params = json!({"sessionId": "a", "prompt": [{"type": "text", "text": "hi"}]});
    assert_eq!(code(&editor.call("session/prompt", params).await), -32602);
}

#[tokio::test]
async fn a_filter_of_another_folder_lists_nothing() {
    let halo = Halo::start().await;
    halo.json("GET sessions", page()).json("GET sessions", page());
    let mut editor = Editor::start(&halo, &[]);
    let same = editor.call("session/list", json!({"cwd": "/ws/"})).await;
    assert_eq!(same["result"]["sessions"].as_array().expect("a list").len(), 2);
    let other = editor.call("session/list", json!({"cwd": "/elsewhere"})).await;
    assert_eq!(other["result"], json!({"sessions": []}));
}

#[rstest]
#[case("abc")]
#[case("0x10")]
#[case("1e3")]
#[case("-1")]
#[tokio::test]
async fn a_cursor_that_is_no_number_never_reaches_the_server(#[case] cursor: &str) {
    let halo = Halo::start().await;
    let mut editor = Editor::start(&halo, &[]);
    assert_eq!(code(&editor.call("session/list", json!({ "cursor": cursor })).await), -32602);
    assert!(halo.seen("GET sessions").is_empty());
}

#[rstest]
#[case::no_route(Answer::Text(404, "404 Not Found"))]
#[case::another_method(Answer::Json(405, json!({"error": "method not allowed"})))]
#[case::asks_for_the_admin(Answer::Json(401, json!({"error": "Unauthorized"})))]
#[case::no_page(Answer::Text(503, "Frontend not built."))]
#[tokio::test]
async fn a_server_without_a_list_has_no_such_method(#[case] answer: Answer) {
    let halo = Halo::start().await;
    halo.on("GET sessions", answer);
    let mut editor = Editor::start(&halo, &[]);
    assert_eq!(code(&editor.call("session/list", json!({})).await), -32601);
}

#[tokio::test]
async fn what_is_not_advertised_is_unknown() {
    let halo = Halo::start().await;
    let mut editor = Editor::with_session(&halo).await;
    for method in [
        "session/teleport",
        "session/resume",
        "session/set_mode",
        "session/set_config_option",
        "session/delete",
        "session/close",
        "logout",
        "_ext/thing",
    ] {
        assert_eq!(code(&editor.call(method, json!({"sessionId": SESSION})).await), -32601, "{method}");
    }
}

#[tokio::test]
async fn unknown_notifications_are_ignored() {
    let halo = Halo::start().await;
    let mut editor = Editor::with_session(&halo).await;
    editor.notify("$/cancel_request", json!({"requestId": 1})).await;
    editor.notify("no/such/thing", json!({"a": [1]})).await;
    editor.notify("session/cancel", json!({})).await;
    editor.notify("session/cancel", json!({"sessionId": "unknown"})).await;
    assert_eq!(editor.call("authenticate", json!({"methodId": "x"})).await["result"], json!({}));
}

#[tokio::test]
async fn parameters_that_do_not_fit_are_invalid() {
    let halo = Halo::start().await;
    let mut editor = Editor::with_session(&halo).await;
    for (method, params) in [
        ("session/prompt", json!({"sessionId": SESSION})),
        ("session/prompt", json!({"sessionId": SESSION, "prompt": []})),
        ("session/prompt", json!({"sessionId": SESSION, "prompt": [{"type": "text", "text": " "}]})),
        (
            "session/prompt",
            json!({"sessionId": SESSION, "prompt": [{"type": "audio", "data": "A", "mimeType": "audio/wav"}]}),
        ),
        ("session/prompt", json!({"sessionId": SESSION, "prompt": [{"type": "image"}]})),
        ("session/prompt", json!({"sessionId": 5, "prompt": [{"type": "text", "text": "x"}]})),
        ("session/load", json!({"cwd": "/w"})),
        ("session/list", json!({"cursor": 5})),
    ] {
        assert_eq!(code(&editor.call(method, params.clone()).await), -32602, "{method} {params}");
    }
    assert!(halo.seen("POST chat").is_empty());
}
