//! Runtime `anthropic-messages`: the Messages API over SSE. Only this folder knows its JSON: [`request`] writes
//! it, [`fold`] reads it. Thinking is kept with its signature and goes back unchanged.

mod fold;
mod request;

use super::transport::Endpoint;
use super::{Block, Event, Model, ModelError, Request, responses};
pub(super) use fold::MessagesFold;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use std::sync::Arc;

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
    /// Whether [`Thinking::Budget`] is refused in a turn that did not begin with thinking.
    pub strict_turns: bool,
    /// Whether the provider seals thinking in a way that is its own, so that nobody else is sent its seals.
    pub own_seals: bool,
    /// The effort label, for usage rows.
    pub effort: Option<String>,
    /// `Some` turns prompt caching on.
    pub caching: Option<super::registry::CacheTtl>,
    pub takes_images: bool,
}

/// How a stored signature begins whose seal is a vendor's own: the provider's id and a colon follow, then the seal.
/// No other signature does: those are Base64, or begin with another word.
const OWN_SEAL: &str = "messages:";

fn mark_seals(event: Event, provider: &str) -> Event {
    let Event::Done(mut completion) = event else { return event };
    for block in &mut completion.content {
        if let Block::Thinking { signature: Some(signature), .. } = block {
            *signature = format!("{OWN_SEAL}{provider}:{signature}");
        }
    }
    Event::Done(completion)
}

/// The seal of a stored signature, if the provider takes it. `own`: the provider, where its seals are its own.
fn seal<'a>(signature: &'a str, own: Option<&str>) -> Option<&'a str> {
    if let Some(provider) = own {
        return signature.strip_prefix(OWN_SEAL)?.strip_prefix(provider)?.strip_prefix(':');
    }
    let foreign = signature.starts_with(OWN_SEAL) || responses::is_seal(signature);
    (!foreign).then_some(signature)
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
        let stream = self.endpoint.clone().stream(body, fold);
        if !self.own_seals {
            return stream;
        }
        let provider = Arc::clone(&self.endpoint.provider);
        stream.map(move |event| event.map(|event| mark_seals(event, &provider))).boxed()
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
