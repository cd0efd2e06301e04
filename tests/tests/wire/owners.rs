//! Which session, workspace and agent a request may name, and in which of three places.

use super::history;
use super::table::{error, row, turn};
use super::world::World;
use serde_json::json;

const NOT_OWNED: &str = "session not owned by this token";
const NO_OVERRIDE: &str = "workspace override requires a full-access token";

#[tokio::test]
async fn a_full_token_names_any_session_and_the_others_their_own() {
    let w = &mut World::new().await;
    let hi = |id: &str| json!({ "message": "hi", "sessionId": id });
    row("chat_unknown_session_full")
        .chat(&hi("web_unknown_full_1"))
        .streams(turn("web_unknown_full_1", "hi", "ok"))
        .check(w)
        .await;
    row("chat_unknown_session_readonly")
        .chat(&hi("web_unknown_ro_1"))
        .token("readonly")
        .refused(403, NOT_OWNED)
        .differs("section 1, order of checks (6)")
        .check(w)
        .await;
    row("chat_foreign_session_readonly")
        .chat(&hi("web_unknown_full_1"))
        .token("readonly")
        .refused(403, NOT_OWNED)
        .differs("section 1, order of checks (6)")
        .check(w)
        .await;
    row("chat_weird_session_id")
        .chat(&hi("../../x"))
        .refused(400, "invalid session id")
        .differs("section 1, order of checks (5)")
        .check(w)
        .await;
    let mut rows = vec![history::context()];
    rows.extend(history::turn("hi", "ok", "t1"));
    let path = "/api/web/history?sessionId=web_unknown_full_1";
    row("history_session")
        .get(path)
        .token("full")
        .answers(200, history::idle("web_unknown_full_1", rows))
        .check(w)
        .await;
    row("history_foreign_session_ro")
        .get(path)
        .token("readonly")
        .refused(403, NOT_OWNED)
        .differs("section 1, order of checks (6)")
        .check(w)
        .await;
    row("subscribe_ro_ws_override")
        .get("/api/web/subscribe?workspace={ws2}")
        .token("readonly")
        .refused(403, NO_OVERRIDE)
        .differs("section 1, order of checks (4)")
        .check(w)
        .await;
}

#[tokio::test]
async fn a_full_token_names_any_workspace_and_the_others_their_own() {
    let w = &mut World::new().await;
    let hi = |workspace: &str| json!({ "message": "hi", "workspace": workspace });
    row("chat_ws_override_readonly")
        .chat(&hi("{ws2}"))
        .token("readonly")
        .streams([error(NO_OVERRIDE)])
        .check(w)
        .await;
    row("chat_ws_override_workspace")
        .chat(&hi("{ws2}"))
        .token("workspace")
        .streams([error(NO_OVERRIDE)])
        .check(w)
        .await;
    row("chat_ws_override_same_readonly")
        .chat(&hi("{ws}"))
        .token("readonly")
        .streams(turn("<session:R>", "hi", "ok"))
        .check(w)
        .await;
    row("chat_ws_override_full_ok")
        .chat(&json!({ "message": "hi", "workspace": "{ws2}", "sessionId": "web_ws2_a" }))
        .streams(turn("web_ws2_a", "hi", "ok"))
        .check(w)
        .await;
    row("chat_ws_override_full_missing")
        .chat(&hi("{root}/nope"))
        .streams([error("workspace not found")])
        .check(w)
        .await;
    row("chat_ws_override_full_relative")
        .chat(&hi("sub"))
        .streams([error("workspace not found")])
        .check(w)
        .await;
    let mut rows = vec![history::context()];
    rows.extend(history::turn("hi", "ok", "t1"));
    row("history_ws_override_full")
        .get("/api/web/history?workspace={ws2}&sessionId=web_ws2_a")
        .token("full")
        .answers(200, history::idle("web_ws2_a", rows))
        .check(w)
        .await;
    row("chat_override_query")
        .post("/api/web/chat?workspace={ws2}&sessionId=web_q_1", &json!({ "message": "hi" }))
        .token("full")
        .streams(turn("web_q_1", "hi", "ok"))
        .check(w)
        .await;
    w.server.place().agent("helper", "model: { provider: demo, id: demo-instant }\n");
    row("chat_override_headers")
        .chat(&json!({ "message": "hi" }))
        .header("x-workspace", "{ws2}")
        .header("x-session-id", "web_hdr_1")
        .header("x-agent-id", "helper")
        .streams(turn("web_hdr_1", "hi", "<text>"))
        .check(w)
        .await;
    for id in ["web_q_1", "web_hdr_1"] {
        let history = w.client("full").await;
        let path = |folder: &str| format!("/api/web/history?workspace={}&sessionId={id}", w.name(folder));
        assert_eq!(history.get(&path("ws2")).await.status, 200, "{id} is where the request said");
        assert_eq!(history.get(&path("ws")).await.status, 404, "{id} is nowhere else");
    }
}

#[tokio::test]
async fn an_agent_is_one_that_exists() {
    let w = &mut World::new().await;
    w.server.place().agent("executor", "model: { provider: demo, id: demo-instant }\n");
    row("chat_agent_executor")
        .chat(&json!({ "message": "hi", "sessionId": "web_agent_e", "agentId": "executor" }))
        .streams(turn("web_agent_e", "hi", "<text>"))
        .check(w)
        .await;
    row("chat_unknown_agent")
        .chat(&json!({ "message": "hi", "sessionId": "web_agent_x", "agentId": "no-such-agent" }))
        .streams([error("agent not available")])
        .differs("section 1, overrides")
        .check(w)
        .await;
}
