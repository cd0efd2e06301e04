//! Profiles: what an agent is called, which model and tools it has, and who it is (agents contract, section 1).
//! Read fresh from disk at every call, so that an edit counts from the next run. A folder of the workspace stands
//! in for the global one of the same id as a whole; the built-in agents come last. All calls block on two small
//! files an agent.

use super::files::read_text;
use super::yaml::{self, AgentYaml, ModelYaml};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

pub use super::yaml::Caching;

/// The agent that answers when nothing else qualifies.
pub const DEFAULT: &str = "default";

/// The priority of [`DEFAULT`] where its file names none: who writes a file for it wants it to stay the default.
const DEFAULT_PRIORITY: i64 = 99;

/// The longest agent id, in characters.
const MAX_ID_CHARS: usize = 128;

/// Agent folders that are looked at in one place.
const MAX_AGENTS: usize = 1000;

/// Complaints that are remembered so that each is logged once.
const MAX_COMPLAINTS: usize = 1000;

/// Id, `agent.yaml` and `AGENT.md` of the agents inside the program.
const BUILT_IN: [(&str, &str, &str); 3] = [
    (
        DEFAULT,
        include_str!("../../assets/agents/default/agent.yaml"),
        include_str!("../../assets/agents/default/AGENT.md"),
    ),
    (
        "executor",
        include_str!("../../assets/agents/executor/agent.yaml"),
        include_str!("../../assets/agents/executor/AGENT.md"),
    ),
    (
        "deep-executor",
        include_str!("../../assets/agents/deep-executor/agent.yaml"),
        include_str!("../../assets/agents/deep-executor/AGENT.md"),
    ),
];

/// Where a profile comes from; a later one stands in for an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Inside the program.
    BuiltIn,
    /// The home's `global/agents/`.
    Global,
    /// The workspace's `.halo/agents/`.
    Workspace,
}

impl Origin {
    /// What people read.
    pub const fn label(self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::Global => "global",
            Self::Workspace => "workspace",
        }
    }

    /// The scope under which it can be disabled; the built-in agents belong to the global one.
    pub const fn scope(self) -> &'static str {
        match self {
            Self::BuiltIn | Self::Global => "global",
            Self::Workspace => "workspace",
        }
    }
}

/// An agent or skill that was switched off for a workspace: a row of `disabled_items`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisabledItem {
    /// `agent` or `skill`.
    pub item_type: String,
    /// Its id.
    pub item_id: String,
    /// `global` or `workspace`: which of the two of the same id.
    pub scope: String,
}

/// One agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Its id: the folder's name.
    pub id: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What people call it.
    pub name: String,
    /// One line about it; may be empty.
    pub description: String,
    /// The highest answers where no agent is named.
    pub priority: i64,
    /// A part of the machinery: on no list, never picked.
    pub internal: bool,
    /// Its model; `None` means whatever is set up.
    pub model: Option<ProfileModel>,
    /// The text of its `AGENT.md`.
    pub agent_md: Option<String>,
    /// What stands in for `AGENT.md` where there is none.
    pub system_prompt: Option<String>,
    /// Tokens of context that it may use.
    pub max_context_tokens: Option<u32>,
    /// The part of the context at which it is compacted; above 0, at most 1.
    pub compress_at: Option<f64>,
    /// The only tools that it may use. Names that no tool has are of no effect.
    pub tools: Vec<String>,
    /// The skills that it may use.
    pub skills: Vec<String>,
    /// The agents that it may delegate to.
    pub team: Vec<String>,
    /// Names of tools and skills that are not to be had. Empty, until somebody has looked.
    pub missing: Vec<String>,
}

/// The model of a profile, as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileModel {
    /// The id of a provider file.
    pub provider: String,
    /// The model's id as the provider knows it.
    pub id: String,
    /// The base URL; `None` means the provider's own.
    pub endpoint: Option<String>,
    /// Output tokens of one answer.
    pub max_tokens: Option<u32>,
    /// Prompt caching; `None` means as the provider file offers it.
    pub prompt_caching: Option<Caching>,
    /// Thinking; `None` means as the provider file has it.
    pub thinking: Option<Thinking>,
    /// How wordy it answers, in the provider's own terms.
    pub verbosity: Option<String>,
    /// Whether it takes images, where the profile knows better than the provider file.
    pub image: Option<bool>,
}

/// How a model thinks before it answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thinking {
    /// Whether it does.
    pub enabled: bool,
    /// How hard, in the provider's own terms.
    pub effort: Option<String>,
    /// How many tokens, for models that count.
    pub budget_tokens: Option<u32>,
}

/// The agents that people may choose from.
#[derive(Clone, Debug, Default)]
pub struct Visible {
    /// Those that work, sorted by id.
    pub agents: Vec<Profile>,
    /// Those whose files have a mistake: id, and what is wrong where.
    pub broken: Vec<(String, String)>,
}

/// Why there is no profile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The text is no agent id.
    #[error("invalid agent id")]
    InvalidId,
    /// No agent has this id.
    #[error("agent `{0}` not found")]
    NotFound(String),
    /// The agent's folder is there, its `agent.yaml` is not, or cannot be read.
    #[error("{}: agent.yaml missing or unreadable: {reason}", .file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The `agent.yaml` has a mistake.
    #[error("{}:{line}:{column}: {}{text}", .file.display(), .field.as_ref().map(|field| format!("{field}: ")).unwrap_or_default())]
    Broken {
        /// The file.
        file: PathBuf,
        /// From 1.
        line: u64,
        /// From 1.
        column: u64,
        /// The key, from the top, as far as it is known.
        field: Option<String>,
        /// What is wrong.
        text: String,
    },
}

/// The agents inside the program, read once: every run looks at them.
fn built_in() -> &'static [Profile] {
    static PROFILES: LazyLock<Vec<Profile>> = LazyLock::new(|| {
        let parsed = |(id, yaml, agent_md): (&str, &str, &str)| {
            yaml::parse(yaml).ok().map(|yaml| profile(id, Origin::BuiltIn, yaml, Some(agent_md.to_owned())))
        };
        BUILT_IN.into_iter().filter_map(parsed).collect()
    });
    &PROFILES
}

/// All agents that this server knows. Clones are cheap and share what was logged.
#[derive(Clone, Debug)]
pub struct Profiles {
    global: PathBuf,
    said: Arc<Mutex<HashMap<PathBuf, String>>>,
}

impl Profiles {
    /// `home_agents_dir` is the home's `global/agents/`; it need not exist.
    pub fn new(home_agents_dir: PathBuf) -> Self {
        Self { global: home_agents_dir, said: Arc::default() }
    }

    /// The agent with this id as the workspace sees it, switched off or not.
    pub fn resolve(&self, workspace: &Path, id: &str) -> Result<Profile, ProfileError> {
        if !is_agent_id(id) {
            return Err(ProfileError::InvalidId);
        }
        for (origin, folder) in
            [(Origin::Workspace, in_workspace(workspace)), (Origin::Global, self.global.clone())]
        {
            let folder = folder.join(id);
            if folder.is_dir() {
                return self.read(&folder, id, origin);
            }
        }
        built_in()
            .iter()
            .find(|profile| profile.id == id)
            .cloned()
            .ok_or_else(|| ProfileError::NotFound(id.to_owned()))
    }

    /// The agent that answers where none is named: of those that are neither internal nor switched off the one
    /// with the highest priority; of several, one of the workspace, then the first by id. A broken agent is
    /// logged and left out, with one exception: while only built-in agents are left, a broken `default` is an
    /// error, since nobody means the helpers to stand in for it.
    pub fn default_for(&self, workspace: &Path, disabled: &[DisabledItem]) -> Result<Profile, ProfileError> {
        let mut best: Option<Profile> = None;
        let mut broken_default = None;
        for id in self.ids(workspace) {
            match self.resolve(workspace, &id) {
                Ok(profile) => {
                    let rank = |profile: &Profile| (profile.priority, profile.origin == Origin::Workspace);
                    if qualifies(&profile, disabled)
                        && best.as_ref().is_none_or(|best| rank(&profile) > rank(best))
                    {
                        best = Some(profile);
                    }
                }
                Err(error) => {
                    self.complain(&self.place(workspace, &id), &error.to_string());
                    if id == DEFAULT {
                        broken_default = Some(error);
                    }
                }
            }
        }
        match (best, broken_default) {
            (Some(best), None) => Ok(best),
            (Some(best), Some(_)) if best.origin != Origin::BuiltIn => Ok(best),
            (_, Some(error)) => Err(error),
            (None, None) => self.resolve(workspace, DEFAULT),
        }
    }

    /// The agents that a client may name, and those whose files have a mistake, sorted by id.
    pub fn visible(&self, workspace: &Path, disabled: &[DisabledItem]) -> Visible {
        let mut visible = Visible::default();
        for id in self.ids(workspace) {
            match self.resolve(workspace, &id) {
                Ok(profile) => {
                    visible.agents.extend(Some(profile).filter(|profile| qualifies(profile, disabled)));
                }
                Err(error) => {
                    self.complain(&self.place(workspace, &id), &error.to_string());
                    visible.broken.push((id, error.to_string()));
                }
            }
        }
        visible
    }

    /// The agent that a client names. `None`: it is internal or switched off.
    pub fn pick(
        &self,
        workspace: &Path,
        id: &str,
        disabled: &[DisabledItem],
    ) -> Result<Option<Profile>, ProfileError> {
        Ok(Some(self.resolve(workspace, id)?).filter(|profile| qualifies(profile, disabled)))
    }

    /// The agents of the profile's team that can be had: neither internal nor switched off nor broken (those are
    /// logged). An internal agent has no team.
    pub fn team(&self, workspace: &Path, profile: &Profile, disabled: &[DisabledItem]) -> Vec<Profile> {
        let named: BTreeSet<&String> =
            if profile.internal { BTreeSet::new() } else { profile.team.iter().take(MAX_AGENTS).collect() };
        let resolved = named.into_iter().filter_map(|id| match self.pick(workspace, id, disabled) {
            Ok(member) => member,
            Err(ProfileError::NotFound(_) | ProfileError::InvalidId) => None,
            Err(error) => {
                self.complain(&self.place(workspace, id), &error.to_string());
                None
            }
        });
        resolved.collect()
    }

    fn place(&self, workspace: &Path, id: &str) -> PathBuf {
        let own = in_workspace(workspace).join(id);
        if own.is_dir() { own } else { self.global.join(id) }
    }

    /// Every agent id, sorted.
    fn ids(&self, workspace: &Path) -> Vec<String> {
        let mut ids: BTreeSet<String> = BUILT_IN.iter().map(|built_in| built_in.0.to_owned()).collect();
        for folder in [in_workspace(workspace), self.global.clone()] {
            // No such folder: no agents there.
            let Ok(entries) = fs::read_dir(folder) else { continue };
            for entry in entries.flatten().take(MAX_AGENTS) {
                if let Ok(name) = entry.file_name().into_string()
                    && is_agent_id(&name)
                    && entry.path().is_dir()
                {
                    ids.insert(name);
                }
            }
        }
        ids.into_iter().collect()
    }

    fn read(&self, folder: &Path, id: &str, origin: Origin) -> Result<Profile, ProfileError> {
        let file = folder.join("agent.yaml");
        let unreadable = |file: &Path, error: &io::Error| ProfileError::Unreadable {
            file: file.to_owned(),
            reason: error.to_string(),
        };
        let text = read_text(&file)
            .map_err(|error| unreadable(&file, &error))?
            .ok_or_else(|| unreadable(&file, &io::ErrorKind::NotFound.into()))?;
        let parsed = yaml::parse(&text).map_err(|mistake| broken(&file, mistake))?;
        let unknown = yaml::unknown_keys(&text);
        if !unknown.is_empty() {
            self.complain(&file, &unknown.join("; "));
        }
        let agent_md = folder.join("AGENT.md");
        let agent_md = read_text(&agent_md).map_err(|error| unreadable(&agent_md, &error))?;
        Ok(profile(id, origin, parsed, agent_md))
    }

    /// Logs what is odd about an agent, once as long as it stays the same.
    pub fn complain_of(&self, workspace: &Path, id: &str, text: &str) {
        // Beside what is wrong with the file itself.
        let file = self.place(workspace, id).join("agent.yaml: names");
        if self.is_news(&file, text) {
            tracing::warn!("{text}");
        }
    }

    /// Logs what is wrong with a file, once as long as it stays the same.
    fn complain(&self, file: &Path, text: &str) {
        if self.is_news(file, text) {
            tracing::warn!(file = %file.display(), "{text}");
        }
    }

    /// Whether something else, or nothing, was said about the file last; remembers it.
    fn is_news(&self, file: &Path, text: &str) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.get(file).is_some_and(|before| before == text) {
            return false;
        }
        if said.len() >= MAX_COMPLAINTS {
            said.clear();
        }
        said.insert(file.to_owned(), text.to_owned());
        true
    }
}

/// Whether an agent of this id is inside the program.
pub fn is_built_in(id: &str) -> bool {
    BUILT_IN.iter().any(|built_in| built_in.0 == id)
}

/// Whether the text may name an agent: ASCII letters, digits, `_ . : > -` or U+4E00–U+9FFF, not `.` or `..`.
pub fn is_agent_id(text: &str) -> bool {
    let allowed =
        |c: char| c.is_ascii_alphanumeric() || "_.:>-".contains(c) || ('\u{4e00}'..='\u{9fff}').contains(&c);
    !text.is_empty()
        && text != "."
        && text != ".."
        && text.chars().take(MAX_ID_CHARS + 1).count() <= MAX_ID_CHARS
        && text.chars().all(allowed)
}

fn in_workspace(workspace: &Path) -> PathBuf {
    workspace.join(".halo/agents")
}

fn qualifies(profile: &Profile, disabled: &[DisabledItem]) -> bool {
    let off = disabled.iter().any(|item| {
        item.item_type == "agent" && item.item_id == profile.id && item.scope == profile.origin.scope()
    });
    !profile.internal && !off
}

fn broken(file: &Path, mistake: yaml::Mistake) -> ProfileError {
    let yaml::Mistake { line, column, field, text } = mistake;
    ProfileError::Broken { file: file.to_owned(), line, column, field, text }
}

fn profile(id: &str, origin: Origin, yaml: AgentYaml, agent_md: Option<String>) -> Profile {
    Profile {
        id: id.to_owned(),
        origin,
        name: yaml.name,
        description: yaml.description.unwrap_or_default(),
        priority: yaml.priority.unwrap_or(if id == DEFAULT { DEFAULT_PRIORITY } else { 0 }),
        internal: yaml.internal.unwrap_or_default(),
        model: yaml.model.map(model),
        agent_md,
        system_prompt: yaml.system_prompt,
        max_context_tokens: yaml.context.as_ref().and_then(|context| context.max_tokens),
        compress_at: yaml.context.as_ref().and_then(|context| context.compress_at),
        tools: yaml.tools.unwrap_or_default(),
        skills: yaml.skills.unwrap_or_default(),
        team: yaml.team.unwrap_or_default(),
        missing: Vec::new(),
    }
}

fn model(yaml: ModelYaml) -> ProfileModel {
    let thinking = yaml.thinking.map(|thinking| Thinking {
        enabled: thinking.enabled.unwrap_or_default(),
        effort: thinking.effort.or(thinking.budget),
        budget_tokens: thinking.budget_tokens,
    });
    ProfileModel {
        provider: yaml.provider,
        id: yaml.id,
        endpoint: yaml.endpoint,
        max_tokens: yaml.max_tokens,
        prompt_caching: yaml.prompt_caching,
        thinking,
        verbosity: yaml.verbosity,
        image: yaml.image,
    }
}

#[cfg(test)]
mod tests;
