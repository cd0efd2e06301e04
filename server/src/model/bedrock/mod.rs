//! Runtime `bedrock-invoke`: Messages bodies through Amazon Bedrock's `InvokeModelWithResponseStream`. What is said is
//! [`super::anthropic`]'s; who says it, and what a refusal means, is [`super::aws`]'s. Here are the call and its stream.
//! The SDK neither repeats nor times: retries are the agent floor's, and the idle limit is that of every model.

mod failure;

use super::anthropic::{self, AnthropicMessages, MessagesFold};
use super::aws::Identity;
use super::error::plain;
use super::sse::SseEvent;
use super::transport::Fold;
use super::{ErrorKind, Event, Model, ModelError, Request};
use crate::net::aws::http::sdk_client;
use aws_sdk_bedrockruntime::config::retry::RetryConfig;
use aws_sdk_bedrockruntime::config::timeout::TimeoutConfig;
use aws_sdk_bedrockruntime::config::{
    BehaviorVersion, Credentials, IdentityCache, Region, StalledStreamProtectionConfig,
};
use aws_sdk_bedrockruntime::operation::invoke_model_with_response_stream::InvokeModelWithResponseStreamOutput;
use aws_sdk_bedrockruntime::primitives::Blob;
use aws_sdk_bedrockruntime::types::ResponseStream;
use aws_sdk_bedrockruntime::{Client, Config};
use futures_util::stream::BoxStream;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

/// The largest body that Bedrock takes (32 MiB).
const MAX_BODY_BYTES: usize = 32 * 1024 * 1024;

/// How long the end of the body may take once the answer itself is whole.
const SETTLE: Duration = Duration::from_secs(5);

/// How many clients are kept.
const MAX_CLIENTS: usize = 64;

/// A Claude model behind Bedrock.
pub(super) struct BedrockInvoke {
    messages: AnthropicMessages,
    call: Arc<Call>,
}

impl BedrockInvoke {
    /// The model that `messages` describes, called as `identity` at the base address of its endpoint.
    pub(super) fn new(messages: AnthropicMessages, identity: Identity) -> Self {
        let endpoint = &messages.endpoint;
        let call = Call {
            identity,
            provider: Arc::clone(&endpoint.provider),
            model: messages.id.clone(),
            url: endpoint.url.as_str().trim_end_matches('/').to_owned(),
            idle_timeout: endpoint.idle_timeout,
            clock: Arc::clone(&endpoint.clock),
        };
        Self { messages, call: Arc::new(call) }
    }
}

impl Model for BedrockInvoke {
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>> {
        let body = anthropic::bedrock_body(&self.messages, &request);
        let mut fold = MessagesFold::new(super::ends_with_results(&request));
        let call = Arc::clone(&self.call);
        Box::pin(async_stream::try_stream! {
            let body = body.map_err(|why| call.named(plain(ErrorKind::Fatal, format!("cannot write the request: {why}"))))?;
            let (mut output, credentials) = call.open(body).await?;
            while !fold.closed() {
                let chunk = match output.body.recv().await {
                    Ok(Some(ResponseStream::Chunk(chunk))) => chunk,
                    Ok(Some(_)) => {
                        yield Event::Activity;
                        continue;
                    }
                    Ok(None) => Err(call.named(plain(ErrorKind::Network, "the stream ended before the answer did")))?,
                    Err(why) => Err(call.cut(&why, &credentials))?,
                };
                let bytes = chunk.bytes.map(Blob::into_inner).unwrap_or_default();
                let data = String::from_utf8_lossy(&bytes).into_owned();
                let mut events = Vec::new();
                fold.event(SseEvent { name: String::new(), data }, &mut events).map_err(|error| call.named(error))?;
                if events.is_empty() {
                    yield Event::Activity;
                }
                for event in events {
                    yield event;
                }
            }
            // Read to the end, so that the next call finds this connection ready.
            tokio::spawn(tokio::time::timeout(SETTLE, async move { while let Ok(Some(_)) = output.body.recv().await {} }));
            yield Event::Done(fold.finish().map_err(|error| call.named(error))?);
        })
    }

    fn id(&self) -> &str {
        self.messages.id()
    }

    fn takes_images(&self) -> bool {
        self.messages.takes_images()
    }

    fn thinking_effort(&self) -> Option<&str> {
        self.messages.thinking_effort()
    }
}

/// What a call needs beside its body.
struct Call {
    identity: Identity,
    provider: Arc<str>,
    model: String,
    url: String,
    idle_timeout: Duration,
    clock: Arc<dyn crate::clock::Clock>,
}

impl Call {
    async fn open(
        &self,
        body: Vec<u8>,
    ) -> Result<(InvokeModelWithResponseStreamOutput, Credentials), ModelError> {
        if body.len() > MAX_BODY_BYTES {
            let message = format!(
                "the conversation takes {:.1} MB and Bedrock takes {} MB: too many input tokens",
                body.len() as f64 / 1e6,
                MAX_BODY_BYTES / 1_000_000
            );
            return Err(self.named(plain(ErrorKind::ContextOverflow, message)));
        }
        let credentials = self.identity.credentials().await.map_err(|error| self.named(error))?;
        let region = self.identity.region().await.map_err(|error| self.named(error))?;
        let sending = client(&self.url, &region, self.idle_timeout)
            .invoke_model_with_response_stream()
            .model_id(&self.model)
            .content_type("application/json")
            .body(Blob::new(body))
            .customize()
            .config_override(Config::builder().credentials_provider(credentials.clone()))
            .send();
        match Box::pin(sending).await {
            Ok(output) => Ok((output, credentials)),
            Err(why) => Err(self.refused(&why, &region, &credentials)),
        }
    }

    fn named(&self, mut error: ModelError) -> ModelError {
        error.message = format!("{}: {}", self.provider, error.message);
        error
    }
}

/// What tells one client from another; no key is part of it, as those go with each call.
type ClientKey = (String, String, Duration);

static CLIENTS: LazyLock<Mutex<HashMap<ClientKey, Client>>> = LazyLock::new(Mutex::default);

/// The client for this address, region and idle limit; built when first asked for and shared after that.
fn client(url: &str, region: &str, idle_timeout: Duration) -> Client {
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (url.to_owned(), region.to_owned(), idle_timeout);
    if clients.len() >= MAX_CLIENTS && !clients.contains_key(&key) {
        clients.clear();
    }
    let build = || {
        let timeouts = TimeoutConfig::builder().read_timeout(idle_timeout).build();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(sdk_client())
            .endpoint_url(url)
            .region(Region::new(region.to_owned()))
            .retry_config(RetryConfig::disabled())
            .timeout_config(timeouts)
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .identity_cache(IdentityCache::no_cache())
            .build();
        Client::from_conf(config)
    };
    clients.entry(key).or_insert_with(build).clone()
}

#[cfg(test)]
mod tests;
