//! The shapes of the rows of `/history`, and the rows of the table that refuse one.

use super::table::row;
use super::world::World;
use serde_json::{Value, json};

/// The document of an idle session with these rows.
pub fn idle(id: &str, messages: impl IntoIterator<Item = Value>) -> Value {
    let messages: Vec<Value> = messages.into_iter().collect();
    json!({ "sessionId": id, "messages": messages, "running": false, "eventId": "<event>" })
}

/// The document of a session whose run is in flight.
pub fn running(id: &str, messages: impl IntoIterator<Item = Value>) -> Value {
    let mut document = idle(id, messages);
    document["running"] = true.into();
    document
}

/// A row of a session's start.
pub fn context() -> Value {
    json!({ "id": "<id>", "type": "context", "role": "system", "content": "<begins:[System Prompt: >",
        "timestamp": "<ms>", "agentName": "<text>" })
}

/// A message.
pub fn user(text: &str) -> Value {
    json!({ "id": "<id>", "type": "user", "role": "user", "content": text, "timestamp": "<ms>" })
}

/// What the model call of this name used.
pub fn usage(call: &str) -> Value {
    json!({ "id": "<id>", "type": "usage", "role": "system", "content": "<begins:[Usage] in=>",
        "timestamp": "<ms>", "agentName": "<text>", "turnId": format!("<call:{call}>"), "modelId": "some-model",
        "usage": { "inputTokens": "<int>", "outputTokens": "<int>", "totalTokens": "<int>",
            "cacheReadInputTokens": "<int>", "e2eMs": "<int>", "ttftMs?": "<int>", "thinkingEffort": "<text>" } })
}

/// An answer of these blocks.
pub fn assistant(text: &str, blocks: impl IntoIterator<Item = Value>) -> Value {
    let blocks: Vec<Value> = blocks.into_iter().collect();
    json!({ "id": "<id>", "type": "assistant", "role": "assistant", "content": text, "timestamp": "<ms>",
        "agentName": "<text>", "contentBlocks": blocks })
}

/// A block of text of the model call of this name.
pub fn text(text: &str, call: &str) -> Value {
    json!({ "type": "text", "text": text, "turnId": format!("<call:{call}>") })
}

/// What a turn of text alone leaves.
pub fn turn(said: &str, answered: &str, call: &str) -> [Value; 3] {
    [user(said), usage(call), assistant(answered, [text(answered, call)])]
}

#[tokio::test]
async fn who_may_read_which_history() {
    let w = &mut World::new().await;
    row("history_no_session")
        .get("/api/web/history")
        .token("full")
        .answers(200, json!({ "sessionId": null, "messages": [], "running": false }))
        .check(w)
        .await;
    row("history_no_token").get("/api/web/history").refused(401, "token required").check(w).await;
    row("history_post")
        .post("/api/web/history", &json!({}))
        .token("full")
        .refused(405, "method not allowed")
        .shows("allow", "GET,HEAD")
        .differs("section 2, endpoints (methods)")
        .check(w)
        .await;
    row("history_unknown_session")
        .get("/api/web/history?sessionId=web_never")
        .token("full")
        .refused(404, "session not found")
        .check(w)
        .await;
    row("history_unknown_session_ro")
        .get("/api/web/history?sessionId=web_never")
        .token("readonly")
        .refused(403, "session not owned by this token")
        .differs("section 1, order of checks (6)")
        .check(w)
        .await;
    row("history_ws_override_ro")
        .get("/api/web/history?workspace={ws2}")
        .token("readonly")
        .refused(403, "workspace override requires a full-access token")
        .differs("section 1, order of checks (4)")
        .check(w)
        .await;
}
