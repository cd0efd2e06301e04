//! Runtime `openai-chat`: Chat Completions over SSE, as OpenAI, Ollama, vLLM, LiteLLM, OpenRouter and many
//! vendors speak it. Only this folder knows its JSON: [`request`] writes it, [`fold`] reads it.

mod fold;
mod request;

use super::transport::Endpoint;
use super::{Event, Model, ModelError, Request};
pub(super) use fold::ChatFold;
use futures_util::stream::BoxStream;
use serde::Serialize;

/// What differs between the vendors and the models behind this protocol.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialect {
    /// The limit goes out as `max_completion_tokens`, which OpenAI's own models ask for and others do not know.
    pub max_completion_tokens: bool,
    /// Reasoning of earlier calls goes back as `reasoning_content` beside the tool calls that it led to.
    pub replay_reasoning: bool,
    /// Sent as `thinking`, by vendors that have such a switch.
    pub thinking: Option<Switch>,
}

/// The switch that some vendors have for thinking.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum Switch {
    /// On.
    Enabled {
        /// `false` asks the model to keep in mind what it thought in earlier calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        clear_thinking: Option<bool>,
    },
    /// Off.
    Disabled,
}

/// A model behind Chat Completions.
pub(super) struct OpenAiChat {
    pub endpoint: Endpoint,
    pub id: String,
    pub max_tokens: Option<u64>,
    /// Sent as `reasoning_effort`.
    pub effort: Option<String>,
    /// The effort label, for usage rows.
    pub label: Option<String>,
    pub takes_images: bool,
    pub dialect: Dialect,
}

impl Model for OpenAiChat {
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>> {
        let body = serde_json::to_vec(&request::body(self, &request));
        let fold = ChatFold::new(super::ends_with_results(&request));
        self.endpoint.clone().stream(body, fold)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn takes_images(&self) -> bool {
        self.takes_images
    }

    fn thinking_effort(&self) -> Option<&str> {
        self.label.as_deref()
    }
}
