//! Where a provider is called, and as whom: address, key and headers.

use super::{BuildError, CallSettings, ModelChoice, SecretLookup};
use crate::model::anthropic;
use crate::model::provider::{Auth, Provider, Runtime, SecretField};
use crate::model::transport::Endpoint;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use std::sync::Arc;

/// The secret that is the key.
pub(super) fn key_field(provider: &Provider) -> Option<&SecretField> {
    provider.secrets.iter().find(|field| field.secret)
}

/// The key; `None` where the provider needs none.
pub(super) fn key(provider: &Provider, lookup: SecretLookup<'_>) -> Result<Option<SecretString>, BuildError> {
    let Some(field) = key_field(provider) else { return Ok(None) };
    let key = lookup(&provider.id, &field.key).map(|key| SecretString::from(key.expose_secret().trim()));
    match key {
        Some(key) if !key.expose_secret().is_empty() => Ok(Some(key)),
        _ if field.optional => Ok(None),
        _ => Err(BuildError::MissingSecret { provider: provider.id.clone(), key: field.key.clone() }),
    }
}

/// The full address of a call: the base, joined with the protocol's path unless it is there already.
pub(super) fn endpoint(
    provider: &Provider,
    choice: &ModelChoice,
    runtime: Runtime,
) -> Result<Url, BuildError> {
    let given = [choice.endpoint.as_deref(), provider.default_endpoint.as_deref()];
    let base = given.into_iter().flatten().map(str::trim).find(|text| !text.is_empty()).unwrap_or_default();
    let parsed =
        Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let Some(mut url) = parsed else {
        let endpoint = base.rsplit('@').next().unwrap_or_default().to_owned();
        return Err(BuildError::BadEndpoint { provider: provider.id.clone(), endpoint });
    };
    let path = url.path().trim_end_matches('/').to_owned();
    let ends = |tail: &str| path.ends_with(tail);
    let tail = match runtime {
        Runtime::AnthropicMessages if ends("/v1/messages") => "",
        Runtime::AnthropicMessages if ends("/v1") => "/messages",
        Runtime::AnthropicMessages => "/v1/messages",
        Runtime::OpenAiResponses if ends("/responses") => "",
        Runtime::OpenAiResponses => "/responses",
        // The SDK knows the rest.
        #[cfg(feature = "bedrock")]
        Runtime::BedrockInvoke => "",
        _ if ends("/chat/completions") => "",
        _ => "/chat/completions",
    };
    url.set_path(&format!("{path}{tail}"));
    Ok(url)
}

/// Everything that a call needs besides its body.
pub(super) fn connect(
    provider: &Provider,
    url: Url,
    key: Option<SecretString>,
    runtime: Runtime,
    settings: &CallSettings,
) -> Result<Endpoint, BuildError> {
    let mut headers = HeaderMap::new();
    let anthropic = runtime == Runtime::AnthropicMessages;
    if anthropic {
        let version = HeaderName::from_static("anthropic-version");
        headers.insert(version, HeaderValue::from_static(anthropic::VERSION));
    }
    if let Some(key) = key.as_ref().map(ExposeSecret::expose_secret) {
        let usual = if anthropic { Auth::XApiKey } else { Auth::Bearer };
        let (name, text) = match provider.auth.unwrap_or(usual) {
            Auth::XApiKey => (HeaderName::from_static("x-api-key"), key.to_owned()),
            Auth::Bearer => (header::AUTHORIZATION, format!("Bearer {key}")),
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| BuildError::BadSecret {
            provider: provider.id.clone(),
            key: key_field(provider).map(|field| field.key.clone()).unwrap_or_default(),
        })?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(Endpoint {
        provider: provider.id.as_str().into(),
        url,
        headers,
        key,
        signer: None,
        idle_timeout: settings.idle_timeout,
        clock: Arc::clone(&settings.clock),
    })
}
