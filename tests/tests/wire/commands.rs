//! Slash commands: which frames answer them. What their texts say is tested where they are made.

use super::history;
use super::table::{Row, complete, row, session, stream, switch, turn, user};
use super::world::World;
use serde_json::{Value, json};

const ARRIVES: &str = "section 2, frames (text as it arrives)";
const SLASH: &str = "section 2, slash commands";

/// A message without a session.
fn say(name: &'static str, message: &str) -> Row {
    row(name).chat(&json!({ "message": message }))
}

/// A command that is answered with this text.
fn told(name: &'static str, command: &str, text: &str) -> Row {
    say(name, command).streams([stream(text), complete()])
}

/// A command that is answered with some text and moves to a session.
fn moves(name: &'static str, command: &str, id: &str) -> Row {
    say(name, command).streams([stream("<text>"), switch(id), complete()])
}

#[tokio::test]
async fn a_question_is_answered_in_text_and_leaves_nothing() {
    let w = &mut World::new().await;
    told("chat_help_no_session", "/help", "<has:/session>").check(w).await;
    told("help_readonly", "/help", "<has:/session>").token("readonly").check(w).await;
    told("cmd_session_stop_idle", "/session stop", "<text>").check(w).await;
    let nothing = json!({ "sessionId": null, "messages": [], "running": false });
    row("nothing was made").get("/api/web/history").token("full").answers(200, nothing).check(w).await;

    say("a session", "hello").streams(turn("<session:A>", "hello", "ok")).check(w).await;
    told("cmd_agent_list", "/agent list", "<has:default>").check(w).await;
    told("cmd_skill_list", "/skill list", "<text>").check(w).await;
    told("cmd_session_bare", "/session", "<has:switch>").check(w).await;
    told("cmd_session_list", "/session list", "<has:hello>").check(w).await;
    told("session_list_readonly", "/session list", "<text>").token("readonly").check(w).await;
    told("cmd_session_info", "/session info", "<text>").check(w).await;
    told("cmd_session_context", "/session context", "<text>").check(w).await;
    told("cmd_session_compact", "/session compact", "<text>").check(w).await;
    told("cmd_workspace_info", "/workspace info", "<has:{ws}>").check(w).await;
    told("cmd_unknown", "/nope", "<begins:Unknown command: /nope>").check(w).await;
    told("cmd_clear", "/clear", "<begins:Unknown command: /clear>").check(w).await;
    told("cmd_evo", "/evo", "<begins:Unknown command: /evo>").differs(SLASH).check(w).await;
    told("cmd_workspace_list", "/workspace list", "<begins:Unknown command: /workspace>")
        .differs(SLASH)
        .check(w)
        .await;
    told("workspace_switch_readonly", "/workspace switch {ws2}", "<has:readonly>")
        .token("readonly")
        .check(w)
        .await;
    row("chat_token_query")
        .post("/api/web/chat?token={token full}", &json!({ "message": "/workspace info" }))
        .streams([stream("<has:{ws}>"), complete()])
        .check(w)
        .await;
    told("cors_chat_sse", "/workspace info", "<has:{ws}>")
        .header("origin", "http://page.example:3000")
        .shows("access-control-allow-origin", "http://page.example:3000")
        .hides("access-control-allow-credentials")
        .check(w)
        .await;
    let mut rows = vec![history::context()];
    rows.extend(history::turn("hello", "ok", "t1"));
    row("only what was said")
        .get("/api/web/history")
        .token("full")
        .answers(200, history::idle("{A}", rows))
        .check(w)
        .await;
}

#[tokio::test]
async fn new_and_switch_move_to_a_session() {
    let w = &mut World::new().await;
    say("the first", "hello").streams(turn("<session:A>", "hello", "ok")).check(w).await;
    moves("cmd_session_new", "/session new", "<session:B>").check(w).await;
    say("the second", "hello").streams(turn("{B}", "hello", "ok")).check(w).await;
    told("cmd_session_list2", "/session list", "<text>").check(w).await;
    moves("cmd_session_switch_2", "/session switch 2", "{A}").check(w).await;
    say("the first again", "hello").streams(turn("{A}", "hello", "ok")).check(w).await;
    moves("cmd_ss_alias", "/ss 2", "{B}").check(w).await;
    told("cmd_session_switch_bad", "/session switch 99", "<text>").check(w).await;
    say("still the second", "hello").streams(turn("{B}", "hello", "ok")).check(w).await;
    moves("cmd_new_alias", "/new", "<session:C>").differs(SLASH).check(w).await;
    say("the third", "hello").streams(turn("{C}", "hello", "ok")).check(w).await;
    assert!(w.name("A") != w.name("B") && w.name("B") != w.name("C") && w.name("A") != w.name("C"));
}

/// The frames of a run that is cut off.
fn cut(id: &str) -> [Value; 4] {
    [session(id), user("HOLD"), stream("held "), complete()]
}

#[tokio::test]
async fn stop_and_interrupt_end_what_runs() {
    let w = &mut World::new().await;
    let first = say("slashstop_chat_stream", "HOLD").streams(cut("<session:A>")).differs(ARRIVES);
    let first = first.open(w).await.until("stream").await;
    told("slashstop_cmd", "/session stop", "<text>").check(w).await;
    first.end(w).await;
    let second = say("interrupt_chat_stream", "HOLD").streams(cut("{A}")).differs(ARRIVES);
    let second = second.open(w).await.until("stream").await;
    told("interrupt_cmd", "/session interrupt", "<text>").check(w).await;
    second.end(w).await;
}

#[tokio::test]
async fn a_full_token_moves_to_another_workspace() {
    let w = &mut World::new().await;
    say("here", "hi").streams(turn("<session:A>", "hi", "ok")).check(w).await;
    told("cmd_workspace_switch_bad", "/workspace switch {root}/nope", "<text>").check(w).await;
    told("cmd_workspace_switch_ok", "/workspace switch {ws2}", "<has:{ws2}>").check(w).await;
    say("chat_after_workspace_switch", "hi").streams(turn("<session:B>", "hi", "ok")).check(w).await;
    let mut rows = vec![history::context()];
    rows.extend(history::turn("hi", "ok", "t1"));
    row("history_after_workspace_switch")
        .get("/api/web/history")
        .token("full")
        .answers(200, history::idle("{B}", rows))
        .check(w)
        .await;
    told("cmd_workspace_switch_back", "/workspace switch {ws}", "<has:{ws}>").check(w).await;
    say("here again", "hi").streams(turn("{A}", "hi", "ok")).check(w).await;
    assert_ne!(w.name("A"), w.name("B"));
}
