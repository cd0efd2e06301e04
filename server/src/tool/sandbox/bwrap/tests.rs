use super::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The lines of a command line: each option begins one.
fn lines(all: &[OsString]) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in all {
        let word = word.to_str().unwrap();
        match lines.last_mut() {
            Some(line) if !word.starts_with("--") => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn view() -> View {
    let mut view = View::default();
    view.workspace = "/tmp/ws".into();
    view.places = BTreeMap::from(
        [
            ("/tmp/ws/.halo", Shown::Selected),
            ("/tmp/ws/.halo/agents", Shown::ReadOnly),
            ("/tmp/ws/.halo/skills", Shown::Writable),
            ("/tmp/ws/.halo/sessions", Shown::NoEntries),
            ("/tmp/ws/.halo/halo.db", Shown::File("/h/.sandbox-empty".into())),
            ("/tmp/ws", Shown::Writable),
            ("/home/u/.ssh", Shown::NoEntries),
            ("/tmp", Shown::Private),
            ("/run/current-system", Shown::Link("/nix/x".into())),
            ("/run", Shown::Private),
        ]
        .map(|(path, shown)| (PathBuf::from(path), shown)),
    );
    view
}

#[test]
fn parents_come_before_what_is_in_them_and_closed_folders_are_closed_last() {
    let variables: [Variable; 1] = [("TERM".into(), "dumb".into())];
    let inside = Inside {
        variables: &variables,
        own_network: true,
        as_root: false,
        closing: ("exec 7>&-; ", Path::new("/bin/sh")),
        command: &["bash".as_ref(), "-c".as_ref(), "true; --chdir /".as_ref()],
    };
    insta::assert_snapshot!(lines(&arguments(&view(), &inside)).join("\n"), @r#"
    --ro-bind / /
    --dev /dev
    --proc /proc
    --tmpfs /home/u/.ssh
    --tmpfs /run
    --symlink /nix/x /run/current-system
    --tmpfs /tmp
    --bind /tmp/ws /tmp/ws
    --tmpfs /tmp/ws/.halo
    --ro-bind /tmp/ws/.halo/agents /tmp/ws/.halo/agents
    --ro-bind /h/.sandbox-empty /tmp/ws/.halo/halo.db
    --tmpfs /tmp/ws/.halo/sessions
    --bind /tmp/ws/.halo/skills /tmp/ws/.halo/skills
    --remount-ro /home/u/.ssh
    --remount-ro /tmp/ws/.halo
    --remount-ro /tmp/ws/.halo/sessions
    --unshare-user
    --unshare-pid
    --unshare-ipc
    --unshare-uts
    --unshare-cgroup-try
    --new-session
    --die-with-parent
    --cap-drop ALL
    --clearenv
    --unshare-net
    --setenv TERM dumb
    --chdir /tmp/ws
    --seccomp 3
    -- /bin/sh -c exec 7>&-; echo ready >&2; read -r word; [ "$word" = go ] || exit 1; exec "$@" </dev/null 2>&1 sh bash -c true; --chdir /
    "#);
}

#[test]
fn the_machine_s_network_stays_without_a_namespace() {
    let inside = Inside {
        variables: &[],
        own_network: false,
        as_root: true,
        closing: ("", Path::new("/bin/sh")),
        command: &[],
    };
    let all = arguments(&view(), &inside);
    assert!(!all.iter().any(|word| word == "--unshare-net" || word == "--setenv"));
    assert!(lines(&all).contains(&"--uid 0".to_owned()));
}
