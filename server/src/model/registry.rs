//! From a choice of provider and model to a [`Model`] that can be called. Files are read anew for every call of
//! the registry, so an edit counts from the next run. Keys come through a function that is handed in; the
//! registry keeps none.

mod credentials;

use super::Model;
use super::anthropic::{self, AnthropicMessages};
use super::demo::Demo;
use super::openai::{self, Dialect, OpenAiChat};
use super::provider::{self, Loaded, ModelEntry, Provider, ProviderError, Runtime, ThinkingMode};
use super::responses::{self, OpenAiResponses, Reasoning};
use super::transport::Endpoint;
#[cfg(feature = "bedrock")]
use super::{aws, bedrock::BedrockInvoke};
use crate::clock::{Clock, SystemClock};
use credentials::{enter, keys};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use reqwest::Url;
use secrecy::{ExposeSecret, SecretString};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The output limit for a model that must be given one, where nothing says how large.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Tokens of thinking for a manual model, where nothing says how many.
const DEFAULT_BUDGET: u64 = 8192;

/// How many different unknown keys are warned of.
const MAX_WARNINGS: usize = 1000;

/// Gives the secret `key` of a provider: `(provider id, key)`.
pub type SecretLookup<'a> = &'a dyn Fn(&str, &str) -> Option<SecretString>;

/// How long a provider keeps a cached prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheTtl {
    /// `5m`, or `true`.
    FiveMinutes,
    /// `1h`.
    OneHour,
}

/// What a profile says about thinking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Whether the model thinks at all.
    pub enabled: bool,
    /// A label such as `high`.
    pub effort: Option<String>,
    /// Tokens, for models that take a number.
    pub budget_tokens: Option<u64>,
}

/// A model, as a profile chooses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelChoice {
    /// A provider's id.
    pub provider: String,
    /// The model's id; need not be in the provider's file.
    pub id: String,
    /// The base address, else the provider's default.
    pub endpoint: Option<String>,
    /// The most tokens of one answer, else the provider file's.
    pub max_tokens: Option<u64>,
    /// `None`: off.
    pub prompt_caching: Option<CacheTtl>,
    /// `None`: off.
    pub thinking: Option<Thinking>,
    /// How much it says: `low`, `medium` or `high`, else what the provider file says.
    pub verbosity: Option<String>,
    /// Whether it takes images, else what the provider file says.
    pub image: Option<bool>,
}

/// What holds for every call.
#[derive(Clone)]
pub struct CallSettings {
    /// How long a provider may be silent; `HALO_MODEL_TIMEOUT`.
    pub idle_timeout: Duration,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Default for CallSettings {
    fn default() -> Self {
        Self { idle_timeout: Duration::from_secs(600), clock: Arc::new(SystemClock) }
    }
}

/// One provider for lists.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderInfo {
    /// The id.
    pub id: String,
    /// The name for people.
    pub display_name: String,
    /// The models of its file.
    pub models: Vec<String>,
    /// The name under `<id>.secrets` that holds the key; `None`: needs no key.
    pub secret: Option<String>,
    /// Every name that the settings may hold under `<id>.secrets`, the key's among them.
    pub secrets: Vec<String>,
    /// The file; `None` for one inside the binary.
    pub file: Option<PathBuf>,
    /// Why it cannot be used.
    pub error: Option<BuildError>,
}

/// Why no model could be made of a choice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// No file and nothing inside the binary.
    #[error("unknown provider `{id}`: there is no {file}; known are {known}")]
    UnknownProvider {
        /// The provider.
        id: String,
        /// Where its file would be.
        file: String,
        /// The ids that exist.
        known: String,
    },
    /// The file cannot be used.
    #[error(transparent)]
    BrokenProvider(#[from] ProviderError),
    /// The key is not in the settings.
    #[error("the provider `{provider}` has no key: set `{provider}.secrets.{key}` in secrets/settings.yaml")]
    MissingSecret {
        /// The provider.
        provider: String,
        /// The name of the secret.
        key: String,
    },
    /// The key cannot be sent.
    #[error("`{provider}.secrets.{key}` holds characters that no key has")]
    BadSecret {
        /// The provider.
        provider: String,
        /// The name of the secret.
        key: String,
    },
    /// No address to call.
    #[error(
        "the provider `{provider}` has no usable endpoint (`{endpoint}`): an http or https address is needed"
    )]
    BadEndpoint {
        /// The provider.
        provider: String,
        /// What was given, without name and password.
        endpoint: String,
    },
    /// Neither the choice nor the provider names a model.
    #[error("no model is chosen for the provider `{0}`")]
    NoModel(String),
}

/// All providers: the files of one folder over those inside the binary.
pub struct Registry {
    models_dir: PathBuf,
    warned: Mutex<HashSet<String>>,
}

impl Registry {
    /// A registry over `models_dir` (`<home>/global/models`), which need not exist.
    pub fn new(models_dir: PathBuf) -> Self {
        Self { models_dir, warned: Mutex::default() }
    }

    /// Every provider, broken ones with the reason.
    pub fn providers(&self) -> Vec<ProviderInfo> {
        let infos = provider::ids(&self.models_dir).into_iter().map(|id| match self.load(&id) {
            Ok(Loaded { provider, file, .. }) => ProviderInfo {
                display_name: provider.display_name.clone().unwrap_or_else(|| id.clone()),
                models: provider.models.iter().map(|model| model.id.clone()).collect(),
                secret: secret_key(&provider).map(str::to_owned),
                secrets: provider.secrets.iter().map(|field| field.key.clone()).collect(),
                file,
                error: None,
                id,
            },
            Err(why) => ProviderInfo {
                display_name: id.clone(),
                models: Vec::new(),
                secret: None,
                secrets: Vec::new(),
                file: Some(self.models_dir.join(format!("{id}.yaml"))),
                error: Some(why),
                id,
            },
        });
        infos.collect()
    }

    /// A model that can be called. `secret` gives the key.
    pub fn build(
        &self,
        choice: &ModelChoice,
        secret: SecretLookup<'_>,
        settings: &CallSettings,
    ) -> Result<Arc<dyn Model>, BuildError> {
        let Loaded { provider, runtime, .. } = self.load(&choice.provider)?;
        let entry = entry(&provider, &choice.id);
        let id = Some(choice.id.clone())
            .filter(|id| !id.is_empty())
            .or_else(|| default_model(&provider))
            .ok_or_else(|| BuildError::NoModel(provider.id.clone()))?;
        let takes_images = takes_images(&provider, choice);
        let thinking = choice.thinking.clone().filter(|thinking| thinking.enabled);
        Ok(match runtime {
            Runtime::Demo => Arc::new(Demo::new(id)),
            Runtime::OpenAiChat => {
                let endpoint = enter(&provider, choice, runtime, secret, settings)?;
                let openai_itself = endpoint.url.host_str() == Some("api.openai.com");
                let vendor = provider.runtime.as_str();
                let (switch, effort) = openai::vendor_thinking(vendor, &id, choice.thinking.as_ref());
                Arc::new(OpenAiChat {
                    dialect: Dialect {
                        max_completion_tokens: openai_itself,
                        replay_reasoning: matches!(vendor, "deepseek" | "kimi" | "zhipu"),
                        thinking: switch,
                    },
                    endpoint,
                    id,
                    max_tokens: choice.max_tokens.or(entry.and_then(|entry| entry.max_output_tokens)),
                    effort,
                    takes_images,
                })
            }
            Runtime::OpenAiResponses => {
                let verbosity = entry.and_then(|entry| entry.capabilities.verbosity.as_ref());
                Arc::new(OpenAiResponses {
                    // Bedrock has no summaries to give.
                    dialect: responses::Dialect { summaries: provider.runtime != "bedrock-mantle" },
                    endpoint: enter(&provider, choice, runtime, secret, settings)?,
                    id,
                    max_tokens: choice.max_tokens.or(entry.and_then(|entry| entry.max_output_tokens)),
                    reasoning: reasoning(thinking, entry),
                    verbosity: choice.verbosity.clone().or_else(|| verbosity?.default.clone()),
                    takes_images,
                })
            }
            messages => {
                let max = choice.max_tokens.or(entry.and_then(|entry| entry.max_output_tokens));
                let qwen = provider.runtime == "qwen";
                let known = entry.or_else(|| default_entry(&provider));
                let model = AnthropicMessages {
                    endpoint: enter(&provider, choice, runtime, secret, settings)?,
                    id,
                    max_tokens: max.unwrap_or(DEFAULT_MAX_TOKENS),
                    effort: thinking.as_ref().and_then(|thinking| thinking.effort.clone()),
                    thinking: anthropic_thinking(choice.thinking.as_ref(), known, qwen),
                    // Qwen knows one lifetime, which has no name.
                    caching: choice.prompt_caching.map(|ttl| if qwen { CacheTtl::FiveMinutes } else { ttl }),
                    takes_images,
                };
                match messages {
                    #[cfg(feature = "bedrock")]
                    Runtime::BedrockInvoke => {
                        let identity = aws::Identity::of(&provider, &model.endpoint.url, secret)?;
                        Arc::new(BedrockInvoke::new(model, identity))
                    }
                    _ => Arc::new(model),
                }
            }
        })
    }

    /// The default model of a provider, with prompt caching where the provider offers it.
    pub fn default_choice(&self, provider: &str) -> Result<ModelChoice, BuildError> {
        let Loaded { provider, .. } = self.load(provider)?;
        let id = default_model(&provider).ok_or_else(|| BuildError::NoModel(provider.id.clone()))?;
        let caching = entry(&provider, &id).and_then(|entry| entry.capabilities.prompt_caching.as_ref());
        let ttl = caching.and_then(|caching| {
            let first = caching.ttl_presets.first().map(|preset| preset.value.as_str());
            match caching.default.as_deref().or(first) {
                Some("1h") => Some(CacheTtl::OneHour),
                Some("5m" | "true") => Some(CacheTtl::FiveMinutes),
                _ => None,
            }
        });
        Ok(ModelChoice { provider: provider.id, id, prompt_caching: ttl, ..ModelChoice::default() })
    }

    /// The first usable provider whose key is set, with its default model. Providers without a key (the demo, a
    /// local server) never count: that they need none does not tell that they are there.
    pub fn first_configured(&self, secret: SecretLookup<'_>) -> Option<ModelChoice> {
        provider::ids(&self.models_dir).iter().find_map(|id| {
            let Loaded { provider, .. } = self.load(id).ok()?;
            let set =
                |key: &str| secret(id, key).is_some_and(|value| !value.expose_secret().trim().is_empty());
            let mut keys = keys(&provider).peekable();
            keys.peek()?;
            keys.all(set).then(|| self.default_choice(id).ok()).flatten()
        })
    }

    /// Tokens of conversation that the model takes, where the provider's file says it.
    pub fn context_window(&self, choice: &ModelChoice) -> Option<u64> {
        let loaded = self.load(&choice.provider).ok()?;
        entry(&loaded.provider, &choice.id)?.context_window.filter(|window| *window > 0)
    }

    /// Whether the model takes images: the choice, else the provider's file. A model that the file does not
    /// list is taken to see what the provider's default model sees.
    pub fn takes_images(&self, choice: &ModelChoice) -> bool {
        self.load(&choice.provider).is_ok_and(|loaded| takes_images(&loaded.provider, choice))
    }

    fn load(&self, id: &str) -> Result<Loaded, BuildError> {
        let Some(loaded) = provider::load(&self.models_dir, id) else {
            return Err(BuildError::UnknownProvider {
                id: id.to_owned(),
                file: self.models_dir.join(format!("{id}.yaml")).display().to_string(),
                known: provider::ids(&self.models_dir).join(", "),
            });
        };
        let loaded = loaded?;
        if let Some(file) = &loaded.file {
            let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
            for key in &loaded.unknown {
                if warned.len() < MAX_WARNINGS && warned.insert(format!("{id}/{key}")) {
                    tracing::warn!(file = %file.display(), key, "unknown key in a provider file");
                }
            }
        }
        Ok(loaded)
    }
}

fn entry<'a>(provider: &'a Provider, id: &str) -> Option<&'a ModelEntry> {
    provider.models.iter().find(|model| model.id == id)
}

fn default_entry(provider: &Provider) -> Option<&ModelEntry> {
    entry(provider, &default_model(provider)?)
}

fn default_model(provider: &Provider) -> Option<String> {
    let given = provider.default_model_id.clone().filter(|id| !id.is_empty());
    given.or_else(|| provider.models.first().map(|model| model.id.clone()))
}

fn takes_images(provider: &Provider, choice: &ModelChoice) -> bool {
    let listed = entry(provider, &choice.id).or_else(|| default_entry(provider));
    choice.image.or_else(|| listed?.capabilities.image).unwrap_or(false)
}

fn secret_key(provider: &Provider) -> Option<&str> {
    provider.secrets.iter().find(|field| field.secret).map(|field| field.key.as_str())
}

fn key(provider: &Provider, lookup: SecretLookup<'_>) -> Result<Option<SecretString>, BuildError> {
    let Some(name) = secret_key(provider) else { return Ok(None) };
    let key = lookup(&provider.id, name).map(|key| SecretString::from(key.expose_secret().trim()));
    match key {
        Some(key) if !key.expose_secret().is_empty() => Ok(Some(key)),
        _ => Err(BuildError::MissingSecret { provider: provider.id.clone(), key: name.to_owned() }),
    }
}

/// The full address of a call: the base, joined with the protocol's path unless it is there already.
fn endpoint(provider: &Provider, choice: &ModelChoice, runtime: Runtime) -> Result<Url, BuildError> {
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

fn connect(
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
        let (name, text) = if anthropic {
            (HeaderName::from_static("x-api-key"), key.to_owned())
        } else {
            (header::AUTHORIZATION, format!("Bearer {key}"))
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| BuildError::BadSecret {
            provider: provider.id.clone(),
            key: secret_key(provider).unwrap_or_default().to_owned(),
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

/// A number of tokens makes thinking manual, and so does a model that takes nothing else; for such a model an
/// effort label is turned into a number. Qwen takes nothing else either, and thinks unless it is told not to.
fn anthropic_thinking(
    given: Option<&Thinking>,
    entry: Option<&ModelEntry>,
    qwen: bool,
) -> anthropic::Thinking {
    let Some(thinking) = given.filter(|thinking| thinking.enabled) else {
        return if qwen && given.is_some() { anthropic::Thinking::Refused } else { anthropic::Thinking::Off };
    };
    let support = entry.and_then(|entry| entry.capabilities.thinking.as_ref());
    let manual = qwen || support.is_some_and(|support| support.mode == ThinkingMode::Manual);
    let label = match thinking.effort.as_deref() {
        Some("low") => Some(4096),
        Some("medium") => Some(8192),
        Some("high") => Some(16_384),
        Some("xhigh") => Some(32_768),
        Some("max") => Some(65_536),
        _ => None,
    };
    let fallback = support.and_then(|support| support.default_budget_tokens).unwrap_or(DEFAULT_BUDGET);
    match thinking.budget_tokens {
        Some(tokens) if manual || thinking.effort.is_none() => anthropic::Thinking::Budget(tokens),
        _ if manual => anthropic::Thinking::Budget(label.unwrap_or(fallback)),
        _ => anthropic::Thinking::Adaptive(thinking.effort.clone()),
    }
}

/// The Responses API takes a label only: a number of tokens becomes the label that other models get it for.
fn reasoning(thinking: Option<Thinking>, entry: Option<&ModelEntry>) -> Reasoning {
    let can_think = entry.is_some_and(|entry| entry.capabilities.thinking.is_some());
    let Some(thinking) = thinking else { return Reasoning { replay: can_think, ..Reasoning::default() } };
    let label = |tokens| match tokens {
        0..=4096 => "low",
        4097..=8192 => "medium",
        _ => "high",
    };
    let effort = thinking.effort.or_else(|| thinking.budget_tokens.map(|tokens| label(tokens).to_owned()));
    Reasoning { asked: true, effort, replay: true }
}

#[cfg(test)]
mod tests;
