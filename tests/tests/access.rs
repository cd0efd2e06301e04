//! What a token below `full` may do: files under the guard, and for `readonly` no change. Its
//! shell is in `sandbox`.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, kinds_of};
use rstest::rstest;

struct Session {
    server: Server,
    client: Client,
    id: String,
}

async fn session(access: &str) -> Session {
    session_on(Place::new(), access, Launch::default()).await
}

async fn session_on(place: Place, access: &str, launch: Launch) -> Session {
    let server = Server::launch(place, launch).await;
    let outside = server.place().root().join("outside.txt");
    std::fs::write(&outside, "from outside").unwrap();
    std::os::unix::fs::symlink(&outside, server.workspace().join("link.txt")).unwrap();
    std::os::unix::fs::symlink("notes.txt", server.workspace().join("inner.txt")).unwrap();
    let client = server.client(access).await;
    let id = client.mint().await;
    Session { server, client, id }
}

impl Session {
    /// The result of the one tool call that the order leads to.
    async fn result(&self, order: &str) -> String {
        let frames = self.client.turn(&self.id, order).await;
        assert_eq!(
            kinds_of(&frames),
            ["session", "user", "tool_call", "tool_result", "stream", "complete"],
            "{frames:?}"
        );
        let results: Vec<&Frame> = frames.iter().filter(|frame| frame.kind() == "tool_result").collect();
        results[0].data["result"].as_str().unwrap().to_owned()
    }
}

#[rstest]
#[case("readonly")]
#[case("workspace")]
#[tokio::test]
async fn it_reads_and_searches_the_workspace(#[case] access: &str) {
    let session = session(access).await;
    assert!(session.result("read README.md").await.contains("marzipan"));
    assert!(session.result("read inner.txt").await.contains("two"));
    assert!(session.result("list").await.contains("README.md"));
    assert!(session.result("find marzipan").await.contains("README.md"));
}

#[rstest]
#[case("readonly")]
#[case("workspace")]
#[tokio::test]
async fn databases_and_secrets_of_halo_are_hidden(#[case] access: &str) {
    let session = session(access).await;
    let place = session.server.place();
    place.private("secrets/settings.yaml", "demo:\n  secrets:\n    api_key: sk-of-nobody\n");
    let database = place.workspace().join(".halo/halo.db");
    assert!(database.exists());
    for path in [
        ".halo/halo.db".into(),
        database.display().to_string(),
        place.home().join("secrets/settings.yaml").display().to_string(),
        place.home().join("secrets/channels/channels.db").display().to_string(),
    ] {
        let result = session.result(&format!("read {path}")).await;
        assert!(!result.contains("SQLite") && !result.contains("sk-of-nobody"), "{path}: {result}");
    }
    assert!(!session.result("list .halo").await.contains("halo.db"));
}

/// A server that finds no `bwrap`.
fn without_sandbox() -> Launch {
    Launch { env: vec![("PATH".into(), "/nonexistent".into())], ..Launch::default() }
}

#[tokio::test]
async fn a_shell_without_a_sandbox_is_refused_to_a_workspace_token_with_the_reason_and_the_mend() {
    let session = session_on(Place::new(), "workspace", without_sandbox()).await;
    let result = session.result("run echo pwned > pwned.txt").await;
    assert!(result.contains("shell_exec is refused") && result.contains("workspace"), "{result}");
    assert!(result.contains("apt install bubblewrap"), "{result}");
    assert!(!session.server.workspace().join("pwned.txt").exists());
}

#[tokio::test]
async fn readonly_changes_nothing_with_any_tool() {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    let session = session_on(place, "readonly", Launch::default()).await;
    for order in [
        r#"TOOL shell_exec {"command": "echo pwned > new.txt"}"#,
        r#"TOOL file_write {"path": "new.txt", "content": "x"}"#,
        r#"TOOL file_write {"path": "README.md", "content": "x"}"#,
        r#"TOOL file_edit {"path": "notes.txt", "old_string": "two", "new_string": "2"}"#,
    ] {
        let result = session.result(order).await;
        let refused =
            result.contains("no tool named") || result.contains("readonly") || result.contains("read-only");
        assert!(refused, "{order}: {result}");
    }
    let place = session.server.place();
    assert!(!place.workspace().join("new.txt").exists());
    assert_eq!(place.read("notes.txt"), "one\ntwo\nthree\n");
    assert_eq!(place.read("README.md"), halo_tests::place::README);
}

#[tokio::test]
async fn workspace_writes_inside_and_nowhere_else() {
    let session = session("workspace").await;
    let place = session.server.place();
    session.result("write new.txt x").await;
    assert_eq!(place.read("new.txt"), "x");
    let outside = place.root().join("outside.txt");
    for path in ["link.txt".to_owned(), outside.display().to_string(), "../outside.txt".to_owned()] {
        session.result(&format!("write {path} overwritten")).await;
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "from outside", "by {path}");
    }
}

#[tokio::test]
async fn full_has_a_shell_in_the_workspace_without_the_secrets_of_the_server() {
    let session = session("full").await;
    let result = session.result("run pwd; env").await;
    assert!(result.contains(&session.server.workspace().display().to_string()), "{result}");
    assert!(!result.contains("HALO_") || !result.contains(session.client.token()), "{result}");
}
