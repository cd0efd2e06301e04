use super::*;
use crate::access::AccessLevel::{ReadOnly, Workspace};
use crate::tool::testing::{Place, put};
use crate::workspace::hidden::HiddenPlaces;
use rstest::rstest;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use tokio_util::sync::CancellationToken;

fn read(place: &Place, path: &str) -> Result<String, PathError> {
    let guard = place.context.guard();
    let mut opened = guard.open_file(&guard.resolve(path)?)?;
    let mut text = String::new();
    opened.file.read_to_string(&mut text).unwrap();
    Ok(text)
}

fn write(place: &Place, path: &str, content: &str) -> Result<(), PathError> {
    let guard = place.context.guard();
    let path = guard.resolve(path)?;
    guard.write_target(&path)?.replace(content.as_bytes(), false, &CancellationToken::new())
}

#[test]
fn paths_are_relative_to_the_workspace_or_absolute_or_in_the_home() {
    let place = Place::new();
    place.put("a.txt", "in the workspace");
    put(&place.root.join("home/b.txt"), "in the home");
    assert_eq!(read(&place, "a.txt").unwrap(), "in the workspace");
    assert_eq!(read(&place, "./x/../a.txt"), Err(PathError::NotFound("x/../a.txt".into())));
    assert_eq!(read(&place, place.at("a.txt").to_str().unwrap()).unwrap(), "in the workspace");
    assert_eq!(read(&place, "~/b.txt").unwrap(), "in the home");
    assert_eq!(read(&place, "a\0.txt"), Err(PathError::Nul));
}

#[rstest]
fn a_hidden_file_is_refused_by_every_way_to_it(#[values(Workspace, ReadOnly)] access: AccessLevel) {
    let place = Place::with_access(access);
    let home = place.root.join("home");
    let key = put(&home.join(".ssh/id"), "key");
    let db = place.put(".halo/halo.db", "db");
    let netrc = put(&home.join(".netrc"), "login");
    put(&place.root.join("halo/secrets/token"), "t");
    put(&place.root.join("halo/global/runs.db-wal"), "t");
    place.link(&key, "link");
    place.link("link", "link-to-link");
    place.link(home.join(".ssh"), "folder-link");
    std::fs::hard_link(&key, place.at("hard-key")).unwrap();
    std::fs::hard_link(&db, place.at("hard-db")).unwrap();
    std::fs::hard_link(&netrc, place.at("hard-netrc")).unwrap();
    for way in [
        "~/.ssh/id",
        "../home/.ssh/id",
        "link",
        "link-to-link",
        "folder-link/id",
        "hard-key",
        "hard-db",
        "hard-netrc",
        ".halo/halo.db",
        ".halo/../.halo/halo.db",
        "~/../halo/secrets/token",
        "~/../halo/global/runs.db-wal",
        "/proc/self/environ",
    ] {
        assert_eq!(read(&place, way), Err(PathError::Hidden(way_shown(&place, way))), "{way}");
        assert!(write(&place, way, "x").is_err(), "{way}");
    }
    assert_eq!(std::fs::read(&db).unwrap(), b"db");
    assert_eq!(std::fs::read(&key).unwrap(), b"key");
}

fn way_shown(place: &Place, way: &str) -> String {
    let guard = place.context.guard();
    guard.shown(&guard.resolve(way).unwrap())
}

#[test]
fn an_open_handle_of_this_process_is_judged_by_the_file_behind_it() {
    let place = Place::with_access(Workspace);
    let db = place.put(".halo/halo.db", "db");
    let open = File::open(db).unwrap();
    let way = format!("/proc/self/fd/{}", open.as_raw_fd());
    assert!(matches!(read(&place, &way), Err(PathError::Hidden(_))));
}

#[test]
fn a_file_with_two_names_of_which_none_is_hidden_is_read() {
    let place = Place::with_access(Workspace);
    let file = place.put("a", "text");
    std::fs::hard_link(file, place.at("b")).unwrap();
    assert_eq!(read(&place, "b").unwrap(), "text");
}

#[test]
fn a_full_session_reads_hidden_files() {
    let place = Place::new();
    put(&place.root.join("home/.ssh/id"), "key");
    place.put(".halo/halo.db", "db");
    assert_eq!(read(&place, "~/.ssh/id").unwrap(), "key");
    assert_eq!(read(&place, ".halo/halo.db").unwrap(), "db");
}

#[test]
fn configured_places_are_hidden_too() {
    let mut place = Place::with_access(ReadOnly);
    place.put("private/x", "x");
    place.put("key.pem", "x");
    place.context.hidden_dirs = [place.at("private")].into();
    place.context.hidden_files = [place.at("key.pem")].into();
    assert!(matches!(read(&place, "private/x"), Err(PathError::Hidden(_))));
    assert!(matches!(read(&place, "key.pem"), Err(PathError::Hidden(_))));
}

#[test]
fn a_workspace_session_writes_inside_the_workspace_and_the_writable_folders_alone() {
    let mut place = Place::with_access(Workspace);
    let outside = put(&place.root.join("outside/x"), "old");
    std::fs::create_dir(place.root.join("extra")).unwrap();
    place.context.writable_dirs = [place.root.join("extra")].into();
    place.link(place.root.join("outside"), "out");
    place.link(&outside, "out-file");
    place.link(place.root.join("outside/new"), "dangling-out");
    place.link("sub/inside", "in");
    for way in
        ["../outside/x", "../outside/new/deep/x", "out/x", "out/new", "out/a/b", "out-file", "dangling-out"]
    {
        let error = write(&place, way, "new").unwrap_err();
        assert!(matches!(error, PathError::Outside { .. }), "{way}: {error}");
    }
    assert_eq!(std::fs::read_dir(place.root.join("outside")).unwrap().count(), 1);
    assert_eq!(std::fs::read(outside).unwrap(), b"old");
    for way in ["a", "deep/er/b", "in", "../extra/c", "../extra/d/e", ".halo/skills/x/SKILL.md"] {
        write(&place, way, "new").unwrap();
        assert_eq!(read(&place, way).unwrap(), "new", "{way}");
    }
    assert!(place.at("in").is_symlink());
    for way in [".halo/logs/x", ".halo/sessions/a/b", ".halo/halo.db-journal"] {
        assert!(matches!(write(&place, way, "x"), Err(PathError::Hidden(_))), "{way}");
    }
    for way in [".halo/agents/mine/agent.yaml", ".halo/settings.yaml", "deep/.halo/agents/x/AGENT.md"] {
        assert!(matches!(write(&place, way, "x"), Err(PathError::Protected(_))), "{way}");
    }
    assert_eq!(place.names(".halo"), ["skills"]);
}

#[test]
fn a_readonly_session_writes_nothing_and_makes_no_folder() {
    let place = Place::with_access(ReadOnly);
    assert_eq!(write(&place, "sub/x", "new"), Err(PathError::ReadOnly("sub/x".into())));
    assert!(place.names("").is_empty());
}

#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let place = Place::new();
    place.fifo("fifo");
    let _socket = std::os::unix::net::UnixListener::bind(place.at("socket")).unwrap();
    std::fs::create_dir(place.at("folder")).unwrap();
    place.link("fifo", "to-fifo");
    for (way, kind) in [("fifo", "FIFO"), ("to-fifo", "FIFO"), ("socket", "socket"), ("/dev/zero", "device")]
    {
        let expected = PathError::NotRegular { path: way.into(), kind };
        assert_eq!(read(&place, way), Err(expected.clone()), "{way}");
        assert_eq!(write(&place, way, "x"), Err(expected), "{way}");
    }
    for way in ["folder", "folder/", "folder/.", ".", ".."] {
        let error = read(&place, way).unwrap_err();
        assert!(matches!(error, PathError::Folder(_)), "{way}: {error}");
        let error = write(&place, way, "x").unwrap_err();
        assert!(matches!(error, PathError::Folder(_)), "{way}: {error}");
    }
}

#[test]
fn links_in_a_circle_and_links_to_nothing_are_errors_that_say_so() {
    let place = Place::new();
    place.link("b", "a");
    place.link("a", "b");
    place.link("nowhere/x", "dangling");
    assert!(read(&place, "a").unwrap_err().to_string().contains("circle"));
    assert!(write(&place, "a", "x").unwrap_err().to_string().contains("circle"));
    assert_eq!(read(&place, "dangling"), Err(PathError::NotFound("dangling".into())));
    place.put("file", "x");
    assert_eq!(read(&place, "file/x"), Err(PathError::NotFolder("file/x".into())));
    assert_eq!(write(&place, "file/x/y", "x"), Err(PathError::NotFolder("file/x/y".into())));
}

#[test]
fn a_write_through_a_link_replaces_its_target_and_keeps_link_mode_and_neighbours() {
    let place = Place::new();
    let target = place.put("sub/run.sh", "old");
    std::fs::set_permissions(&target, std::fs::Permissions::from_mode(0o4751)).unwrap();
    place.link("sub/run.sh", "link");
    write(&place, "link", "new").unwrap();
    assert!(place.at("link").is_symlink());
    assert_eq!(place.bytes("sub/run.sh"), b"new");
    assert_eq!(std::fs::metadata(&target).unwrap().mode() & 0o7777, 0o4751);
    assert_eq!(place.names("sub"), ["run.sh"]);
}

#[test]
fn a_link_to_nothing_is_filled_by_a_write() {
    let place = Place::with_access(Workspace);
    place.link("made/later.txt", "link");
    write(&place, "link", "new").unwrap();
    assert!(place.at("link").is_symlink());
    assert_eq!(place.bytes("made/later.txt"), b"new");
}

#[test]
fn a_reader_with_the_old_file_open_keeps_the_old_content() {
    let place = Place::new();
    let path = place.put("a", "old");
    let mut open = File::open(path).unwrap();
    write(&place, "a", "new and longer").unwrap();
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "old");
}

#[test]
fn a_stopped_or_overtaken_write_leaves_the_old_file_and_nothing_else() {
    let place = Place::new();
    let path = place.put("a", "old");
    let guard = place.context.guard();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let target = guard.write_target(&path).unwrap();
    assert_eq!(target.replace(b"new", false, &cancel), Err(PathError::Stopped("a".into())));
    let target = guard.write_target(&path).unwrap();
    std::fs::write(&path, "someone else's").unwrap();
    let result = target.replace(b"new", true, &CancellationToken::new());
    assert_eq!(result, Err(PathError::Changed("a".into())));
    assert_eq!(place.bytes("a"), b"someone else's");
    assert_eq!(place.names(""), ["a"]);
}

#[test]
fn a_missing_folder_is_not_made_when_the_path_climbs_out_of_it() {
    let place = Place::new();
    assert!(matches!(write(&place, "missing/../x", "new"), Err(PathError::NotFound(_))));
    assert!(place.names("").is_empty());
}

#[test]
fn beneath_a_root_each_refusal_has_its_own_error() {
    let place = Place::new();
    let root = place.context.workspace.clone();
    place.put("a.txt", "text");
    place.put(".halo/sessions/1", "s");
    let db = place.put(".halo/runs.db-shm", "s");
    let outside = put(&place.root.join("outside"), "o");
    std::fs::hard_link(db, place.at("hard")).unwrap();
    place.link("a.txt", "in");
    place.link(outside, "out");
    place.link("nowhere", "dangling");
    place.fifo("fifo");
    let hidden = HiddenSet::runtime_of(&root);
    let open = |path: &str| open_beneath(&root, path, &hidden).map(|opened| opened.real_path);
    for way in ["a.txt", "in", "./.halo/../a.txt", root.join("a.txt").to_str().unwrap()] {
        assert_eq!(open(way), Ok(root.join("a.txt")), "{way}");
    }
    for way in ["out", "../outside", "/etc/passwd", "../nothing", ".halo/../../outside"] {
        assert!(matches!(open(way), Err(PathError::Outside { .. })), "{way}");
    }
    for way in [".halo/sessions/1", ".halo/runs.db-shm", "hard"] {
        assert!(matches!(open(way), Err(PathError::Hidden(_))), "{way}");
    }
    assert!(matches!(open("dangling"), Err(PathError::NotFound(_))));
    assert!(matches!(open("."), Err(PathError::Folder(_))));
    assert!(matches!(open("fifo"), Err(PathError::NotRegular { .. })));
    assert_eq!(open("a\0"), Err(PathError::Nul));
}

#[test]
fn a_root_that_is_reached_by_a_link_works() {
    let place = Place::new();
    place.put("a.txt", "text");
    let alias = place.root.join("alias");
    symlink(&place.context.workspace, &alias).unwrap();
    let hidden = HiddenSet::runtime_of(&alias);
    assert!(open_beneath(&alias, "a.txt", &hidden).is_ok());
    assert!(open_beneath(&alias, alias.join("a.txt").to_str().unwrap(), &hidden).is_ok());
    place.put(".halo/halo.db", "db");
    assert!(matches!(open_beneath(&alias, ".halo/halo.db", &hidden), Err(PathError::Hidden(_))));
}

#[test]
fn a_root_that_goes_through_a_link_and_back_up_works() {
    let place = Place::new();
    place.put("elsewhere/inner/x", "x");
    place.put("elsewhere/root/a.txt", "in the root");
    place.link("elsewhere/inner", "link");
    let root = place.at("link/../root");
    let open = |path: &str| open_beneath(&root, path, &HiddenSet::default());
    assert!(open("a.txt").is_ok());
    assert!(matches!(open("../inner/x"), Err(PathError::Outside { .. })));
}

#[test]
fn a_hidden_file_that_is_replaced_again_and_again_is_never_read() {
    const LOOKS: usize = 100_000;
    let place = Place::new();
    let home = place.root.join("home");
    let netrc = put(&home.join(".netrc"), "login");
    let places = HiddenPlaces { user_home: home.clone(), ..HiddenPlaces::default() };
    let hidden = places.browsed();
    let way = place.at("way");
    symlink(&netrc, &way).unwrap();
    let enough = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !enough.load(std::sync::atomic::Ordering::Relaxed) {
                let next = put(&home.join(".netrc.next"), "login");
                std::fs::rename(next, &netrc).unwrap();
            }
        });
        let seen = (0..LOOKS).find_map(|_| found::Found::open(&way, &hidden).ok());
        enough.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(seen.is_none(), "{seen:?}");
    });
}

#[test]
fn what_a_walk_has_found_is_judged_again_when_it_has_become_something_else() {
    let place = Place::with_access(ReadOnly);
    let secret = place.put(".halo/sessions/s", "secret");
    place.put("dir/s", "open");
    std::fs::hard_link(secret, place.at("hard")).unwrap();
    let guard = place.context.guard();
    assert!(guard.open_walked(&place.at("dir/s")).is_ok());
    assert!(matches!(guard.open_walked(&place.at("hard")), Err(PathError::Hidden(_))));
    std::fs::rename(place.at("dir"), place.at("gone")).unwrap();
    place.link(".halo/sessions", "dir");
    assert!(matches!(guard.open_walked(&place.at("dir/s")), Err(PathError::Hidden(_))));
    place.link("gone/s", "link");
    assert!(guard.open_walked(&place.at("link")).is_err(), "the last part is no link");
    place.fifo("fifo");
    assert!(matches!(guard.open_walked(&place.at("fifo")), Err(PathError::NotRegular { .. })));
}
