use super::super::profile::Profiles;
use super::*;
use std::path::PathBuf;
use tempfile::TempDir;

struct Place {
    _folder: TempDir,
    workspace: PathBuf,
    home: PathBuf,
    guard: Guard,
    names: Names,
    user: Option<User>,
}

fn place() -> Place {
    let folder = tempfile::tempdir().unwrap();
    let (workspace, home) = (folder.path().join("ws"), folder.path().join("global"));
    fs::create_dir_all(workspace.join(".halo")).unwrap();
    fs::create_dir_all(&home).unwrap();
    let guard = Guard::inside(&workspace);
    let names = Names { workspace: workspace.clone(), agent_name: "Default".into(), ..Names::default() };
    Place { workspace, home, guard, names, user: None, _folder: folder }
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
            skills: &[],
            user: self.user.as_ref(),
            names: &self.names,
            access: AccessLevel::Full,
            guard: &self.guard,
            now_ms: 1_796_148_373_010,
        }
    }

    fn own(&self, name: &str, text: &str) {
        write(&self.workspace.join(".halo").join(name), text);
    }

    /// With the user's profile.
    fn of_user(mut self, text: &str) -> Self {
        self.own("USER.md", text);
        self.user = User::read(&self.workspace, &self.home, &self.guard);
        self
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
    let place = place().of_user("---\nuser_name: Ada\nlang: German\n---\nLikes tea.\n");
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
    let refused = Surroundings { access: AccessLevel::ReadOnly, ..place.around() };
    assert!(system_prompt(&agent("x"), &refused).starts_with("x\n\nThe project workspace"));
    let none = Surroundings { tool_names: &[], ..place.around() };
    assert!(system_prompt(&agent("x"), &none).ends_with("You have no tools."));
}

#[test]
fn sub_agents_and_internal_ones_hear_less() {
    let place = place().of_user("Likes tea.");
    place.own("INSTRUCTIONS.md", "Be kind.");
    let child = system_prompt(&agent("x"), &Surroundings { is_root: false, ..place.around() });
    in_order(
        &child,
        &[
            "x",
            "Be kind.",
            "The workspace root is: ",
            "Working directory: /",
            "# Using tools",
            "Your available tools",
        ],
    );
    assert!(!child.contains("tea") && !child.contains("# Memory"));
    let internal = Profile { internal: true, ..agent("x") };
    assert_eq!(
        system_prompt(&internal, &place.around()),
        "x\n\nYour available tools: file_read, file_write. Only use tools in this list."
    );
    write(&place.workspace.join("a/INSTRUCTIONS.md"), "of a");
    let there = Surroundings { working_dir: Some("a"), skills: &[skill("s", "d")], ..place.around() };
    let prompt = system_prompt(&internal, &there);
    assert!(prompt.starts_with("x\n\n---\n\n## User Instructions\n\n### a\n\nof a\n\n"), "{prompt}");
    in_order(&prompt, &["<id>s</id>", "Your available tools"]);
    assert!(!prompt.contains("Be kind") && !prompt.contains("workspace"), "{prompt}");
}

fn skill(id: &str, description: &str) -> Skill {
    Skill {
        id: id.into(),
        origin: super::super::profile::Origin::BuiltIn,
        folder: None,
        name: id.into(),
        description: description.into(),
        requires: AccessLevel::ReadOnly,
        command: None,
        verbs: Vec::new(),
        for_models: true,
        for_people: true,
        allowed_tools: Vec::new(),
        disabled: false,
        broken: None,
        warnings: Vec::new(),
    }
}

#[test]
fn skills_stand_before_the_tools_as_xml_and_within_bounds() {
    let place = place();
    let few = [skill("pdf", "Reads <b> & \"c\"\n  of files"), skill("x", "y")];
    let prompt = system_prompt(&agent("I"), &Surroundings { skills: &few, ..place.around() });
    in_order(
        &prompt,
        &[
            "# Using tools",
            "<available_skills>\n  <skill>\n    <name>pdf</name>\n    <id>pdf</id>\n    <description>Reads &lt;b&gt; \
             &amp; &quot;c&quot; of files</description>\n  </skill>",
            "<id>x</id>",
            "</available_skills>\n\nYour available tools",
        ],
    );
    let many: Vec<Skill> = (0..150).map(|number| skill(&format!("s{number}"), "d")).collect();
    let prompt = system_prompt(&agent("I"), &Surroundings { skills: &many, ..place.around() });
    assert_eq!(prompt.matches("<skill>").count(), MAX_SKILLS);
    let long: Vec<Skill> = (0..90).map(|number| skill(&format!("s{number}"), &"é".repeat(9000))).collect();
    let prompt = system_prompt(&agent("I"), &Surroundings { skills: &long, ..place.around() });
    let told = prompt.matches("<skill>").count();
    assert!((20..40).contains(&told) && prompt.contains("</available_skills>"), "{told}");
    assert!(!system_prompt(&agent("I"), &place.around()).contains("available_skills"));
}

#[test]
fn a_link_to_something_hidden_is_left_out() {
    let place = place();
    fs::create_dir_all(place.workspace.join(".halo/sessions")).unwrap();
    place.own("sessions/old.json", "what others said");
    for name in ["INDEX.md", "INSTRUCTIONS.md"] {
        std::os::unix::fs::symlink("sessions/old.json", place.workspace.join(".halo").join(name)).unwrap();
    }
    let prompt = system_prompt(&agent("I"), &place.around());
    assert!(!prompt.contains("what others said"), "{prompt}");
    // Links as such are fine.
    place.own("notes.md", "of this place");
    fs::remove_file(place.workspace.join(".halo/INDEX.md")).unwrap();
    std::os::unix::fs::symlink("notes.md", place.workspace.join(".halo/INDEX.md")).unwrap();
    assert!(system_prompt(&agent("I"), &place.around()).contains("of this place"));
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
    let mut place = place();
    place.names.working_dir = Some("a/b".into());
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
        &[&place, "Only look", "### a\n\nouter rules", "### a/b\n\ninner rules", "Working directory: a/b"],
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
    let blank = Profile { system_prompt: Some("from yaml".into()), ..agent(" \n") };
    assert!(system_prompt(&blank, &reader).starts_with("from yaml"));
    let team = [agent("x")];
    let no_text = Profile { agent_md: None, ..agent("") };
    let prompt = system_prompt(&no_text, &Surroundings { team: &team, ..place.around() });
    in_order(&prompt, &["Your available tools", "## Your Team\n\n- `default` (you)"]);
}
