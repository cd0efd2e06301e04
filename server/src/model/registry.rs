//! From a choice of provider and model to a [`Model`] that can be called. Files are read anew for every call of
//! the registry, so an edit counts from the next run. Keys come through a function that is handed in; the
//! registry keeps none.

mod connect;
mod credentials;

use super::Model;
use super::anthropic::AnthropicMessages;
use super::demo::Demo;
use super::openai::{Dialect, OpenAiChat};
use super::provider::{self, Loaded, ModelEntry, PromptCaching, Provider, ProviderError, Runtime};
use super::responses::{self, OpenAiResponses};
pub use super::thinking::Thinking;
use super::thinking::{self, Wish};
use super::vendor::{self, CacheMarks};
#[cfg(feature = "bedrock")]
use super::{aws, bedrock::BedrockInvoke};
use crate::clock::{Clock, SystemClock};
use connect::key_field;
use credentials::{enter, keys};
use secrecy::{ExposeSecret, SecretString};
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The output limit for a model that must be given one, where nothing says how large.
const DEFAULT_MAX_TOKENS: u64 = 8192;

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

/// What a profile says about prompt caching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// None.
    Off,
    /// With the lifetime that the provider file offers first, else five minutes.
    On,
    /// With this lifetime.
    For(CacheTtl),
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
    /// `None`: as the provider file offers it.
    pub prompt_caching: Option<Caching>,
    /// `None`: as the provider file has it, else as the model is used to.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProviderInfo {
    /// The id.
    pub id: String,
    /// The name for people.
    pub display_name: String,
    /// What its file gives as `runtime:`.
    pub runtime: String,
    /// The base address when a profile gives none; empty where there is none.
    pub endpoint: String,
    /// The model when nobody chose one.
    pub default_model: Option<String>,
    /// The models of its file.
    pub models: Vec<String>,
    /// The name under `<id>.secrets` that holds the key; `None`: needs no key.
    pub secret: Option<String>,
    /// Whether it may be called without its key.
    pub secret_is_optional: bool,
    /// Whether it is called with AWS credentials where no key is set. Its refusals say themselves what to do.
    pub takes_aws_credentials: bool,
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
                default_model: default_model(&provider),
                endpoint: provider.default_endpoint.clone().unwrap_or_default(),
                models: provider.models.iter().map(|model| model.id.clone()).collect(),
                secret: key_field(&provider).map(|field| field.key.clone()),
                secret_is_optional: key_field(&provider).is_some_and(|field| field.optional),
                takes_aws_credentials: provider.sigv4.is_some() || provider.runtime.starts_with("bedrock-"),
                secrets: provider.secrets.iter().map(|field| field.key.clone()).collect(),
                runtime: provider.runtime,
                file,
                error: None,
                id,
            },
            Err(why) => ProviderInfo {
                display_name: id.clone(),
                file: Some(self.models_dir.join(format!("{id}.yaml"))),
                error: Some(why),
                id,
                ..ProviderInfo::default()
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
        let max_tokens = choice.max_tokens.or(entry.and_then(|entry| entry.max_output_tokens));
        let quirks = vendor::quirks(&provider.runtime, &id);
        // A model that the file does not list is taken to think as the default model does, if it is asked to.
        let known = entry.or_else(|| default_entry(&provider).filter(|_| choice.thinking.is_some()));
        let support = known.and_then(|entry| entry.capabilities.thinking.as_ref());
        let wish = Wish::of(choice.thinking.as_ref(), support, quirks);
        if runtime == Runtime::Demo {
            return Ok(Arc::new(Demo::new(id)));
        }
        let endpoint = enter(&provider, choice, runtime, secret, settings)?;
        let openai_itself = endpoint.url.host_str() == Some("api.openai.com");
        Ok(match runtime {
            Runtime::Demo => Arc::new(Demo::new(id)),
            Runtime::OpenAiChat => {
                let (switch, effort) = thinking::chat(&wish, quirks);
                Arc::new(OpenAiChat {
                    dialect: Dialect {
                        max_completion_tokens: openai_itself,
                        replay_reasoning: quirks.replays_reasoning,
                        thinking: switch,
                    },
                    endpoint,
                    id,
                    max_tokens,
                    label: effort.clone().or_else(|| wish.label()),
                    effort,
                    takes_images,
                })
            }
            Runtime::OpenAiResponses => {
                let verbosity = entry.and_then(|entry| entry.capabilities.verbosity.as_ref());
                let verbosity = choice.verbosity.clone().or_else(|| verbosity?.default.clone());
                let support = entry.and_then(|entry| entry.capabilities.thinking.as_ref());
                Arc::new(OpenAiResponses {
                    dialect: responses::Dialect { summaries: quirks.summaries },
                    endpoint,
                    id,
                    max_tokens,
                    reasoning: thinking::responses(&wish, support, quirks),
                    label: wish.label(),
                    verbosity,
                    takes_images,
                })
            }
            messages => {
                let offered = entry.and_then(|entry| entry.capabilities.prompt_caching.as_ref());
                let model = AnthropicMessages {
                    endpoint,
                    id,
                    max_tokens: max_tokens.unwrap_or(DEFAULT_MAX_TOKENS),
                    effort: wish.label(),
                    thinking: thinking::messages(&wish, support, quirks),
                    strict_turns: quirks.strict_turns,
                    own_seals: quirks.own_seals,
                    caching: caching(choice.prompt_caching, offered, quirks.cache),
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

    /// The default model of a provider, as its file has it.
    pub fn default_choice(&self, provider: &str) -> Result<ModelChoice, BuildError> {
        let Loaded { provider, .. } = self.load(provider)?;
        let id = default_model(&provider).ok_or_else(|| BuildError::NoModel(provider.id.clone()))?;
        Ok(ModelChoice { provider: provider.id, id, ..ModelChoice::default() })
    }

    /// The first usable provider whose key is set, with its default model. Providers that may do without a
    /// key (the demo, a local server) never count: that they need none does not tell that they are there.
    pub fn first_configured(&self, secret: SecretLookup<'_>) -> Option<ModelChoice> {
        provider::ids(&self.models_dir).iter().find_map(|id| {
            let Loaded { provider, .. } = self.load(id).ok()?;
            if key_field(&provider)?.optional {
                return None;
            }
            let set =
                |key: &str| secret(id, key).is_some_and(|value| !value.expose_secret().trim().is_empty());
            keys(&provider).all(set).then(|| self.default_choice(id).ok()).flatten()
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

/// The lifetime of cached prompts, as far as the vendor knows one; `None`: nothing is marked.
fn caching(given: Option<Caching>, offered: Option<&PromptCaching>, marks: CacheMarks) -> Option<CacheTtl> {
    let usual = || match offered?.default_ttl()? {
        "1h" => Some(CacheTtl::OneHour),
        "5m" | "true" => Some(CacheTtl::FiveMinutes),
        _ => None,
    };
    let ttl = match given {
        None => usual(),
        Some(Caching::Off) => None,
        Some(Caching::On) => Some(usual().unwrap_or(CacheTtl::FiveMinutes)),
        Some(Caching::For(ttl)) => Some(ttl),
    }?;
    match marks {
        CacheMarks::Lifetimes => Some(ttl),
        CacheMarks::OneLifetime => Some(CacheTtl::FiveMinutes),
        CacheMarks::Never => None,
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

#[cfg(test)]
mod tests;
