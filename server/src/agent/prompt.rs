//! The system prompt of a run: the agent's own text, what the user and the project say, and how the program
//! works, in one fixed order. A missing part is left out; a file that cannot be read is logged and left out.

#[cfg(test)]
mod tests;

use super::files::{MAX_BYTES, read_allowed};
use super::names::Names;
use super::profile::Profile;
use super::skill::{ACTIVATE, Skill};
use super::user::User;
use crate::access::AccessLevel;
use crate::text::head_chars;
use crate::workspace::paths::Guard;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Files that are read of one prompt folder.
const MAX_FILES: usize = 64;

/// Skills that are told of, the longest description of one in characters, and bytes of them all.
const MAX_SKILLS: usize = 100;
const SKILL_CHARS: usize = 1024;
const SKILLS_BYTES: usize = 64 * 1024;

/// What an agent is told when it has no text of its own.
const NO_TEXT: &str = "You are a helpful assistant that works inside a folder with the tools it is given.";

const BOOTSTRAP: &[&str] = &[include_str!("../../assets/prompts/bootstrap/BOOTSTRAP.md")];
/// The first is for agents with a team.
const ROOT: &[&str] = &[
    include_str!("../../assets/prompts/root/DELEGATION.md"),
    include_str!("../../assets/prompts/root/WORKSPACE_MEMORY.md"),
];
const ALL: &[&str] = &[
    include_str!("../../assets/prompts/all/RUNTIME.md"),
    include_str!("../../assets/prompts/all/TOOL_GUIDELINES.md"),
    include_str!("../../assets/prompts/all/TOOL_SHELL.md"),
    include_str!("../../assets/prompts/all/WORKSPACE_CONVENTIONS.md"),
];

/// What a prompt is made for.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The workspace's real path.
    pub workspace: &'a Path,
    /// The home's `global/`.
    pub home_global: &'a Path,
    /// Whether the session is a root, not a sub-agent's.
    pub is_root: bool,
    /// The agents that it may delegate to; empty when it cannot delegate.
    pub team: &'a [Profile],
    /// The folder that the session was pointed to, relative to the workspace.
    pub working_dir: Option<&'a str>,
    /// What a sub-agent was told beside its message.
    pub context: Option<&'a str>,
    /// The tools that the run has, in the order in which the model sees them.
    pub tool_names: &'a [&'a str],
    /// The skills that the agent may take up by itself.
    pub skills: &'a [Skill],
    /// What the user has said about themselves; none where there is no such file.
    pub user: Option<&'a User>,
    /// What placeholders stand for.
    pub names: &'a Names,
    /// The session's level.
    pub access: AccessLevel,
    /// What the session may read: a link to something hidden is left out.
    pub guard: &'a Guard,
    /// Milliseconds since the Unix epoch, for `{{now}}`.
    pub now_ms: i64,
}

/// The whole text. Blocks on a dozen small files.
pub fn system_prompt(profile: &Profile, around: &Surroundings<'_>) -> String {
    let mut told = Vec::new();
    if around.is_root && !profile.internal {
        match around.user {
            Some(user) => told.push(user_profile(user)),
            // Only an agent that can write the profile offers to.
            None if around.tool_names.contains(&"file_write") && around.access > AccessLevel::ReadOnly => {
                told.push(scope(around, "bootstrap", BOOTSTRAP));
            }
            None => {}
        }
    }
    let own = [&profile.agent_md, &profile.system_prompt].into_iter().flatten();
    let own = own.map(String::as_str).find(|text| !text.trim().is_empty()).unwrap_or(NO_TEXT);
    told.push(around.names.agent_text(own, around.now_ms));
    told.push(around.context.map(str::to_owned).unwrap_or_default());
    let roster = roster(profile, around.team);
    // An agent without a text of its own hears of its team last.
    let (roster, late_roster) =
        if profile.agent_md.is_some() { (roster, String::new()) } else { (String::new(), roster) };
    if !profile.internal {
        told.push(roster);
        told.push(titled("## User Instructions", knowledge(around, "INSTRUCTIONS.md")));
    }
    let on_the_way =
        around.working_dir.and_then(|folder| folder_instructions(around.workspace, folder, around.guard));
    told.push(titled("## User Instructions", on_the_way));
    if !profile.internal {
        let index = around.workspace.join(".halo/INDEX.md");
        told.push(titled("## Project Knowledge", text_of(&index, around.guard)));
    }

    let mut rest = vec![join(&told, "\n\n---\n\n")];
    if !profile.internal {
        let place = around.workspace.display();
        if around.is_root {
            rest.push(format!("The project workspace is at: {place}"));
        } else {
            rest.push(format!("The workspace root is: {place}"));
        }
        match around.working_dir {
            Some(folder) => rest.push(format!("Working directory: {folder}")),
            None if around.is_root => {}
            None => rest.push(format!("Working directory: {place}")),
        }
        if around.is_root {
            rest.push(scope(around, "root", if around.team.is_empty() { &ROOT[1..] } else { ROOT }));
        }
        rest.push(scope(around, "all", ALL));
    }
    rest.push(available_skills(around.skills));
    rest.push(if around.tool_names.is_empty() {
        "You have no tools.".to_owned()
    } else {
        format!("Your available tools: {}. Only use tools in this list.", around.tool_names.join(", "))
    });
    rest.push(late_roster);
    join(&rest, "\n\n")
}

/// The skills that an agent may take up by itself, within bounds.
fn available_skills(skills: &[Skill]) -> String {
    if skills.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "Each of these skills tells how to do tasks of one kind. When a task fits one, call `{ACTIVATE}` with its id \
         first.\n\n<available_skills>"
    );
    for (number, skill) in skills.iter().enumerate() {
        let words: Vec<&str> = skill.description.split_whitespace().collect();
        let about = words.join(" ");
        let entry = format!(
            "\n  <skill>\n    <name>{}</name>\n    <id>{}</id>\n    <description>{}</description>\n  </skill>",
            escaped(&skill.name),
            escaped(&skill.id),
            escaped(head_chars(&about, SKILL_CHARS))
        );
        if number == MAX_SKILLS || text.len() + entry.len() > SKILLS_BYTES {
            tracing::warn!("{} skills are left out of the prompt: they are too many", skills.len() - number);
            break;
        }
        text.push_str(&entry);
    }
    text.push_str("\n</available_skills>");
    text
}

/// For the text or an attribute of XML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The team, one line an agent: itself first, then by priority.
fn roster(profile: &Profile, team: &[Profile]) -> String {
    if team.is_empty() {
        return String::new();
    }
    let mut team: Vec<&Profile> = team.iter().collect();
    team.sort_by_key(|member| (member.id != profile.id, std::cmp::Reverse(member.priority)));
    let mut text = String::from("## Your Team\n");
    for member in team {
        let you = if member.id == profile.id { " (you)" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- `{}`{you} — {}: {}", member.id, member.name, member.description);
    }
    text
}

/// The INSTRUCTIONS.md of the folders on the way from the workspace to a folder in it, outer ones first. `None` where
/// there are none. Blocks on a small file a folder.
pub fn folder_instructions(workspace: &Path, folder: &str, guard: &Guard) -> Option<String> {
    let mut place = workspace.to_owned();
    let mut texts = Vec::new();
    for part in Path::new(folder).components().take(MAX_FILES) {
        place.push(part);
        if let Some(text) = text_of(&place.join("INSTRUCTIONS.md"), guard) {
            let shown = place.strip_prefix(workspace).unwrap_or(&place).display();
            texts.push(format!("### {shown}\n\n{}", text.trim()));
        }
    }
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// A file of the workspace's `.halo/`, else of the home.
fn knowledge(around: &Surroundings<'_>, name: &str) -> Option<String> {
    let own = around.workspace.join(".halo").join(name);
    text_of(&own, around.guard).or_else(|| text_of(&around.home_global.join(name), around.guard))
}

/// The file's text, where there is more than blanks in it.
pub(super) fn text_of(file: &Path, guard: &Guard) -> Option<String> {
    match read_allowed(file, guard) {
        Ok(text) => text.filter(|text| !text.trim().is_empty()),
        Err(error) => {
            tracing::warn!(file = %file.display(), %error, "left out of the prompt");
            None
        }
    }
}

/// The texts of a prompt folder, by name: the workspace's folder, else the home's, else those of the program.
fn scope(around: &Surroundings<'_>, name: &str, built_in: &[&str]) -> String {
    let folders =
        [around.workspace.join(".halo/prompts").join(name), around.home_global.join("prompts").join(name)];
    let Some(entries) = folders.iter().find_map(|folder| fs::read_dir(folder).ok()) else {
        return join(&built_in.iter().map(|&text| text.to_owned()).collect::<Vec<_>>(), "\n\n");
    };
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|file| {
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // Texts for other systems lie beside ours.
            name.ends_with(".md") && !name.ends_with(".windows.md")
        })
        .take(MAX_FILES)
        .collect();
    files.sort();
    let mut room = MAX_BYTES as usize;
    let mut texts = Vec::new();
    for text in files.iter().filter_map(|file| text_of(file, around.guard)) {
        let Some(left) = room.checked_sub(text.len()) else {
            tracing::warn!(scope = name, "prompt files over 1 MiB are left out");
            break;
        };
        room = left;
        texts.push(text);
    }
    join(&texts, "\n\n")
}

fn user_profile(user: &User) -> String {
    let mut lines = String::from("## User Profile\n");
    for (label, value) in [("The user's name", &user.name), ("Your name", &user.ai_name)] {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(lines, "\n{label}: {value}");
        }
    }
    let language = user.lang.as_ref().map(|lang| format!("Reply in this language: {lang}"));
    join(&[lines, user.text.clone(), language.unwrap_or_default()], "\n\n")
}

fn titled(title: &str, text: Option<String>) -> String {
    text.map(|text| format!("{title}\n\n{}", text.trim())).unwrap_or_default()
}

/// Joins what is not blank.
fn join(parts: &[String], with: &str) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    parts.join(with)
}
