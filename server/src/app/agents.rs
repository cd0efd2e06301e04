//! Agents for the engine: profile from disk, model from the registry, tools as the level allows, limits and keys
//! from the settings in force. Everything is read anew for each run, so an edit counts from the next one.

use crate::access::AccessLevel;
use crate::agent::Agent;
use crate::agent::compact;
use crate::agent::names::Names;
use crate::agent::profile::{self, DisabledItem, Profile, ProfileError, ProfileModel, Profiles, Visible};
use crate::agent::prompt::{Surroundings, folder_instructions, system_prompt};
use crate::agent::skill::{self, ActivateSkill, Shelf};
use crate::agent::user::User;
use crate::clock::Clock;
use crate::config::{Effective, Home, Live};
use crate::model::Model;
use crate::model::registry::{CacheTtl, Caching, CallSettings, ModelChoice, Registry, Thinking};
use crate::session::{AgentRequest, AgentSource, DelegationLimits, Member, Unavailable};
use crate::tool::registry::Registry as Tools;
use crate::tool::sandbox::{NetworkUse, Sandbox};
use crate::tool::{Context, Limits, Tool};
use crate::workspace::paths::{Guard, Rules};
use secrecy::ExposeSecret;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The provider inside the binary that needs no network and no key.
const DEMO: &str = "demo";

/// Names that may stand under `tools` although an agent gets these tools in another way, and one that is no more.
const BY_OTHER_MEANS: [&str; 11] = [
    "activate_skill",
    "continue_task",
    "draft",
    "start_session",
    "session_list",
    "query_session",
    "interrupt_session",
    "stop_session",
    "archive_session",
    "get_session_output",
    "query_agent",
];

/// Names of what is missing that are told.
const MAX_MISSING: usize = 20;

/// Finds and builds agents.
pub struct Agents {
    home: Home,
    live: Live,
    profiles: Profiles,
    models: Registry,
    tools: Tools,
    sandbox: Arc<Sandbox>,
    clock: Arc<dyn Clock>,
}

impl Agents {
    /// Agents of this home, whose commands run in this sandbox.
    pub fn new(home: Home, live: Live, sandbox: Arc<Sandbox>, clock: Arc<dyn Clock>) -> Self {
        Self {
            profiles: Profiles::new(home.agents_dir()),
            models: Registry::new(home.models_dir()),
            tools: Tools::standard(),
            sandbox,
            home,
            live,
            clock,
        }
    }

    /// Whether commands of readonly sessions run; for others it does not matter. Blocks until that is known.
    fn holds(&self, access: AccessLevel) -> bool {
        access == AccessLevel::ReadOnly && self.sandbox.holds()
    }

    /// The model of the profile, and the tokens that it takes.
    fn model(
        &self,
        profile: &Profile,
        workspace: &Path,
        settings: &Effective,
    ) -> Result<(Arc<dyn Model>, u64), String> {
        // A placeholder whose variable is not set is no key: it must not be sent anywhere.
        let secret = |provider: &str, key: &str| {
            settings.secret(provider, key, Some(workspace)).filter(|key| !is_placeholder(key.expose_secret()))
        };
        let calls = CallSettings { idle_timeout: settings.model_idle_timeout, clock: self.clock.clone() };
        let choice = match (&profile.model, &settings.default_provider) {
            (Some(model), _) => chosen(model),
            (None, Some(provider)) => {
                self.models.default_choice(provider).map_err(|error| error.to_string())?
            }
            (None, None) => self.models.first_configured(&secret).unwrap_or_else(|| ModelChoice {
                provider: DEMO.to_owned(),
                id: DEMO.to_owned(),
                ..ModelChoice::default()
            }),
        };
        let model = self
            .models
            .build(&choice, &secret, &calls)
            .map_err(|error| format!("the agent `{}` has no model: {error}", profile.id))?;
        let window = profile.max_context_tokens.map(u64::from).filter(|window| *window > 0);
        let window =
            window.or_else(|| self.models.context_window(&choice)).unwrap_or(settings.max_context_tokens);
        Ok((model, window))
    }

    /// Whether an agent with this model takes images; one without a model of its own may get any.
    fn sees(&self, model: Option<&ProfileModel>) -> bool {
        model.is_none_or(|model| self.models.takes_images(&chosen(model)))
    }

    /// What is named in a profile and not to be had: tools that this program has not, and skills that are nowhere.
    /// The level of whoever asks makes no difference.
    fn missing(&self, profile: &Profile, workspace: &Path) -> Vec<String> {
        let known =
            |name: &String| self.tools.names().any(|tool| tool == name) || BY_OTHER_MEANS.contains(&&**name);
        let tools = profile.tools.iter().filter(|name| !known(name)).cloned();
        let guard = self.guard(workspace, AccessLevel::Full);
        let global = self.home.skills_dir();
        let shelf =
            Shelf { global: &global, workspace, guard: &guard, access: AccessLevel::Full, disabled: &[] };
        let skills = profile.skills.iter().filter(|id| shelf.find(id).is_none()).cloned();
        tools.chain(skills).take(MAX_MISSING).collect()
    }

    /// Logs what a profile names and is not to be had, once as long as it stays the same.
    fn tell_missing(&self, profile: &Profile, workspace: &Path) {
        let missing = self.missing(profile, workspace);
        if !missing.is_empty() {
            let text =
                format!("the agent `{}` works without what is not here: {}", profile.id, missing.join(", "));
            self.profiles.complain_of(workspace, &profile.id, &text);
        }
    }

    /// What a session of this level may read.
    fn guard(&self, workspace: &Path, access: AccessLevel) -> Guard {
        let settings = self.live.current();
        Guard::new(Rules {
            workspace,
            user_home: &super::user_home(),
            halo_home: self.home.path(),
            access,
            hidden_dirs: &settings.hidden_dirs,
            hidden_files: &settings.hidden_files,
            writable_dirs: &settings.writable_dirs,
        })
    }

    fn context(&self, workspace: &Path, access: AccessLevel, settings: &Effective) -> Context {
        let home_global = self.home.global();
        let params = settings.params(workspace, |id, key| skill::is_secret(&home_global, workspace, id, key));
        Context {
            workspace: workspace.to_owned(),
            user_home: super::user_home(),
            halo_home: self.home.path().to_owned(),
            access,
            hidden_dirs: settings.hidden_dirs.clone(),
            hidden_files: settings.hidden_files.clone(),
            writable_dirs: settings.writable_dirs.clone(),
            sandbox: self.sandbox.clone(),
            sandbox_network: NetworkUse::from_setting(&settings.sandbox_network),
            url_allowlist: settings.url_allowlist.clone(),
            params: Arc::new(params),
            limits: Limits {
                shell_timeout: settings.shell_timeout,
                shell_output_bytes: settings.shell_output_bytes,
                grep_default_matches: settings.grep_default_matches,
                web_fetch_timeout: settings.web_fetch_timeout,
                web_fetch_bytes: settings.web_fetch_bytes,
            },
            cancel: CancellationToken::new(),
        }
    }
}

impl AgentSource for Agents {
    fn choose(
        &self,
        workspace: &Path,
        wanted: Option<&str>,
        disabled: &[DisabledItem],
    ) -> Result<(String, String), Unavailable> {
        let profile = match wanted {
            Some(id) => self.profiles.pick(workspace, id, disabled),
            None => self.profiles.default_for(workspace, disabled).map(Some),
        };
        match profile {
            Ok(Some(profile)) => Ok((profile.id, profile.name)),
            Ok(None) | Err(ProfileError::InvalidId | ProfileError::NotFound(_)) => Err(Unavailable::No),
            Err(error) => Err(Unavailable::Broken(error.to_string())),
        }
    }

    fn visible(&self, workspace: &Path, disabled: &[DisabledItem]) -> Visible {
        let mut visible = self.profiles.visible(workspace, disabled);
        for agent in &mut visible.agents {
            agent.missing = self.missing(agent, workspace);
            // A name that no tool has is of no effect, so nobody should count on it.
            agent.tools.retain(|name| self.tools.names().any(|tool| tool == name));
        }
        visible
    }

    fn delegation(&self) -> DelegationLimits {
        let settings = self.live.current();
        DelegationLimits {
            max_queue: settings.max_queue_size,
            max_depth: settings.max_nesting_depth,
            report_chars: settings.auto_report_chars,
        }
    }

    fn team(
        &self,
        workspace: &Path,
        agent_id: &str,
        access: AccessLevel,
        disabled: &[DisabledItem],
    ) -> Result<Vec<Member>, String> {
        let profile = self.profiles.resolve(workspace, agent_id).map_err(|error| error.to_string())?;
        let guard = self.guard(workspace, access);
        let global = self.home.skills_dir();
        let shelf = Shelf { global: &global, workspace, guard: &guard, access, disabled };
        let member = |member: Profile| {
            let skills = shelf.listed(&member.skills).into_iter().map(|skill| skill.id);
            let sight = self.sees(member.model.as_ref());
            let tools = self.tools.select(&member.tools, access, self.holds(access), sight);
            Member {
                model: member.model.map(|model| format!("{}/{}", model.provider, model.id)),
                tools: tools.iter().map(|tool| tool.spec().name).collect(),
                id: member.id,
                name: member.name,
                description: member.description,
                skills: skills.collect(),
            }
        };
        Ok(self.profiles.team(workspace, &profile, disabled).into_iter().map(member).collect())
    }

    fn names(&self, workspace: &Path, agent_name: &str, access: AccessLevel) -> Names {
        let context = self.context(workspace, access, &self.live.current());
        let user = User::read(workspace, &self.home.global(), &context.guard());
        names_of(agent_name, user.as_ref(), None, &context)
    }

    fn instructions(
        &self,
        workspace: &Path,
        folder: &str,
        access: AccessLevel,
    ) -> Result<(String, String), String> {
        let guard = self.guard(workspace, access);
        // What is hidden is as good as missing.
        let real =
            guard.open_folder(&workspace.join(folder)).map_err(|_| "there is no such folder".to_owned())?;
        let inside = real.strip_prefix(guard.workspace()).ok().and_then(Path::to_str);
        let inside = inside.ok_or_else(|| "the folder is outside of the workspace".to_owned())?;
        let text = folder_instructions(workspace, inside, &guard);
        let text = text.ok_or_else(|| "there is no INSTRUCTIONS.md on the way to it".to_owned())?;
        Ok((if inside.is_empty() { "." } else { inside }.to_owned(), text))
    }

    fn build(&self, request: AgentRequest<'_>) -> Result<Agent, String> {
        let AgentRequest { workspace, agent_id, access, is_root, .. } = request;
        let profile = self.profiles.resolve(workspace, agent_id).map_err(|error| error.to_string())?;
        let settings = self.live.current();
        let (model, window) = self.model(&profile, workspace, &settings)?;
        let mut tools: Vec<Arc<dyn Tool>> =
            self.tools.select(&profile.tools, access, self.holds(access), model.takes_images());
        tools.extend(request.always);
        let team = self.profiles.team(workspace, &profile, request.disabled);
        if !team.is_empty() {
            tools.extend(request.delegation);
        }
        let context = self.context(workspace, access, &settings);
        let (guard, home_global) = (context.guard(), self.home.global());
        let user = User::read(workspace, &home_global, &guard);
        let names = names_of(&profile.name, user.as_ref(), request.working_dir, &context);
        let global = self.home.skills_dir();
        let shelf = Shelf { global: &global, workspace, guard: &guard, access, disabled: request.disabled };
        let mut skills = shelf.listed(&profile.skills);
        skills.retain(|skill| skill.for_models);
        if !skills.is_empty() {
            let disabled = request.disabled.to_vec();
            let activate =
                ActivateSkill::new(profile.skills.clone(), disabled, names.clone(), self.clock.clone());
            tools.push(Arc::new(activate));
        }
        self.tell_missing(&profile, workspace);
        let specs: Arc<[_]> = tools.iter().map(|tool| tool.spec()).collect();
        let tool_names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
        let around = Surroundings {
            workspace,
            home_global: &home_global,
            is_root,
            team: &team,
            working_dir: request.working_dir,
            context: request.prompt_context,
            tool_names: &tool_names,
            skills: &skills,
            user: user.as_ref(),
            names: &names,
            access,
            guard: &guard,
            now_ms: self.clock.now_ms(),
        };
        Ok(Agent {
            system: system_prompt(&profile, &around).into(),
            name: profile.name,
            model,
            tools,
            specs,
            context,
            max_tries: settings.max_retries,
            render_chars: settings.tool_result_render_chars,
            display_bytes: settings.tool_result_ui_chars,
            compaction: compact::Limits {
                window,
                compress_at: profile.compress_at.unwrap_or(settings.compress_at),
                keep_messages: settings.keep_messages,
                max_summary_input: settings.max_summary_input,
                max_message_slice: settings.max_message_slice,
            },
        })
    }
}

/// What placeholders stand for.
fn names_of(agent_name: &str, user: Option<&User>, working_dir: Option<&str>, context: &Context) -> Names {
    Names {
        workspace: context.workspace.clone(),
        working_dir: working_dir.map(str::to_owned),
        agent_name: agent_name.to_owned(),
        user_name: user.and_then(|user| user.name.clone()),
        ai_name: user.and_then(|user| user.ai_name.clone()),
        params: context.params.clone(),
    }
}

/// `<<NAME>>`: what the settings give for a variable that is not set.
fn is_placeholder(text: &str) -> bool {
    text.trim().strip_prefix("<<").is_some_and(|rest| rest.ends_with(">>"))
}

fn chosen(model: &ProfileModel) -> ModelChoice {
    ModelChoice {
        provider: model.provider.clone(),
        id: model.id.clone(),
        endpoint: model.endpoint.clone(),
        max_tokens: model.max_tokens.map(u64::from),
        prompt_caching: model.prompt_caching.map(|caching| match caching {
            profile::Caching::Off => Caching::Off,
            profile::Caching::Default => Caching::On,
            profile::Caching::FiveMinutes => Caching::For(CacheTtl::FiveMinutes),
            profile::Caching::OneHour => Caching::For(CacheTtl::OneHour),
        }),
        thinking: model.thinking.as_ref().map(|thinking| Thinking {
            enabled: thinking.enabled,
            effort: thinking.effort.clone(),
            budget_tokens: thinking.budget_tokens.map(u64::from),
        }),
        verbosity: model.verbosity.clone(),
        image: model.image,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placeholder_of_an_unset_variable_is_no_key() {
        assert!(is_placeholder("<<ANTHROPIC_API_KEY>>") && is_placeholder(" <<X>> "));
        assert!(!is_placeholder("sk-<<x>>-1") && !is_placeholder(""));
    }
}
