//! A [`Request`] as the body of a Messages call. Borrows the history instead of copying it.
//!
//! Results of tools go first within their message, as the API wants them, each with the images that stand right
//! behind it. Thinking without a signature that
//! the provider takes came from another one and is left out. With caching on, three marks are set: behind the system
//! prompt (the tools stand before it, so they are covered), behind the newest message, and behind the user
//! message before it, where the last call's mark was.

use super::{AnthropicMessages, Thinking};
use crate::model::registry::CacheTtl;
use crate::model::{Block, Message, Request, Role, ToolSpec};
use serde::Serialize;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The smallest budget that the API takes for thinking.
const MIN_BUDGET: u64 = 1024;

#[derive(Serialize)]
pub(super) struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    anthropic_version: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<&'a str>,
    max_tokens: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking: Option<WireThinking>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_config: Option<OutputConfig<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    system: Vec<Marked<Part<'a>>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Marked<WireTool<'a>>>,
    messages: Vec<WireMessage<'a>>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum WireThinking {
    Adaptive,
    Disabled,
    Enabled { budget_tokens: u64 },
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    effort: &'a str,
}

#[derive(Serialize)]
struct WireMessage<'a> {
    role: Role,
    content: Vec<Marked<Part<'a>>>,
}

#[derive(Serialize)]
struct WireTool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

/// Something that may carry the mark up to which the provider caches.
#[derive(Serialize)]
struct Marked<T> {
    #[serde(flatten)]
    inner: T,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<CacheControl>,
}

impl<T> Marked<T> {
    fn plain(inner: T) -> Self {
        Self { inner, cache_control: None }
    }
}

#[derive(Clone, Copy, Serialize)]
struct CacheControl {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Part<'a> {
    Text {
        text: &'a str,
    },
    Thinking {
        thinking: &'a str,
        signature: &'a str,
    },
    RedactedThinking {
        data: &'a str,
    },
    Image {
        source: Source<'a>,
    },
    ToolUse {
        id: Cow<'a, str>,
        name: &'a str,
        input: &'a Map<String, Value>,
    },
    ToolResult {
        tool_use_id: Cow<'a, str>,
        content: Answer<'a>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

/// What a tool answered.
#[derive(Serialize)]
#[serde(untagged)]
enum Answer<'a> {
    Text(&'a str),
    /// With the images that it showed.
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

impl Body<'_> {
    /// The same for Bedrock, where model and streaming are said by the address, and the version by the body.
    #[cfg(feature = "bedrock")]
    pub(super) fn for_bedrock(self) -> Self {
        Self { anthropic_version: Some("bedrock-2023-05-31"), model: None, stream: false, ..self }
    }
}

pub(super) fn body<'a>(model: &'a AnthropicMessages, request: &'a Request) -> Body<'a> {
    let mark = model.caching.map(|ttl| CacheControl {
        r#type: "ephemeral",
        ttl: matches!(ttl, CacheTtl::OneHour).then_some("1h"),
    });
    let own = model.own_seals.then_some(&*model.endpoint.provider);
    let mut system: Vec<_> = Some(request.system.as_ref())
        .filter(|text| !text.trim().is_empty())
        .map(|text| Marked::plain(Part::Text { text }))
        .into_iter()
        .collect();
    let mut tools: Vec<_> = request.tools.iter().map(|spec| Marked::plain(tool(spec))).collect();
    let mut messages: Vec<_> = request.messages.iter().filter_map(|message| wire(message, own)).collect();
    match (system.last_mut(), tools.last_mut()) {
        (Some(last), _) => last.cache_control = mark,
        (None, Some(last)) => last.cache_control = mark,
        (None, None) => {}
    }
    let users = messages.iter_mut().rev().filter(|message| matches!(message.role, Role::User));
    for last in users.filter_map(|message| message.content.last_mut()).take(2) {
        last.cache_control = mark;
    }
    let (thinking, effort) = match &model.thinking {
        Thinking::Off => (None, None),
        Thinking::Refused => (Some(WireThinking::Disabled), None),
        Thinking::Budget(_) if model.strict_turns && is_within_a_thoughtless_turn(request) => (None, None),
        Thinking::Adaptive(effort) => (Some(WireThinking::Adaptive), effort.as_deref()),
        Thinking::Budget(tokens) => {
            // The budget is a part of the limit, and an answer needs room beside it.
            let room = (*tokens).min(model.max_tokens.saturating_sub(MIN_BUDGET));
            ((room >= MIN_BUDGET).then_some(WireThinking::Enabled { budget_tokens: room }), None)
        }
    };
    Body {
        anthropic_version: None,
        model: Some(&model.id),
        max_tokens: model.max_tokens,
        stream: true,
        thinking,
        output_config: effort.map(|effort| OutputConfig { effort }),
        system,
        tools,
        messages,
    }
}

fn tool(spec: &ToolSpec) -> WireTool<'_> {
    WireTool { name: &spec.name, description: &spec.description, input_schema: &spec.parameters }
}

/// `None` for a message of which nothing is left; the API refuses empty ones.
fn wire<'a>(message: &'a Message, own: Option<&str>) -> Option<WireMessage<'a>> {
    let mut results = Vec::new();
    let mut rest = Vec::new();
    let mut blocks = message.content.iter().peekable();
    while let Some(block) = blocks.next() {
        let Block::ToolResult { tool_use_id, content, is_error } = block else {
            rest.extend(part(block, own));
            continue;
        };
        let mut shown = Vec::new();
        while let Some(image) = blocks.next_if(|next| matches!(next, Block::Image { .. })) {
            shown.extend(part(image, own));
        }
        let answer = if shown.is_empty() {
            Answer::Text(content)
        } else {
            let text = (!content.trim().is_empty()).then_some(Part::Text { text: content });
            Answer::Parts(text.into_iter().chain(shown).collect())
        };
        let tool_use_id = call_id(tool_use_id);
        results.push(Part::ToolResult { tool_use_id, content: answer, is_error: *is_error });
    }
    let content: Vec<_> = results.into_iter().chain(rest).map(Marked::plain).collect();
    (!content.is_empty()).then_some(WireMessage { role: message.role, content })
}

/// Whether the model is in the middle of its turn, and that turn did not begin with thinking that can go back.
fn is_within_a_thoughtless_turn(request: &Request) -> bool {
    let is_result = |block: &Block| matches!(block, Block::ToolResult { .. } | Block::Image { .. });
    let mut earlier = request.messages.iter().rev();
    if !earlier.next().is_some_and(|last| answers(last)) {
        return false;
    }
    // Messages that only bring results belong to the turn; any other message of the user begins one.
    let turn = earlier.take_while(|message| {
        message.role == Role::Assistant || (answers(message) && message.content.iter().all(is_result))
    });
    let first = turn.filter(|message| message.role == Role::Assistant).last();
    let begin = first.and_then(|message| message.content.iter().find_map(|block| part(block, None)));
    !matches!(begin, Some(Part::Thinking { .. } | Part::RedactedThinking { .. }))
}

fn answers(message: &Message) -> bool {
    message.content.iter().any(|block| matches!(block, Block::ToolResult { .. }))
}

fn part<'a>(block: &'a Block, own: Option<&str>) -> Option<Part<'a>> {
    Some(match block {
        // The API refuses text that is only white space.
        Block::Text { text } if text.trim().is_empty() => return None,
        Block::Text { text } => Part::Text { text },
        // Results are made with the images that belong to them.
        Block::Thinking { signature: None, .. } | Block::ToolResult { .. } => return None,
        Block::Thinking { text, signature: Some(signature) } => {
            Part::Thinking { thinking: text, signature: super::seal(signature, own)? }
        }
        Block::RedactedThinking { data } => Part::RedactedThinking { data },
        Block::Image { mime_type, data } => {
            Part::Image { source: Source { r#type: "base64", media_type: mime_type, data } }
        }
        Block::ToolUse { id, name, input } => Part::ToolUse { id: call_id(id), name, input },
    })
}

/// Ids that another provider gave may hold characters that this API refuses.
fn call_id(id: &str) -> Cow<'_, str> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if id.chars().all(good) {
        return Cow::Borrowed(id);
    }
    id.chars().map(|c| if good(c) { c } else { '_' }).collect::<String>().into()
}
