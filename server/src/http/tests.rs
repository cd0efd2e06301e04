//! The frame around every answer and the order of checks, as a client sees them. What needs a run is tested
//! against the real program, in `tests/`.

use super::testing::{Server, error, frames, get, post_json, text_of, with_token};
use super::*;
use crate::access::AccountLevel;
use crate::store::accounts;
use axum::Json;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::Request;
use futures_util::stream;
use rstest::rstest;
use serde_json::json;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use tower::ServiceExt;

const ADMITTED: u16 = 400;

#[rstest]
#[case("POST", "/api/web/chat")]
#[case("POST", "/api/web/sessions")]
#[case("GET", "/api/web/sessions")]
#[case("POST", "/api/web/stop")]
#[case("GET", "/api/web/history")]
#[case("GET", "/api/web/subscribe")]
#[case("GET", "/api/web/file")]
#[tokio::test]
async fn every_route_asks_for_a_token_before_it_reads_the_body(#[case] method: &str, #[case] uri: &str) {
    let server = Server::new();
    let request = |token: Option<&str>| {
        let mut request = Request::builder().method(method).uri(uri);
        if let Some(token) = token {
            request = request.header("x-token", token);
        }
        // Reading this body would never end.
        request.body(Body::from_stream(stream::pending::<Result<Vec<u8>, Infallible>>())).unwrap()
    };
    assert_eq!(server.json(request(None)).await, (401, error("token required")));
    assert_eq!(server.json(request(Some("bad"))).await, (401, error("invalid token")));
}

#[rstest]
#[case("/api/web/chat", r#"{"message": "/workspace info"}"#)]
#[case("/api/web/sessions", "{}")]
#[case("/api/web/stop", "{}")]
#[tokio::test]
async fn a_token_that_dies_while_the_body_comes_opens_nothing(#[case] uri: &str, #[case] body: &'static str) {
    let server = Server::new();
    let made = server.account(AccountLevel::Full).await;
    let (accounts, id) = (server.accounts.clone(), made.account.id.clone());
    let slow = stream::once(async move {
        accounts::revoke(&accounts, &id).await.unwrap();
        Ok::<_, Infallible>(body)
    });
    let request =
        Request::post(uri).header("x-token", &made.token).header("content-type", "application/json");
    let answer = server.json(request.body(Body::from_stream(slow)).unwrap()).await;
    assert_eq!(answer, (401, error("invalid token")));
}

#[tokio::test]
async fn the_level_of_a_request_is_the_one_when_its_body_has_come() {
    let server = Server::new();
    let made = server.account(AccountLevel::Full).await;
    let (accounts, id) = (server.accounts.clone(), made.account.id.clone());
    let slow = stream::once(async move {
        let level = accounts::Change { level: Some(AccountLevel::ReadOnly), ..accounts::Change::default() };
        accounts::update(&accounts, &id, level, 1).await.unwrap();
        Ok::<_, Infallible>(r#"{"message": "/workspace info"}"#)
    });
    let request = Request::post("/api/web/chat").header("x-token", &made.token);
    let request = request.header("content-type", "application/json").body(Body::from_stream(slow)).unwrap();
    let text = text_of(server.send(request).await).await;
    assert!(text.contains("Access: readonly"), "{text}");
}

#[tokio::test]
async fn five_bad_tokens_lock_the_address_out_even_for_a_good_token() {
    let server = Server::new();
    let good = server.token(AccountLevel::Full).await;
    for _ in 0..5 {
        assert_eq!(server.history_with("bad").await, (401, error("invalid token")));
    }
    let locked = (429, error("too many failed attempts, try again later"));
    assert_eq!(server.history_with("bad").await, locked);
    assert_eq!(server.history_with(&good).await, locked);
    let without_token = server.send(get("/api/web/history").body(Body::empty()).unwrap()).await;
    assert_eq!(without_token.status(), 429);
    assert_eq!(without_token.headers()["retry-after"], "900");
    server.clock.0.fetch_add(15 * 60 * 1000, Ordering::SeqCst);
    assert_eq!(server.history_with(&good).await.0, ADMITTED);
}

#[tokio::test]
async fn a_missing_token_is_no_strike_and_a_success_clears_the_count() {
    let server = Server::new();
    let good = server.token(AccountLevel::ReadOnly).await;
    for _ in 0..4 {
        server.history_with("bad").await;
    }
    for _ in 0..9 {
        let (status, _) = server.json(get("/api/web/history").body(Body::empty()).unwrap()).await;
        assert_eq!(status, 401);
    }
    assert_eq!(server.history_with(&good).await.0, ADMITTED);
    for _ in 0..4 {
        assert_eq!(server.history_with("bad").await.0, 401);
    }
    assert_eq!(server.history_with(&good).await.0, ADMITTED);
}

#[tokio::test]
async fn the_lockout_counts_per_address() {
    let server = Server::new();
    let from = |address: &str| {
        let mut request = with_token(get("/api/web/history"), "bad");
        request
            .extensions_mut()
            .insert(ConnectInfo(SocketAddr::from((address.parse::<std::net::IpAddr>().unwrap(), 4000))));
        request
    };
    for _ in 0..5 {
        server.send(from("198.51.100.7")).await;
    }
    assert_eq!(server.send(from("198.51.100.7")).await.status(), 429);
    assert_eq!(server.send(from("198.51.100.8")).await.status(), 401);
}

#[tokio::test]
async fn behind_a_trusted_proxy_a_forged_address_does_not_help() {
    let server = Server::new();
    server.settings.lock().unwrap().trust_proxy = true;
    let from =
        |forwarded: &str| with_token(get("/api/web/history").header("x-forwarded-for", forwarded), "bad");
    for n in 0..5 {
        server.send(from(&format!("203.0.113.{n}, 198.51.100.7"))).await;
    }
    assert_eq!(server.send(from("203.0.113.99, 198.51.100.7")).await.status(), 429);
    assert_eq!(server.send(from("198.51.100.7, 198.51.100.8")).await.status(), 401);
}

#[tokio::test]
async fn a_disabled_account_is_an_unknown_token_at_once() {
    let server = Server::new();
    let made = server.account(AccountLevel::Full).await;
    assert_eq!(server.history_with(&made.token).await.0, ADMITTED);
    let off = accounts::Change { enabled: Some(false), ..accounts::Change::default() };
    accounts::update(&server.accounts, &made.account.id, off, 0).await.unwrap();
    for _ in 0..5 {
        assert_eq!(server.history_with(&made.token).await, (401, error("invalid token")));
    }
    assert_eq!(server.history_with(&made.token).await.0, 429, "and it counts as a strike");
}

#[tokio::test]
async fn a_changed_level_counts_with_the_next_request() {
    let server = Server::new();
    let made = server.account(AccountLevel::Full).await;
    let foreign = || with_token(get("/api/web/history?sessionId=foreign&since=x"), &made.token);
    assert_eq!(server.json(foreign()).await, (400, error("Invalid since")));
    let lower = accounts::Change { level: Some(AccountLevel::ReadOnly), ..accounts::Change::default() };
    accounts::update(&server.accounts, &made.account.id, lower, 0).await.unwrap();
    assert_eq!(server.json(foreign()).await, (403, error("session not owned by this token")));
}

#[rstest]
#[case("POST", "/api/web/chat")]
#[case("POST", "/api/web/stop")]
#[case("GET", "/api/web/history")]
#[case("GET", "/api/web/subscribe")]
#[tokio::test]
async fn shape_comes_before_ownership_and_both_before_any_stream(#[case] method: &str, #[case] path: &str) {
    let server = Server::new();
    let token = server.token(AccountLevel::Workspace).await;
    let request = |id: &str| {
        let uri = format!("{path}?sessionId={id}");
        let request = Request::builder().method(method).uri(uri).header("x-token", &token);
        if method == "POST" {
            request.header("content-type", "application/json").body(Body::from(r#"{"message":"m"}"#)).unwrap()
        } else {
            request.body(Body::empty()).unwrap()
        }
    };
    assert_eq!(server.json(request("..")).await, (400, error("invalid session id")));
    assert_eq!(server.json(request("web_other_1")).await, (403, error("session not owned by this token")));
}

#[rstest]
#[case("POST", "/api/web/sessions")]
#[case("GET", "/api/web/sessions")]
#[case("POST", "/api/web/stop")]
#[case("GET", "/api/web/history")]
#[case("GET", "/api/web/subscribe")]
#[case("GET", "/api/web/file")]
#[tokio::test]
async fn another_workspace_needs_a_full_token(#[case] method: &str, #[case] path: &str) {
    let server = Server::new();
    let request = |token: &str, workspace: &str| {
        let uri = format!("{path}?workspace={workspace}");
        Request::builder().method(method).uri(uri).header("x-token", token).body(Body::empty()).unwrap()
    };
    let reader = server.token(AccountLevel::Observer).await;
    let refused = error("workspace override requires a full-access token");
    assert_eq!(server.json(request(&reader, "/")).await, (403, refused));
    let full = server.token(AccountLevel::Full).await;
    for nowhere in ["sub", "/no/such/folder"] {
        assert_eq!(server.json(request(&full, nowhere)).await, (404, error("workspace not found")));
    }
}

#[tokio::test]
async fn chat_says_inside_a_stream_that_another_workspace_is_not_for_this_token() {
    let server = Server::new();
    let token = server.token(AccountLevel::ReadOnly).await;
    let body = r#"{"message": "m", "workspace": "/"}"#;
    let response = server.send(post_json("/api/web/chat", &token, body)).await;
    assert_eq!(response.status(), 200);
    let expected = json!({ "type": "error", "error": "workspace override requires a full-access token" });
    assert_eq!(frames(&text_of(response).await), [expected]);
}

#[tokio::test]
async fn a_body_override_wins_over_header_and_query() {
    let server = Server::new();
    let token = server.token(AccountLevel::ReadOnly).await;
    let request = Request::post("/api/web/stop?sessionId=web_other_q")
        .header("x-token", &token)
        .header("x-session-id", "web_other_h")
        .header("content-type", "application/json")
        .body(Body::from(r#"{"sessionId": "../body"}"#))
        .unwrap();
    assert_eq!(server.json(request).await, (400, error("invalid session id")));
}

#[rstest]
#[case("/api/web/chat", "{bad", "message or images required")]
#[case("/api/web/chat", r#"{"message": "m", "sessionId": 7}"#, "sessionId must be a string")]
#[case("/api/web/stop", "{bad", "body must be a JSON object")]
#[case("/api/web/stop", r#"{"sessionId": 7}"#, "sessionId must be a string")]
#[case("/api/web/sessions", r#"{"agentId": []}"#, "agentId must be a string")]
#[tokio::test]
async fn a_bad_body_is_refused_by_name(#[case] path: &str, #[case] body: &'static str, #[case] text: &str) {
    let server = Server::new();
    let token = server.token(AccountLevel::Full).await;
    assert_eq!(server.json(post_json(path, &token, body)).await, (400, error(text)));
}

#[tokio::test]
async fn a_body_that_is_not_json_by_its_own_account_is_refused() {
    let server = Server::new();
    let token = server.token(AccountLevel::Full).await;
    for kind in [Some("text/plain"), Some("application/x-www-form-urlencoded"), None] {
        let mut request = Request::post("/api/web/chat").header("x-token", &token);
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let answer = server.json(request.body(Body::from(r#"{"message":"m"}"#)).unwrap()).await;
        assert_eq!(answer, (415, error("Content-Type must be application/json")), "{kind:?}");
    }
}

#[tokio::test]
async fn a_post_without_a_body_needs_no_content_type() {
    let server = Server::new();
    let token = server.token(AccountLevel::ReadOnly).await;
    let request = Request::post("/api/web/stop?sessionId=foreign").header("x-token", &token);
    let answer = server.json(request.body(Body::empty()).unwrap()).await;
    assert_eq!(answer, (403, error("session not owned by this token")));
}

#[tokio::test]
async fn a_client_that_sends_25_mib_reads_the_refusal() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::new();
    let token = server.token(AccountLevel::Full).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(serve::serve(listener, server.router.clone(), shutdown.clone()));
    let body = vec![b' '; 25 * 1024 * 1024];
    for framing in [format!("Content-Length: {}", body.len()), "Transfer-Encoding: chunked".into()] {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /api/web/chat HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-token: {token}\r\n\
             Content-Type: application/json\r\n{framing}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        if framing.starts_with("Transfer") {
            stream.write_all(format!("{:x}\r\n", body.len()).as_bytes()).await.unwrap();
        }
        stream.write_all(&body).await.unwrap();
        if framing.starts_with("Transfer") {
            stream.write_all(b"\r\n0\r\n\r\n").await.unwrap();
        }
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
        assert!(answer.ends_with(r#"{"error":"body over 24 MiB"}"#), "{answer}");
    }
    shutdown.cancel();
    serving.await.unwrap();
}

#[rstest]
#[case("/api/nope", 401, "Unauthorized")]
#[case("/api/web/chat/", 401, "Unauthorized")]
#[case("/api", 401, "Unauthorized")]
#[case("/apix", 404, "not found")]
#[case("/nothing", 404, "not found")]
#[tokio::test]
async fn an_unknown_path_is_answered_in_json(#[case] path: &str, #[case] status: u16, #[case] text: &str) {
    let server = Server::new();
    assert_eq!(server.json(get(path).body(Body::empty()).unwrap()).await, (status, error(text)));
}

#[rstest]
#[case("GET", "/api/web/chat", "POST")]
#[case("DELETE", "/api/web/sessions", "GET,HEAD,POST")]
#[case("POST", "/api/web/history", "GET,HEAD")]
#[case("POST", "/api/health", "GET,HEAD")]
#[tokio::test]
async fn a_wrong_method_is_told_the_right_ones(
    #[case] method: &str,
    #[case] path: &str,
    #[case] allow: &str,
) {
    let server = Server::new();
    let request = Request::builder().method(method).uri(path).body(Body::empty()).unwrap();
    let response = server.send(request).await;
    assert_eq!(response.status(), 405);
    assert_eq!(response.headers()["allow"], allow);
    assert_eq!(text_of(response).await, r#"{"error":"method not allowed"}"#);
}

#[tokio::test]
async fn health_is_open_and_has_the_fields_that_clients_know() {
    let server = Server::new();
    server.clock.0.fetch_add(1500, Ordering::SeqCst);
    let (status, health) = server.json(get("/api/health").body(Body::empty()).unwrap()).await;
    assert_eq!(status, 200);
    let keys: Vec<_> = health.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["status", "timestamp", "uptime", "engine", "version", "gitSha", "sandbox"]);
    assert_eq!(health["status"], "ok");
    assert_eq!(health["timestamp"], 1_796_148_001_500_i64);
    assert_eq!(health["uptime"], 1.5);
}

#[tokio::test]
async fn without_a_list_any_origin_is_reflected_without_credentials() {
    let server = Server::new();
    let request =
        get("/api/health").header("origin", "http://example.test:3000").body(Body::empty()).unwrap();
    let headers = server.send(request).await.headers().clone();
    assert_eq!(headers["access-control-allow-origin"], "http://example.test:3000");
    assert!(!headers.contains_key("access-control-allow-credentials"));
    assert!(headers.get_all("vary").iter().any(|v| v.to_str().unwrap().eq_ignore_ascii_case("origin")));
}

#[tokio::test]
async fn with_a_list_only_those_origins_may_call_with_credentials() {
    let server = Server::new();
    server.settings.lock().unwrap().cors_origins = Arc::from(["https://good.test".to_owned()]);
    let ask = async |origin: &str| {
        let request = get("/api/nope").header("origin", origin).body(Body::empty()).unwrap();
        server.send(request).await.headers().clone()
    };
    let good = ask("https://good.test").await;
    assert_eq!(good["access-control-allow-origin"], "https://good.test");
    assert_eq!(good["access-control-allow-credentials"], "true");
    let bad = ask("https://good.test.evil").await;
    assert!(!bad.contains_key("access-control-allow-origin"));
    assert!(!bad.contains_key("access-control-allow-credentials"));
}

#[tokio::test]
async fn a_preflight_needs_no_token() {
    let server = Server::new();
    let request = Request::options("/api/web/chat")
        .header("origin", "http://example.test:3000")
        .header("access-control-request-method", "POST")
        .header("access-control-request-headers", "content-type,x-token")
        .body(Body::empty())
        .unwrap();
    let response = server.send(request).await;
    assert_eq!(response.status(), 204);
    let headers = response.headers().clone();
    assert_eq!(headers["access-control-allow-methods"], "GET,POST,PUT,PATCH,DELETE,OPTIONS");
    assert_eq!(
        headers["access-control-allow-headers"].to_str().unwrap().to_ascii_lowercase(),
        "content-type,authorization,x-token,x-workspace,x-session-id,x-agent-id,last-event-id,a2a-version"
    );
    assert_eq!(headers["access-control-max-age"], "86400");
    assert_eq!(text_of(response).await, "");
}

#[rstest]
#[case("/api/health")]
#[case("/api/web/history")]
#[case("/nope")]
#[tokio::test]
async fn every_answer_forbids_sniffing(#[case] path: &str) {
    let server = Server::new();
    let response = server.send(get(path).body(Body::empty()).unwrap()).await;
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
}

#[tokio::test]
async fn long_json_is_compressed_and_event_streams_never() {
    let long = Json(json!({ "text": "x".repeat(2048) }));
    let router = Router::new()
        .route("/long", axum::routing::get(async || long))
        .route("/short", axum::routing::get(async || Json(json!({ "text": "x".repeat(900) }))))
        .route("/stream", axum::routing::get(async || sse::ended(&[sse::error(&"x".repeat(2048))])))
        .layer(compression());
    let encoding = async |path: &str, accept: &str| {
        let request = get(path).header("accept-encoding", accept).body(Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        response.headers().get("content-encoding").map(|v| v.to_str().unwrap().to_owned())
    };
    assert_eq!(encoding("/long", "gzip").await.as_deref(), Some("gzip"));
    assert_eq!(encoding("/long", "br").await.as_deref(), Some("br"));
    assert_eq!(encoding("/short", "gzip, br").await, None);
    assert_eq!(encoding("/stream", "gzip, br").await, None);
}

#[tokio::test]
async fn a_panic_is_an_internal_error_with_an_id() {
    let response = panicked(Box::new("secret"));
    assert_eq!(response.status(), 500);
    let text = text_of(response).await;
    assert!(text.starts_with(r#"{"error":"internal error (id "#) && !text.contains("secret"), "{text}");
}
