//! What `/api/web/history` and `/api/web/sessions` answer, as far as it is used here.

use serde::Deserialize;
use serde_json::Value;

use super::frames::{as_text, id};

/// The log of a session.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct History {
    /// The rows in log order.
    #[serde(default)]
    pub messages: Vec<Row>,
    /// Whether a turn runs; `None` where the server does not say.
    #[serde(default)]
    pub running: Option<bool>,
}

/// One row of the log.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The row's id.
    #[serde(default)]
    pub id: Option<String>,
    /// The kind; missing in very old rows.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// `user`, `assistant` or `system`.
    #[serde(default)]
    pub role: Option<String>,
    /// The text.
    #[serde(default, deserialize_with = "as_text")]
    pub content: String,
    /// Set on rows of a sub-session.
    #[serde(default)]
    pub task_id: Option<String>,
    /// The exchange was deleted.
    #[serde(default)]
    pub deleted: Option<bool>,
    /// The pieces of an assistant turn, in order.
    #[serde(default)]
    pub content_blocks: Option<Vec<Block>>,
    /// The tools of an assistant turn in the old layout.
    #[serde(default)]
    pub tool_calls: Option<Vec<LoggedCall>>,
}

impl Row {
    /// Whether an editor is shown this row at all: no deleted one and none of a sub-session.
    pub fn is_shown(&self) -> bool {
        !self.deleted.unwrap_or(false) && self.task_id.as_deref().is_none_or(str::is_empty)
    }

    fn is(&self, kind: &str) -> bool {
        self.kind.as_deref().or(self.role.as_deref()) == Some(kind)
    }

    /// A message of a user.
    pub fn is_user(&self) -> bool {
        self.is("user")
    }

    /// A turn of the assistant.
    pub fn is_assistant(&self) -> bool {
        self.is("assistant")
    }

    /// The pieces, if the row has any.
    pub fn blocks(&self) -> Option<&[Block]> {
        self.content_blocks.as_deref().filter(|blocks| !blocks.is_empty())
    }

    /// The texts of an assistant row as they were streamed, `MEDIA:` lines included. The pieces count before the
    /// flat text.
    pub fn texts(&self) -> Vec<&str> {
        let texts = self.blocks().unwrap_or_default().iter().filter_map(|block| match block {
            Block::Text { text } if !text.is_empty() => Some(text.as_str()),
            _ => None,
        });
        let texts: Vec<_> = texts.collect();
        if texts.is_empty() { vec![&self.content] } else { texts }
    }
}

/// One piece of an assistant turn.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Block {
    /// Text of the answer.
    Text {
        /// The text.
        #[serde(default)]
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// The text.
        #[serde(default)]
        text: String,
    },
    /// A tool call with its outcome.
    ToolCall {
        /// The call.
        tool_call: LoggedCall,
    },
    /// A kind that has no meaning here.
    #[serde(other)]
    Other,
}

/// A logged tool call.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedCall {
    /// The tool.
    #[serde(default)]
    pub name: String,
    /// JSON text, plain text, or (leniently) a value.
    #[serde(default)]
    pub input: Value,
    /// What came out; missing while the call runs.
    #[serde(default, deserialize_with = "output")]
    pub output: Option<String>,
    /// The provider's id.
    #[serde(default, deserialize_with = "id")]
    pub tool_use_id: Option<String>,
}

fn output<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    Ok(match Option::<Value>::deserialize(from)? {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text),
        Some(other) => Some(other.to_string()),
    })
}

/// A page of the session list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionPage {
    /// The workspace that the server resolved.
    pub workspace: String,
    /// Newest first.
    #[serde(default)]
    pub sessions: Vec<SessionRow>,
    /// Where the next page begins; `None` on the last.
    #[serde(default)]
    pub next_cursor: Option<i64>,
}

/// A session of the list.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionRow {
    /// Its id.
    pub session_id: String,
    /// `None` when the server has none.
    #[serde(default)]
    pub title: Option<String>,
    /// Milliseconds since 1970.
    pub updated_at: i64,
}
