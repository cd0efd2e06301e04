//! The system prompt of a run: the agent's own text, what the user and the project say, and how the program
//! works, in one fixed order. A missing part is left out; a file that cannot be read is logged and left out.

use super::files::{MAX_BYTES, read_text, split_front_matter};
use super::profile::Profile;
use crate::clock;
use serde::Deserialize;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// Files that are read of one prompt folder.
const MAX_FILES: usize = 64;

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
    /// Milliseconds since the Unix epoch, for `{{now}}`.
    pub now_ms: i64,
}

/// The front matter of USER.md.
#[derive(Debug, Default, Deserialize)]
struct User {
    #[serde(rename = "user_name")]
    name: Option<String>,
    ai_name: Option<String>,
    lang: Option<String>,
}

/// The whole text. Blocks on a dozen small files.
pub fn system_prompt(profile: &Profile, around: &Surroundings<'_>) -> String {
    let halo = around.workspace.join(".halo");
    let user = knowledge(around, "USER.md");
    let (user, user_text) = user.as_deref().map_or((None, ""), |text| {
        let (front, body) = front_matter(text);
        (Some(front), body)
    });

    let mut told = Vec::new();
    if around.is_root && !profile.internal {
        match &user {
            Some(user) => told.push(user_profile(user, user_text)),
            // Only an agent that can write the profile offers to.
            None if around.tool_names.contains(&"file_write") => {
                told.push(scope(around, "bootstrap", BOOTSTRAP));
            }
            None => {}
        }
    }
    let own = profile.agent_md.as_deref().or(profile.system_prompt.as_deref()).unwrap_or(NO_TEXT);
    told.push(render(own, profile, user.as_ref(), around));
    told.push(around.context.map(str::to_owned).unwrap_or_default());
    if !profile.internal {
        told.push(roster(profile, around.team));
        told.push(titled("## User Instructions", knowledge(around, "INSTRUCTIONS.md")));
        told.push(titled("## User Instructions", folder_instructions(around)));
        told.push(titled("## Project Knowledge", text_of(&halo.join("INDEX.md"))));
    }

    let mut rest = vec![join(&told, "\n\n---\n\n")];
    if !profile.internal {
        let place = around.workspace.display();
        rest.push(if around.is_root {
            format!("The project workspace is at: {place}")
        } else {
            format!("The workspace root is: {place}")
        });
        if let Some(folder) = around.working_dir {
            rest.push(format!("Working directory: {folder}"));
        }
        if around.is_root {
            rest.push(scope(around, "root", if around.team.is_empty() { &ROOT[1..] } else { ROOT }));
        }
        rest.push(scope(around, "all", ALL));
    }
    rest.push(if around.tool_names.is_empty() {
        "You have no tools.".to_owned()
    } else {
        format!("Your available tools: {}. Only use tools in this list.", around.tool_names.join(", "))
    });
    join(&rest, "\n\n")
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

/// The INSTRUCTIONS.md of the folders on the way to the working directory, outer ones first.
fn folder_instructions(around: &Surroundings<'_>) -> Option<String> {
    let mut folder = around.workspace.to_owned();
    let mut texts = Vec::new();
    for part in Path::new(around.working_dir?).components().take(MAX_FILES) {
        folder.push(part);
        if let Some(text) = text_of(&folder.join("INSTRUCTIONS.md")) {
            let shown = folder.strip_prefix(around.workspace).unwrap_or(&folder).display();
            texts.push(format!("### {shown}\n\n{}", text.trim()));
        }
    }
    (!texts.is_empty()).then(|| texts.join("\n\n"))
}

/// A file of the workspace's `.halo/`, else of the home.
fn knowledge(around: &Surroundings<'_>, name: &str) -> Option<String> {
    text_of(&around.workspace.join(".halo").join(name)).or_else(|| text_of(&around.home_global.join(name)))
}

fn text_of(file: &Path) -> Option<String> {
    match read_text(file) {
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
    for text in files.iter().filter_map(|file| text_of(file)) {
        let Some(left) = room.checked_sub(text.len()) else {
            tracing::warn!(scope = name, "prompt files over 1 MiB are left out");
            break;
        };
        room = left;
        texts.push(text);
    }
    join(&texts, "\n\n")
}

fn user_profile(user: &User, text: &str) -> String {
    let mut lines = String::from("## User Profile\n");
    for (label, value) in [("The user's name", &user.name), ("Your name", &user.ai_name)] {
        if let Some(value) = value {
            // Writing to a string cannot fail.
            let _ = write!(lines, "\n{label}: {value}");
        }
    }
    let language = user.lang.as_ref().map(|lang| format!("Reply in this language: {lang}"));
    join(&[lines, text.to_owned(), language.unwrap_or_default()], "\n\n")
}

/// Splits `---` front matter off. What is no such block, or no YAML that we know, belongs to the text.
fn front_matter(text: &str) -> (User, &str) {
    let Some((yaml, body)) = split_front_matter(text) else { return (User::default(), text) };
    crate::yaml::from_str(yaml).map_or((User::default(), text), |user| (user, body))
}

/// Fills in `{{name}}` for the names that an agent's text may use; everything else stays as typed.
fn render(text: &str, profile: &Profile, user: Option<&User>, around: &Surroundings<'_>) -> String {
    let workspace = || around.workspace.display().to_string();
    let value = |name: &str| match name {
        "workspace_root" => Some(workspace()),
        "working_dir" => Some(
            around
                .working_dir
                .map_or_else(workspace, |folder| around.workspace.join(folder).display().to_string()),
        ),
        "now" => Some(clock::iso(around.now_ms)),
        "agent_name" => Some(profile.name.clone()),
        "ai_name" => Some(user.and_then(|user| user.ai_name.clone()).unwrap_or_else(|| profile.name.clone())),
        "user_name" => Some(user.and_then(|user| user.name.clone()).unwrap_or_else(|| "the user".to_owned())),
        "args" => Some(String::new()),
        _ => None,
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let found = from[2..].find("}}").and_then(|end| Some((end + 4, value(from[2..2 + end].trim())?)));
        if let Some((length, value)) = found {
            out.push_str(&value);
            rest = &from[length..];
        } else {
            // One brace only: the next may begin a placeholder (`{{{now}}`).
            out.push('{');
            rest = &from[1..];
        }
    }
    out.push_str(rest);
    out
}

fn titled(title: &str, text: Option<String>) -> String {
    text.map(|text| format!("{title}\n\n{}", text.trim())).unwrap_or_default()
}

/// Joins what is not blank.
fn join(parts: &[String], with: &str) -> String {
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect();
    parts.join(with)
}

#[cfg(test)]
mod tests {
    use super::super::profile::Profiles;
    use super::*;
    use std::path::PathBuf;
    use tempfile::TempDir;

    struct Place {
        _folder: TempDir,
        workspace: PathBuf,
        home: PathBuf,
    }

    fn place() -> Place {
        let folder = tempfile::tempdir().unwrap();
        let (workspace, home) = (folder.path().join("ws"), folder.path().join("global"));
        fs::create_dir_all(workspace.join(".halo")).unwrap();
        fs::create_dir_all(&home).unwrap();
        Place { workspace, home, _folder: folder }
    }

    impl Place {
        fn around(&self) -> Surroundings<'_> {
            Surroundings {
                workspace: &self.workspace,
                home_global: &self.home,
                is_root: true,
                team: &[],
                working_dir: None,
                context: None,
                tool_names: &["file_read", "file_write"],
                now_ms: 1_796_148_373_010,
            }
        }

        fn own(&self, name: &str, text: &str) {
            write(&self.workspace.join(".halo").join(name), text);
        }

        fn global(&self, name: &str, text: &str) {
            write(&self.home.join(name), text);
        }
    }

    fn write(file: &Path, text: &str) {
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, text).unwrap();
    }

    fn agent(text: &str) -> Profile {
        let profile = Profiles::new("/nowhere".into()).resolve(Path::new("/nowhere"), "default").unwrap();
        Profile { agent_md: Some(text.into()), ..profile }
    }

    #[track_caller]
    fn in_order(prompt: &str, parts: &[&str]) {
        let mut from = 0;
        for part in parts {
            let at = prompt[from..]
                .find(part)
                .unwrap_or_else(|| panic!("`{part}` is missing or too early in:\n{prompt}"));
            from += at + part.len();
        }
    }

    #[test]
    fn the_parts_of_a_root_prompt_stand_in_their_order() {
        let place = place();
        place.own("USER.md", "---\nuser_name: Ada\nlang: German\n---\nLikes tea.\n");
        place.own("INSTRUCTIONS.md", "Be kind.");
        place.own("INDEX.md", "A shop.");
        let prompt = system_prompt(&agent("I am the agent."), &place.around());
        let at = format!("The project workspace is at: {}", place.workspace.display());
        in_order(
            &prompt,
            &[
                "## User Profile\n\nThe user's name: Ada\n\nLikes tea.\n\nReply in this language: German\n\n---\n\n",
                "I am the agent.\n\n---\n\n",
                "## User Instructions\n\nBe kind.\n\n---\n\n",
                "## Project Knowledge\n\nA shop.\n\n",
                &at,
                "# Memory",
                "# Rules of conduct",
                "# Using tools",
                "# Shell commands",
                "Your available tools: file_read, file_write. Only use tools in this list.",
            ],
        );
        assert!(!prompt.contains("First meeting"));
        assert!(prompt.ends_with("in this list."));
    }

    #[test]
    fn files_of_the_workspace_stand_in_for_those_of_the_home() {
        let place = place();
        place.global("INSTRUCTIONS.md", "global manners");
        place.global("prompts/all/B.md", "global B");
        place.global("prompts/all/A.md", "global A");
        place.global("prompts/all/A.windows.md", "for windows");
        let prompt = system_prompt(&agent("x"), &place.around());
        in_order(&prompt, &["global manners", "# Memory", "global A\n\nglobal B"]);
        assert!(!prompt.contains("for windows") && !prompt.contains("# Using tools"));
        place.own("INSTRUCTIONS.md", "own manners");
        place.own("prompts/all/X.md", "own X");
        let prompt = system_prompt(&agent("x"), &place.around());
        in_order(&prompt, &["own manners", "own X"]);
        assert!(!prompt.contains("global "));
    }

    #[test]
    fn a_first_meeting_is_only_offered_by_who_can_note_it() {
        let place = place();
        assert!(system_prompt(&agent("x"), &place.around()).starts_with("# First meeting"));
        let reader = Surroundings { tool_names: &["file_read"], ..place.around() };
        assert!(system_prompt(&agent("x"), &reader).starts_with("x\n\nThe project workspace"));
        let none = Surroundings { tool_names: &[], ..place.around() };
        assert!(system_prompt(&agent("x"), &none).ends_with("You have no tools."));
    }

    #[test]
    fn sub_agents_and_internal_ones_hear_less() {
        let place = place();
        place.own("USER.md", "Likes tea.");
        place.own("INSTRUCTIONS.md", "Be kind.");
        let child = system_prompt(&agent("x"), &Surroundings { is_root: false, ..place.around() });
        in_order(
            &child,
            &["x", "Be kind.", "The workspace root is: ", "# Using tools", "Your available tools"],
        );
        assert!(!child.contains("tea") && !child.contains("# Memory"));
        let internal = Profile { internal: true, ..agent("x") };
        assert_eq!(
            system_prompt(&internal, &place.around()),
            "x\n\nYour available tools: file_read, file_write. Only use tools in this list."
        );
    }

    #[test]
    fn who_may_delegate_reads_the_team_itself_first_then_by_priority() {
        let place = place();
        let profiles = Profiles::new("/nowhere".into());
        let me = profiles.resolve(Path::new("/nowhere"), "default").unwrap();
        let team = profiles.team(Path::new("/nowhere"), &me, &[]);
        let around = Surroundings { team: &team, ..place.around() };
        let prompt = system_prompt(&me, &around);
        in_order(
            &prompt,
            &[
                "## Your Team\n\n- `default` (you) — Default: ",
                "\n- `executor` — ",
                "\n- `deep-executor` — ",
                "## Delegation",
            ],
        );
        let child = system_prompt(&me, &Surroundings { is_root: false, ..around });
        assert!(child.contains("## Your Team") && !child.contains("## Delegation"));
        assert!(!system_prompt(&me, &place.around()).contains("## Delegation"));
    }

    #[test]
    fn a_sub_agent_reads_what_it_was_told_beside_and_the_instructions_on_the_way_to_its_folder() {
        let place = place();
        write(&place.workspace.join("a/INSTRUCTIONS.md"), "outer rules");
        write(&place.workspace.join("a/b/INSTRUCTIONS.md"), "inner rules");
        let around = Surroundings {
            is_root: false,
            working_dir: Some("a/b"),
            context: Some("Only look, change nothing."),
            ..place.around()
        };
        let prompt = system_prompt(&agent("in {{working_dir}}"), &around);
        let place = format!("in {}/a/b", place.workspace.display());
        in_order(
            &prompt,
            &[
                &place,
                "Only look",
                "### a\n\nouter rules",
                "### a/b\n\ninner rules",
                "Working directory: a/b",
            ],
        );
    }

    #[test]
    fn agent_md_beats_the_yaml_and_there_is_always_some_text() {
        let place = place();
        let reader = Surroundings { tool_names: &["file_read"], ..place.around() };
        let yaml = Profile { system_prompt: Some("from yaml".into()), ..agent("from md") };
        assert!(system_prompt(&yaml, &reader).starts_with("from md"));
        assert!(system_prompt(&Profile { agent_md: None, ..yaml }, &reader).starts_with("from yaml"));
        assert!(system_prompt(&Profile { agent_md: None, ..agent("") }, &reader).starts_with(NO_TEXT));
    }

    #[test]
    fn placeholders_without_a_dot_are_filled_in_and_others_are_left() {
        let place = place();
        place.own("USER.md", "---\r\nuser_name: Ada\r\n---\r\n");
        let around = place.around();
        let user = User { name: Some("Ada".into()), ..User::default() };
        let text = "{{ user_name }}|{{ai_name}}|{{now}}|{{{agent_name}}}|{{x.params.y}}|{{general.z}}|{{what}}|{{now";
        assert_eq!(
            render(text, &agent(""), Some(&user), &around),
            "Ada|Default|2026-12-01T18:06:13.010Z|{Default}|{{x.params.y}}|{{general.z}}|{{what}}|{{now"
        );
        assert_eq!(
            render("{{workspace_root}}{{args}} {{user_name}}", &agent(""), None, &around),
            format!("{} the user", place.workspace.display())
        );
        assert!(system_prompt(&agent("for {{user_name}}"), &around).contains("for Ada"));
    }

    #[test]
    fn front_matter_that_is_none_stays_text() {
        for text in ["plain", "---\nno end", "---\n[broken\n---\nbody", "--- x\n"] {
            assert_eq!(front_matter(text).1, text);
        }
        let (user, body) = front_matter("---\nai_name: Hal\nother: 1\n---\nbody");
        assert_eq!((user.ai_name.as_deref(), body), (Some("Hal"), "body"));
    }
}
