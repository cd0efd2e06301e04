//! Messages and what comes back: text, tools, reasoning, files, failures, images.

use super::history;
use super::table::{complete, error, row, session, stream, turn, user};
use super::world::{PNG, World};
use serde_json::{Value, json};

/// A call of `file_list`, as a message that orders it.
const TOOL: &str = "TOOL file_list {\"path\":\".\"}";

/// The frames of a turn with that call.
fn tool_turn(id: &str, call: &str) -> [Value; 6] {
    let call = format!("<call:{call}>");
    [
        session(id),
        user(TOOL),
        json!({ "type": "tool_call", "toolName": "file_list", "toolUseId": call, "toolInput": { "path": "." } }),
        json!({ "type": "tool_result", "toolName": "file_list", "toolUseId": call, "result": "<has:hello.txt>" }),
        stream("<begins:result: >"),
        complete(),
    ]
}

#[tokio::test]
async fn what_is_no_message_is_refused_before_any_stream() {
    let w = &mut World::new().await;
    let (path, message) = ("/api/web/chat", json!({ "message": "x" }));
    row("chat_no_token").post(path, &message).refused(401, "token required").check(w).await;
    row("chat_empty_body").chat(&json!({})).refused(400, "message or images required").check(w).await;
    row("chat_bad_json")
        .chat(&json!({}))
        .body("{bad")
        .refused(400, "message or images required")
        .check(w)
        .await;
    row("chat_get")
        .get(path)
        .token("full")
        .refused(405, "method not allowed")
        .shows("allow", "POST")
        .differs("section 2, endpoints (methods)")
        .check(w)
        .await;
    row("chat_bearer")
        .post(path, &message)
        .header("authorization", "Bearer {token full}")
        .streams(turn("<session:A>", "x", "ok"))
        .differs("section 1, token")
        .check(w)
        .await;
}

#[tokio::test]
async fn turns_of_text_and_tools_and_what_they_leave() {
    let w = &mut World::new().await;
    let id = "<session:A>";
    let say = |text: &str| json!({ "message": text });
    row("chat_plain").chat(&say("hello")).streams(turn(id, "hello", "ok")).check(w).await;
    row("chat_plain_keepalive").chat(&say("N:1 D:0")).streams(turn(id, "N:1 D:0", "w1 ")).check(w).await;
    row("chat_multi_delta")
        .chat(&say("N:5 D:20"))
        .streams(turn(id, "N:5 D:20", "w1 w2 w3 w4 w5 "))
        .check(w)
        .await;
    row("chat_tool")
        .chat(&say(TOOL))
        .streams(tool_turn(id, "c1"))
        .differs("section 2, frames (fields)")
        .check(w)
        .await;
    let lines = "two\nlines\nN:3 D:10";
    row("chat_multiline").chat(&say(lines)).streams(turn(id, lines, "w1 w2 w3 ")).check(w).await;

    let call = json!({ "id": "<id>", "type": "tool_call", "role": "system", "content": "<ends: → file_list: .>",
        "timestamp": "<ms>", "agentName": "<text>", "toolName": "file_list", "toolInput": { "path": "." } });
    let result = json!({ "id": "<id>", "type": "tool_result", "role": "system", "content": "<begins:Result: >",
        "timestamp": "<ms>", "agentName": "<text>", "toolName": "file_list", "toolOutput": "<has:hello.txt>",
        "durationMs": "<int>" });
    let block = json!({ "type": "tool_call", "turnId": "<call:t4>", "toolCall": { "name": "file_list",
        "input": "{\"path\":\".\"}", "toolUseId": "<call:c1>", "output": "<has:hello.txt>", "durationMs": "<int>" } });
    let mut rows = vec![history::context()];
    rows.extend(history::turn("hello", "ok", "t1"));
    rows.extend(history::turn("N:1 D:0", "w1 ", "t2"));
    rows.extend(history::turn("N:5 D:20", "w1 w2 w3 w4 w5 ", "t3"));
    rows.extend([history::user(TOOL), call, history::usage("t4"), result, history::usage("t5")]);
    let answer = history::text("<begins:result: >", "t5");
    rows.push(history::assistant("<begins:result: >", [block, answer]));
    rows.extend(history::turn(lines, "w1 w2 w3 ", "t6"));
    let path = "/api/web/history";
    let turns = row("history_after_turns").get(path).token("full").hides("content-encoding");
    turns.answers(200, history::idle(id, rows)).differs("section 2, history (rows)").check(w).await;
    row("history_after_turns_gzip")
        .get(path)
        .token("full")
        .header("accept-encoding", "gzip")
        .says(200, "")
        .shows("content-encoding", "gzip")
        .shows("content-type", "application/json")
        .check(w)
        .await;

    row("chat_tool_readonly")
        .chat(&say(TOOL))
        .token("readonly")
        .streams(tool_turn("<session:B>", "c2"))
        .differs("section 2, frames (fields)")
        .check(w)
        .await;
    row("chat_observer")
        .chat(&say("hi"))
        .token("observer")
        .streams(turn("<session:C>", "hi", "ok"))
        .check(w)
        .await;
}

#[tokio::test]
async fn answers_that_are_more_than_one_line_of_text() {
    let w = &mut World::new().await;
    row("chat_multiline_reply")
        .chat(&json!({ "message": "LINES", "sessionId": "web_lines" }))
        .streams(turn("web_lines", "LINES", "first\nsecond\nthird"))
        .check(w)
        .await;
    let order = "MEDIA {ws}/p.png";
    let file = json!({ "type": "file", "path": "{ws}/p.png", "name": "p.png", "mimeType": "image/png" });
    row("chat_media_reply")
        .chat(&json!({ "message": order, "sessionId": "web_media" }))
        .streams([session("web_media"), user(order), stream("see\n"), file, stream("after"), complete()])
        .differs("section 2, frames (fields)")
        .check(w)
        .await;
    let because = json!({ "type": "thinking", "text": "because" });
    row("chat_thinking_reply")
        .chat(&json!({ "message": "THINK", "sessionId": "web_think" }))
        .streams([session("web_think"), user("THINK"), because, stream("answer"), complete()])
        .check(w)
        .await;
    let because = json!({ "type": "thinking", "text": "because", "turnId": "<call:t1>" });
    let answer = history::assistant("answer", [because, history::text("answer", "t1")]);
    row("history_thinking")
        .get("/api/web/history?sessionId=web_think")
        .token("full")
        .answers(
            200,
            history::idle(
                "web_think",
                [history::context(), history::user("THINK"), history::usage("t1"), answer],
            ),
        )
        .check(w)
        .await;
}

#[tokio::test]
async fn a_model_that_refuses_ends_the_run_with_an_error() {
    let w = &mut World::new().await;
    row("chat_model_fail_400")
        .chat(&json!({ "message": "FAIL:400", "sessionId": "web_fail_400" }))
        .streams([session("web_fail_400"), user("FAIL:400"), error("<has:refused as ordered>")])
        .check(w)
        .await;
    row("chat_model_fail_500")
        .chat(&json!({ "message": "FAIL:500", "sessionId": "web_fail_500" }))
        .streams([session("web_fail_500"), user("FAIL:500"), error("<has:refused as ordered>")])
        .check(w)
        .await;
}

#[tokio::test]
async fn images_and_sounds_come_with_a_message_or_alone() {
    let w = &mut World::new().await;
    let id = "<session:A>";
    let image = json!([{ "data": PNG, "mimeType": "image/png" }]);
    row("chat_image")
        .chat(&json!({ "message": "see", "images": image }))
        .streams(turn(id, "see", "ok"))
        .check(w)
        .await;
    let sound = json!([{ "data": "AAAA", "mimeType": "audio/webm" }]);
    let saved = "<begins:hear\n\n[语音已保存: {ws}/.halo/assets/web/inbound/>";
    row("chat_audio")
        .chat(&json!({ "message": "hear", "images": sound }))
        .streams([session(id), user(saved), stream("<text>"), complete()])
        .check(w)
        .await;
    row("chat_image_only").chat(&json!({ "images": image })).streams(turn(id, "", "ok")).check(w).await;
    let mut rows = vec![history::context()];
    rows.extend(history::turn("see", "ok", "t1"));
    rows.extend(history::turn(saved, "ok", "t2"));
    rows.extend(history::turn("", "ok", "t3"));
    row("history_active_now")
        .get("/api/web/history")
        .token("full")
        .answers(200, history::idle(id, rows))
        .check(w)
        .await;
}
