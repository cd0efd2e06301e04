//! From the server's words to ACP's: the one set of builders that the live stream and the replay of a log
//! share, so that a tool call looks alike either way, and the pairing of results with open calls.

use agent_client_protocol::v1::schema::{
    ContentBlock, ContentChunk, SessionUpdate, TextContent, ToolCall, ToolCallContent, ToolCallStatus,
    ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use serde_json::Value;

use crate::upstream::frames::{ToolCallFrame, ToolResultFrame};

/// How much of a tool's argument stands in a title, in characters.
const TITLE_CHARS: usize = 80;
/// How much of a result is shown, in characters; the live frames are cut there by the server.
pub const RESULT_CHARS: usize = 500;
/// How many calls may be open at once before the oldest is given up.
const MAX_OPEN: usize = 1024;

/// A piece of the agent's answer.
pub fn message(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(chunk(text))
}

/// A piece of the agent's reasoning.
pub fn thought(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(chunk(text))
}

/// A message of the user, when a log is replayed.
pub fn user(text: impl Into<String>) -> SessionUpdate {
    SessionUpdate::UserMessageChunk(chunk(text))
}

/// A file of the answer.
pub fn file(name: &str) -> SessionUpdate {
    message(format!("[file: {name}]"))
}

fn chunk(text: impl Into<String>) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// A call with its title, kind and input; status and outcome are the caller's.
pub fn tool_call(id: &str, name: &str, input: &Value) -> ToolCall {
    let mut call = ToolCall::new(id.to_owned(), title(name, input)).kind(kind(name));
    if !input.is_null() {
        call = call.raw_input(input.clone());
    }
    call
}

/// The outcome of a call as content.
pub fn outcome(text: &str) -> Vec<ToolCallContent> {
    vec![ToolCallContent::from(ContentBlock::Text(TextContent::new(text)))]
}

/// The update that ends a call.
pub fn completed(id: &str, text: &str) -> SessionUpdate {
    let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Completed).content(outcome(text));
    SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(id.to_owned(), fields))
}

/// The first `max` characters of `text`.
pub fn head(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

fn kind(tool: &str) -> ToolKind {
    match tool {
        "file_read" | "view_image" => ToolKind::Read,
        "file_write" | "file_edit" => ToolKind::Edit,
        "shell_exec" => ToolKind::Execute,
        "grep" | "glob" | "file_list" => ToolKind::Search,
        "web_fetch" => ToolKind::Fetch,
        _ => ToolKind::Other,
    }
}

fn title(tool: &str, input: &Value) -> String {
    let tool = if tool.is_empty() { "tool" } else { tool };
    let argument = match input {
        Value::String(text) => text.as_str(),
        other => ["command", "pattern", "url", "path"]
            .iter()
            .filter_map(|name| other.get(name)?.as_str())
            .find(|text| !text.trim().is_empty())
            .unwrap_or_default(),
    };
    let flat = argument.split_whitespace().collect::<Vec<_>>().join(" ");
    if flat.is_empty() { tool.to_owned() } else { format!("{tool}: {}", head(&flat, TITLE_CHARS).trim_end()) }
}

/// The calls of one turn that have no result yet.
#[derive(Debug, Default)]
pub struct OpenCalls {
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    id: String,
    tool: String,
}

impl OpenCalls {
    /// A call begins. An id is minted where the server gave none.
    pub fn call(&mut self, frame: &ToolCallFrame) -> SessionUpdate {
        let id = frame.tool_use_id.clone().unwrap_or_else(mint);
        let call = tool_call(&id, &frame.tool_name, &frame.tool_input).status(ToolCallStatus::InProgress);
        if self.open.len() == MAX_OPEN {
            self.open.remove(0);
        }
        self.open.push(Open { id, tool: frame.tool_name.clone() });
        SessionUpdate::ToolCall(call)
    }

    /// A call ends: by its id, else the latest open one of that tool. A result without an open call brings
    /// its own call along.
    pub fn result(&mut self, frame: &ToolResultFrame) -> Vec<SessionUpdate> {
        let tool = frame.tool_name.as_deref().filter(|tool| !tool.is_empty());
        let at = match &frame.tool_use_id {
            Some(id) => self.open.iter().rposition(|open| open.id == *id),
            None => self.open.iter().rposition(|open| tool.is_none_or(|tool| open.tool == tool)),
        };
        if let Some(at) = at {
            return vec![completed(&self.open.remove(at).id, &frame.result)];
        }
        let id = frame.tool_use_id.clone().unwrap_or_else(mint);
        let call = tool_call(&id, tool.unwrap_or_default(), &Value::Null).status(ToolCallStatus::InProgress);
        vec![SessionUpdate::ToolCall(call), completed(&id, &frame.result)]
    }

    /// Ends the calls whose results `logged` (id and output) tells, after frames were lost.
    pub fn settle<'a>(&mut self, logged: impl Iterator<Item = (&'a str, &'a str)>) -> Vec<SessionUpdate> {
        logged
            .filter_map(|(id, output)| {
                let at = self.open.iter().position(|open| open.id == id)?;
                self.open.remove(at);
                Some(completed(id, head(output, RESULT_CHARS)))
            })
            .collect()
    }
}

fn mint() -> String {
    format!("call-{}", uuid::Uuid::new_v4().simple())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn call(id: Option<&str>, tool: &str, input: Value) -> ToolCallFrame {
        ToolCallFrame { tool_name: tool.into(), tool_use_id: id.map(Into::into), tool_input: input }
    }

    fn result(id: Option<&str>, tool: Option<&str>, text: &str) -> ToolResultFrame {
        ToolResultFrame {
            tool_name: tool.map(Into::into),
            tool_use_id: id.map(Into::into),
            result: text.into(),
        }
    }

    fn id_of(update: &SessionUpdate) -> String {
        match update {
            SessionUpdate::ToolCall(call) => call.tool_call_id.0.to_string(),
            SessionUpdate::ToolCallUpdate(update) => update.tool_call_id.0.to_string(),
            other => panic!("no tool update: {other:?}"),
        }
    }

    #[rstest]
    #[case("grep", json!({"pattern": "foo", "path": "src"}), "grep: foo")]
    #[case("shell_exec", json!("ls"), "shell_exec: ls")]
    #[case("shell_exec", json!({"command": " ls \n\t -l "}), "shell_exec: ls -l")]
    #[case("file_read", json!({"command": "", "path": "/a"}), "file_read: /a")]
    #[case("activate_skill", json!({"name": "x"}), "activate_skill")]
    #[case("", json!(null), "tool")]
    fn a_title_names_the_tool_and_what_it_works_on(
        #[case] tool: &str,
        #[case] input: Value,
        #[case] expected: &str,
    ) {
        assert_eq!(title(tool, &input), expected);
    }

    #[test]
    fn a_long_argument_is_cut_at_80_characters() {
        let url = format!("https://x/{}", "\u{4f60}".repeat(100));
        assert_eq!(title("web_fetch", &json!({ "url": url })), format!("web_fetch: {}", head(&url, 80)));
    }

    #[rstest]
    #[case("file_read", ToolKind::Read)]
    #[case("view_image", ToolKind::Read)]
    #[case("file_write", ToolKind::Edit)]
    #[case("file_edit", ToolKind::Edit)]
    #[case("shell_exec", ToolKind::Execute)]
    #[case("grep", ToolKind::Search)]
    #[case("glob", ToolKind::Search)]
    #[case("file_list", ToolKind::Search)]
    #[case("web_fetch", ToolKind::Fetch)]
    #[case("activate_skill", ToolKind::Other)]
    fn a_tool_has_a_kind(#[case] tool: &str, #[case] expected: ToolKind) {
        assert_eq!(kind(tool), expected);
    }

    #[test]
    fn results_find_their_calls_by_id_in_any_order() {
        let mut calls = OpenCalls::default();
        calls.call(&call(Some("a"), "grep", json!({})));
        calls.call(&call(Some("b"), "grep", json!({})));
        assert_eq!(calls.result(&result(Some("a"), Some("grep"), "hit")), [completed("a", "hit")]);
        assert_eq!(calls.result(&result(Some("b"), None, "page")), [completed("b", "page")]);
    }

    #[test]
    fn without_ids_the_latest_open_call_of_the_tool_is_meant() {
        let mut calls = OpenCalls::default();
        let first = id_of(&calls.call(&call(None, "grep", json!({}))));
        let second = id_of(&calls.call(&call(None, "grep", json!({}))));
        let other = id_of(&calls.call(&call(None, "glob", json!({}))));
        assert!(first != second && !first.is_empty());
        assert_eq!(calls.result(&result(None, Some("grep"), "2")), [completed(&second, "2")]);
        assert_eq!(calls.result(&result(None, None, "3")), [completed(&other, "3")]);
        assert_eq!(calls.result(&result(None, Some("grep"), "1")), [completed(&first, "1")]);
    }

    #[test]
    fn a_result_without_an_open_call_brings_its_own() {
        let mut calls = OpenCalls::default();
        for given in [result(None, Some("grep"), "x"), result(Some("lost"), Some("grep"), "x")] {
            let updates = calls.result(&given);
            assert_eq!(updates.len(), 2);
            assert!(matches!(updates[0], SessionUpdate::ToolCall(_)));
            assert_eq!(updates[1], completed(&id_of(&updates[0]), "x"));
        }
    }

    #[test]
    fn the_log_ends_calls_whose_results_were_lost() {
        let mut calls = OpenCalls::default();
        calls.call(&call(Some("a"), "grep", json!({})));
        let long = "x".repeat(600);
        let logged = [("other", "y"), ("a", long.as_str())];
        assert_eq!(calls.settle(logged.into_iter()), [completed("a", &long[..500])]);
        assert!(calls.settle(logged.into_iter()).is_empty());
    }
}
