//! The order of checks of the web channel, against the real server. Each test has a server on an address of its
//! own, so bad tokens lock out nobody else.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Answer, Client, answer, first, kinds_of};
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use std::path::Path;

/// The largest body, in bytes.
const LIMIT: usize = 24 * 1024 * 1024;

/// The reads and writes of the channel that answer with JSON.
const ROUTES: [(&str, &str); 5] = [
    ("GET", "/api/web/sessions"),
    ("GET", "/api/web/history"),
    ("GET", "/api/web/subscribe"),
    ("POST", "/api/web/sessions"),
    ("POST", "/api/web/stop"),
];

/// Those of them that take a session's id.
const NAMING_A_SESSION: [(&str, &str); 3] = [ROUTES[1], ROUTES[2], ROUTES[4]];

async fn server_on(host: &str) -> Server {
    Server::launch(Place::new(), Launch::on(host)).await
}

fn refusal(answer: &Answer) -> (u16, Value) {
    (answer.status, answer.body.clone())
}

fn error(status: u16, text: &str) -> (u16, Value) {
    (status, json!({"error": text}))
}

async fn ask(client: &Client, (method, path): (&str, &str), query: &str) -> Answer {
    answer(client.request(method.parse().unwrap(), &format!("{path}?{query}"))).await
}

#[tokio::test]
async fn five_bad_tokens_lock_the_address_out_with_any_token_and_with_none() {
    let server = server_on("127.0.0.21").await;
    let good = server.client("full").await;
    let bad = good.with_token(Some("bad-bad-bad-bad-bad-bad-bad-bad1"));
    for round in 0..5 {
        assert_eq!(refusal(&bad.get("/api/web/sessions").await), error(401, "invalid token"), "{round}");
    }
    for client in [&bad, &good, &good.with_token(None)] {
        let answer = client.get("/api/web/history").await;
        assert_eq!(refusal(&answer), error(429, "too many failed attempts, try again later"));
        let wait: u64 = answer.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((890..=900).contains(&wait), "{wait}");
        let chat = client.post("/api/web/chat", &json!({"message": "hello"})).await;
        assert_eq!(chat.status, 429);
    }
    assert_eq!(good.get("/api/health").await.status, 200);
    let elsewhere = good.from_address("127.0.0.99".parse().unwrap());
    assert_eq!(elsewhere.get("/api/web/sessions").await.status, 200, "another address is not locked out");
}

#[tokio::test]
async fn no_token_is_told_and_is_no_strike() {
    let server = server_on("127.0.0.22").await;
    let nobody = Client::new(server.url(), None);
    for _ in 0..8 {
        for route in ROUTES {
            assert_eq!(refusal(&ask(&nobody, route, "").await), error(401, "token required"), "{route:?}");
        }
    }
    let gateway =
        nobody.request(Method::GET, "/api/web/sessions").header("authorization", "Bearer a.gateway.token");
    assert_eq!(refusal(&answer(gateway).await), error(401, "token required"));
    let session = server.client("full").await;
    assert_eq!(session.get("/api/web/sessions").await.status, 200);
}

#[tokio::test]
async fn a_good_token_clears_the_strikes() {
    let server = server_on("127.0.0.23").await;
    let good = server.client("readonly").await;
    let bad = good.with_token(Some("bad-bad-bad-bad-bad-bad-bad-bad1"));
    for _ in 0..3 {
        for _ in 0..4 {
            assert_eq!(bad.get("/api/web/sessions").await.status, 401);
        }
        assert_eq!(good.get("/api/web/sessions").await.status, 200);
    }
}

#[tokio::test]
async fn the_three_ways_to_bring_a_token_work_and_the_header_counts_first() {
    let server = server_on("127.0.0.24").await;
    let good = server.client("full").await;
    let (token, nobody) = (good.token().to_owned(), good.with_token(None));
    let bearer = nobody.request(Method::GET, "/api/web/sessions").bearer_auth(&token);
    assert_eq!(answer(bearer).await.status, 200);
    assert_eq!(nobody.get(&format!("/api/web/sessions?token={token}")).await.status, 200);
    let both =
        nobody.request(Method::GET, &format!("/api/web/sessions?token={token}")).header("x-token", "bad");
    assert_eq!(answer(both).await.status, 401);
}

#[tokio::test]
async fn a_revoked_or_rotated_token_is_invalid_at_once() {
    let server = server_on("127.0.0.25").await;
    let client = server.client("full").await;
    client.sessions().await;
    let list = server.place().run(["token", "list", "--json"]).await;
    let accounts: Value = serde_json::from_str(&list.stdout).unwrap();
    let id = accounts[0]["accountId"].as_str().unwrap();
    let rotated = server.place().run(["token", "rotate", id]).await;
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    let renewed = client.with_token(Some(rotated.stdout.trim()));
    assert_eq!(refusal(&client.get("/api/web/sessions").await), error(401, "invalid token"));
    assert_eq!(renewed.get("/api/web/sessions").await.status, 200);
    assert_eq!(server.place().run(["token", "revoke", id]).await.code, Some(0));
    assert_eq!(refusal(&renewed.get("/api/web/sessions").await), error(401, "invalid token"));
}

#[tokio::test]
async fn a_disabled_account_is_refused_like_an_unknown_token() {
    let server = server_on("127.0.0.26").await;
    let client = server.client("full").await;
    client.sessions().await;
    let path = server.place().home().join("secrets/channels/channels.db");
    let accounts = rusqlite::Connection::open(path).unwrap();
    accounts.busy_timeout(halo_tests::PATIENCE).unwrap();
    assert_eq!(accounts.execute("UPDATE channel_accounts SET enabled = 0", []).unwrap(), 1);
    assert_eq!(refusal(&client.get("/api/web/sessions").await), error(401, "invalid token"));
}

#[rstest]
#[case("readonly")]
#[case("workspace")]
#[case("observer")]
#[tokio::test]
async fn another_workspace_needs_a_full_token(#[case] access: &str) {
    let server = Server::start().await;
    let client = server.client(access).await;
    let other = tempfile::tempdir().unwrap();
    let query = format!("workspace={}", other.path().display());
    let text = "workspace override requires a full-access token";
    for route in ROUTES {
        assert_eq!(refusal(&ask(&client, route, &query).await), error(403, text), "{route:?}");
    }
    assert_eq!(chat_error(&client, &json!({"message": "x", "workspace": other.path()})).await, text);
    assert!(!other.path().join(".halo").exists());

    let own = format!("workspace={}", server.workspace().display());
    assert_eq!(ask(&client, ROUTES[0], &own).await.status, 200, "its own is no override");
}

#[tokio::test]
async fn a_workspace_that_is_relative_missing_or_no_folder_is_not_found() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let missing = server.place().root().join("nowhere");
    let file = server.workspace().join("README.md");
    for path in [Path::new("workspace"), &missing, &file] {
        for route in ROUTES {
            let answer = ask(&client, route, &format!("workspace={}", path.display())).await;
            assert_eq!(refusal(&answer), error(404, "workspace not found"), "{path:?} {route:?}");
        }
        assert_eq!(
            chat_error(&client, &json!({"message": "x", "workspace": path})).await,
            "workspace not found"
        );
    }
    assert!(!missing.exists());
}

#[tokio::test]
async fn a_full_token_works_in_another_workspace_and_looking_makes_nothing_there() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let other = server.place().root().join("other");
    std::fs::create_dir(&other).unwrap();
    let answer = ask(&client, ROUTES[0], &format!("workspace={}", other.display())).await;
    assert_eq!(answer.body["sessions"], json!([]), "{answer:?}");
    assert!(!other.join(".halo").exists());
    let request = client.request(Method::POST, "/api/web/chat");
    let body = json!({"message": "write here.txt there", "workspace": other});
    let frames = client.stream(request.json(&body)).await.rest().await;
    assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
    assert_eq!(std::fs::read_to_string(other.join("here.txt")).unwrap(), "there");
}

#[tokio::test]
async fn a_session_id_of_a_wrong_shape_is_refused_before_its_owner_is_asked() {
    let server = Server::start().await;
    let client = server.client("readonly").await;
    let long = "a".repeat(201);
    for id in ["a%2Fb", "..", ".", "a%20b", "caf%C3%A9", "a%00b", long.as_str()] {
        for route in NAMING_A_SESSION {
            let answer = ask(&client, route, &format!("sessionId={id}")).await;
            assert_eq!(refusal(&answer), error(400, "invalid session id"), "{id} {route:?}");
        }
    }
    let chat = client.post("/api/web/chat", &json!({"message": "x", "sessionId": "a/b"})).await;
    assert_eq!(refusal(&chat), error(400, "invalid session id"));
}

#[tokio::test]
async fn a_session_of_others_is_refused_before_any_stream_opens() {
    let server = Server::start().await;
    let (mine, full) = (server.client("readonly").await, server.client("full").await);
    let theirs = full.mint().await;
    for id in [theirs.as_str(), "goal_1", "web_00000000_x"] {
        for route in NAMING_A_SESSION {
            let answer = ask(&mine, route, &format!("sessionId={id}")).await;
            assert_eq!(refusal(&answer), error(403, "session not owned by this token"), "{route:?}");
        }
        let chat = mine.post("/api/web/chat", &json!({"message": "x", "sessionId": id})).await;
        assert_eq!(refusal(&chat), error(403, "session not owned by this token"));
    }
    let own = mine.mint().await;
    assert_eq!(mine.history(&own).await["running"], false);
    assert_eq!(full.history(&own).await["running"], false, "a full token may name any");
}

#[tokio::test]
async fn what_does_not_exist_is_told_and_chat_makes_it() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let history = client.get("/api/web/history?sessionId=my-own-name").await;
    assert_eq!(refusal(&history), error(404, "session not found"));
    let idle = client.subscribe("my-own-name", None).await.rest().await;
    assert_eq!(idle.last().unwrap().kind(), "complete");
    let child =
        client.post("/api/web/chat", &json!({"message": "x", "sessionId": "my-own-name>child"})).await;
    assert_eq!(child.status, 404, "{child:?}");
    assert!(!client.stop("my-own-name").await);
    client.turn("my-own-name", "say here").await;
    let history = client.history("my-own-name").await;
    let said = history["messages"].as_array().unwrap().iter().filter(|row| row["role"] == "user");
    assert_eq!(said.map(|row| &row["content"]).collect::<Vec<_>>(), ["say here"]);

    let nothing =
        client.with_token(Some(&server.place().token("readonly").await)).get("/api/web/history").await;
    assert_eq!(refusal(&nothing), (200, json!({"messages": [], "sessionId": null, "running": false})));
}

#[tokio::test]
async fn an_agent_that_is_not_there_is_refused() {
    let server = Server::start().await;
    let client = server.client("full").await;
    server.place().agent("hidden", "internal: true\n");
    for id in ["nobody", "hidden"] {
        let mint = client.post("/api/web/sessions", &json!({"agentId": id})).await;
        assert_eq!(refusal(&mint), error(400, "agent not available"), "{id}");
        assert_eq!(
            chat_error(&client, &json!({"message": "x", "agentId": id, "sessionId": "new"})).await,
            "agent not available"
        );
    }
    assert_eq!(client.sessions().await["sessions"], json!([]), "nothing was made");
}

#[rstest]
#[case(json!({}), "message or images required")]
#[case(json!({"message": ""}), "message or images required")]
#[case(json!([1]), "message or images required")]
#[case(json!({"message": 5}), "message")]
#[case(json!({"message": "x", "sessionId": 5}), "sessionId")]
#[case(json!({"message": "x", "workspace": ["/"]}), "workspace")]
#[case(json!({"message": "x", "agentId": true}), "agentId")]
#[case(json!({"message": "x", "images": "none"}), "images")]
#[tokio::test]
async fn a_body_that_says_nothing_or_has_wrong_types_is_refused_by_name(
    #[case] body: Value,
    #[case] named: &str,
) {
    let server = Server::start().await;
    let client = server.client("full").await;
    let answer = client.post("/api/web/chat", &body).await;
    let text = answer.body["error"].as_str().unwrap_or_default();
    assert_eq!((answer.status, text.contains(named)), (400, true), "{answer:?}");
    assert_eq!(client.sessions().await["sessions"], json!([]), "nothing was made");
}

#[rstest]
#[case("{\"message\": \"x\"")]
#[case("message=x")]
#[case("")]
#[case("\u{0}")]
#[tokio::test]
async fn broken_json_is_refused_and_the_server_lives(#[case] body: &'static str) {
    let server = Server::start().await;
    let client = server.client("full").await;
    let request =
        client.request(Method::POST, "/api/web/chat").header("content-type", "application/json").body(body);
    assert_eq!(refusal(&answer(request).await), error(400, "message or images required"));
    let session = client.mint().await;
    assert_eq!(client.turn(&session, "say alive").await.last().unwrap().kind(), "complete");
}

#[tokio::test]
async fn a_form_of_another_site_cannot_drive_the_agent() {
    let server = Server::start().await;
    let client = server.client("full").await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"] {
        let request = client.request(Method::POST, "/api/web/chat").header("content-type", kind);
        let answer = answer(request.body(r#"{"message": "say hello"}"#)).await;
        assert_eq!(answer.status, 415, "{kind}: {answer:?}");
    }
}

#[tokio::test]
async fn a_body_over_24_mib_is_refused_and_one_just_below_is_taken() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let session = client.mint().await;
    let of = |size: usize| json!({"message": "x".repeat(size), "sessionId": session.clone()});
    let over = client.post("/api/web/chat", &of(LIMIT)).await;
    assert_eq!(refusal(&over), error(413, "body over 24 MiB"));
    assert_eq!(client.history(&session).await["messages"], json!([]));
    let size = LIMIT - 200;
    let mut frames = client.chat(&session, &"y".repeat(size)).await;
    // More than is kept for those who resume, so the stream may end early; the message is there all the same.
    while frames.next().await.is_some() {}
    client.subscribe(&session, None).await.rest().await;
    let history = client.history(&session).await;
    let messages = history["messages"].as_array().unwrap().iter();
    let mut sizes =
        messages.filter(|row| row["role"] == "user").map(|row| row["content"].as_str().unwrap().len());
    assert_eq!((sizes.next(), sizes.next()), (Some(size), None));
}

#[tokio::test]
async fn cursors_and_times_are_digits() {
    let server = Server::start().await;
    let client = server.client("full").await;
    assert_eq!(refusal(&client.get("/api/web/sessions?cursor=x").await), error(400, "Invalid cursor"));
    assert_eq!(refusal(&client.get("/api/web/history?since=-1").await), error(400, "Invalid since"));
    assert_eq!(client.get("/api/web/sessions?cursor=").await.status, 200);
    assert_eq!(client.get("/api/web/history?since=").await.status, 200);
}

#[tokio::test]
async fn unknown_paths_and_methods_are_json() {
    let server = Server::start().await;
    let client = server.client("full").await;
    assert_eq!(refusal(&client.get("/api/no/such").await), error(401, "Unauthorized"));
    let method = answer(client.request(Method::DELETE, "/api/web/history")).await;
    assert_eq!((method.status, method.headers["allow"].to_str().unwrap().contains("GET")), (405, true));
    assert!(method.body["error"].is_string(), "{method:?}");
}

/// The `error` frame of a chat that is refused inside its stream.
async fn chat_error(client: &Client, body: &Value) -> String {
    let frames = client.stream(client.request(Method::POST, "/api/web/chat").json(body)).await.rest().await;
    assert_eq!(*kinds_of(&frames).last().unwrap(), "error", "{frames:?}");
    first(&frames, "error")["error"].as_str().unwrap().to_owned()
}
