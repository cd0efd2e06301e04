//! The stream of a Responses call, folded. What counts is the output that the closing event holds; where it holds
//! none, the items that were reported as done. What came in pieces before is for watchers, and fills what the
//! closing event leaves out. Lived with: events and items of unknown kinds, pieces without their beginning, calls
//! that share an index or an id or have none, a whole response in place of a stream, an end with or without
//! `[DONE]`. What is not: an end without a closing event, and an output with nothing in it.

use super::Seal;
use super::item::{Item, Part, arguments, id_of, locate, replace};
use crate::model::calls::{Finisher, Fragments};
use crate::model::sse::SseEvent;
use crate::model::transport::{Fold, empty, unfinished, unreadable};
use crate::model::{Block, Completion, ErrorKind, Event, ModelError, StopReason, Usage, error};
use serde::Deserialize;
use serde_json::Value;
use std::mem;
use std::sync::Arc;

#[derive(Deserialize)]
struct Frame {
    #[serde(default)]
    r#type: String,
    response: Option<Response>,
    item: Option<Value>,
    item_id: Option<String>,
    output_index: Option<Value>,
    summary_index: Option<u64>,
    content_index: Option<u64>,
    delta: Option<Value>,
    /// Text, or, in a whole response, the options of the text.
    text: Option<Value>,
    refusal: Option<String>,
    arguments: Option<Value>,
    error: Option<Value>,
    object: Option<String>,
}

#[derive(Deserialize)]
struct Response {
    status: Option<String>,
    output: Option<Vec<Value>>,
    usage: Option<WireUsage>,
    error: Option<Value>,
    incomplete_details: Option<IncompleteDetails>,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize)]
struct WireUsage {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    prompt_tokens_details: Option<InputDetails>,
    cached_tokens: Option<u64>,
    prompt_cache_hit_tokens: Option<u64>,
    cache_read_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let hits = |details: Option<InputDetails>| details.and_then(|details| details.cached_tokens);
        let places = [
            hits(wire.input_tokens_details),
            hits(wire.prompt_tokens_details),
            wire.cached_tokens,
            wire.prompt_cache_hit_tokens,
            wire.cache_read_tokens,
        ];
        let cache_read = places.into_iter().flatten().find(|count| *count > 0).unwrap_or(0);
        Self {
            // Their count of the input includes the hits, ours does not.
            input: wire.input_tokens.unwrap_or(0).saturating_sub(cache_read),
            output: wire.output_tokens.unwrap_or(0),
            cache_read,
            cache_write: 0,
        }
    }
}

/// How the answer ended.
enum End {
    Completed,
    /// With the reason, as far as one was given.
    Incomplete(Option<String>),
}

/// See the module.
pub(in crate::model) struct ResponsesFold {
    provider: Arc<str>,
    items: Vec<Item>,
    end: Option<End>,
    usage: Usage,
    may_be_empty: bool,
}

impl ResponsesFold {
    /// `provider` marks the reasoning that it sealed. `may_be_empty`: after results of tools, a model may have
    /// nothing to add.
    pub(in crate::model) fn new(provider: Arc<str>, may_be_empty: bool) -> Self {
        Self { provider, items: Vec::new(), end: None, usage: Usage::default(), may_be_empty }
    }

    /// The item that is still being put together to which a piece belongs; begun where its beginning did not come.
    fn open(&mut self, index: Option<u64>, id: &str, like: Part) -> &mut Item {
        let found = locate(&self.items, index, id, |item| !item.done && item.part.may_be(&like));
        let last = self.items.iter().rposition(|item| !item.done && item.part.may_be(&like));
        let found = found.or(last.filter(|_| index.is_none() && id.is_empty()));
        let at = found.unwrap_or_else(|| {
            self.items.push(Item { index, id: id.to_owned(), done: false, paragraph: None, part: like });
            self.items.len() - 1
        });
        &mut self.items[at]
    }

    fn piece(&mut self, kind: &str, index: Option<u64>, frame: Frame, out: &mut Vec<Event>) {
        let id = frame.item_id.unwrap_or_default();
        let piece = frame.delta.as_ref().and_then(Value::as_str).unwrap_or_default();
        match kind {
            "response.output_text.delta" => {
                if let Part::Message { text, .. } = &mut self.open(index, &id, Part::message()).part
                    && !piece.is_empty()
                {
                    text.push_str(piece);
                    out.push(Event::Text(piece.to_owned()));
                }
            }
            "response.refusal.delta" => {
                if let Part::Message { refusal, .. } = &mut self.open(index, &id, Part::message()).part {
                    refusal.push_str(piece);
                }
            }
            "response.refusal.done" => {
                if let Part::Message { refusal, .. } = &mut self.open(index, &id, Part::message()).part {
                    replace(refusal, frame.refusal.unwrap_or_default());
                }
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let item = self.open(index, &id, Part::reasoning());
                let paragraph = frame.summary_index.or(frame.content_index);
                if let Part::Reasoning { text, .. } = &mut item.part
                    && !piece.is_empty()
                {
                    let next = !text.is_empty() && paragraph != item.paragraph;
                    item.paragraph = paragraph;
                    let piece = if next { format!("\n\n{piece}") } else { piece.to_owned() };
                    text.push_str(&piece);
                    out.push(Event::Thinking(piece));
                }
            }
            "response.function_call_arguments.delta" => {
                if let Part::Call(call) = &mut self.open(index, &id, Part::call()).part {
                    call.arguments.push_str(piece);
                }
            }
            "response.function_call_arguments.done" => {
                if let Part::Call(call) = &mut self.open(index, &id, Part::call()).part {
                    replace(&mut call.arguments, arguments(frame.arguments.as_ref()));
                }
            }
            "response.output_text.done" => {
                let text = frame.text.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
                let whole = Part::Message { text, refusal: String::new() };
                // A message of several parts reports each of them; only the first can be what came so far.
                if frame.content_index.unwrap_or(0) == 0 {
                    self.open(index, &id, Part::message()).part.complete(whole, out);
                }
            }
            _ => {}
        }
    }

    /// The closing event: its output takes the place of what came in pieces.
    fn close(&mut self, kind: &str, response: Response, out: &mut Vec<Event>) -> Result<(), ModelError> {
        if let Some(error) = response.error.filter(|error| !error.is_null()) {
            return Err(error::from_stream(&error));
        }
        let told = response.status.as_deref().filter(|status| is_final(status));
        let reason = response.incomplete_details.and_then(|details| details.reason);
        self.end = Some(match told.unwrap_or_else(|| kind.trim_start_matches("response.")) {
            "completed" | "done" => End::Completed,
            "incomplete" => End::Incomplete(reason),
            "failed" | "cancelled" => {
                return Err(error::plain(ErrorKind::Server, "the provider broke off its answer"));
            }
            // A whole response that is not finished: what it holds may be half of the answer.
            _ => return Err(unfinished()),
        });
        if let Some(usage) = response.usage {
            self.usage = usage.into();
        }
        let output = response.output.unwrap_or_default();
        let mut pieces = mem::take(&mut self.items);
        if output.is_empty() {
            self.items = pieces.into_iter().filter(|item| item.done).collect();
            return Ok(());
        }
        for (place, item) in output.iter().enumerate() {
            let (id, whole) = (id_of(item), Part::read(item));
            let index = Some(place as u64);
            let same = locate(&pieces, index, id, |item| item.part.may_be(&whole))
                .or_else(|| pieces.iter().position(|item| item.part.may_be(&whole)));
            let begun = match (same, &whole) {
                (Some(at), _) => pieces.remove(at).part,
                (None, Part::Message { .. }) => Part::message(),
                (None, Part::Reasoning { .. }) => Part::reasoning(),
                (None, Part::Call(_)) => Part::call(),
                (None, Part::Other) => Part::Other,
            };
            let mut item = Item { index, id: id.to_owned(), done: true, paragraph: None, part: begun };
            item.part.complete(whole, out);
            self.items.push(item);
        }
        Ok(())
    }
}

fn is_final(status: &str) -> bool {
    matches!(status, "completed" | "incomplete" | "failed" | "cancelled")
}

impl Fold for ResponsesFold {
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
        let kind = if frame.r#type.is_empty() { event.name } else { mem::take(&mut frame.r#type) };
        let index = frame.output_index.as_ref().and_then(|index| match index {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        });
        match kind.as_str() {
            "response.output_item.added" => {
                if let Some(item) = frame.item {
                    let (id, mut part) = (id_of(&item).to_owned(), Part::read(&item));
                    match &mut part {
                        Part::Message { text, .. } if !text.is_empty() => out.push(Event::Text(text.clone())),
                        Part::Reasoning { text, .. } if !text.is_empty() => {
                            out.push(Event::Thinking(text.clone()));
                        }
                        // No call has arguments yet; some servers begin with an empty object.
                        Part::Call(call) if call.arguments.trim() == "{}" => call.arguments.clear(),
                        _ => {}
                    }
                    self.items.push(Item { index, id, done: false, paragraph: None, part });
                }
            }
            "response.output_item.done" => {
                if let Some(item) = frame.item {
                    let whole = Part::read(&item);
                    let like = match &whole {
                        Part::Message { .. } => Part::message(),
                        Part::Reasoning { .. } => Part::reasoning(),
                        Part::Call(call) => {
                            Part::Call(Fragments { arguments: String::new(), ..call.clone() })
                        }
                        Part::Other => Part::Other,
                    };
                    let begun = self.open(index, id_of(&item), like);
                    begun.part.complete(whole, out);
                    begun.done = true;
                }
            }
            "response.completed"
            | "response.incomplete"
            | "response.failed"
            | "response.cancelled"
            | "response.done" => match frame.response {
                Some(response) => self.close(&kind, response, out)?,
                None => return Err(unreadable_end(data)),
            },
            "error" => return Err(error::from_stream(&serde_json::from_str(data).unwrap_or_default())),
            "" if frame.object.as_deref() == Some("response") => {
                let whole = serde_json::from_str(data).map_err(|why| unreadable(data, &why))?;
                self.close("", whole, out)?;
            }
            _ => self.piece(&kind, index, frame, out),
        }
        Ok(())
    }

    fn settled(&self) -> bool {
        self.end.is_some()
    }

    fn closed(&self) -> bool {
        self.end.is_some()
    }

    fn finish(&mut self) -> Result<Completion, ModelError> {
        let Some(end) = self.end.take() else { return Err(unfinished()) };
        let items = mem::take(&mut self.items);
        let no_output = items.is_empty();
        let mut finisher = Finisher::default();
        let mut content = Vec::with_capacity(items.len());
        let mut refused = String::new();
        for item in items {
            match item.part {
                Part::Message { text, refusal } => {
                    if !text.is_empty() {
                        content.push(Block::Text { text });
                    }
                    refused.push_str(&refusal);
                }
                Part::Reasoning { text, sealed } => {
                    let provider = self.provider.to_string();
                    let seal = Seal { provider, id: item.id, encrypted_content: sealed };
                    let signature = Some(seal)
                        .filter(|seal| !seal.encrypted_content.is_empty())
                        .and_then(|s| s.to_signature());
                    if !text.is_empty() || signature.is_some() {
                        content.push(Block::Thinking { text, signature });
                    }
                }
                Part::Call(fragments) => content.push(finisher.block(fragments)),
                Part::Other => {}
            }
        }
        let calls = content.iter().any(|block| matches!(block, Block::ToolUse { .. }));
        let refusal = |refused: String, reason: &str| {
            let explanation = if refused.is_empty() { reason.to_owned() } else { refused };
            StopReason::Refusal { explanation }
        };
        let stop = match end {
            End::Incomplete(Some(reason)) if reason == "content_filter" => refusal(refused, &reason),
            End::Incomplete(None) => StopReason::MaxTokens,
            End::Incomplete(Some(reason))
                if matches!(reason.as_str(), "max_output_tokens" | "max_tokens" | "length") =>
            {
                StopReason::MaxTokens
            }
            End::Incomplete(Some(reason)) => {
                let message = format!("the provider broke off its answer: {reason}");
                return Err(error::plain(ErrorKind::Server, message));
            }
            End::Completed if calls => StopReason::ToolUse,
            End::Completed if !refused.is_empty() => refusal(refused, ""),
            End::Completed => StopReason::EndTurn,
        };
        let says_nothing = !content.iter().any(|b| matches!(b, Block::Text { .. } | Block::ToolUse { .. }));
        let refuses = matches!(stop, StopReason::Refusal { .. });
        let ends_with_nothing = says_nothing && stop == StopReason::EndTurn && !self.may_be_empty;
        if (no_output && !refuses) || ends_with_nothing {
            return Err(empty());
        }
        Ok(Completion { content, malformed: finisher.malformed, stop, usage: self.usage })
    }
}

/// The error for a closing event without the response that it closes.
fn unreadable_end(data: &str) -> ModelError {
    let start = crate::text::head_chars(data, 200);
    error::plain(ErrorKind::Server, format!("a closing event without a response: {start}"))
}
