//! Skills behind commands: `/<command>` of a skill in the list of the session's agent, and the verbs that the skills
//! `agent`, `skill` and `workspace` add to the objects of these names. Either sends the skill's text to the session.

use super::line::{Line, first_word};
use super::{Asked, Meant, Reply, agent, help, table, texts};
use crate::access::AccessLevel;
use crate::agent::skill::{Shelf, Skill};
use crate::http::error::ApiError;
use crate::workspace::paths::{Guard, Rules};

impl Asked {
    /// Looks at the skills, as a session of this level sees them, on a thread that may block.
    pub(super) async fn skills<T: Send + 'static>(
        &self,
        access: AccessLevel,
        look: impl FnOnce(Shelf<'_>) -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let disabled = self.disabled().await?;
        let (files, workspace) = (self.state.files.clone(), self.target.workspace.clone());
        let places = (self.state.settings)().hidden;
        let looked = tokio::task::spawn_blocking(move || {
            let guard = Guard::new(Rules {
                workspace: &workspace,
                user_home: &places.user_home,
                halo_home: &places.halo_home,
                access,
                hidden_dirs: &places.dirs,
                hidden_files: &places.files,
                writable_dirs: &[],
            });
            let (global, disabled) = (&files.skills, &disabled);
            look(Shelf { global, workspace: &workspace, guard: &guard, access, disabled })
        });
        looked.await.map_err(ApiError::internal)
    }
}

/// The skills with a command that the session's agent has, in its order: built-in commands win, then the first skill.
pub async fn commands(asked: &Asked) -> Result<Vec<Skill>, ApiError> {
    let agents = asked.agents().await?;
    let Some(ids) = agent::working(asked, &agents).await?.map(|agent| agent.skills.clone()) else {
        return Ok(Vec::new());
    };
    let listed = asked.skills(asked.access(), move |shelf| shelf.listed(&ids)).await?;
    let mut commands: Vec<Skill> = Vec::new();
    for skill in listed {
        let Some(command) = &skill.command else { continue };
        let taken = command == "help" || table::object(command).is_some();
        if !taken && skill.for_people && !commands.iter().any(|first| first.answers_to(command)) {
            commands.push(skill);
        }
    }
    Ok(commands)
}

/// The skill of this command.
pub async fn command(asked: &Asked, command: &str) -> Result<Option<Skill>, ApiError> {
    let command = command.to_lowercase();
    Ok(commands(asked).await?.into_iter().find(|skill| skill.answers_to(&command)))
}

/// The skills that add verbs to objects.
pub async fn verbs(asked: &Asked) -> Result<Vec<Skill>, ApiError> {
    let look = |shelf: Shelf<'_>| {
        let found = table::OBJECTS.iter().filter_map(|object| shelf.find(object.name));
        found.filter(|skill| skill.usable() && skill.for_people).collect()
    };
    asked.skills(asked.access(), look).await
}

/// Does what a skill's command says.
pub async fn run(asked: &Asked, skill: &Skill, line: &Line) -> Result<Meant, ApiError> {
    let (language, access) = (asked.language(), asked.access());
    if !skill.verbs.is_empty() {
        if line.args.is_empty() || line.verb == "help" {
            let text = help::of_command(&line.object, skill, language, access);
            return Ok(Meant::Reply(Reply::text(text)));
        }
        // An alias of a verb counts where the skill has that verb.
        let (typed, rest) = first_word(&line.args);
        let named = |name: &str| skill.verbs.iter().find(|verb| verb.name == name);
        if let Some(verb) = named(&typed.to_lowercase()).or_else(|| named(&line.verb)) {
            let command = format!("/{} {}", line.object, verb.name);
            if let Some(needs) = verb.requires.filter(|needs| *needs > access) {
                let text = texts::refused(language, &command, needs.as_str(), access.as_str());
                return Ok(Meant::Reply(Reply::text(text)));
            }
            return activate(asked, skill, &line.object, format!("{} {rest}", verb.name).trim()).await;
        }
    }
    activate(asked, skill, &line.object, &line.args).await
}

/// Does what a verb says that the skill of the object's name adds; `None` where it adds no such verb.
pub async fn verb(asked: &Asked, object: &'static str, line: &Line) -> Result<Option<Meant>, ApiError> {
    let skill = asked.skills(asked.access(), move |shelf| shelf.find(object)).await?;
    let Some(skill) = skill.filter(|skill| skill.usable() && skill.for_people) else { return Ok(None) };
    let added = skill.verbs.iter().any(|verb| verb.name == line.verb && verb.builtin != Some(true));
    if added { run(asked, &skill, line).await.map(Some) } else { Ok(None) }
}

/// The message that a skill's command stands for: a line that names it, and its text with what was given.
async fn activate(asked: &Asked, skill: &Skill, command: &str, given: &str) -> Result<Meant, ApiError> {
    let read = skill.clone();
    let body = match asked.skills(asked.access(), move |shelf| shelf.body(&read)).await? {
        Ok(body) => body,
        Err(why) => {
            return Ok(Meant::Reply(Reply::text(texts::skill_broken(asked.language(), &skill.id, &why))));
        }
    };
    let agents = asked.agents().await?;
    let agent = agent::working(asked, &agents).await?.map(|agent| agent.name.clone()).unwrap_or_default();
    let state = &asked.state;
    let names = state.engine.names(&asked.target.workspace, &agent, asked.access()).await?;
    let text = names.command_text(&body, &skill.id, state.clock.now_ms(), given);
    Ok(Meant::Message(format!("[Skill activated: /{command}]\n\n{text}")))
}
