//! The file tools on the real server: large trees in bounds, and no trace of a write that a crash cut.

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::processes::{peak_kib, resident_kib};
use halo_tests::server::{Launch, Server};
use halo_tests::web::Client;
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs;
use std::time::Duration;

/// How long one tool may take on the tree, on a busy machine and unoptimized.
const LIMIT: Duration = Duration::from_secs(30);
/// How much the server may grow, in KiB: names and paths of one search, not the files.
const GROWTH: u64 = 64 * 1024;

async fn stack() -> (Server, ModelServer, Client) {
    let model = ModelServer::start().await.expect("a model server");
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    (server, model, client)
}

/// What a tool answers, as the log keeps it, and how long it took.
async fn call(client: &Client, tool: &str, input: Value) -> (String, Duration) {
    let session = client.mint().await;
    client.turn(&session, &format!("TOOL {tool} {input}")).await;
    let history = client.history(&session).await;
    let rows = history["messages"].as_array().expect("messages");
    let row = rows.iter().rfind(|row| row["type"] == "tool_result").expect("a result");
    let took = Duration::from_millis(row["durationMs"].as_u64().expect("a duration"));
    (row["toolOutput"].as_str().expect("an output").to_owned(), took)
}

#[tokio::test]
async fn a_tree_of_100_000_files_is_listed_and_searched_in_bounds() {
    let (server, _model, client) = stack().await;
    let root = server.workspace().join("tree");
    for folder in 0..200 {
        let folder = root.join(format!("d{folder:03}"));
        fs::create_dir_all(&folder).expect("a folder");
        std::os::unix::fs::symlink("../..", folder.join("up")).expect("a link in a circle");
        for file in 0..500 {
            fs::File::create(folder.join(format!("f{file:03}"))).expect("a file");
        }
    }
    fs::write(root.join("d150/f250"), "a needle\n").expect("a file");
    call(&client, "file_list", json!({})).await;
    let before = resident_kib(server.pid());
    fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").expect("the peak is reset");
    for (tool, input, ends) in [
        ("file_list", json!({"path": "tree", "recursive": true}), "use glob to find files by name"),
        ("file_list", json!({"path": "tree"}), "📁 d199/"),
        ("glob", json!({"pattern": "**/f499"}), "tree/d199/f499"),
        ("glob", json!({"pattern": "**/none"}), "No files match."),
        ("grep", json!({"pattern": "needle", "path": "tree"}), "tree/d150/f250:1:a needle"),
        ("grep", json!({"pattern": "no such word"}), "No matches."),
    ] {
        let (text, took) = call(&client, tool, input).await;
        let last = text.lines().last().unwrap_or_default();
        assert!(last.ends_with(ends), "{tool}: {last}");
        assert!(took < LIMIT, "{tool}: {took:?}");
    }
    let growth = peak_kib(server.pid()).saturating_sub(before);
    assert!(growth < GROWTH, "the server grew by {growth} KiB");
}

#[tokio::test]
async fn a_kill_in_the_middle_of_writes_leaves_whole_files_and_no_trace() {
    let (mut server, _model, client) = stack().await;
    let contents = ["a".repeat(30_000), "b".repeat(50_000)];
    let folder = server.workspace().join("out");
    fs::create_dir(&folder).expect("a folder");
    for round in 0..4 {
        let client = client.at(server.url());
        let mut orders = String::new();
        for number in 0..30 {
            let input = json!({"path": "out/f", "content": contents[number % 2]});
            let _ = writeln!(orders, "TOOL file_write {input}");
        }
        let session = client.mint().await;
        let mut stream = client.chat(&session, orders.trim_end()).await;
        for _ in 0..=round {
            stream.until("tool_result").await;
        }
        server.kill9().await;
        let names: Vec<_> = fs::read_dir(&folder)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        assert_eq!(names, ["f"]);
        let content = fs::read_to_string(folder.join("f")).expect("the file");
        assert!(contents.contains(&content), "{} bytes", content.len());
        server.restart().await;
    }
}
