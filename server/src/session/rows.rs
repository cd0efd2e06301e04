//! The rows of the display log as clients see them in `/history` (web contract, section 2; row kinds). Built once,
//! when they are written.

use super::ids::row_id;
use crate::model::Usage;
use crate::text::{head_bytes, head_chars, tail_bytes};
use crate::tool::Cut;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What a tool call shows when a stop or an interrupt cut it.
pub const INTERRUPTED: &str = "[interrupted by user]";
/// What a tool call shows when a stop or an interrupt came before it began.
pub const NOT_RUN: &str = "[not run — interrupted]";
/// What a tool call shows when the server ended while it ran.
pub const INTERRUPTED_BY_RESTART: &str = "[interrupted by a server restart]";
/// Characters of a title.
const TITLE_CHARS: usize = 60;
/// Characters of a tool's arguments in the one-line content of its row.
const SUMMARY_CHARS: usize = 200;

/// Where and when a row stands.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Its sequence number.
    pub seq: i64,
    /// Milliseconds since the Unix epoch.
    pub at: i64,
}

/// One piece of an assistant row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum ContentBlock {
    /// Assistant text.
    Text {
        /// The text, `MEDIA:` lines included.
        text: String,
        /// The model call that said it.
        turn_id: String,
    },
    /// Reasoning.
    Thinking {
        /// The reasoning.
        text: String,
        /// The model call.
        turn_id: String,
    },
    /// A tool call.
    ToolCall {
        /// The call and its output.
        tool_call: ToolCall,
        /// The model call that asked for it.
        turn_id: String,
    },
}

/// A tool call inside an assistant row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolCall {
    /// The tool.
    pub name: String,
    /// The JSON text of the arguments.
    pub input: String,
    /// The provider's id of the call.
    pub tool_use_id: String,
    /// What it answered; absent while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// How long it ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

fn row(place: Place, kind: &str, role: &str, content: &str) -> Map<String, Value> {
    let mut row = Map::new();
    row.insert("id".into(), row_id(place.at, place.seq).into());
    row.insert("type".into(), kind.into());
    row.insert("role".into(), role.into());
    row.insert("content".into(), content.into());
    row.insert("timestamp".into(), place.at.into());
    row
}

fn text(row: Map<String, Value>) -> String {
    Value::Object(row).to_string()
}

/// A message, as it was typed.
pub fn user(place: Place, content: &str) -> String {
    text(row(place, "user", "user", content))
}

/// The session's start: which agent it is; never the prompt itself.
pub fn context(place: Place, agent: &str) -> String {
    let mut row = row(place, "context", "system", &format!("[System Prompt: {agent}]"));
    row.insert("agentName".into(), agent.into());
    text(row)
}

/// A notice to people.
pub fn notification(place: Place, agent: &str, content: &str) -> String {
    let mut row = row(place, "notification", "system", content);
    row.insert("agentName".into(), agent.into());
    text(row)
}

/// A sub-agent began; `preview` is the beginning of what it was told.
pub fn agent_start(place: Place, task: &str, agent: &str, preview: &str) -> String {
    let mut row = row(place, "agent_start", "system", preview);
    row.insert("agentName".into(), agent.into());
    row.insert("taskId".into(), task.into());
    text(row)
}

/// A sub-agent is done.
pub fn agent_done(place: Place, task: &str) -> String {
    let mut row = row(place, "agent_done", "system", "");
    row.insert("taskId".into(), task.into());
    text(row)
}

/// A tool was asked for.
pub fn tool_call(place: Place, agent: &str, name: &str, input: &Map<String, Value>) -> String {
    let summary = ["command", "pattern", "url", "path"].iter().find_map(|key| input.get(*key)?.as_str());
    let summary = head_chars(summary.unwrap_or_default(), SUMMARY_CHARS);
    let mut row = row(place, "tool_call", "system", &format!("{agent} → {name}: {summary}"));
    row.insert("agentName".into(), agent.into());
    row.insert("toolName".into(), name.into());
    row.insert("toolInput".into(), Value::Object(input.clone()));
    text(row)
}

/// A tool has answered; `output` is already cut for display.
pub fn tool_result(place: Place, agent: &str, name: &str, output: &str, duration_ms: u64) -> String {
    let mut row = row(place, "tool_result", "system", &format!("Result: {output}"));
    row.insert("agentName".into(), agent.into());
    row.insert("toolName".into(), name.into());
    row.insert("toolOutput".into(), output.into());
    row.insert("durationMs".into(), duration_ms.into());
    text(row)
}

/// What a model call cost and how long it took.
#[derive(Clone, Debug)]
pub struct CallFigures {
    /// The call's id.
    pub turn_id: String,
    /// The model.
    pub model_id: String,
    /// The tokens.
    pub usage: Usage,
    /// Milliseconds to the first content.
    pub ttft_ms: Option<u64>,
    /// Milliseconds in all.
    pub e2e_ms: u64,
    /// The effort label, or `off`.
    pub thinking_effort: String,
}

/// The figures of a model call.
pub fn usage(place: Place, agent: &str, figures: &CallFigures) -> String {
    let tokens = &figures.usage;
    let content = format!("[Usage] in={} out={} cache={}", tokens.input, tokens.output, tokens.cache_read);
    let mut row = row(place, "usage", "system", &content);
    let mut usage = json!({
        "inputTokens": tokens.input,
        "outputTokens": tokens.output,
        "totalTokens": tokens.input + tokens.output,
        "cacheReadInputTokens": tokens.cache_read,
        "e2eMs": figures.e2e_ms,
        "thinkingEffort": figures.thinking_effort,
    });
    if tokens.cache_write > 0 {
        usage["cacheWriteInputTokens"] = tokens.cache_write.into();
    }
    if let Some(ttft) = figures.ttft_ms {
        usage["ttftMs"] = ttft.into();
    }
    row.insert("agentName".into(), agent.into());
    row.insert("usage".into(), usage);
    row.insert("modelId".into(), figures.model_id.as_str().into());
    row.insert("turnId".into(), figures.turn_id.as_str().into());
    text(row)
}

/// How an assistant row stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Written to its end.
    Done,
    /// Still growing; never stored.
    Streaming,
    /// Cut by the end of the server's process.
    Interrupted,
}

/// A turn's text, reasoning and tool calls, in order.
pub fn assistant(place: Place, agent: &str, blocks: &[ContentBlock], standing: Standing) -> String {
    let content: String = blocks
        .iter()
        .filter_map(
            |block| if let ContentBlock::Text { text, .. } = block { Some(text.as_str()) } else { None },
        )
        .collect();
    let mut row = row(place, "assistant", "assistant", &content);
    row.insert("agentName".into(), agent.into());
    row.insert("contentBlocks".into(), serde_json::to_value(blocks).unwrap_or_default());
    match standing {
        Standing::Done => {}
        Standing::Streaming => drop(row.insert("streaming".into(), true.into())),
        Standing::Interrupted => drop(row.insert("interrupted".into(), true.into())),
    }
    text(row)
}

/// A session's title: the first line of its first message with anything on it, cut at 60 characters.
pub fn title(message: &str) -> Option<String> {
    let line = message.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(head_chars(line, TITLE_CHARS).to_owned())
}

/// A tool's output as the log keeps it: at most `max` bytes, cut on character boundaries, with a note; in the middle
/// where that may go.
pub fn display_output(output: &str, cut: Cut, max: usize) -> String {
    if output.len() <= max {
        return output.to_owned();
    }
    if cut == Cut::Middle {
        let (head, tail) = (head_bytes(output, max - max / 2), tail_bytes(output, max / 2));
        return format!("{head}\n[Content truncated: {} bytes in all]\n{tail}", output.len());
    }
    format!("{}\n[Content truncated: {} bytes in all]", head_bytes(output, max), output.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_output_is_cut_at_its_end_or_in_its_middle() {
        assert_eq!(display_output("aäb", Cut::Middle, 4), "aäb");
        assert_eq!(display_output("aaäbb", Cut::End, 3), "aa\n[Content truncated: 6 bytes in all]");
        assert_eq!(display_output("aaäbb", Cut::Middle, 4), "aa\n[Content truncated: 6 bytes in all]\nbb");
    }

    #[test]
    fn an_assistant_row_has_its_blocks_in_order_and_its_text_joined() {
        let blocks = [
            ContentBlock::Thinking { text: "hm".into(), turn_id: "t1".into() },
            ContentBlock::Text { text: "Hello ".into(), turn_id: "t1".into() },
            ContentBlock::ToolCall {
                tool_call: ToolCall {
                    name: "grep".into(),
                    input: "{\"pattern\":\"x\"}".into(),
                    tool_use_id: "c1".into(),
                    output: None,
                    duration_ms: None,
                },
                turn_id: "t1".into(),
            },
            ContentBlock::Text { text: "world".into(), turn_id: "t2".into() },
        ];
        insta::assert_snapshot!(
            assistant(Place { seq: 7, at: 1_796_148_373_010 }, "Default", &blocks, Standing::Streaming),
            @r#"{"id":"m_mx50d6he_7","type":"assistant","role":"assistant","content":"Hello world","timestamp":1796148373010,"agentName":"Default","contentBlocks":[{"type":"thinking","text":"hm","turnId":"t1"},{"type":"text","text":"Hello ","turnId":"t1"},{"type":"tool_call","toolCall":{"name":"grep","input":"{\"pattern\":\"x\"}","toolUseId":"c1"},"turnId":"t1"},{"type":"text","text":"world","turnId":"t2"}],"streaming":true}"#
        );
    }

    #[test]
    fn a_title_is_the_first_line_with_anything_on_it_cut_at_60_characters() {
        assert_eq!(title("\n  hello\nworld"), Some("hello".into()));
        assert_eq!(title(&"é".repeat(70)), Some("é".repeat(60)));
        assert_eq!(title(" \n "), None);
    }
}
