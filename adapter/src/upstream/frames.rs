//! The frames of the web channel, typed. Lenient where a server may differ: unknown kinds and fields are no
//! error, an empty `toolUseId` is none, a result that is no string is shown as JSON.

use serde::Deserialize;
use serde_json::Value;

/// One frame of a chat or subscribe stream.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Frame {
    /// The session that really runs the turn.
    Session {
        /// Its id; follow, settle and stop go there.
        session_id: String,
    },
    /// A message as it was logged.
    User {
        /// Its text.
        #[serde(default)]
        text: String,
    },
    /// Assistant text.
    Stream {
        /// The next piece.
        text: String,
    },
    /// The model's reasoning.
    Thinking {
        /// The next piece.
        text: String,
    },
    /// A tool begins.
    ToolCall(ToolCallFrame),
    /// A tool ended.
    ToolResult(ToolResultFrame),
    /// A file of the answer.
    File {
        /// As the model wrote it.
        #[serde(default)]
        path: Option<String>,
        /// Its last segment.
        #[serde(default)]
        name: Option<String>,
    },
    /// The run failed. Last frame.
    Error {
        /// What happened.
        #[serde(default, deserialize_with = "as_text")]
        error: String,
    },
    /// The session was busy, the message waits. Last frame.
    Queued,
    /// The run ended. Last frame.
    Complete,
    /// The place to resume from is no longer held.
    Resync,
    /// A kind that has no meaning here.
    #[serde(other)]
    Other,
}

/// The fields of a `tool_call` frame.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names of the wire")]
pub struct ToolCallFrame {
    /// The tool.
    #[serde(default)]
    pub tool_name: String,
    /// The provider's id; not every server and provider has one.
    #[serde(default, deserialize_with = "id")]
    pub tool_use_id: Option<String>,
    /// What the tool was called with.
    #[serde(default)]
    pub tool_input: Value,
}

/// The fields of a `tool_result` frame.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ToolResultFrame {
    /// The tool; may be missing.
    #[serde(default)]
    pub tool_name: Option<String>,
    /// The id of the call.
    #[serde(default, deserialize_with = "id")]
    pub tool_use_id: Option<String>,
    /// What came out, cut by the server.
    #[serde(default, deserialize_with = "as_text")]
    pub result: String,
}

/// A string that may be missing, null or empty.
pub fn id<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(from)?.filter(|id| !id.is_empty()))
}

/// A text; any other value as its JSON.
pub fn as_text<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(match Value::deserialize(from)? {
        Value::String(text) => text,
        Value::Null => String::new(),
        other => other.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    #[rstest]
    #[case(json!({"type": "session", "sessionId": "s"}), Frame::Session { session_id: "s".into() })]
    #[case(json!({"type": "queued", "extra": 1}), Frame::Queued)]
    #[case(json!({"type": "resync", "truncated": true}), Frame::Resync)]
    #[case(json!({"type": "switch", "sessionId": "s"}), Frame::Other)]
    #[case(json!({"type": "error", "error": {"a": 1}}), Frame::Error { error: "{\"a\":1}".into() })]
    #[case(json!({"type": "file", "path": "/a.png"}), Frame::File { path: Some("/a.png".into()), name: None })]
    #[case(
        json!({"type": "tool_call", "toolName": "grep", "toolUseId": "", "toolInput": {"pattern": "x"}}),
        Frame::ToolCall(ToolCallFrame {
            tool_name: "grep".into(), tool_use_id: None, tool_input: json!({"pattern": "x"}),
        })
    )]
    #[case(
        json!({"type": "tool_result", "toolUseId": null, "result": ["a"]}),
        Frame::ToolResult(ToolResultFrame { tool_name: None, tool_use_id: None, result: "[\"a\"]".into() })
    )]
    fn a_frame_is_read_leniently(#[case] given: Value, #[case] expected: Frame) {
        assert_eq!(serde_json::from_value::<Frame>(given).expect("a frame"), expected);
    }

    #[test]
    fn a_frame_without_a_type_is_none() {
        assert!(serde_json::from_str::<Frame>("{\"text\":\"x\"}").is_err());
        assert!(serde_json::from_str::<Frame>("{\"type\":\"stream\"}").is_err());
    }
}
