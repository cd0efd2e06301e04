//! A [`Request`] as the body of a Chat Completions call. Borrows the history instead of copying it.
//!
//! Where our shape and theirs differ: results of tools become `tool` messages, and what else was said in the
//! same turn follows them as a `user` message, images of the results first: a `tool` message takes none. Thinking is left out, save for vendors that ask for it
//! ([`super::Dialect::replay_reasoning`]); thinking that only its provider can read is always left out.

use super::{OpenAiChat, Switch};
use crate::model::{Block, Message, Request, Role};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

/// Stands before the images of tool results, so that the model does not take them for the user's.
const SHOWN_BY_TOOL: &str = "[Shown by the tool results above:]";

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<Switch>,
    messages: Vec<WireMessage<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
#[serde(tag = "role", rename_all = "lowercase")]
enum WireMessage<'a> {
    System {
        content: &'a str,
    },
    User {
        content: Content<'a>,
    },
    Assistant {
        content: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reasoning_content: Option<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall<'a>>,
    },
    Tool {
        tool_call_id: &'a str,
        content: &'a str,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Serialize)]
struct ImageUrl {
    url: String,
}

#[derive(Serialize)]
struct ToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    arguments: AsText<'a>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    function: &'a crate::model::ToolSpec,
}

/// Arguments go out as JSON text within the JSON.
struct AsText<'a>(&'a Map<String, Value>);

impl Serialize for AsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

pub(super) fn body<'a>(model: &'a OpenAiChat, request: &'a Request) -> Body<'a> {
    let newer = model.dialect.max_completion_tokens;
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(WireMessage::System { content: &request.system });
    }
    for message in &request.messages {
        match message.role {
            Role::User => user(message, &mut messages),
            Role::Assistant => messages.extend(assistant(message, model.dialect.replay_reasoning)),
        }
    }
    let tools = request.tools.iter().map(|function| WireTool { r#type: "function", function });
    Body {
        model: &model.id,
        stream: true,
        stream_options: StreamOptions { include_usage: true },
        max_tokens: model.max_tokens.filter(|_| !newer),
        max_completion_tokens: model.max_tokens.filter(|_| newer),
        reasoning_effort: model.effort.as_deref(),
        thinking: model.dialect.thinking,
        messages,
        tools: tools.collect(),
    }
}

fn user<'a>(message: &'a Message, messages: &mut Vec<WireMessage<'a>>) {
    let mut parts = Vec::new();
    let mut only_text = true;
    let mut after_result = false;
    let mut told = false;
    for block in &message.content {
        match block {
            Block::ToolResult { tool_use_id, content, .. } => {
                after_result = true;
                messages.push(WireMessage::Tool { tool_call_id: tool_use_id, content });
            }
            Block::Text { text } if !text.is_empty() => {
                after_result = false;
                parts.push(Part::Text { text });
            }
            Block::Image { mime_type, data } => {
                only_text = false;
                if after_result && !std::mem::replace(&mut told, true) {
                    parts.push(Part::Text { text: SHOWN_BY_TOOL });
                }
                let url = format!("data:{mime_type};base64,{data}");
                parts.push(Part::ImageUrl { image_url: ImageUrl { url } });
            }
            _ => {}
        }
    }
    if parts.is_empty() {
        return;
    }
    // Plain text stays a plain string: small servers know no parts.
    let content = if only_text { Content::Text(joined(&message.content)) } else { Content::Parts(parts) };
    messages.push(WireMessage::User { content });
}

fn assistant(message: &Message, replay_reasoning: bool) -> Option<WireMessage<'_>> {
    let mut tool_calls = Vec::new();
    let mut reasoning = String::new();
    for block in &message.content {
        match block {
            Block::ToolUse { id, name, input } => tool_calls.push(ToolCall {
                id,
                r#type: "function",
                function: Function { name, arguments: AsText(input) },
            }),
            Block::Thinking { text, .. } => reasoning.push_str(text),
            _ => {}
        }
    }
    let text = joined(&message.content);
    if text.is_empty() && tool_calls.is_empty() {
        return None;
    }
    let replay = replay_reasoning && !tool_calls.is_empty() && !reasoning.is_empty();
    Some(WireMessage::Assistant {
        content: (!text.is_empty()).then_some(text),
        reasoning_content: replay.then_some(reasoning),
        tool_calls,
    })
}

fn joined(content: &[Block]) -> String {
    let texts = content.iter().filter_map(|block| match block {
        Block::Text { text } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}
