//! The stream of a Chat Completions call, folded. Vendors differ in much; what is lived with here: `content:
//! null`, usage in a chunk without choices, reasoning under two names, tool calls that share an index, come
//! without or with the same id, in pieces or whole, and an end without `[DONE]`. What is not: an end without a
//! finish reason, for half a tool call must not run.

use crate::model::calls::{Finisher, Fragments};
use crate::model::sse::SseEvent;
use crate::model::transport::{Fold, empty, unfinished, unreadable};
use crate::model::{Block, Completion, ErrorKind, Event, ModelError, StopReason, Usage, error};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Chunk {
    choices: Option<Vec<Choice>>,
    usage: Option<WireUsage>,
    error: Option<Value>,
    object: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    delta: Option<Delta>,
    /// In place of `delta` where the answer came as one object.
    message: Option<Delta>,
    finish_reason: Option<String>,
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<Value>,
    reasoning_content: Option<Value>,
    reasoning: Option<Value>,
    refusal: Option<Value>,
    tool_calls: Option<Vec<CallDelta>>,
    function_call: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct CallDelta {
    index: Option<Value>,
    id: Option<String>,
    function: Option<FunctionDelta>,
}

#[derive(Deserialize)]
struct FunctionDelta {
    name: Option<String>,
    arguments: Option<Value>,
}

#[derive(Clone, Deserialize)]
struct WireUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    cached_tokens: Option<u64>,
    prompt_cache_hit_tokens: Option<u64>,
    cache_read_tokens: Option<u64>,
}

#[derive(Clone, Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let details = wire.prompt_tokens_details.and_then(|details| details.cached_tokens);
        let places = [details, wire.cached_tokens, wire.prompt_cache_hit_tokens, wire.cache_read_tokens];
        let cache_read = places.into_iter().flatten().find(|count| *count > 0).unwrap_or(0);
        Self {
            // Their prompt count includes the hits, ours does not.
            input: wire.prompt_tokens.unwrap_or(0).saturating_sub(cache_read),
            output: wire.completion_tokens.unwrap_or(0),
            cache_read,
            cache_write: 0,
        }
    }
}

struct Call {
    index: Option<u64>,
    fragments: Fragments,
}

/// See the module.
pub(in crate::model) struct ChatFold {
    text: String,
    thinking: String,
    refusal: String,
    calls: Vec<Call>,
    finish: Option<String>,
    usage: Usage,
    done: bool,
    may_be_empty: bool,
}

impl ChatFold {
    /// `may_be_empty`: after results of tools, a model may have nothing to add.
    pub(in crate::model) fn new(may_be_empty: bool) -> Self {
        Self {
            text: String::new(),
            thinking: String::new(),
            refusal: String::new(),
            calls: Vec::new(),
            finish: None,
            usage: Usage::default(),
            done: false,
            may_be_empty,
        }
    }

    fn delta(&mut self, delta: Delta, out: &mut Vec<Event>) {
        let reasoning = plain_text(delta.reasoning_content).or_else(|| plain_text(delta.reasoning));
        if let Some(piece) = reasoning {
            self.thinking.push_str(&piece);
            out.push(Event::Thinking(piece));
        }
        if let Some(piece) = plain_text(delta.content) {
            self.text.push_str(&piece);
            out.push(Event::Text(piece));
        }
        if let Some(piece) = plain_text(delta.refusal) {
            self.refusal.push_str(&piece);
        }
        for (place, call) in delta.tool_calls.unwrap_or_default().into_iter().enumerate() {
            let index = call.index.as_ref().and_then(|index| match index {
                Value::String(text) => text.parse().ok(),
                other => other.as_u64(),
            });
            self.call(index, place, call.id.unwrap_or_default(), call.function);
        }
        if let Some(function) = delta.function_call {
            self.call(None, 0, String::new(), Some(function));
        }
    }

    /// The call that a fragment may belong to.
    fn locate(&self, index: Option<u64>, place: usize, id: &str, name: &str) -> Option<usize> {
        let last_of = |test: &dyn Fn(&Call) -> bool| self.calls.iter().rposition(test);
        let same_id = |call: &Call| !id.is_empty() && call.fragments.id == id;
        if index.is_some() {
            // Calls that share an index are told apart by their ids.
            return last_of(&|call| call.index == index && same_id(call))
                .or_else(|| last_of(&|call| call.index == index));
        }
        // Without an index, a second named element of one chunk is a call of its own.
        let last = self.calls.len().checked_sub(1).filter(|_| place == 0 || name.is_empty());
        last_of(&same_id).or(last)
    }

    /// Joins one fragment to the call that it belongs to, or starts a call with it.
    fn call(&mut self, index: Option<u64>, place: usize, id: String, function: Option<FunctionDelta>) {
        let (name, arguments) = function.map(|f| (f.name, f.arguments)).unwrap_or_default();
        let name = name.unwrap_or_default();
        let (arguments, is_object) = match arguments {
            None | Some(Value::Null) => (String::new(), false),
            Some(Value::String(text)) => (text, false),
            Some(other) => (other.to_string(), true),
        };
        let found = self.locate(index, place, &id, &name);
        let joins = found.map(|at| &mut self.calls[at]).filter(|call| {
            let known = &call.fragments;
            let other_id = !id.is_empty() && !known.id.is_empty() && known.id != id;
            let named = !name.is_empty();
            // Some servers mint a new id for every fragment: an id alone starts no call. Arguments that
            // follow whole ones do, if they come with a name or an id.
            let follows =
                !arguments.trim().is_empty() && !known.arguments.trim().is_empty() && known.is_whole();
            let starts = (other_id && named) || ((other_id || named) && follows);
            !starts
        });
        let Some(call) = joins else {
            self.calls.push(Call { index, fragments: Fragments { id, name, arguments } });
            return;
        };
        let known = &mut call.fragments;
        if known.id.is_empty() {
            known.id = id;
        }
        if known.name != name {
            known.name.push_str(&name);
        }
        if is_object {
            known.arguments = arguments;
        } else {
            known.arguments.push_str(&arguments);
        }
    }
}

impl Fold for ChatFold {
    fn event(&mut self, event: SseEvent, out: &mut Vec<Event>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data == "[DONE]" {
            self.done = true;
            return Ok(());
        }
        if data.is_empty() {
            return Ok(());
        }
        let chunk: Chunk = serde_json::from_str(data).map_err(|why| unreadable(data, &why))?;
        let is_error = event.name == "error" || chunk.object.as_ref().is_some_and(|object| object == "error");
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            return Err(error::from_stream(&error));
        }
        if is_error {
            return Err(error::from_stream(&serde_json::from_str(data).unwrap_or_default()));
        }
        if let Some(usage) = chunk.usage {
            self.usage = usage.into();
        }
        // We ask for one choice.
        if let Some(choice) = chunk.choices.and_then(|choices| choices.into_iter().next()) {
            if let Some(usage) = choice.usage {
                self.usage = usage.into();
            }
            if let Some(delta) = choice.delta.or(choice.message) {
                self.delta(delta, out);
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish = Some(reason);
            }
        }
        Ok(())
    }

    fn settled(&self) -> bool {
        self.finish.is_some()
    }

    fn closed(&self) -> bool {
        self.done
    }

    fn finish(&mut self) -> Result<Completion, ModelError> {
        let reason = self.finish.take();
        if reason.is_none() && !self.done {
            return Err(unfinished());
        }
        let calls = std::mem::take(&mut self.calls);
        let stop = match reason.as_deref().unwrap_or_default() {
            "length" | "max_tokens" | "model_length" | "model_context_window_exceeded" => {
                StopReason::MaxTokens
            }
            reason @ ("content_filter" | "sensitive" | "refusal") => {
                let refusal = Some(std::mem::take(&mut self.refusal)).filter(|text| !text.is_empty());
                StopReason::Refusal { explanation: refusal.unwrap_or_else(|| reason.to_owned()) }
            }
            reason @ ("error" | "network_error" | "insufficient_system_resource") => {
                let message = format!("the provider broke off its answer: {reason}");
                return Err(error::plain(ErrorKind::Server, message));
            }
            _ if !calls.is_empty() => StopReason::ToolUse,
            _ if !self.refusal.is_empty() => {
                StopReason::Refusal { explanation: std::mem::take(&mut self.refusal) }
            }
            _ => StopReason::EndTurn,
        };
        let mut content = Vec::new();
        if !self.thinking.is_empty() {
            content.push(Block::Thinking { text: std::mem::take(&mut self.thinking), signature: None });
        }
        if !self.text.is_empty() {
            content.push(Block::Text { text: std::mem::take(&mut self.text) });
        }
        let mut finisher = Finisher::default();
        content.extend(calls.into_iter().map(|call| finisher.block(call.fragments)));
        let says_nothing = !content.iter().any(|block| !matches!(block, Block::Thinking { .. }));
        if says_nothing && stop == StopReason::EndTurn && !self.may_be_empty {
            return Err(empty());
        }
        Ok(Completion { content, malformed: finisher.malformed, stop, usage: self.usage })
    }
}

/// A string, or the texts of a list of parts; `None` for nothing.
fn plain_text(value: Option<Value>) -> Option<String> {
    let text = match value? {
        Value::String(text) => text,
        Value::Array(parts) => {
            parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str)).collect()
        }
        _ => String::new(),
    };
    (!text.is_empty()).then_some(text)
}
