//! A [`Request`] as the body of a Responses call. Borrows the history instead of copying it.
//!
//! Where our shape and theirs differ: every block is an item of its own, in the order of the blocks; results of
//! tools come first in their turn, with the images that stand right behind them, and what else was said in the
//! turn follows as a message. Reasoning goes back only to the provider that sealed it, and only where something
//! that it led to follows: an item of reasoning that ends a turn is refused.

use super::{OpenAiResponses, Seal};
use crate::model::{Block, Message, Request, Role, ToolSpec};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use std::borrow::Cow;

/// The lowest limit that the API takes.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// The longest id of a call that the API takes.
const MAX_CALL_ID: usize = 64;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    model: &'a str,
    stream: bool,
    store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning: Option<WireReasoning<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<TextOptions<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    include: &'static [&'static str],
    #[serde(skip_serializing_if = "str::is_empty")]
    instructions: &'a str,
    input: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<WireTool<'a>>,
}

#[derive(Serialize)]
struct WireReasoning<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct TextOptions<'a> {
    verbosity: &'a str,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Item<'a> {
    Message {
        role: Role,
        content: Content<'a>,
    },
    Reasoning {
        #[serde(skip_serializing_if = "String::is_empty")]
        id: String,
        summary: Vec<Summary<'a>>,
        encrypted_content: String,
    },
    FunctionCall {
        call_id: Cow<'a, str>,
        name: &'a str,
        arguments: AsText<'a>,
    },
    FunctionCallOutput {
        call_id: Cow<'a, str>,
        output: Content<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(&'a str),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    InputText { text: &'a str },
    InputImage { image_url: String },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Summary<'a> {
    SummaryText { text: &'a str },
}

#[derive(Serialize)]
struct WireTool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// Off by name: the default would make every optional argument a required one.
    strict: bool,
}

/// Arguments go out as JSON text within the JSON.
struct AsText<'a>(&'a Map<String, Value>);

impl Serialize for AsText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = serde_json::to_string(self.0).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(&text)
    }
}

pub(super) fn body<'a>(model: &'a OpenAiResponses, request: &'a Request) -> Body<'a> {
    let mut input = Vec::with_capacity(request.messages.len());
    for message in &request.messages {
        match message.role {
            Role::User => user(message, &mut input),
            Role::Assistant => assistant(message, &model.endpoint.provider, &mut input),
        }
    }
    let reasoning = model.reasoning.asked.then(|| WireReasoning {
        effort: model.reasoning.effort.as_deref(),
        summary: model.dialect.summaries.then_some("auto"),
    });
    Body {
        model: &model.id,
        stream: true,
        store: false,
        max_output_tokens: model.max_tokens.map(|tokens| tokens.max(MIN_OUTPUT_TOKENS)),
        reasoning: reasoning.filter(|asked| asked.effort.is_some() || asked.summary.is_some()),
        text: model.verbosity.as_deref().map(|verbosity| TextOptions { verbosity }),
        include: if model.reasoning.replay { &["reasoning.encrypted_content"] } else { &[] },
        instructions: &request.system,
        input,
        tools: request.tools.iter().map(tool).collect(),
    }
}

fn tool(spec: &ToolSpec) -> WireTool<'_> {
    WireTool {
        r#type: "function",
        name: &spec.name,
        description: &spec.description,
        parameters: &spec.parameters,
        strict: false,
    }
}

fn user<'a>(message: &'a Message, input: &mut Vec<Item<'a>>) {
    let mut said = Vec::new();
    let mut blocks = message.content.iter().peekable();
    while let Some(block) = blocks.next() {
        match block {
            Block::ToolResult { tool_use_id, content, .. } => {
                let mut images = Vec::new();
                while let Some(image) = blocks.next_if(|next| matches!(next, Block::Image { .. })) {
                    images.extend(part(image));
                }
                let output = if images.is_empty() {
                    Content::Text(content)
                } else {
                    let text = (!content.is_empty()).then_some(Part::InputText { text: content });
                    Content::Parts(text.into_iter().chain(images).collect())
                };
                input.push(Item::FunctionCallOutput { call_id: call_id(tool_use_id), output });
            }
            other => said.extend(part(other)),
        }
    }
    if !said.is_empty() {
        input.push(Item::Message { role: Role::User, content: Content::Parts(said) });
    }
}

fn part(block: &Block) -> Option<Part<'_>> {
    match block {
        Block::Text { text } if !text.is_empty() => Some(Part::InputText { text }),
        Block::Image { mime_type, data } => {
            Some(Part::InputImage { image_url: format!("data:{mime_type};base64,{data}") })
        }
        _ => None,
    }
}

fn assistant<'a>(message: &'a Message, provider: &str, input: &mut Vec<Item<'a>>) {
    for block in &message.content {
        match block {
            Block::Text { text } if !text.is_empty() => {
                input.push(Item::Message { role: Role::Assistant, content: Content::Text(text) });
            }
            Block::Thinking { text, signature: Some(signature) } => {
                let seal = Seal::of(signature).filter(|seal| seal.provider == provider);
                if let Some(Seal { id, encrypted_content, .. }) = seal {
                    let summary = (!text.is_empty()).then_some(Summary::SummaryText { text });
                    let summary = summary.into_iter().collect();
                    input.push(Item::Reasoning { id, summary, encrypted_content });
                }
            }
            Block::ToolUse { id, name, input: arguments } => {
                let call = Item::FunctionCall { call_id: call_id(id), name, arguments: AsText(arguments) };
                input.push(call);
            }
            _ => {}
        }
    }
    while matches!(input.last(), Some(Item::Reasoning { .. })) {
        input.pop();
    }
}

/// Ids that another provider gave may be longer than this API takes; what stands for one is the same each time.
fn call_id(id: &str) -> Cow<'_, str> {
    if id.len() <= MAX_CALL_ID {
        return Cow::Borrowed(id);
    }
    let digest = Sha256::digest(id.as_bytes());
    Cow::Owned(format!("call_{}", URL_SAFE_NO_PAD.encode(digest)))
}
