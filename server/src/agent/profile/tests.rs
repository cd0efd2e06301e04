use super::*;
use tempfile::TempDir;

struct Home {
    _folder: TempDir,
    workspace: PathBuf,
    global: PathBuf,
    profiles: Profiles,
}

fn home() -> Home {
    let folder = tempfile::tempdir().unwrap();
    let (workspace, global) = (folder.path().join("ws"), folder.path().join("home/global/agents"));
    Home { workspace, profiles: Profiles::new(global.clone()), global, _folder: folder }
}

impl Home {
    fn in_workspace(&self, id: &str, yaml: &str) -> PathBuf {
        put(&self.workspace.join(".halo/agents"), id, yaml)
    }

    fn in_global(&self, id: &str, yaml: &str) -> PathBuf {
        put(&self.global, id, yaml)
    }

    fn resolve(&self, id: &str) -> Result<Profile, ProfileError> {
        self.profiles.resolve(&self.workspace, id)
    }

    fn default(&self) -> Result<String, ProfileError> {
        self.profiles.default_for(&self.workspace, &[]).map(|profile| profile.id)
    }
}

fn put(agents: &Path, id: &str, yaml: &str) -> PathBuf {
    let folder = agents.join(id);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("agent.yaml"), yaml).unwrap();
    folder
}

fn off(id: &str, scope: &str) -> DisabledItem {
    DisabledItem { item_type: "agent".into(), item_id: id.into(), scope: scope.into() }
}

#[test]
fn the_built_in_agents_are_there_without_any_file() {
    let home = home();
    for (id, ..) in BUILT_IN {
        let profile = home.resolve(id).unwrap();
        assert_eq!(
            (profile.origin, profile.internal, profile.model.is_none()),
            (Origin::BuiltIn, false, true)
        );
        assert!(profile.agent_md.is_some() && profile.tools.iter().any(|tool| tool == "file_read"));
    }
    assert_eq!(home.resolve(DEFAULT).unwrap().priority, 99);
    assert_eq!(home.default().unwrap(), DEFAULT);
    assert_eq!(home.resolve("nobody").unwrap_err(), ProfileError::NotFound("nobody".into()));
    assert!(!home.workspace.exists(), "asking makes nothing");
}

#[test]
fn a_file_for_the_default_agent_keeps_it_the_default() {
    let home = home();
    home.in_global(DEFAULT, "name: Mine\n");
    assert_eq!(home.resolve(DEFAULT).unwrap().name, "Mine");
    assert_eq!(home.default().unwrap(), DEFAULT);
    home.in_global(DEFAULT, "name: Mine\npriority: 1\n");
    assert_ne!(home.default().unwrap(), DEFAULT, "a priority that is written counts");
}

#[test]
fn a_workspace_folder_stands_in_for_the_global_one_as_a_whole() {
    let home = home();
    let global = home.in_global("helper", "name: Global\n");
    fs::write(global.join("AGENT.md"), "global text").unwrap();
    let profile = home.resolve("helper").unwrap();
    assert_eq!((&profile.name[..], profile.agent_md.as_deref()), ("Global", Some("global text")));

    let own = home.in_workspace("helper", "name: Own\nsystem_prompt: short\n");
    let profile = home.resolve("helper").unwrap();
    assert_eq!((&profile.name[..], profile.agent_md, profile.origin), ("Own", None, Origin::Workspace));

    fs::remove_file(own.join("agent.yaml")).unwrap();
    let error = home.resolve("helper").unwrap_err();
    assert!(error.to_string().contains("agent.yaml missing or unreadable"), "{error}");
    assert!(home.profiles.pick(&home.workspace, "helper", &[]).is_err());
}

#[test]
fn an_edit_counts_from_the_next_call() {
    let home = home();
    home.in_workspace("helper", "name: Before\n");
    assert_eq!(home.resolve("helper").unwrap().name, "Before");
    home.in_workspace("helper", "name: After\n");
    assert_eq!(home.resolve("helper").unwrap().name, "After");
}

#[test]
fn the_highest_priority_answers_and_the_workspace_wins_a_tie() {
    let home = home();
    home.in_global("a", "name: A\npriority: 100\n");
    assert_eq!(home.default().unwrap(), "a");
    home.in_workspace("z", "name: Z\npriority: 100\n");
    assert_eq!(home.default().unwrap(), "z");
    home.in_workspace("hidden", "name: H\npriority: 500\ninternal: true\n");
    assert_eq!(home.default().unwrap(), "z");
    let chosen = |disabled: &[DisabledItem]| home.profiles.default_for(&home.workspace, disabled).unwrap().id;
    assert_eq!(chosen(&[off("z", "workspace")]), "a");
    assert_eq!(chosen(&[off("z", "global")]), "z", "the scope must be the one that serves the id");
    assert_eq!(chosen(&[off("z", "workspace"), off("a", "global")]), DEFAULT);
    let all = ["a", DEFAULT, "executor", "deep-executor"].map(|id| off(id, "global"));
    assert_eq!(
        chosen(&[&all[..], &[off("z", "workspace")]].concat()),
        DEFAULT,
        "when nothing else qualifies"
    );
}

#[test]
fn only_agents_that_exist_are_enabled_and_not_internal_may_be_named() {
    let home = home();
    home.in_global("helper", "name: A\n");
    home.in_global("hidden", "name: A\ninternal: true\n");
    home.in_global("broken", "name: [\n");
    let available = |id: &str, disabled: &[DisabledItem]| {
        matches!(home.profiles.pick(&home.workspace, id, disabled), Ok(Some(_)))
    };
    assert!(available("helper", &[]) && available(DEFAULT, &[]));
    assert!(!available("helper", &[off("helper", "global")]));
    for id in ["hidden", "broken", "nobody", "", "..", "a/b", "../helper"] {
        assert!(!available(id, &[]), "{id}");
    }
}

#[test]
fn a_broken_file_names_its_place_and_the_others_go_on_working() {
    let home = home();
    let folder = home.in_global("broken", "name: A\npriority: 900\ntools: 5\n");
    home.in_global("good", "name: G\npriority: 100\n");
    let error = home.resolve("broken").unwrap_err();
    let start = format!("{}:3:8: tools: ", folder.join("agent.yaml").display());
    assert!(error.to_string().starts_with(&start), "{error}");
    assert_eq!(home.default().unwrap(), "good");
}

#[test]
fn a_broken_default_is_an_error_unless_an_agent_of_the_users_own_can_answer() {
    let home = home();
    home.in_global(DEFAULT, "priority: 1\n");
    assert!(matches!(home.default(), Err(ProfileError::Broken { .. })));
    home.in_global("mine", "name: M\n");
    assert_eq!(home.resolve("mine").unwrap().priority, 0);
    home.in_global("mine", "name: M\npriority: 60\n");
    assert_eq!(home.default().unwrap(), "mine");
}

#[test]
fn the_old_name_of_the_effort_still_works() {
    let home = home();
    home.in_global(
        "x",
        "name: X\nmodel: {provider: p, id: m, endpoint: e, thinking: {enabled: true, budget: max}}\n",
    );
    let model = home.resolve("x").unwrap().model.unwrap();
    let thinking = Thinking { enabled: true, effort: Some("max".into()), budget_tokens: None };
    assert_eq!((model.endpoint.as_deref(), model.thinking), (Some("e"), Some(thinking)));
    assert_eq!(model.prompt_caching, None);
}

#[test]
fn agent_ids_may_be_chinese_and_are_one_segment() {
    for good in ["default", "__x__", "a.b:c>d-e", "助手", &"a".repeat(128)] {
        assert!(is_agent_id(good), "{good}");
    }
    for bad in ["", ".", "..", "a/b", "a b", "é", "a\0", &"a".repeat(129)] {
        assert!(!is_agent_id(bad), "{bad}");
    }
}
