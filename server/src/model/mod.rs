//! Language models behind one streaming trait. This floor turns a provider-neutral [`Request`] into one HTTP
//! call and folds the answer back; it knows nothing of sessions, tools or retries (those are the agent floor's).
//! Only the folder of a provider knows that provider's JSON.

mod anthropic;
#[cfg(feature = "bedrock")]
mod aws;
#[cfg(feature = "bedrock")]
mod bedrock;
mod calls;
#[cfg(test)]
mod conformance;
pub mod demo;
mod error;
mod openai;
pub mod provider;
pub mod registry;
mod responses;
mod sse;
#[cfg(test)]
mod tests;
mod thinking;
mod transport;
mod trouble;
mod vendor;

use crate::net::Fault;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use std::time::Duration;
pub use trouble::Trouble;

/// The first line of a request for a summary of the conversation: the demo, which understands no language, knows the
/// request by it.
pub const SUMMARY_REQUEST: &str = "[Summary of the conversation wanted]";

/// Who said a [`Message`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The person, or results of tools.
    User,
    /// The model.
    Assistant,
}

/// One piece of a [`Message`]. The stored form of the model history, so its JSON is append-only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// The model's own reasoning; replayed with its signature where the provider wants it back.
    Thinking {
        /// The reasoning text; may be empty where the provider keeps it to itself.
        text: String,
        /// The provider's seal over the text, replayed unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// Reasoning that only the provider can read, replayed unchanged.
    RedactedThinking {
        /// The provider's opaque data.
        data: String,
    },
    /// An image, base64.
    Image {
        /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
        mime_type: String,
        /// Base64 of the bytes.
        data: String,
    },
    /// The model asks for a tool.
    ToolUse {
        /// Unique among the calls of one completion; never empty.
        id: String,
        /// The tool's name.
        name: String,
        /// The arguments.
        input: Map<String, Value>,
    },
    /// The answer to a [`Block::ToolUse`], in the next user message.
    ToolResult {
        /// The id of the call.
        tool_use_id: String,
        /// What the tool said.
        content: String,
        /// Whether the tool failed.
        #[serde(default)]
        is_error: bool,
    },
}

/// One message of the model history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Who said it.
    pub role: Role,
    /// What was said, in order.
    pub content: Vec<Block>,
}

/// A tool as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments: an object.
    pub parameters: Value,
}

/// One call of a model.
#[derive(Clone, Debug)]
pub struct Request {
    /// The system prompt; may be empty.
    pub system: Arc<str>,
    /// The conversation; the last message is the user's. Shared, so that no call copies the history.
    pub messages: Vec<Arc<Message>>,
    /// The tools that the model may ask for.
    pub tools: Arc<[ToolSpec]>,
}

/// Why a completion ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The model said all it wanted.
    EndTurn,
    /// The model asks for tools.
    ToolUse,
    /// The output limit was reached.
    MaxTokens,
    /// The model declines to answer.
    Refusal {
        /// The provider's category and explanation, as far as it gave any.
        explanation: String,
    },
}

/// Tokens of one call. `input` leaves cache hits out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read, without those from the cache.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
    /// Tokens read from the provider's cache.
    pub cache_read: u64,
    /// Tokens written to the provider's cache.
    pub cache_write: u64,
}

/// The whole answer of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Thinking, text and tool calls in order; the blocks that go into the history.
    pub content: Vec<Block>,
    /// Calls (by their id in `content`) whose arguments were no JSON object, with the reason. They must not
    /// run; their stored input is `{}`.
    pub malformed: Vec<(String, String)>,
    /// Why it ended.
    pub stop: StopReason,
    /// What it cost.
    pub usage: Usage,
}

/// What a model's stream yields. After [`Event::Done`] or an error nothing follows. A stream that ends without
/// either is a failure of the implementation; providers turn a cut connection into [`ErrorKind::Network`].
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// More text.
    Text(String),
    /// More reasoning.
    Thinking(String),
    /// A sign of life without content (pings, pieces of tool arguments, comments).
    Activity,
    /// The end, with the folded whole.
    Done(Completion),
}

/// What went wrong, as far as the retry rules care.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The conversation is longer than the model takes.
    ContextOverflow,
    /// Key, balance or permission: 401, 402, 403.
    Account,
    /// Too many requests.
    Throttle,
    /// The provider's own fault: 5xx, 529, 408.
    Server,
    /// The connection failed or was cut.
    Network,
    /// An answer with nothing in it, or without its closing event.
    EmptyResponse,
    /// The provider misses a tool result.
    Corrupted,
    /// The provider rejects an image.
    BadImage,
    /// All else; no use in trying again.
    Fatal,
}

/// A failed call. The message never holds a key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// The kind, which decides about a retry.
    pub kind: ErrorKind,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// What the provider said, and where.
    pub message: String,
    /// How long the provider asks to wait.
    pub retry_after: Option<Duration>,
    /// Where the connection failed, if it did.
    pub fault: Option<Fault>,
}

/// A model that can be called. Dropping the stream cancels the call.
pub trait Model: Send + Sync {
    /// Starts one call.
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>>;

    /// The model's id, as usage rows name it.
    fn id(&self) -> &str;

    /// Whether it takes images.
    fn takes_images(&self) -> bool;

    /// The effort label of its thinking, for usage rows.
    fn thinking_effort(&self) -> Option<&str> {
        None
    }
}

/// Whether the call brings results of tools, after which a model may well have nothing to add.
fn ends_with_results(request: &Request) -> bool {
    let results =
        |message: &Arc<Message>| message.content.iter().any(|b| matches!(b, Block::ToolResult { .. }));
    request.messages.last().is_some_and(results)
}
