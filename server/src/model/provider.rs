//! Provider files: `<models dir>/<id>.yaml`, and those inside the binary. Promises a checked [`Provider`] or an
//! error that names file, line, column and field. Unknown keys do no harm; they are returned, so that a
//! misspelt one can be told. Which provider is used is the [`super::registry`]'s.

use serde::Deserialize;
use std::fmt;
use std::path::{Path, PathBuf};

/// The largest provider file that is read (1 MiB).
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// The providers inside the binary, in the order in which they are looked at for a default.
const BUILT_IN: &[(&str, &str)] = &[
    ("anthropic", include_str!("../../assets/models/anthropic.yaml")),
    ("openai", include_str!("../../assets/models/openai.yaml")),
    ("openrouter", include_str!("../../assets/models/openrouter.yaml")),
    #[cfg(feature = "bedrock")]
    ("aws-bedrock-claude-invoke", include_str!("../../assets/models/aws-bedrock-claude-invoke.yaml")),
    ("aws-bedrock-mantle", include_str!("../../assets/models/aws-bedrock-mantle.yaml")),
    ("aws-bedrock-openai", include_str!("../../assets/models/aws-bedrock-openai.yaml")),
    ("deepseek", include_str!("../../assets/models/deepseek.yaml")),
    ("doubao", include_str!("../../assets/models/doubao.yaml")),
    ("hunyuan", include_str!("../../assets/models/hunyuan.yaml")),
    ("kimi", include_str!("../../assets/models/kimi.yaml")),
    ("mimo-token-plan-china", include_str!("../../assets/models/mimo-token-plan-china.yaml")),
    ("minimax", include_str!("../../assets/models/minimax.yaml")),
    ("qwen", include_str!("../../assets/models/qwen.yaml")),
    ("zhipu", include_str!("../../assets/models/zhipu.yaml")),
    ("litellm", include_str!("../../assets/models/litellm.yaml")),
    ("ollama", include_str!("../../assets/models/ollama.yaml")),
    ("vllm", include_str!("../../assets/models/vllm.yaml")),
    ("demo", include_str!("../../assets/models/demo.yaml")),
];

/// Keys that only a page for people uses.
const FOR_PEOPLE: &[&str] = &[
    "displayName_zh",
    "description",
    "description_zh",
    "endpointPresets",
    "default",
    "video",
    "audio",
    "presets",
];

/// How a provider is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    /// Messages over SSE.
    AnthropicMessages,
    /// Chat Completions over SSE.
    OpenAiChat,
    /// Responses over SSE.
    OpenAiResponses,
    /// Messages through Amazon Bedrock.
    #[cfg(feature = "bedrock")]
    BedrockInvoke,
    /// The model inside the binary.
    Demo,
}

impl Runtime {
    /// The names that a provider file may give today.
    pub const KNOWN: &[&str] = &[
        "anthropic-messages",
        "openai-chat",
        "openai-responses",
        #[cfg(feature = "bedrock")]
        "bedrock-invoke",
        "demo",
        "deepseek",
        "kimi",
        "hunyuan",
        "doubao",
        "zhipu",
        "minimax",
        "qwen",
        "bedrock-mantle",
    ];

    /// Reads `runtime:`; the old names of vendors stand for the protocol that they speak.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "anthropic-messages" | "minimax" | "qwen" => Ok(Self::AnthropicMessages),
            "openai-chat" | "deepseek" | "kimi" | "hunyuan" | "doubao" | "zhipu" => Ok(Self::OpenAiChat),
            "openai-responses" | "bedrock-mantle" => Ok(Self::OpenAiResponses),
            "demo" => Ok(Self::Demo),
            #[cfg(feature = "bedrock")]
            "bedrock-invoke" => Ok(Self::BedrockInvoke),
            #[cfg(not(feature = "bedrock"))]
            "bedrock-invoke" => Err(format!(
                "the runtime `{name}` is not in this program: it was built without the cargo feature `bedrock`"
            )),
            _ => Err(format!("unknown runtime `{name}`; known are {}", Self::KNOWN.join(", "))),
        }
    }
}

/// One provider, as its file says.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// The id, which is the file's name without `.yaml`.
    pub id: String,
    /// See [`Runtime::parse`].
    pub runtime: String,
    /// For people.
    pub display_name: Option<String>,
    /// The address when a profile gives none.
    pub default_endpoint: Option<String>,
    /// The model when nobody chose one.
    pub default_model_id: Option<String>,
    /// What the settings may hold for it.
    #[serde(default)]
    pub secrets: Vec<SecretField>,
    /// How the key goes out, where not as the protocol has it.
    pub auth: Option<Auth>,
    /// Where no key is set, requests are signed with AWS credentials. Implied by the runtimes of Bedrock.
    pub sigv4: Option<SigV4>,
    /// Models about which something is known; others are allowed.
    pub models: Vec<ModelEntry>,
}

/// One entry of `secrets:`.
#[derive(Clone, Debug, Deserialize)]
pub struct SecretField {
    /// The name under `<provider>.secrets`.
    pub key: String,
    /// Whether it is the secret itself, or something beside it, such as a region.
    #[serde(default)]
    pub secret: bool,
    /// Whether the provider may be called without it, as servers on one's own machine may.
    #[serde(default)]
    pub optional: bool,
}

/// `auth:`, the header of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Auth {
    /// `authorization: Bearer <key>`.
    Bearer,
    /// `x-api-key: <key>`.
    XApiKey,
}

/// `sigv4:`, an AWS signature in place of a key.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SigV4 {
    /// The service's name in signatures; `bedrock` where none is given.
    pub service: Option<String>,
    /// The region; else that in the endpoint's host name, else that of environment and profile.
    pub region: Option<String>,
}

/// One entry of `models:`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ModelEntry {
    /// The id, as it goes to the provider.
    pub id: String,
    /// For people.
    pub display_name: Option<String>,
    /// The most tokens of one answer.
    pub max_output_tokens: Option<u64>,
    /// How many tokens of conversation it takes.
    pub context_window: Option<u64>,
    /// What it can do.
    #[serde(default)]
    pub capabilities: Capabilities,
}

/// What a model can do.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Capabilities {
    /// Whether it takes images.
    pub image: Option<bool>,
    /// Whether the provider caches prompts when asked.
    pub prompt_caching: Option<PromptCaching>,
    /// How it thinks.
    pub thinking: Option<ThinkingSupport>,
    /// Whether it can be told how much to say.
    pub verbosity: Option<Verbosity>,
}

/// `capabilities.verbosity`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Verbosity {
    /// `low`, `medium` or `high`, when nobody chose.
    pub default: Option<String>,
}

/// `capabilities.promptCaching`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PromptCaching {
    /// `5m`, `1h`, or `off`.
    pub default: Option<String>,
    /// What a page offers; the first stands in for a missing default.
    pub ttl_presets: Vec<Preset>,
}

/// One choice that a page offers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Preset {
    /// What is stored.
    pub value: String,
    /// What is shown.
    pub label: Option<String>,
}

/// `capabilities.thinking`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ThinkingSupport {
    /// Whether the model itself decides how long it thinks, or is given a number of tokens.
    pub mode: ThinkingMode,
    /// Whether it thinks when nobody chose.
    pub default_enabled: bool,
    /// The effort label when nobody chose.
    pub default: Option<String>,
    /// Tokens for a manual model when nobody chose.
    pub default_budget_tokens: Option<u64>,
    /// What a page offers; the first stands in for a missing default.
    pub effort_presets: Vec<Preset>,
}

impl ThinkingSupport {
    /// The effort label when nobody chose: the default, else the first that a page offers.
    pub(super) fn default_effort(&self) -> Option<&str> {
        first_choice(self.default.as_deref(), &self.effort_presets)
    }
}

impl PromptCaching {
    /// The lifetime when nobody chose: the default, else the first that a page offers.
    pub(super) fn default_ttl(&self) -> Option<&str> {
        first_choice(self.default.as_deref(), &self.ttl_presets)
    }
}

fn first_choice<'a>(default: Option<&'a str>, presets: &'a [Preset]) -> Option<&'a str> {
    let first = || presets.first().map(|preset| preset.value.as_str());
    default.or_else(first).map(str::trim).filter(|text| !text.is_empty())
}

/// `capabilities.thinking.mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThinkingMode {
    /// By an effort label.
    #[default]
    Adaptive,
    /// By a number of tokens.
    Manual,
}

/// A provider file that cannot be used: which, where in it, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderError {
    /// The file; a name in brackets for one inside the binary.
    pub file: PathBuf,
    /// Line and column, from 1, where the fault has a place.
    pub at: Option<(u64, u64)>,
    /// The field, as a path such as `models[0].id`.
    pub field: Option<String>,
    /// What is wrong.
    pub message: String,
}

impl std::error::Error for ProviderError {}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        if let Some(field) = &self.field {
            write!(f, ": {field}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// A provider, where it came from, and the keys of its file that mean nothing to us.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The provider.
    pub provider: Provider,
    /// What its `runtime:` stands for.
    pub runtime: Runtime,
    /// The file; `None` for one inside the binary.
    pub file: Option<PathBuf>,
    /// Paths of unknown keys.
    pub unknown: Vec<String>,
}

/// The ids of all providers: first those inside the binary, then the other files by name.
pub(super) fn ids(models_dir: &Path) -> Vec<String> {
    let mut ids: Vec<String> = BUILT_IN.iter().map(|(id, _)| (*id).to_owned()).collect();
    let mut files: Vec<String> = std::fs::read_dir(models_dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_suffix(".yaml").map(str::to_owned))
        .filter(|id| is_id(id) && !ids.contains(id))
        .collect();
    files.sort_unstable();
    ids.append(&mut files);
    ids
}

/// Loads one provider: its file, else the one inside the binary. `None` where there is neither.
pub(super) fn load(models_dir: &Path, id: &str) -> Option<Result<Loaded, ProviderError>> {
    if !is_id(id) {
        return None;
    }
    let file = models_dir.join(format!("{id}.yaml"));
    let fault = |message: String| ProviderError { file: file.clone(), at: None, field: None, message };
    match std::fs::metadata(&file) {
        Err(why) if why.kind() == std::io::ErrorKind::NotFound => {
            let (_, text) = BUILT_IN.iter().find(|(known, _)| *known == id)?;
            Some(parse(Path::new(&format!("(built-in {id}.yaml)")), id, text))
        }
        Err(why) => Some(Err(fault(format!("cannot be read: {why}")))),
        Ok(meta) if !meta.is_file() || meta.len() > MAX_FILE_BYTES => {
            Some(Err(fault("is no plain file of at most 1 MiB".to_owned())))
        }
        Ok(_) => Some(match std::fs::read_to_string(&file) {
            Err(why) => Err(fault(format!("cannot be read: {why}"))),
            Ok(text) => parse(&file, id, &text).map(|loaded| Loaded { file: Some(file.clone()), ..loaded }),
        }),
    }
}

/// An id is a file's name: it stays within the folder.
fn is_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= 100
        && !id.starts_with('.')
        && id.chars().all(|c| c.is_alphanumeric() || "._-".contains(c))
}

fn parse(file: &Path, id: &str, text: &str) -> Result<Loaded, ProviderError> {
    let mut unknown = Vec::new();
    let mut field = None;
    let parsed =
        serde_saphyr::with_deserializer_from_str_with_options(text, crate::yaml::options(), |yaml| {
            let mut note = |path: serde_ignored::Path<'_>| {
                let path = path.to_string();
                if !FOR_PEOPLE.contains(&path.rsplit('.').next().unwrap_or_default()) && unknown.len() < 20 {
                    unknown.push(path);
                }
            };
            let noting = serde_ignored::Deserializer::new(yaml, &mut note);
            serde_path_to_error::deserialize::<_, Provider>(noting).map_err(|error| {
                field = Some(error.path().to_string()).filter(|path| path != ".");
                error.into_inner()
            })
        });
    let fault = |at, field, message| ProviderError { file: file.to_owned(), at, field, message };
    let provider = parsed.map_err(|error| {
        let at = error.location().map(|place| (place.line(), place.column()));
        fault(at, field, reason(&error))
    })?;
    let at_key = |key: &str| {
        let line = text.lines().position(|line| line.starts_with(key))?;
        Some((line as u64 + 1, 1))
    };
    if provider.id != id {
        let message = format!("`{}` is not the file's name, `{id}`", provider.id);
        return Err(fault(at_key("id:"), Some("id".to_owned()), message));
    }
    let runtime = Runtime::parse(&provider.runtime)
        .map_err(|message| fault(at_key("runtime:"), Some("runtime".to_owned()), message))?;
    Ok(Loaded { provider, runtime, file: None, unknown })
}

/// What went wrong, in one line and without the excerpt and the place, which are told apart from it.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let place = error.location().map(|at| format!(" at line {}, column {}", at.line(), at.column()));
    place.map_or_else(|| line.to_owned(), |place| line.replace(&place, ""))
}
