//! A server in the background, and what a first start and `token list` show.

use super::shown;
use super::support::{Ran, Sandbox};

#[test]
fn a_server_in_the_background_is_started_seen_and_stopped() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["server", "status"]).code, Some(1));
    let started = sandbox.run(&["server", "start", "-d", "--port", "0"]);
    assert!(started.good().starts_with("listening on http://127.0.0.1:"), "{started:?}");
    let url = started.good().strip_prefix("listening on ").unwrap();
    assert_eq!(shown(&started.stderr, "url").as_deref(), Some(url), "{started:?}");
    assert_eq!(shown(&started.stderr, "token").unwrap().len(), 32);
    let log = std::fs::read_to_string(sandbox.home().join("global/logs/server.out")).unwrap();
    assert_eq!(log, "", "what is secret goes to the terminal alone");
    let status = sandbox.run(&["server", "status"]);
    assert!(status.good().starts_with("running as process "), "{status:?}");
    let again = sandbox.run(&["server", "start", "-d", "--port", "0"]);
    assert!(again.failed().contains("already runs"), "{again:?}");
    sandbox.run(&["server", "stop"]).good();
    assert_eq!(sandbox.run(&["server", "status"]).code, Some(1));
    let later = sandbox.run(&["server", "start", "-d", "--port", "0"]);
    later.good();
    assert!(!later.stderr.contains("First start") && later.stderr.lines().count() == 1, "{later:?}");
    sandbox.run(&["server", "stop"]).good();
}

#[test]
fn a_background_server_that_cannot_listen_shows_the_reason_alone_and_makes_no_secrets() {
    let sandbox = Sandbox::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let failed = sandbox.run(&["server", "start", "-d", "--port", &port]);
    assert!(failed.failed().starts_with(&format!("port {port} on 127.0.0.1 is taken")), "{failed:?}");
    assert!(!sandbox.home().join("secrets/config.yaml").exists());
    drop(taken);
    let started = sandbox.run(&["server", "start", "-d", "--port", "0"]);
    assert!(started.stderr.contains("First start"), "{started:?}");
    sandbox.run(&["server", "stop"]).good();
}

#[test]
fn a_first_start_leaves_settings_that_are_there_alone() {
    let sandbox = Sandbox::new();
    sandbox.write("settings.yaml", "# mine\n");
    sandbox.run(&["setup", "-y"]).good();
    assert_eq!(sandbox.read("settings.yaml"), "# mine\n");
}

#[test]
fn the_examples_of_new_settings_count_once_their_marks_are_taken_away() {
    let sandbox = Sandbox::new();
    sandbox.run(&["setup", "-y"]).good();
    let text = sandbox.read("settings.yaml");
    let examples = text.lines().skip_while(|line| *line != "#").map(|line| &line[1..]);
    sandbox.write("settings.yaml", &examples.collect::<Vec<_>>().join("\n"));
    let mut command = sandbox.command(&["config", "show"]);
    let ran = Ran::of(&command.env("OPENAI_API_KEY", "k").output().unwrap());
    for key in ["anthropic.secrets.api_key = (set)", "openai.secrets.api_key = (set)"] {
        assert!(ran.good().contains(key), "{ran:?}");
    }
    assert_eq!(ran.stderr, "");
}

#[test]
fn the_columns_of_token_list_stand_below_their_names() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("a-much-longer-name")).unwrap();
    for (folder, label) in [("ws", "first-label"), ("a-much-longer-name", "second-label")] {
        let path = sandbox.path(folder);
        let args = ["token", "create", "--workspace", path.to_str().unwrap(), "--label", label];
        sandbox.run(&args).good();
    }
    let ran = sandbox.run(&["token", "list"]);
    let column = |name: &str| {
        let at = |line: &str| line.split_once(name).map(|(before, _)| before.chars().count());
        ran.good().lines().find_map(at).unwrap()
    };
    assert_eq!(column("LABEL"), column("first-label"), "{ran:?}");
    assert_eq!(column("LABEL"), column("second-label"), "{ran:?}");
    assert_eq!(column("WORKSPACE"), column(sandbox.path("ws").canonicalize().unwrap().to_str().unwrap()));
}
