//! What is open, what is unknown, preflights, and the list of sessions.

use super::table::{Row, row};
use super::world::World;
use reqwest::Method;
use serde_json::json;

const ORIGIN: &str = "http://page.example:3000";
const METHODS: &str = "GET,POST,PUT,PATCH,DELETE,OPTIONS";
const HEADERS: &str =
    "content-type,authorization,x-token,x-workspace,x-session-id,x-agent-id,last-event-id,a2a-version";

fn preflight(name: &'static str, path: &str, method: &str) -> Row {
    row(name)
        .ask(Method::OPTIONS, path)
        .header("access-control-request-method", method)
        .sends(204, 0)
        .shows("access-control-allow-methods", METHODS)
        .shows("access-control-allow-headers", HEADERS)
        .shows("access-control-max-age", "86400")
        .shows("vary", "<has:origin>")
        .hides("access-control-allow-credentials")
}

#[tokio::test]
async fn what_is_open_to_everyone_and_what_is_unknown() {
    let w = &mut World::new().await;
    row("health")
        .get("/api/health")
        .answers(
            200,
            json!({ "status": "ok", "timestamp": "<ms>", "uptime": "<number>", "engine": "rust",
                "version": "<text>", "gitSha": "<any>", "sandbox": "<any>" }),
        )
        .check(w)
        .await;
    row("root_nofrontend").get("/").says(200, "halo is running").check(w).await;
    row("api_unknown_nocookie").get("/api/nope").refused(401, "Unauthorized").check(w).await;
}

#[tokio::test]
async fn a_page_of_another_origin_may_call_without_credentials() {
    let w = &mut World::new().await;
    preflight("cors_preflight_chat", "/api/web/chat", "POST")
        .header("origin", ORIGIN)
        .header("access-control-request-headers", "content-type,x-token")
        .shows("access-control-allow-origin", ORIGIN)
        .differs("section 5, CORS")
        .check(w)
        .await;
    preflight("cors_preflight_fs", "/api/fs/home", "GET")
        .header("origin", ORIGIN)
        .header("access-control-request-headers", "x-custom")
        .shows("access-control-allow-origin", ORIGIN)
        .differs("section 5, CORS")
        .check(w)
        .await;
    preflight("cors_preflight_noorigin", "/api/web/chat", "POST")
        .hides("access-control-allow-origin")
        .differs("section 5, CORS")
        .check(w)
        .await;
    row("cors_401")
        .get("/api/fs/home")
        .header("origin", ORIGIN)
        .shows("access-control-allow-origin", ORIGIN)
        .shows("vary", "<has:origin>")
        .refused(401, "Unauthorized")
        .check(w)
        .await;
}

#[tokio::test]
async fn sessions_are_made_and_listed_with_a_token() {
    let w = &mut World::new().await;
    row("web_sessions_post")
        .post("/api/web/sessions", &json!({}))
        .token("full")
        .answers(200, json!({ "sessionId": "<session:A>" }))
        .differs("section 2, sessions")
        .check(w)
        .await;
    row("web_sessions_get")
        .get("/api/web/sessions")
        .token("full")
        .answers(
            200,
            json!({ "workspace": "{ws}", "nextCursor": null,
                "sessions": [{ "sessionId": "<session:A>", "title": null, "updatedAt": "<ms>" }] }),
        )
        .differs("section 2, sessions")
        .check(w)
        .await;
}
