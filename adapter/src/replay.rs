//! A log as session updates, in its order, with the builders of the live path. Shows what a reader of the
//! conversation would want to see again: what was asked, thought, done and answered.

use agent_client_protocol::v1::schema::{SessionUpdate, ToolCallStatus};
use serde_json::Value;

use crate::media::{self, Piece};
use crate::translate::{self, RESULT_CHARS, head};
use crate::upstream::history::{Block, LoggedCall, Row};

/// The updates of `rows`.
pub fn updates(rows: &[Row]) -> impl Iterator<Item = SessionUpdate> + '_ {
    rows.iter().enumerate().filter(|(_, row)| row.is_shown()).flat_map(|(at, row)| of_row(at, row))
}

fn of_row(at: usize, row: &Row) -> Vec<SessionUpdate> {
    if row.is_user() {
        return if row.content.is_empty() { Vec::new() } else { vec![translate::user(&row.content)] };
    }
    if !row.is_assistant() {
        return Vec::new();
    }
    let row_id = row.id.clone().filter(|id| !id.is_empty()).unwrap_or_else(|| at.to_string());
    let mut updates = Vec::new();
    if let Some(blocks) = row.blocks() {
        for (n, block) in blocks.iter().enumerate() {
            match block {
                Block::Thinking { text } if !text.is_empty() => updates.push(translate::thought(text)),
                Block::Text { text } => updates.extend(answer(text)),
                Block::ToolCall { tool_call } => updates.push(call(&row_id, n, tool_call)),
                Block::Thinking { .. } | Block::Other => {}
            }
        }
    } else {
        let calls = row.tool_calls.as_deref().unwrap_or_default();
        updates.extend(calls.iter().enumerate().map(|(n, logged)| call(&row_id, n, logged)));
        updates.extend(answer(&row.content));
    }
    updates
}

/// Text of an answer; its `MEDIA:` lines look as they did live.
fn answer(text: &str) -> impl Iterator<Item = SessionUpdate> + '_ {
    media::pieces(text).into_iter().map(|piece| match piece {
        Piece::Text(text) => translate::message(text),
        Piece::Media(path) => {
            translate::file(path.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(path))
        }
    })
}

fn call(row: &str, n: usize, logged: &LoggedCall) -> SessionUpdate {
    let id = logged.tool_use_id.clone().unwrap_or_else(|| format!("replay-{row}-{n}"));
    let mut call =
        translate::tool_call(&id, &logged.name, &input(&logged.input)).status(ToolCallStatus::Completed);
    if let Some(output) = logged.output.as_deref() {
        let output = head(output, RESULT_CHARS);
        call = call.content(translate::outcome(output)).raw_output(Value::from(output));
    }
    SessionUpdate::ToolCall(call)
}

/// The log holds an input as JSON text, old rows as plain text.
fn input(logged: &Value) -> Value {
    match logged {
        Value::String(text) => serde_json::from_str::<Value>(text)
            .ok()
            .filter(Value::is_object)
            .unwrap_or_else(|| logged.clone()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn replayed(rows: Value) -> Value {
        let rows: Vec<Row> = serde_json::from_value(rows).expect("rows");
        json!(updates(&rows).collect::<Vec<_>>())
    }

    #[test]
    fn a_log_is_replayed_in_order_with_whole_calls() {
        let got = replayed(json!([
            {"id": "c", "type": "context", "role": "system", "content": "prompt"},
            {"id": "u", "type": "user", "role": "user", "content": "run ls", "timestamp": 1},
            {"id": "t", "type": "tool_call", "role": "system", "content": "", "toolName": "shell_exec", "toolInput": "ls"},
            {"id": "x", "type": "usage", "role": "system", "content": "", "usage": {}},
            {"id": "r", "type": "tool_result", "role": "system", "content": "", "toolOutput": "a.txt"},
            {"id": "m1", "type": "assistant", "role": "assistant", "content": "One file.", "contentBlocks": [
                {"type": "thinking", "text": "let me look"},
                {"type": "tool_call", "toolCall": {"name": "shell_exec", "input": "ls", "output": "a.txt", "toolUseId": "tu_9"}},
                {"type": "text", "text": "One file."}]},
            {"id": "n", "type": "notification", "role": "system", "content": "note"},
            {"id": "d1", "type": "user", "role": "user", "content": "gone", "deleted": true},
            {"id": "d2", "type": "assistant", "role": "assistant", "content": "gone too", "deleted": true},
            {"id": "s", "type": "assistant", "role": "assistant", "content": "sub", "taskId": "t1"},
            {"id": "u2", "role": "user", "content": "thanks"},
            {"id": "m2", "role": "assistant", "content": "Legacy reply",
             "toolCalls": [{"name": "file_read", "input": "/x/y.md", "output": "body"}]},
        ]));
        let text = |text: &str| json!({"type": "text", "text": text});
        let call = |id: &str, title: &str, kind: &str, input: &str, output: &str| {
            json!({
                "sessionUpdate": "tool_call", "toolCallId": id, "title": title, "kind": kind, "status": "completed",
                "content": [{"type": "content", "content": text(output)}], "rawInput": input, "rawOutput": output,
            })
        };
        assert_eq!(
            got,
            json!([
                {"sessionUpdate": "user_message_chunk", "content": text("run ls")},
                {"sessionUpdate": "agent_thought_chunk", "content": text("let me look")},
                call("tu_9", "shell_exec: ls", "execute", "ls", "a.txt"),
                {"sessionUpdate": "agent_message_chunk", "content": text("One file.")},
                {"sessionUpdate": "user_message_chunk", "content": text("thanks")},
                call("replay-m2-0", "file_read: /x/y.md", "read", "/x/y.md", "body"),
                {"sessionUpdate": "agent_message_chunk", "content": text("Legacy reply")},
            ])
        );
    }

    #[test]
    fn an_input_that_is_an_object_as_text_is_shown_as_the_object() {
        let got = replayed(json!([{"id": "m", "role": "assistant", "content": "", "contentBlocks": [
            {"type": "tool_call", "toolCall": {"name": "grep", "input": "{\"pattern\":\"x\"}"}},
            {"type": "tool_call", "toolCall": {"name": "grep", "input": "[1]", "toolUseId": ""}}]}]));
        assert_eq!(got[0]["rawInput"], json!({"pattern": "x"}));
        assert_eq!(got[0]["title"], "grep: x");
        assert_eq!(got[0]["content"], json!(null));
        assert_eq!(got[1]["rawInput"], "[1]");
        assert_eq!(got[1]["toolCallId"], "replay-m-1");
    }

    #[test]
    fn outputs_are_cut_at_500_characters() {
        let got = replayed(json!([{"id": "m", "role": "assistant", "content": "", "contentBlocks": [
            {"type": "tool_call", "toolCall": {"name": "x", "input": "", "output": "\u{4f60}".repeat(600)}}]}]));
        assert_eq!(got[0]["rawOutput"], "\u{4f60}".repeat(500));
        assert_eq!(got[0]["content"][0]["content"]["text"], "\u{4f60}".repeat(500));
    }

    #[test]
    fn media_lines_look_as_they_did_live() {
        let got =
            replayed(json!([{"id": "m", "role": "assistant", "content": "see\nMEDIA:/ws/p.png\nafter"}]));
        let texts: Vec<_> =
            got.as_array().expect("list").iter().map(|one| one["content"]["text"].clone()).collect();
        assert_eq!(texts, ["see\n", "[file: p.png]", "after"]);
    }
}
