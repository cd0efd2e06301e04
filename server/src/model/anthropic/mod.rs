//! Runtime `anthropic-messages`: the Messages API over SSE. Only this folder knows its JSON: [`request`] writes
//! it, [`fold`] reads it. Thinking is kept with its signature and goes back unchanged.

mod fold;
mod request;

use super::transport::Endpoint;
use super::{Event, Model, ModelError, Request};
pub(super) use fold::MessagesFold;
use futures_util::stream::BoxStream;

/// The version of the API that is asked for.
pub(super) const VERSION: &str = "2023-06-01";

/// How the model is asked to think.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Thinking {
    /// Nothing is said about it, which most models take as a no.
    Off,
    /// Not at all, and the model is told so.
    Refused,
    /// As much as it sees fit; the effort is a label such as `high`.
    Adaptive(Option<String>),
    /// Up to so many tokens.
    Budget(u64),
}

/// A model behind the Messages API.
pub(super) struct AnthropicMessages {
    pub endpoint: Endpoint,
    pub id: String,
    /// The API wants a limit in every call.
    pub max_tokens: u64,
    pub thinking: Thinking,
    /// The effort label, for usage rows.
    pub effort: Option<String>,
    /// `Some` turns prompt caching on.
    pub caching: Option<super::registry::CacheTtl>,
    pub takes_images: bool,
}

/// The body of a call of this model through Bedrock.
#[cfg(feature = "bedrock")]
pub(super) fn bedrock_body(
    model: &AnthropicMessages,
    request: &Request,
) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&request::body(model, request).for_bedrock())
}

impl Model for AnthropicMessages {
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>> {
        let body = serde_json::to_vec(&request::body(self, &request));
        let fold = MessagesFold::new(super::ends_with_results(&request));
        self.endpoint.clone().stream(body, fold)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn takes_images(&self) -> bool {
        self.takes_images
    }

    fn thinking_effort(&self) -> Option<&str> {
        self.effort.as_deref()
    }
}
