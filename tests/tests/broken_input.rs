//! What is broken around the server: files, flags, ports, folders. Each failure is one clear line that names
//! what is wrong and where, and harms nothing else.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::place::{Ended, Place};
use halo_tests::server::{Launch, Server};
use halo_tests::web::first;
use rstest::rstest;
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use tokio::process::Command;

/// The one line that says why it failed, with exit 1; warnings may stand before it.
fn the_error(ended: &Ended) -> &str {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""), "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.contains(" WARN ")).collect();
    assert!(lines.len() == 1 && lines[0].starts_with("error: "), "one clear line: {ended:?}");
    lines[0]
}

const BROKEN: &str = "name: broken\npriority: 1\ntools: [file_read]\ncontext:\n  maxTokens: many\n";

#[tokio::test]
async fn a_broken_profile_is_told_to_the_client_with_its_place_and_the_others_work() {
    let server = Server::start().await;
    let client = server.client("full").await;
    server.place().agent("mine", "model: { provider: demo, id: demo-instant }\n");
    let mint = client.post("/api/web/sessions", &json!({"agentId": "mine"})).await;
    let session = mint.body["sessionId"].as_str().expect("an id");
    assert_eq!(client.turn(session, "say hello").await.last().unwrap().kind(), "complete");

    server.place().private("global/agents/mine/agent.yaml", BROKEN);
    let frames = client.turn(session, "say hello").await;
    assert_place(first(&frames, "error")["error"].as_str().unwrap());
    let other = client.mint().await;
    assert_eq!(client.turn(&other, "say hello").await.last().unwrap().kind(), "complete");
}

#[tokio::test]
async fn who_asks_for_a_broken_profile_is_told_what_is_wrong_with_it() {
    let server = Server::start().await;
    let client = server.client("full").await;
    server.place().private("global/agents/mine/agent.yaml", BROKEN);
    let mint = client.post("/api/web/sessions", &json!({"agentId": "mine"})).await;
    assert_eq!(mint.status, 400, "{mint:?}");
    assert_place(mint.body["error"].as_str().unwrap());
}

fn assert_place(told: &str) {
    for part in ["mine/agent.yaml:5:14", "maxTokens"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[tokio::test]
async fn a_profile_that_is_mended_works_from_the_next_run() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let session = client.mint().await;
    server.place().private("global/agents/default/agent.yaml", "name: [\n");
    let frames = client.turn(&session, "say hello").await;
    assert_eq!(frames.last().unwrap().kind(), "error", "{frames:?}");
    server.place().demo("demo-instant");
    let frames = client.turn(&session, "say hello").await;
    assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
}

#[rstest]
#[case("server:\n  port: many\n", &["config.yaml:2:9", "port"])]
#[case("server:\n  port: [\n", &["config.yaml:2:9"])]
#[tokio::test]
async fn a_broken_configuration_is_refused_with_its_place(#[case] text: &str, #[case] parts: &[&str]) {
    let place = Place::new();
    place.private("secrets/config.yaml", text);
    for args in [&["server", "--port", "0"][..], &["config", "check"]] {
        let ended = place.run(args).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        for part in parts {
            assert!(ended.stderr.contains(part), "{args:?} {part}: {ended:?}");
        }
    }
}

#[tokio::test]
async fn a_misspelt_setting_is_a_warning_with_the_nearest_one() {
    let place = Place::new();
    place.private("secrets/config.yaml", "server:\n  prot: 1\n");
    let checked = place.run(["config", "check"]).await;
    assert_eq!(checked.code, Some(0), "{checked:?}");
    assert!(checked.stderr.contains("prot") && checked.stderr.contains("port"), "{checked:?}");
}

#[tokio::test]
async fn a_broken_edit_while_it_runs_keeps_the_old_values_and_says_so() {
    let server = Server::start().await;
    let client = server.client("full").await;
    server.place().private("secrets/config.yaml", "server:\n  port: [\n");
    server.stderr_with("config.yaml").await;
    assert_eq!(client.get("/api/health").await.status, 200);
    let session = client.mint().await;
    assert_eq!(client.turn(&session, "say on").await.last().unwrap().kind(), "complete");
}

#[rstest]
#[case(&["server", "--prot", "1"], "--prot")]
#[case(&["server", "--port", "65536"], "65536")]
#[case(&["server", "--log-level", "loud"], "loud")]
#[case(&["token", "create", "--access", "admin", "--workspace", "/"], "admin")]
#[case(&["frobnicate"], "frobnicate")]
#[tokio::test]
async fn wrong_usage_is_exit_2_and_names_the_word(#[case] args: &[&str], #[case] word: &str) {
    let place = Place::fresh();
    let ended = place.run(args).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains(word), "{ended:?}");
    assert!(!place.home().exists(), "nothing was made");
}

#[rstest]
#[case(&["--host", "127.0.0.1"], "--port")]
#[case(&["--host", "127.0.0.1", "--port", "0"], "--port")]
#[case(&["--host", "127.0.0.1", "--port", "1", "--scheme", "ftp"], "--scheme")]
#[case(&["--host", "127.0.0.1", "--port", "1"], "--token")]
#[case(&["--host", "127.0.0.1", "--port", "1", "--token", "t", "--frob"], "--frob")]
#[tokio::test]
async fn the_adapter_names_the_flag_on_one_line(#[case] args: &[&str], #[case] flag: &str) {
    let place = Place::fresh();
    let mut command = Command::new(&halo_tests::binaries::binaries().halo_acp);
    place.settle(&mut command);
    command.args(args);
    let ended = Ended::of(command).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    assert!(ended.stderr.contains(flag), "{ended:?}");
}

#[tokio::test]
async fn halo_acp_through_halo_is_the_same_program() {
    let place = Place::fresh();
    let ended = place.run(["acp", "--host", "127.0.0.1"]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let version = place.run(["acp", "--version"]).await;
    assert!(version.stdout.starts_with("halo-acp "), "{version:?}");
}

#[tokio::test]
async fn a_taken_port_is_told_with_the_process_that_holds_it() {
    let server = Server::start().await;
    let (_, port) = server.address();
    let place = Place::new();
    let ended = place.run(["server", "--port", &port.to_string()]).await;
    let error = the_error(&ended);
    assert!(error.contains(&port.to_string()) && error.contains(&server.pid().to_string()), "{error}");
}

#[tokio::test]
async fn a_second_server_on_the_same_home_is_told_who_runs_there() {
    let server = Server::start().await;
    let ended = server.place().run(["server", "--port", "0"]).await;
    let error = the_error(&ended);
    assert!(error.contains(&server.pid().to_string()), "{error}");
    assert_eq!(server.client("full").await.get("/api/web/sessions").await.status, 200);
}

#[tokio::test]
async fn a_home_that_cannot_be_written_is_named_with_the_mend() {
    let place = Place::fresh();
    let closed = place.root().join("closed");
    fs::create_dir(&closed).unwrap();
    let mut command = as_nobody(&place, &closed);
    command.args(["server", "--port", "0", "--home"]).arg(closed.join("home"));
    let ended = Ended::of(command).await;
    let error = the_error(&ended);
    assert!(error.contains(&closed.display().to_string()) && error.contains("--home"), "{error}");
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0);
}

/// `halo` as a user who may read the place and write nothing of it: root ignores modes, so as root it runs as
/// nobody.
fn as_nobody(place: &Place, closed: &Path) -> Command {
    let halo = &halo_tests::binaries::binaries().halo;
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(place.root(), 0o755);
    open(closed, 0o555);
    let mut command = if rustix::process::geteuid().is_root() {
        // A copy, since the target folder may be closed to others.
        let copy = place.root().join("halo");
        fs::copy(halo, &copy).unwrap();
        open(&copy, 0o755);
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(copy);
        command
    } else {
        Command::new(halo)
    };
    place.settle(&mut command);
    command
}

#[rstest]
#[case("secrets/channels/channels.db", "CREATE TABLE channel_accounts (token TEXT PRIMARY KEY, label TEXT)")]
#[case("global/runs.db", "CREATE TABLE agent_runs (run_id TEXT PRIMARY KEY, agent_id TEXT)")]
#[tokio::test]
async fn a_database_of_the_node_program_in_the_home_is_left_untouched(
    #[case] path: &str,
    #[case] schema: &str,
) {
    let place = Place::new();
    place.private(path, "");
    let path = place.home().join(path);
    let before = node_database(&path, schema);
    let ended = place.run(["server", "--port", "0"]).await;
    let error = the_error(&ended);
    assert!(error.contains("halo import") && error.contains(&path.display().to_string()), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[tokio::test]
async fn a_workspace_of_the_node_program_is_told_to_the_client_and_left_untouched() {
    let place = Place::new();
    place.write(".halo/keep", "");
    let path = place.workspace().join(".halo/halo.db");
    let before =
        node_database(&path, "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, title TEXT)");
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    let mint = client.post("/api/web/sessions", &json!({})).await;
    assert!(mint.status >= 500, "{mint:?}");
    assert!(mint.body["error"].as_str().is_some_and(|text| text.contains("halo import")), "{mint:?}");
    assert_eq!(fs::read(&path).unwrap(), before);
    let other = server.place().root().join("other");
    fs::create_dir(&other).unwrap();
    let mint = client.post("/api/web/sessions", &json!({"workspace": other})).await;
    assert_eq!(mint.status, 200, "another workspace works: {mint:?}");
}

/// A database with one row, in the journal mode that the Node program uses; its bytes.
fn node_database(path: &Path, schema: &str) -> Vec<u8> {
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute_batch(&format!("PRAGMA journal_mode = WAL; {schema};")).unwrap();
    database.close().unwrap();
    fs::read(path).unwrap()
}
