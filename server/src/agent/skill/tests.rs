use super::*;
use crate::agent::names::Names;
use crate::clock::SystemClock;
use crate::placeholder::Params;
use crate::tool::testing::Place;
use crate::tool::{Context, Output};
use serde_json::json;
use std::os::unix::fs::symlink;
use std::sync::Arc;

/// Writes a skill of the workspace, or of the home.
fn write(place: &Place, origin: Origin, id: &str, text: &str) {
    let folder = match origin {
        Origin::Workspace => place.at(".halo/skills"),
        _ => place.context.halo_home.join("global/skills"),
    };
    fs::create_dir_all(folder.join(id)).unwrap();
    fs::write(folder.join(id).join("SKILL.md"), text).unwrap();
}

fn text(id: &str, more: &str) -> String {
    format!("---\nname: {id}\ndescription: about {id}\n{more}---\nbody of {id}\n")
}

fn with<T>(place: &Place, disabled: &[DisabledItem], work: impl FnOnce(Shelf<'_>) -> T) -> T {
    look(&place.context, disabled, work)
}

fn at_level<T>(place: &Place, access: AccessLevel, work: impl FnOnce(Shelf<'_>) -> T) -> T {
    look(&Context { access, ..place.context.clone() }, &[], work)
}

fn look<T>(context: &Context, disabled: &[DisabledItem], work: impl FnOnce(Shelf<'_>) -> T) -> T {
    let (guard, global) = (context.guard(), context.halo_home.join("global/skills"));
    work(Shelf {
        global: &global,
        workspace: &context.workspace,
        guard: &guard,
        access: context.access,
        disabled,
    })
}

fn off(id: &str, scope: &str) -> DisabledItem {
    DisabledItem { item_type: "skill".into(), item_id: id.into(), scope: scope.into() }
}

/// Those that are not inside the program.
fn own(place: &Place, disabled: &[DisabledItem]) -> Vec<Skill> {
    let all = with(place, disabled, |shelf| shelf.all());
    all.into_iter().filter(|skill| skill.origin != Origin::BuiltIn).collect()
}

#[test]
fn a_skill_of_the_workspace_stands_in_for_the_global_one_and_is_switched_off_by_itself() {
    let place = Place::new();
    write(&place, Origin::Global, "both", &text("both", ""));
    write(&place, Origin::Workspace, "both", "---\nname: both\ndescription: the other\n---\n");
    write(&place, Origin::Global, "send-file", &text("send-file", ""));
    fs::create_dir_all(place.at(".halo/skills/empty")).unwrap();
    let found = own(&place, &[off("both", "global")]);
    let seen: Vec<_> = found.iter().map(|skill| (&*skill.id, skill.origin, &*skill.description)).collect();
    assert_eq!(
        seen,
        [("both", Origin::Workspace, "the other"), ("send-file", Origin::Global, "about send-file")]
    );
    assert!(!found[0].disabled && own(&place, &[off("both", "workspace")])[0].disabled);
    let find = |id: &str| with(&place, &[], |shelf| shelf.find(id));
    assert_eq!((find("both"), find("empty"), find("..")), (Some(found[0].clone()), None, None));
}

#[test]
fn every_skill_inside_the_program_can_be_used() {
    let place = Place::new();
    let all = with(&place, &[], |shelf| shelf.all());
    let ids: Vec<&str> = all.iter().map(|skill| &*skill.id).collect();
    assert_eq!(ids, ["agent", "halo", "self", "send-file", "skill", "workspace"]);
    for skill in &all {
        assert!(skill.usable() && skill.warnings.is_empty(), "{skill:?}");
        let body = with(&place, &[], |shelf| shelf.body(skill)).unwrap();
        assert!(body.len() > 200 && !body.contains("---\nname"), "{body}");
    }
    for id in ["agent", "skill", "workspace"] {
        let skill = all.iter().find(|skill| skill.id == id).unwrap();
        assert_eq!(skill.command.as_deref(), Some(id));
        assert!(
            skill.verbs.len() == 2
                && with(&place, &[], |shelf| shelf.body(skill)).unwrap().contains("$ARGUMENTS")
        );
    }
}

#[test]
fn every_field_is_read() {
    let place = Place::new();
    let more = "command: /Review\nrequiresAccess: workspace\nverbs:\n  - name: Diff\n    builtin: false\n    \
                requiresAccess: full\n    desc: a diff\n  - { name: all }\ndisable-model-invocation: true\n\
                user-invocable: false\nallowed-tools: Read, Grep(x)\nmetadata: { a: [1] }\nlicense: MIT\n";
    write(&place, Origin::Workspace, "r", &text("r", more));
    let skill = own(&place, &[]).remove(0);
    assert_eq!(skill.broken, None);
    assert_eq!((skill.command.as_deref(), skill.requires), (Some("review"), AccessLevel::Workspace));
    let diff = Verb {
        name: "diff".into(),
        builtin: Some(false),
        requires: Some(AccessLevel::Full),
        desc: Some("a diff".into()),
    };
    assert_eq!(skill.verbs[0], diff);
    assert_eq!((skill.verbs[1].requires, &*skill.verbs[1].name), (None, "all"));
    assert!(!skill.for_models && !skill.for_people && skill.allowed_tools == ["Read", "Grep(x)"]);
    assert!(!skill.answers_to("review"));
    write(&place, Origin::Workspace, "r", &text("Other Name", "command: review\nallowed-tools: [Read]\n"));
    let skill = own(&place, &[]).remove(0);
    assert!(skill.answers_to("review") && skill.allowed_tools == ["Read"]);
    assert_eq!(skill.warnings.len(), 2, "{:?}", skill.warnings);
}

#[test]
fn a_skill_above_the_level_is_not_there_and_a_broken_one_is_named_to_full_alone() {
    let place = Place::new();
    write(&place, Origin::Global, "a", &text("a", "requiresAccess: workspace\n"));
    write(&place, Origin::Global, "b", &text("b", "requiresAccess: full\n"));
    write(&place, Origin::Global, "c", "---\nname: c\ndescription: [broken\n---\n");
    write(&place, Origin::Global, "d", &text("d", "requiresAccess: readonly\n"));
    write(&place, Origin::Global, "e", "---\nname: e\ndescription: e\nuser-invocable: perhaps\n---\n");
    let at = |access| {
        let all = at_level(&place, access, |shelf| shelf.all());
        let own = all.into_iter().filter(|skill| skill.origin != Origin::BuiltIn);
        own.map(|skill| skill.id).collect::<String>()
    };
    assert_eq!(at(AccessLevel::ReadOnly), "d");
    assert_eq!(at(AccessLevel::Workspace), "ad");
    assert_eq!(at(AccessLevel::Full), "abcde");
    let found = own(&place, &[]);
    let why = found[4].broken.as_deref().unwrap();
    assert!(why.contains("skills/e/SKILL.md:4:") && why.contains(" user-invocable: "), "{why}");
    assert!(!found[4].usable() && !found[2].usable());
    let list = ["b", "c", "d", "b", "none", "a"].map(str::to_owned);
    let listed = with(&place, &[off("a", "global")], |shelf| shelf.listed(&list));
    assert_eq!(listed.iter().map(|skill| &*skill.id).collect::<Vec<_>>(), ["b", "d"]);
}

fn tool(ids: &[&str], disabled: &[DisabledItem], names: Names) -> ActivateSkill {
    let ids = ids.iter().map(ToString::to_string).collect();
    ActivateSkill::new(ids, disabled.to_vec(), names, Arc::new(SystemClock))
}

async fn activate(place: &Place, tool: &ActivateSkill, id: &str) -> Output {
    let Output { text, is_error, .. } = place.call(tool, json!({ "skill_id": id })).await;
    if is_error { Output::error(text) } else { Output::ok(text) }
}

#[tokio::test]
async fn a_skill_is_read_when_it_is_taken_up_with_what_lies_beside_it() {
    let place = Place::new();
    let values = [(("s".to_owned(), "k".to_owned()), "v".to_owned())].into();
    let names =
        Names { agent_name: "Hal".into(), params: Arc::new(Params::new(values, [])), ..Names::default() };
    let tool = tool(&["s", "send-file"], &[], names);
    let folder = place.at(".halo/skills/s");
    write(&place, Origin::Workspace, "s", &text("s", ""));
    let empty = activate(&place, &tool, "s").await;
    assert_eq!(empty, Output::ok("# Skill: s\n\nbody of s\n\nResource files in skill directory: none"));
    // An edit counts at once.
    write(
        &place,
        Origin::Workspace,
        "s",
        "---\nname: s\ndescription: d\n---\n{{agent_name}} {{params.k}} [{{args}}] $1 $ARGUMENTS\n",
    );
    fs::create_dir(folder.join("scripts")).unwrap();
    fs::write(folder.join("scripts/run.sh"), "").unwrap();
    let text = activate(&place, &tool, "s").await.text;
    let script = folder.join("scripts/run.sh");
    assert_eq!(
        text,
        format!(
            "# Skill: s\n\nHal v [] $1 $ARGUMENTS\n\nResource files in skill directory:\n- {}",
            script.display()
        )
    );
    assert!(activate(&place, &tool, " send-file ").await.text.contains("MEDIA:"));
}

#[tokio::test]
async fn what_is_not_there_for_a_session_is_answered_like_what_does_not_exist() {
    let mut place = Place::new();
    write(&place, Origin::Global, "high", &text("high", "requiresAccess: full\n"));
    write(&place, Origin::Global, "off", &text("off", ""));
    write(&place, Origin::Global, "other", &text("other", ""));
    write(&place, Origin::Global, "mine", &text("mine", "disable-model-invocation: true\n"));
    write(&place, Origin::Global, "good", &text("good", ""));
    place.context.access = AccessLevel::Workspace;
    let tool = tool(&["high", "off", "mine", "good"], &[off("off", "global")], Names::default());
    for id in ["high", "off", "other", "mine", "none", "../good"] {
        let answer = activate(&place, &tool, id).await;
        assert_eq!(answer, Output::error(format!("There is no skill {id:?} here. Available skills: good.")));
    }
    place.context.access = AccessLevel::Full;
    assert!(!activate(&place, &tool, "high").await.is_error);
    write(&place, Origin::Global, "high", "---\nname: [\n---\n");
    let broken = activate(&place, &tool, "high").await;
    assert!(broken.is_error && broken.text.contains("high/SKILL.md:"), "{broken:?}");
}

#[tokio::test]
async fn a_link_to_something_hidden_is_no_skill() {
    let mut place = Place::new();
    let secrets = place.context.halo_home.join("secrets");
    fs::create_dir(&secrets).unwrap();
    fs::write(secrets.join("x.md"), text("x", "")).unwrap();
    fs::create_dir_all(place.at(".halo/skills/x")).unwrap();
    symlink(secrets.join("x.md"), place.at(".halo/skills/x/SKILL.md")).unwrap();
    place.context.access = AccessLevel::Workspace;
    let answer = activate(&place, &tool(&["x"], &[], Names::default()), "x").await;
    assert!(answer.is_error && !answer.text.contains("body of x"), "{answer:?}");
    assert_eq!(own(&place, &[]), []);
    // Links as such are fine.
    fs::write(place.root.join("shared.md"), text("x", "")).unwrap();
    fs::remove_file(place.at(".halo/skills/x/SKILL.md")).unwrap();
    symlink(place.root.join("shared.md"), place.at(".halo/skills/x/SKILL.md")).unwrap();
    assert!(!activate(&place, &tool(&["x"], &[], Names::default()), "x").await.is_error);
}
