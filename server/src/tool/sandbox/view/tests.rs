use super::*;
use crate::tool::testing::Place;
use rstest::rstest;

fn view_of(place: &Place, workspaces: &[PathBuf], sockets: &[PathBuf]) -> Result<View, String> {
    let around = Around { workspaces, sockets, empty: Path::new("/empty"), resolv_conf: None };
    View::new(&place.context, &around)
}

/// How a path of the workspace is shown, if it is named at all.
fn shown(place: &Place, path: &str) -> Option<Shown> {
    view_of(place, &[], &[]).unwrap().places.get(&place.at(path)).cloned()
}

fn empty() -> Shown {
    Shown::File("/empty".into())
}

fn workspace() -> Place {
    let place = Place::with_access(AccessLevel::Workspace);
    place.put("src/main.rs", "");
    place.put(".halo/INDEX.md", "");
    place.put(".halo/halo.db", "");
    place.put(".halo/runtime.lock", "");
    place.put(".halo/sessions/1", "");
    place
}

#[rstest]
#[case(".", Some(Shown::Writable))]
#[case("src", None)]
#[case(".halo", Some(Shown::Selected))]
#[case(".halo/agents", Some(Shown::ReadOnly))]
#[case(".halo/settings.yaml", None)]
#[case(".halo/skills", Some(Shown::Writable))]
#[case(".halo/INDEX.md", Some(Shown::Writable))]
#[case(".halo/sessions", Some(Shown::NoEntries))]
#[case(".halo/halo.db", Some(empty()))]
#[case(".halo/runtime.lock", Some(empty()))]
fn a_workspace_is_writable_but_for_what_decides_and_what_is_hidden(
    #[case] path: &str,
    #[case] expected: Option<Shown>,
) {
    let place = workspace();
    let path = if path == "." { "" } else { path };
    let root = place.context.workspace.clone();
    let view = view_of(&place, &[], &[]).unwrap();
    let at = if path.is_empty() { root } else { place.at(path) };
    assert_eq!(view.places.get(&at).cloned(), expected);
}

#[test]
fn settings_that_are_there_are_read_only() {
    let place = workspace();
    place.put(".halo/settings.yaml", "");
    assert_eq!(shown(&place, ".halo/settings.yaml"), Some(Shown::ReadOnly));
}

#[test]
fn readonly_has_nothing_writable() {
    let mut place = workspace();
    place.context.access = AccessLevel::ReadOnly;
    place.context.writable_dirs = [place.root.join("home")].into();
    let view = view_of(&place, &[], &[]).unwrap();
    assert!(!view.places.values().any(|shown| *shown == Shown::Writable), "{view:?}");
    assert_eq!(view.places.get(&place.context.workspace), Some(&Shown::ReadOnly));
}

#[test]
fn folders_on_the_way_to_a_hidden_place_cannot_be_moved_away() {
    let mut place = workspace();
    place.put("a/b/keys/x", "");
    place.context.hidden_dirs = [place.at("a/b/keys")].into();
    for (path, expected) in [("a", Shown::Writable), ("a/b", Shown::Writable), ("a/b/keys", Shown::NoEntries)]
    {
        assert_eq!(shown(&place, path), Some(expected), "{path}");
    }
}

#[test]
fn a_hidden_place_in_the_workspace_is_covered_before_it_exists() {
    let mut place = workspace();
    place.context.hidden_files = [place.at("a/later.pem")].into();
    assert_eq!(shown(&place, "a/later.pem"), Some(empty()));
    assert_eq!(shown(&place, "a"), Some(Shown::Writable));
}

#[test]
fn other_names_of_hidden_files_are_covered_too() {
    let mut place = workspace();
    place.put("key.pem", "");
    std::fs::hard_link(place.at("key.pem"), place.at("src/other")).unwrap();
    place.context.hidden_files = [place.at("key.pem")].into();
    assert_eq!(shown(&place, "key.pem"), Some(empty()));
    assert_eq!(shown(&place, "src/other"), Some(empty()));
}

#[test]
fn a_workspace_inside_of_this_one_is_protected_likewise() {
    let place = workspace();
    place.put("sub/inner/.halo/halo.db", "");
    place.put("sub/inner/.halo/agents/x/agent.yaml", "");
    place.put("sub/inner/.halo/memory/m.md", "");
    let view = view_of(&place, &[place.at("sub/inner")], &[]).unwrap();
    let at = |path: &str| view.places.get(&place.at(path)).cloned();
    assert_eq!(at("sub"), Some(Shown::Writable));
    assert_eq!(at("sub/inner"), Some(Shown::Writable));
    assert_eq!(at("sub/inner/.halo"), Some(Shown::Selected));
    assert_eq!(at("sub/inner/.halo/halo.db"), Some(empty()));
    assert_eq!(at("sub/inner/.halo/agents"), Some(Shown::ReadOnly));
    assert_eq!(at("sub/inner/.halo/memory"), Some(Shown::Writable));
}

#[test]
fn a_home_of_halo_in_a_writable_folder_stays_read_only() {
    let mut place = workspace();
    place.context.writable_dirs = [place.root.clone()].into();
    std::fs::create_dir_all(place.root.join("halo/secrets")).unwrap();
    std::fs::create_dir_all(place.root.join("halo/global/agents")).unwrap();
    crate::tool::testing::put(&place.root.join("halo/global/runs.db"), "");
    let view = view_of(&place, &[], &[]).unwrap();
    let at = |path: &str| view.places.get(&place.root.join(path)).cloned();
    assert_eq!(at("halo"), Some(Shown::ReadOnly));
    assert_eq!(at("halo/secrets"), Some(Shown::NoEntries));
    assert_eq!(at("halo/global"), Some(Shown::Selected));
    assert_eq!(at("halo/global/agents"), Some(Shown::ReadOnly));
    assert_eq!(at("halo/global/runs.db"), Some(empty()));
    // Not there yet, and a login: nobody plants one.
    assert_eq!(at("home/.ssh"), Some(Shown::NoEntries));
    assert_eq!(at("home/.gitconfig"), Some(empty()));
}

#[test]
fn sockets_of_the_workspace_stay_and_others_are_covered_where_they_are_seen() {
    let mut place = workspace();
    place.context.writable_dirs = [].into();
    let own = place.at("own.sock");
    let sockets = [own.clone(), PathBuf::from("/srv/x.sock"), PathBuf::from("/run/docker.sock")];
    let view = view_of(&place, &[], &sockets).unwrap();
    assert_eq!(view.places.get(&own), None);
    assert_eq!(view.places.get(Path::new("/srv/x.sock")).cloned(), Some(empty()));
    assert_eq!(view.places.get(Path::new("/run/docker.sock")), None);
    place.context.access = AccessLevel::ReadOnly;
    assert_eq!(view_of(&place, &[], &sockets).unwrap().places.get(&own).cloned(), Some(empty()));
}

#[test]
fn what_cannot_be_held_is_refused_with_the_reason() {
    let mut place = workspace();
    std::fs::rename(place.at(".halo"), place.root.join("moved")).unwrap();
    std::os::unix::fs::symlink(place.root.join("moved"), place.at(".halo")).unwrap();
    assert!(view_of(&place, &[], &[]).unwrap_err().contains("is a link"));
    place.context.workspace = place.root.join("halo/secrets");
    std::fs::create_dir(place.root.join("halo/secrets")).unwrap();
    assert!(view_of(&place, &[], &[]).unwrap_err().contains("hidden place"));
    place.context.workspace = "/".into();
    assert!(view_of(&place, &[], &[]).is_err());
}

#[test]
fn listening_sockets_are_found_by_their_paths() {
    let place = Place::new();
    let path = place.at("a.sock");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(listening_sockets().contains(&path));
}
