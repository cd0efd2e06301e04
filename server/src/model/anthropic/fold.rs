//! The stream of a Messages call, folded. Lived with: usage as zeros in `message_start`, blocks without their
//! start, unknown events and deltas, a whole message in place of a stream. A stream without `message_stop` is a
//! failure, whatever came before.

use crate::model::calls::{Finisher, Fragments};
use crate::model::sse::SseEvent;
use crate::model::transport::{Fold, empty, unfinished, unreadable};
use crate::model::{Block, Completion, Event, ModelError, StopReason, Usage, error};
use serde::Deserialize;
use serde_json::{Map, Value};

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    r#type: String,
    message: Option<WireMessage>,
    index: Option<u64>,
    content_block: Option<Value>,
    delta: Option<Delta>,
    usage: Option<WireUsage>,
    error: Option<Value>,
    // What a whole message has at this place:
    content: Option<Vec<Value>>,
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
struct WireMessage {
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Delta {
    #[serde(default)]
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    stop_reason: Option<String>,
    stop_details: Option<StopDetails>,
}

#[derive(Deserialize)]
struct StopDetails {
    category: Option<String>,
    explanation: Option<String>,
}

#[derive(Deserialize)]
#[allow(clippy::struct_field_names, reason = "the names of the wire")]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

enum Part {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Redacted(String),
    Call {
        fragments: Fragments,
        whole: Map<String, Value>,
    },
    /// A kind of block that we did not ask for.
    Other,
}

/// See the module.
pub(in crate::model) struct MessagesFold {
    parts: Vec<(u64, Part)>,
    usage: Usage,
    stop_reason: Option<String>,
    explanation: String,
    done: bool,
    may_be_empty: bool,
}

impl MessagesFold {
    /// `may_be_empty`: after results of tools, a model may have nothing to add.
    pub(in crate::model) fn new(may_be_empty: bool) -> Self {
        Self {
            parts: Vec::new(),
            usage: Usage::default(),
            stop_reason: None,
            explanation: String::new(),
            done: false,
            may_be_empty,
        }
    }

    /// Counts only grow within a call; zeros mean "not known yet".
    fn count(&mut self, usage: Option<WireUsage>) {
        let Some(usage) = usage else { return };
        let newer = |old: &mut u64, new: Option<u64>| {
            if let Some(count) = new.filter(|count| *count > 0) {
                *old = count;
            }
        };
        newer(&mut self.usage.input, usage.input_tokens);
        newer(&mut self.usage.output, usage.output_tokens);
        newer(&mut self.usage.cache_read, usage.cache_read_input_tokens);
        newer(&mut self.usage.cache_write, usage.cache_creation_input_tokens);
    }

    fn stopped(&mut self, reason: Option<String>, details: Option<StopDetails>) {
        if let Some(reason) = reason {
            self.stop_reason = Some(reason);
        }
        if let Some(details) = details {
            let words = [details.category, details.explanation];
            self.explanation = words.into_iter().flatten().collect::<Vec<_>>().join(": ");
        }
    }

    fn start(&mut self, index: u64, block: &Value, out: &mut Vec<Event>) {
        let field = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let part = match block.get("type").and_then(Value::as_str) {
            Some("text") => Part::Text(field("text")),
            Some("thinking") => Part::Thinking {
                text: field("thinking"),
                signature: Some(field("signature")).filter(|signature| !signature.is_empty()),
            },
            Some("redacted_thinking") => Part::Redacted(field("data")),
            Some("tool_use") => Part::Call {
                fragments: Fragments { id: field("id"), name: field("name"), arguments: String::new() },
                whole: block.get("input").and_then(Value::as_object).cloned().unwrap_or_default(),
            },
            _ => Part::Other,
        };
        match &part {
            Part::Text(text) if !text.is_empty() => out.push(Event::Text(text.clone())),
            Part::Thinking { text, .. } if !text.is_empty() => out.push(Event::Thinking(text.clone())),
            _ => {}
        }
        self.parts.push((index, part));
    }

    /// The block of this index; begun where its start did not come.
    fn part(&mut self, index: u64, missing: fn() -> Part) -> Option<&mut Part> {
        let at = self.parts.iter().rposition(|(known, _)| *known == index).unwrap_or_else(|| {
            self.parts.push((index, missing()));
            self.parts.len() - 1
        });
        self.parts.get_mut(at).map(|(_, part)| part)
    }

    fn delta(&mut self, index: u64, delta: Delta, out: &mut Vec<Event>) {
        let no_thinking = || Part::Thinking { text: String::new(), signature: None };
        match delta.r#type.as_str() {
            "text_delta" => {
                let piece = delta.text.unwrap_or_default();
                if let Some(Part::Text(text)) = self.part(index, || Part::Text(String::new()))
                    && !piece.is_empty()
                {
                    text.push_str(&piece);
                    out.push(Event::Text(piece));
                }
            }
            "thinking_delta" => {
                let piece = delta.thinking.unwrap_or_default();
                if let Some(Part::Thinking { text, .. }) = self.part(index, no_thinking)
                    && !piece.is_empty()
                {
                    text.push_str(&piece);
                    out.push(Event::Thinking(piece));
                }
            }
            "signature_delta" => {
                let piece = delta.signature.unwrap_or_default();
                if let Some(Part::Thinking { signature, .. }) = self.part(index, no_thinking) {
                    signature.get_or_insert_default().push_str(&piece);
                }
            }
            "input_json_delta" => {
                let piece = delta.partial_json.unwrap_or_default();
                let no_call = || Part::Call { fragments: Fragments::default(), whole: Map::new() };
                if let Some(Part::Call { fragments, .. }) = self.part(index, no_call) {
                    fragments.arguments.push_str(&piece);
                }
            }
            _ => {}
        }
    }
}

impl Fold for MessagesFold {
    fn event(&mut self, event: SseEvent, out: &mut Vec<Event>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let mut frame: Frame = serde_json::from_str(data).map_err(|why| unreadable(data, &why))?;
        if let Some(error) = frame.error.take().filter(|error| !error.is_null()) {
            return Err(error::from_stream(&error));
        }
        // The `event:` line repeats the type; it is used only where the data has none.
        let kind = if frame.r#type.is_empty() { event.name } else { frame.r#type };
        let index = frame.index.unwrap_or(0);
        match kind.as_str() {
            "message_start" => self.count(frame.message.and_then(|message| message.usage)),
            "content_block_start" => {
                if let Some(block) = frame.content_block {
                    self.start(index, &block, out);
                }
            }
            "content_block_delta" => {
                if let Some(delta) = frame.delta {
                    self.delta(index, delta, out);
                }
            }
            "message_delta" => {
                self.count(frame.usage);
                if let Some(delta) = frame.delta {
                    self.stopped(delta.stop_reason, delta.stop_details);
                }
            }
            "message_stop" => self.done = true,
            "message" => {
                for (index, block) in frame.content.unwrap_or_default().iter().enumerate() {
                    self.start(index as u64, block, out);
                }
                self.count(frame.usage);
                self.stopped(frame.stop_reason, frame.stop_details);
                self.done = true;
            }
            "error" => return Err(error::from_stream(&serde_json::from_str(data).unwrap_or_default())),
            _ => {}
        }
        Ok(())
    }

    fn settled(&self) -> bool {
        self.done
    }

    fn closed(&self) -> bool {
        self.done
    }

    fn finish(&mut self) -> Result<Completion, ModelError> {
        if !self.done {
            return Err(unfinished());
        }
        let mut finisher = Finisher::default();
        let mut content = Vec::with_capacity(self.parts.len());
        for (_, part) in std::mem::take(&mut self.parts) {
            match part {
                Part::Text(text) if !text.is_empty() => content.push(Block::Text { text }),
                // A block with a seal and no text is kept: the provider wants it back.
                Part::Thinking { text, signature } if !text.is_empty() || signature.is_some() => {
                    content.push(Block::Thinking { text, signature });
                }
                Part::Redacted(data) => content.push(Block::RedactedThinking { data }),
                Part::Call { mut fragments, whole } => {
                    if fragments.arguments.trim().is_empty() && !whole.is_empty() {
                        fragments.arguments = Value::Object(whole).to_string();
                    }
                    content.push(finisher.block(fragments));
                }
                Part::Text(_) | Part::Thinking { .. } | Part::Other => {}
            }
        }
        let calls = content.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        let stop = match self.stop_reason.take().as_deref() {
            Some("max_tokens" | "model_context_window_exceeded") => StopReason::MaxTokens,
            Some("refusal") => {
                let given = Some(std::mem::take(&mut self.explanation)).filter(|text| !text.is_empty());
                StopReason::Refusal { explanation: given.unwrap_or_else(|| "refusal".to_owned()) }
            }
            // `pause_turn` only follows server tools, which we do not ask for: what was said stands.
            _ if calls => StopReason::ToolUse,
            _ => StopReason::EndTurn,
        };
        let says_nothing = !content.iter().any(|b| matches!(b, Block::Text { .. } | Block::ToolUse { .. }));
        if says_nothing && stop == StopReason::EndTurn && !self.may_be_empty {
            return Err(empty());
        }
        Ok(Completion { content, malformed: finisher.malformed, stop, usage: self.usage })
    }
}
