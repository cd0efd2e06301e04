//! Runtime `openai-responses`: the Responses API over SSE, as OpenAI, Amazon Bedrock and gateways speak it. Only
//! this folder knows its JSON: [`request`] writes it, [`fold`] reads it. Nothing is stored at the provider: the
//! whole conversation goes out with every call, and reasoning, sealed by the provider, goes back with it.

mod fold;
mod item;
mod request;

use super::transport::Endpoint;
use super::{Event, Model, ModelError, Request};
pub(super) use fold::ResponsesFold;
use futures_util::stream::BoxStream;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What differs between the vendors behind this protocol.
#[derive(Clone, Debug, Default)]
pub(super) struct Dialect {
    /// Summaries of the reasoning are asked for where the model thinks.
    pub summaries: bool,
}

/// How the model is asked to think.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reasoning {
    /// Whether anything is said about it; if not, the model does as it is used to.
    pub asked: bool,
    /// A label such as `high`; `None` for the model's own default.
    pub effort: Option<String>,
    /// Whether the model can think, so that its reasoning is asked for in a form that can go back. Other models
    /// refuse the question.
    pub replay: bool,
}

/// A model behind the Responses API.
pub(super) struct OpenAiResponses {
    pub endpoint: Endpoint,
    pub id: String,
    pub max_tokens: Option<u64>,
    pub reasoning: Reasoning,
    /// The effort label, for usage rows.
    pub label: Option<String>,
    /// `low`, `medium` or `high`: how much the model says.
    pub verbosity: Option<String>,
    pub takes_images: bool,
    pub dialect: Dialect,
}

impl Model for OpenAiResponses {
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>> {
        let body = serde_json::to_vec(&request::body(self, &request));
        let provider = Arc::clone(&self.endpoint.provider);
        let fold = ResponsesFold::new(provider, super::ends_with_results(&request));
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

/// How the signature of a thinking block begins that a provider of this protocol sealed. No signature of another
/// protocol does: those are Base64.
const SEAL: &str = "openai-responses:";

/// What has to go back with a piece of reasoning, kept as the signature of its block. Only the provider that
/// sealed it can open it.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Seal {
    provider: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    encrypted_content: String,
}

impl Seal {
    fn to_signature(&self) -> Option<String> {
        Some(format!("{SEAL}{}", serde_json::to_string(self).ok()?))
    }

    fn of(signature: &str) -> Option<Self> {
        serde_json::from_str(signature.strip_prefix(SEAL)?).ok()
    }
}

/// Whether a signature is one of this protocol, so that no other can make use of it.
pub(super) fn is_seal(signature: &str) -> bool {
    signature.starts_with(SEAL)
}

#[cfg(test)]
mod tests;
