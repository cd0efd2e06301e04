//! `activate_skill`: the text of a skill, as its file is now, and the files that lie beside it.

use super::resources::files;
use super::{ACTIVATE, Shelf, Skill};
use crate::agent::names::Names;
use crate::agent::profile::DisabledItem;
use crate::clock::Clock;
use crate::model::ToolSpec;
use crate::tool::args::Args;
use crate::tool::{Context, Cut, Output, Tool, blocking};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::sync::Arc;

/// Ids that an answer names.
const MAX_NAMED: usize = 50;

/// The tool of one run.
pub struct ActivateSkill {
    asked: Arc<Asked>,
}

struct Asked {
    /// The agent's list.
    ids: Vec<String>,
    /// What is switched off.
    disabled: Vec<DisabledItem>,
    names: Names,
    clock: Arc<dyn Clock>,
}

impl ActivateSkill {
    /// For an agent with this list of skills.
    pub fn new(ids: Vec<String>, disabled: Vec<DisabledItem>, names: Names, clock: Arc<dyn Clock>) -> Self {
        Self { asked: Arc::new(Asked { ids, disabled, names, clock }) }
    }
}

impl Tool for ActivateSkill {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: ACTIVATE.into(),
            description: "Gives the full text of a skill, with the files that belong to it. Call it before you start on \
                          a task that one of your available skills describes, and then do as the skill says."
                .into(),
            parameters: json!({
                "type": "object",
                "properties": {"skill_id": {"type": "string", "description": "The id of an available skill"}},
                "required": ["skill_id"],
            }),
        }
    }

    fn cut(&self) -> Cut {
        Cut::Never
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        let asked = self.asked.clone();
        blocking::run(context, move |context| asked.activate(&Args::new(ACTIVATE, &input), context)).boxed()
    }
}

impl Asked {
    fn activate(&self, args: &Args<'_>, context: &Context) -> Result<String, String> {
        let id = args.filled_text("skill_id")?.trim();
        let (guard, global) = (context.guard(), context.halo_home.join("global/skills"));
        let shelf = Shelf {
            global: &global,
            workspace: &context.workspace,
            guard: &guard,
            access: context.access,
            disabled: &self.disabled,
        };
        let found = if self.ids.iter().any(|known| known == id) { shelf.find(id) } else { None };
        let Some(skill) = found.filter(|skill| !skill.disabled) else { return Err(self.unknown(id, &shelf)) };
        if let Some(why) = &skill.broken {
            return Err(format!("The skill {id} cannot be used: {why}. Tell the user."));
        }
        if !skill.for_models {
            return Err(self.unknown(id, &shelf));
        }
        let body = shelf.body(&skill)?;
        let body = self.names.skill_text(&body, &skill.id, self.clock.now_ms());
        let mut text = format!("# Skill: {}\n\n{body}\n\nResource files in skill directory:", skill.name);
        let (files, more) = skill.folder.as_deref().map(files).unwrap_or_default();
        for file in &files {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n- {}", file.display());
        }
        if files.is_empty() {
            text.push_str(" none");
        } else if more {
            text.push_str("\n- … and more; file_list shows them");
        }
        Ok(text)
    }

    /// One that is missing, switched off, above the level or not in the list is all the same.
    fn unknown(&self, id: &str, shelf: &Shelf<'_>) -> String {
        let there = shelf.listed(&self.ids);
        let there: Vec<&str> = for_models(&there).take(MAX_NAMED).map(|skill| &*skill.id).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        format!("There is no skill {id:?} here. Available skills: {there}.")
    }
}

/// Those that an agent may take up by itself.
pub(in crate::agent) fn for_models(skills: &[Skill]) -> impl Iterator<Item = &Skill> {
    skills.iter().filter(|skill| skill.usable() && skill.for_models)
}
