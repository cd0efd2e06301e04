//! The model history: messages in the shape of Anthropic's API become ours, made acceptable to every provider. What
//! this program has no word for is dropped and counted.

use crate::agent::repair::for_request;
use crate::model::{Block, Message, Role};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::sync::Arc;

/// The history, and how many pieces were dropped.
pub fn convert(messages: &[&RawValue]) -> (Vec<Arc<Message>>, usize) {
    let mut dropped = 0;
    let history: Vec<Arc<Message>> =
        messages.iter().filter_map(|text| message(text.get(), &mut dropped)).map(Arc::new).collect();
    (for_request(&history), dropped)
}

fn message(text: &str, dropped: &mut usize) -> Option<Message> {
    let read = serde_json::from_str::<Map<String, Value>>(text).ok().and_then(|message| {
        let role = match message.get("role")?.as_str()? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            _ => return None,
        };
        Some((role, message))
    });
    let Some((role, mut message)) = read else {
        *dropped += 1;
        return None;
    };
    let mut content = Vec::new();
    match message.remove("content") {
        Some(Value::String(text)) => content.push(Block::Text { text }),
        Some(Value::Array(blocks)) => {
            for found in blocks {
                block(found, &mut content, dropped);
            }
        }
        None | Some(Value::Null) => {}
        Some(_) => *dropped += 1,
    }
    Some(Message { role, content })
}

/// Adds what the block says; images within the answer of a tool come after it.
fn block(found: Value, content: &mut Vec<Block>, dropped: &mut usize) {
    let mut object = match found {
        Value::String(text) => return content.push(Block::Text { text }),
        Value::Object(object) => object,
        Value::Null => return,
        _ => {
            *dropped += 1;
            return;
        }
    };
    let kind = object.get("type").and_then(Value::as_str).unwrap_or("text").to_owned();
    let mut text = |key: &str| match object.remove(key) {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    let made = match kind.as_str() {
        "text" => text("text").map(|text| Block::Text { text }),
        "thinking" => {
            text("thinking").map(|thinking| Block::Thinking { text: thinking, signature: text("signature") })
        }
        "redacted_thinking" => text("data").map(|data| Block::RedactedThinking { data }),
        "image" => object.remove("source").and_then(image),
        "tool_use" => match (text("id"), text("name")) {
            (Some(id), Some(name)) if !id.is_empty() => {
                let input = match object.remove("input") {
                    Some(Value::Object(input)) => input,
                    _ => Map::new(),
                };
                Some(Block::ToolUse { id, name, input })
            }
            _ => None,
        },
        "tool_result" => match text("tool_use_id") {
            Some(tool_use_id) => {
                let is_error = object.get("is_error").and_then(Value::as_bool).unwrap_or(false);
                let (said, images) = answer(object.remove("content"), dropped);
                content.push(Block::ToolResult { tool_use_id, content: said, is_error });
                return content.extend(images);
            }
            None => None,
        },
        _ => None,
    };
    match made {
        Some(block) => content.push(block),
        None => *dropped += 1,
    }
}

fn image(source: Value) -> Option<Block> {
    let Value::Object(mut source) = source else { return None };
    match (source.remove("media_type"), source.remove("data")) {
        (Some(Value::String(mime_type)), Some(Value::String(data))) => Some(Block::Image { mime_type, data }),
        _ => None,
    }
}

/// The text and the images of a tool's answer.
fn answer(content: Option<Value>, dropped: &mut usize) -> (String, Vec<Block>) {
    let mut blocks = Vec::new();
    match content {
        Some(Value::Array(parts)) => parts.into_iter().for_each(|part| block(part, &mut blocks, dropped)),
        Some(whole) => block(whole, &mut blocks, dropped),
        None => {}
    }
    let mut texts = Vec::new();
    let mut images = Vec::new();
    for block in blocks {
        match block {
            Block::Text { text } => texts.push(text),
            Block::Image { .. } => images.push(block),
            _ => *dropped += 1,
        }
    }
    (texts.join("\n"), images)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn converted(messages: &Value) -> (Vec<Arc<Message>>, usize) {
        let texts: Vec<Box<RawValue>> = serde_json::from_value(messages.clone()).unwrap();
        convert(&texts.iter().map(AsRef::as_ref).collect::<Vec<_>>())
    }

    #[test]
    fn every_block_that_has_a_word_here_comes_along() {
        let (history, dropped) = converted(&json!([
            {"role": "user", "content": "go"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "d"},
                {"type": "text", "text": "look"},
                {"type": "tool_use", "id": "c1", "name": "grep", "input": {"pattern": "x"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c1", "is_error": true, "content": [
                    {"type": "text", "text": "a"}, {"type": "text", "text": "b"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]}]},
            {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        ]));
        assert_eq!((history.len(), dropped), (4, 0));
        assert_eq!(
            history[1].content,
            [
                Block::Thinking { text: "hm".into(), signature: Some("s".into()) },
                Block::RedactedThinking { data: "d".into() },
                Block::Text { text: "look".into() },
                Block::ToolUse {
                    id: "c1".into(),
                    name: "grep".into(),
                    input: json!({"pattern": "x"}).as_object().unwrap().clone()
                },
            ]
        );
        assert_eq!(
            history[2].content,
            [
                Block::ToolResult { tool_use_id: "c1".into(), content: "a\nb".into(), is_error: true },
                Block::Image { mime_type: "image/png".into(), data: "AA==".into() },
            ]
        );
    }

    #[test]
    fn what_is_unknown_is_counted_and_what_is_torn_is_mended() {
        let (history, dropped) = converted(&json!([
            null,
            {"role": "system", "content": "x"},
            {"role": "user", "content": [{"type": "hologram"}, {"text": "hi"}, 7]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "grep", "input": "x"}]},
        ]));
        assert_eq!(dropped, 4);
        assert_eq!(history[0].content, [Block::Text { text: "hi".into() }]);
        assert!(
            matches!(&history[2].content[0], Block::ToolResult { tool_use_id, is_error: true, .. } if tool_use_id == "c1"),
            "an open call gets a result: {history:?}"
        );
    }
}
