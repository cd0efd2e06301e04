//! What the placeholders of an agent's and a skill's text stand for.

use crate::clock;
use crate::placeholder::{self, Params, Piece, arguments, param_name};
use std::path::PathBuf;
use std::sync::Arc;

/// Names that stand for a channel's data; the web channel has none of it.
const CHANNEL: [&str; 3] = ["channel.type", "channel.account_id", "channel.chat_id"];

/// The values of one run.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// The folder that the session was pointed to, relative to the workspace.
    pub working_dir: Option<String>,
    /// The agent's display name.
    pub agent_name: String,
    /// What the user's profile calls the user.
    pub user_name: Option<String>,
    /// What the user's profile calls the agent.
    pub ai_name: Option<String>,
    /// The params of the settings.
    pub params: Arc<Params>,
}

impl Names {
    /// The text of an `AGENT.md`, or what stands in for it.
    pub fn agent_text(&self, text: &str, now_ms: i64) -> String {
        self.fill(text, "an agent's text", now_ms, None, "", str::to_owned)
    }

    /// The body of a skill that an agent took up.
    pub fn skill_text(&self, text: &str, id: &str, now_ms: i64) -> String {
        self.fill(text, id, now_ms, Some(id), "", str::to_owned)
    }

    /// The body of a skill whose command was given, with what followed the command.
    pub fn command_text(&self, text: &str, id: &str, now_ms: i64, given: &str) -> String {
        self.fill(text, id, now_ms, Some(id), given, |part| arguments::fill(part, given))
    }

    /// Fills everything in that is known. `typed` looks at what is no placeholder; what was filled in is not looked
    /// at again. What is left is logged, except for params that are not set.
    fn fill(
        &self,
        text: &str,
        what: &str,
        now_ms: i64,
        skill: Option<&str>,
        args: &str,
        typed: impl Fn(&str) -> String,
    ) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut left = Vec::new();
        for piece in placeholder::pieces(text) {
            match piece {
                Piece::Text(part) => filled.push_str(&typed(part)),
                Piece::Name { name, typed: as_typed } => {
                    let own = skill.filter(|_| name.starts_with("params.")).map(|id| format!("{id}.{name}"));
                    let full = own.as_deref().unwrap_or(name);
                    if let Some(value) = self.value(full, now_ms, args) {
                        filled.push_str(&value);
                    } else {
                        filled.push_str(as_typed);
                        if param_name(full).is_none() && !left.contains(&as_typed) {
                            left.push(as_typed);
                        }
                    }
                }
            }
        }
        if !left.is_empty() {
            tracing::warn!(
                text = what,
                "left as typed, since no such placeholder is filled in: {}",
                left.join(" ")
            );
        }
        filled
    }

    fn value(&self, name: &str, now_ms: i64, args: &str) -> Option<String> {
        let workspace = || self.workspace.display().to_string();
        Some(match name {
            "workspace_root" => workspace(),
            "working_dir" => match &self.working_dir {
                Some(folder) => self.workspace.join(folder).display().to_string(),
                None => workspace(),
            },
            "now" => clock::iso(now_ms),
            "agent_name" => self.agent_name.clone(),
            "ai_name" => self.ai_name.clone().unwrap_or_else(|| self.agent_name.clone()),
            "user_name" => self.user_name.clone().unwrap_or_else(|| "the user".to_owned()),
            "args" => args.to_owned(),
            name if CHANNEL.contains(&name) => String::new(),
            name => self.params.get(name)?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const NOW: i64 = 1_796_148_373_010;

    fn names() -> Names {
        let value = |id: &str, key: &str, value: &str| ((id.to_owned(), key.to_owned()), value.to_owned());
        let values = BTreeMap::from([value("s", "k", "v $1 {{now}}"), value("other", "k", "o")]);
        Names {
            workspace: "/w".into(),
            agent_name: "Hal".into(),
            user_name: Some("Ada".into()),
            params: Arc::new(Params::new(values, [])),
            ..Names::default()
        }
    }

    #[test]
    fn what_is_known_is_filled_in_and_the_rest_stays() {
        let text = "{{ user_name }}|{{ai_name}}|{{now}}|{{{agent_name}}}|{{s.params.k}}|{{s.params.none}}|{{s.secrets.k}}|\
                    {{general.z}}|{{what}}|{{now|[{{args}}{{channel.type}}{{channel.chat_id}}]{{channel.x}}";
        assert_eq!(
            names().agent_text(text, NOW),
            "Ada|Hal|2026-12-01T18:06:13.010Z|{Hal}|v $1 {{now}}|{{s.params.none}}|{{s.secrets.k}}|{{general.z}}|\
             {{what}}|{{now|[]{{channel.x}}"
        );
        let there = Names { working_dir: Some("a/b".into()), user_name: None, ..names() };
        let text = "{{workspace_root}} {{working_dir}} {{user_name}}";
        assert_eq!(there.agent_text(text, NOW), "/w /w/a/b the user");
        assert_eq!(names().agent_text(text, NOW), "/w /w Ada");
    }

    #[test]
    fn the_short_form_of_a_param_is_for_skills_alone() {
        let text = "{{params.k}} {{other.params.k}} {{params.none}} $1 <<HOME>>";
        assert_eq!(names().agent_text(text, NOW), "{{params.k}} o {{params.none}} $1 <<HOME>>");
        assert_eq!(names().skill_text(text, "s", NOW), "v $1 {{now}} o {{params.none}} $1 <<HOME>>");
    }

    #[test]
    fn a_command_brings_arguments_that_are_not_looked_at_again() {
        let given = "{{now}} $2";
        let text = "{{params.k}}|{{args}}|$ARGUMENTS|$1|$2|$3";
        assert_eq!(
            names().command_text(text, "s", NOW, given),
            "v $1 {{now}}|{{now}} $2|{{now}} $2|{{now}}|$2|"
        );
    }
}
