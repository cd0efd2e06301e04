//! What a conversation becomes when it no longer fits: how large it is, where it is cut, the summary that stands for
//! its older part, the images that go. All of it is arithmetic on messages; when it happens, what is announced and
//! how it is stored is the session's.

use super::repair;
use crate::model::{Block, Message, Role, SUMMARY_REQUEST, ToolSpec};
use crate::text::head_chars;
use serde_json::Value;
use std::sync::Arc;

/// Bytes of text that make a token, times two. Bytes rather than characters: scripts with long characters have more
/// tokens a character, too.
const BYTES_PER_TWO_TOKENS: usize = 7;
/// Tokens of one image.
const IMAGE_TOKENS: u64 = 1500;
/// Bytes of base64, and number, of the images that a conversation may hold.
pub const MAX_IMAGE_BYTES: usize = 20 * 1024 * 1024;
/// See [`MAX_IMAGE_BYTES`].
pub const MAX_IMAGES: usize = 100;
/// What stands for an image that the budget removed.
const REMOVED_IMAGE: &str = "[an older image stood here; it was removed to keep the request small]";
/// What stands for an older result in the part that is kept.
const OLDER_RESULT: &str = "[an older result stood here; it was removed when the conversation was compacted]";
/// How a summary begins; clients know it by this.
const SUMMARY_MARK: &str = "[Conversation Summary";
/// What the model is asked for, after the line that marks the request.
const INSTRUCTION: &str = "The conversation so far is about to be replaced by a summary, because it fills the context \
     window. Write that summary now. Whoever goes on has nothing else of it, so keep: what the user wants, in their \
     own terms, and every rule they gave; what was decided and why; what has been done, with file paths, names, \
     commands and numbers as they are; what failed and how; what is under way and what comes next. Leave out \
     greetings and output that is of no more use. Write in the language of the conversation. Answer with the summary \
     alone and call no tools.";

/// When a conversation is compacted, and to what.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Tokens that the model takes.
    pub window: u64,
    /// The part of the window at which the conversation is compacted; above 0, at most 1.
    pub compress_at: f64,
    /// Messages that are kept as they are; at least 1.
    pub keep_messages: usize,
    /// Characters of a summary that is made without the model.
    pub max_summary_input: usize,
    /// Characters of one message in such a summary.
    pub max_message_slice: usize,
}

impl Limits {
    /// Tokens at which the conversation is compacted.
    pub fn threshold(&self) -> u64 {
        (self.window as f64 * self.compress_at) as u64
    }
}

fn tokens(bytes: usize) -> u64 {
    (bytes * 2).div_ceil(BYTES_PER_TWO_TOKENS) as u64
}

/// Tokens of a message, roughly.
pub fn estimate(message: &Message) -> u64 {
    let block = |block: &Block| match block {
        Block::Text { text } => tokens(text.len()),
        Block::Thinking { text, signature } => tokens(text.len() + signature.as_ref().map_or(0, String::len)),
        Block::RedactedThinking { data } => tokens(data.len()),
        Block::Image { .. } => IMAGE_TOKENS,
        Block::ToolUse { id, name, input } => {
            let input: usize = input.iter().map(|(key, value)| key.len() + 4 + json_bytes(value)).sum();
            tokens(id.len() + name.len() + input)
        }
        Block::ToolResult { tool_use_id, content, .. } => tokens(tool_use_id.len() + content.len()),
    };
    message.content.iter().map(block).sum()
}

/// Tokens of what goes with every call: the system prompt and the tools.
pub fn overhead(system: &str, specs: &[ToolSpec]) -> u64 {
    let spec = |spec: &ToolSpec| spec.name.len() + spec.description.len() + json_bytes(&spec.parameters);
    tokens(system.len() + specs.iter().map(spec).sum::<usize>())
}

/// About as many bytes as the value has as JSON text.
fn json_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 2,
        Value::Array(items) => items.iter().map(|item| json_bytes(item) + 1).sum::<usize>() + 2,
        Value::Object(map) => {
            map.iter().map(|(key, value)| key.len() + 4 + json_bytes(value)).sum::<usize>() + 2
        }
    }
}

/// How many messages a summary would stand for when the last `keep` are kept: the cut moves forward past results,
/// which belong to the calls before them. 0 when there is nothing to compact.
pub fn cut(history: &[Arc<Message>], keep: usize) -> usize {
    let begins_with_result = |message: &Arc<Message>| {
        message.role == Role::User && matches!(message.content.first(), Some(Block::ToolResult { .. }))
    };
    let cut = history.len().saturating_sub(keep);
    if cut == 0 {
        return 0;
    }
    cut + history[cut..].iter().take_while(|message| begins_with_result(message)).count()
}

/// The conversation as it is sent for a summary.
pub fn request(history: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let text = format!("{SUMMARY_REQUEST}\n\n{INSTRUCTION}");
    let instruction = Message { role: Role::User, content: vec![Block::Text { text }] };
    let messages: Vec<Arc<Message>> = history.iter().cloned().chain([Arc::new(instruction)]).collect();
    repair::for_request(&messages)
}

/// The message that stands for `older` messages.
pub fn summary(older: usize, text: &str) -> Message {
    let text = format!(
        "{SUMMARY_MARK}: it stands for the {older} messages before this point, which are no longer here]\n\n{}",
        text.trim()
    );
    Message { role: Role::User, content: vec![Block::Text { text }] }
}

/// The kept part: of the results only those of the newest message that has any stay, the model has yet to work with
/// them. Messages without a change are shared.
pub fn tail(kept: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let has_result =
        |message: &Message| message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }));
    let newest = kept.iter().rposition(|message| has_result(message));
    let blanked = |(index, message): (usize, &Arc<Message>)| {
        let mut message = message.clone();
        if Some(index) != newest && has_result(&message) {
            for block in &mut Arc::make_mut(&mut message).content {
                if let Block::ToolResult { content, .. } = block
                    && content.len() > OLDER_RESULT.len()
                {
                    OLDER_RESULT.clone_into(content);
                }
            }
        }
        message
    };
    kept.iter().enumerate().map(blanked).collect()
}

/// A summary without the model: the beginning of each message, the newest first to get their place. An earlier
/// summary may take half of it.
pub fn local_summary(older: &[Arc<Message>], limits: &Limits) -> String {
    let mut room = limits.max_summary_input;
    let mut lines: Vec<String> = Vec::new();
    let earlier = older.first().and_then(|message| match message.content.first() {
        Some(Block::Text { text }) if text.starts_with(SUMMARY_MARK) => Some(head_chars(text, room / 2)),
        _ => None,
    });
    room -= earlier.map_or(0, |text| text.chars().count());
    let skip = usize::from(earlier.is_some());
    for message in older.iter().skip(skip).rev() {
        let line = one_line(message, limits.max_message_slice);
        let size = line.chars().count() + 1;
        if size > room {
            lines.push("[more messages stood here]".to_owned());
            break;
        }
        room -= size;
        if !line.is_empty() {
            lines.push(line);
        }
    }
    lines.extend(earlier.map(str::to_owned));
    lines.reverse();
    lines.join("\n")
}

fn one_line(message: &Message, max: usize) -> String {
    let mut text = String::new();
    for block in &message.content {
        let piece = match block {
            Block::Text { text } => text.clone(),
            Block::Image { .. } => "[image]".to_owned(),
            Block::ToolUse { name, input, .. } => format!("[calls {name} {}]", Value::Object(input.clone())),
            Block::ToolResult { content, .. } => format!("[result: {content}]"),
            Block::Thinking { .. } | Block::RedactedThinking { .. } => continue,
        };
        text.push(' ');
        text.push_str(head_chars(&piece, max));
        if text.len() > 4 * max {
            break;
        }
    }
    let who = if message.role == Role::User { "user" } else { "assistant" };
    match head_chars(text.trim(), max) {
        "" => String::new(),
        said => format!("{who}: {}", said.replace('\n', " ")),
    }
}

/// Number and bytes of the message's images.
pub fn images(message: &Message) -> (usize, usize) {
    message.content.iter().fold((0, 0), |(count, bytes), block| match block {
        Block::Image { data, .. } => (count + 1, bytes + data.len()),
        _ => (count, bytes),
    })
}

/// Replaces the message's images by text, the first ones first, as long as `more` says so of each.
pub fn remove_images(message: &mut Message, mut more: impl FnMut(usize) -> bool) {
    for block in &mut message.content {
        if let Block::Image { data, .. } = block {
            if !more(data.len()) {
                return;
            }
            *block = Block::Text { text: REMOVED_IMAGE.to_owned() };
        }
    }
}

#[cfg(test)]
#[path = "compact/tests.rs"]
mod tests;
