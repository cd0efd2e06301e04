//! A disk that is full while a session writes: whatever could not be stored is told in plain words, the server and
//! the other sessions go on, and once there is room again the session does, too, without a hole or a double.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::small_disk::{SmallDisk, may_mount};
use halo_tests::web::{Client, Frame, first, kinds_of, text_of};
use reqwest::Method;
use serde_json::{Value, json};
use std::fs;

/// What every refusal and every `error` frame must say.
const FULL: &str = "the disk is full";

/// A server whose home and workspace are on one small disk, and a session that had a turn already.
struct World {
    model: ModelServer,
    server: Server,
    client: Client,
    /// The session that the disk gets in the way of.
    session: String,
    /// Another one.
    other: String,
    // Dropped last: it holds all that the others have open.
    disk: SmallDisk,
}

impl World {
    async fn new() -> Self {
        let disk = SmallDisk::mount(16).unwrap();
        let model = ModelServer::start().await.unwrap();
        let place = Place::new_in(disk.path());
        place.scripted(&model, Protocol::Anthropic);
        let server = Server::launch(place, Launch::default()).await;
        let client = server.client("full").await;
        let (session, other) = (client.mint().await, client.mint().await);
        for id in [&session, &other] {
            let frames = client.turn(id, "SAY before").await;
            assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
        }
        Self { model, server, client, session, other, disk }
    }

    /// A POST whose refusal must say that the disk is full, in JSON.
    async fn refused(&self, path: &str, body: &Value) {
        let answer = self.client.post(path, body).await;
        assert_eq!(answer.status, 507, "{answer:?}");
        assert!(answer.body["error"].as_str().unwrap().contains(FULL), "{answer:?}");
    }

    async fn send_is_refused(&self, message: &str) {
        self.refused("/api/web/chat", &json!({"message": message, "sessionId": self.session})).await;
    }

    /// With the disk full: the server is there, and everything can be read.
    async fn all_can_be_read(&self) {
        let client = &self.client;
        assert_eq!(client.get("/api/health").await.status, 200);
        assert_eq!(said(&client.history(&self.other).await), ["user: SAY before", "assistant: before"]);
        let history = client.history(&self.session).await;
        assert_eq!(said(&history)[..2], ["user: SAY before", "assistant: before"]);
        let listed = client.sessions().await["sessions"].as_array().unwrap().len();
        assert_eq!(listed, 2);
    }

    /// With room again: the session goes on, and its log holds what was said (the first turn, `then`, and a last
    /// one), each once, in order, and without a hole in the rows.
    async fn goes_on(&self, then: &[&str]) {
        self.disk.free();
        let frames = self.client.turn(&self.session, "SAY after").await;
        assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
        assert_eq!(text_of(&frames), "after");
        let history = self.client.history(&self.session).await;
        assert_eq!(history["running"], false);
        let mut expected = vec!["user: SAY before", "assistant: before"];
        expected.extend(then);
        expected.extend(["user: SAY after", "assistant: after"]);
        assert_eq!(said(&history), expected);
        let places: Vec<i64> = rows(&history).iter().map(place_of).collect();
        assert_eq!(places, (1..=places.len() as i64).collect::<Vec<_>>(), "every place is taken once");
    }

    /// The last request in short: roles with texts, calls and results.
    fn asked(&self) -> Vec<String> {
        let request = self.model.last_request().unwrap().body;
        let messages = request["messages"].as_array().unwrap().iter();
        messages
            .flat_map(|message| {
                let role = message["role"].as_str().unwrap();
                message["content"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(move |block| match block["type"].as_str().unwrap() {
                        "text" => {
                            let text = block["text"].as_str().unwrap();
                            format!("{role}: {}", text.split_once("] ").map_or(text, |(_, said)| said))
                        }
                        other => other.to_owned(),
                    })
                    .collect::<Vec<_>>()
            })
            .collect()
    }
}

fn rows(history: &Value) -> &Vec<Value> {
    history["messages"].as_array().unwrap()
}

/// What people and the model said, by role.
fn said(history: &Value) -> Vec<String> {
    let spoken = |row: &&Value| matches!(row["type"].as_str(), Some("user" | "assistant"));
    let line =
        |row: &Value| format!("{}: {}", row["role"].as_str().unwrap(), row["content"].as_str().unwrap());
    rows(history).iter().filter(spoken).map(line).collect()
}

/// The place in the log that a row's id carries.
fn place_of(row: &Value) -> i64 {
    let id = row["id"].as_str().unwrap();
    i64::from_str_radix(id.rsplit('_').next().unwrap(), 36).unwrap()
}

/// Fills the disk, starts a server, which must say in one line what is wrong and end; frees the disk.
async fn start_fails_on_the_full_disk(disk: &SmallDisk, place: &Place) {
    disk.fill();
    let ended = place.run(["server", "--port", "0"]).await;
    assert_ne!(ended.code, Some(0), "{ended:?}");
    let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.contains(" WARN ")).collect();
    assert_eq!(lines.len(), 1, "{ended:?}");
    assert!(lines[0].contains(FULL), "{ended:?}");
    disk.free();
}

/// The frames' end: an `error` that says that the disk is full.
fn ends_full(frames: &[Frame]) {
    let last = frames.last().unwrap();
    assert_eq!(last.kind(), "error", "{frames:?}");
    assert!(last.data["error"].as_str().unwrap().contains(FULL), "{frames:?}");
}

#[tokio::test]
async fn a_message_that_cannot_be_stored_is_refused() {
    if !may_mount("a_message_that_cannot_be_stored_is_refused") {
        return;
    }
    let world = World::new().await;
    world.disk.fill();
    for _ in 0..3 {
        world.send_is_refused("SAY lost").await;
    }
    world.all_can_be_read().await;
    assert_eq!(world.model.requests().len(), 2, "nothing was run");
    world.goes_on(&[]).await;
    assert_eq!(world.asked(), ["user: SAY before", "assistant: before", "user: SAY after"]);
}

#[tokio::test]
async fn a_session_that_cannot_be_stored_is_not_minted() {
    if !may_mount("a_session_that_cannot_be_stored_is_not_minted") {
        return;
    }
    let world = World::new().await;
    world.disk.fill();
    world.refused("/api/web/sessions", &json!({})).await;
    // Nor made by a message to it.
    let id = format!("{}x", world.session);
    world.refused("/api/web/chat", &json!({"message": "SAY hello", "sessionId": id})).await;
    assert_eq!(world.client.get(&format!("/api/web/history?sessionId={id}")).await.status, 404);
    world.all_can_be_read().await;
    world.goes_on(&[]).await;
    let minted = world.client.mint().await;
    assert_eq!(text_of(&world.client.turn(&minted, "SAY hello").await), "hello");
}

#[tokio::test]
async fn a_message_to_a_busy_session_that_cannot_be_stored_is_refused_and_the_turn_goes_on() {
    if !may_mount("a_message_to_a_busy_session_that_cannot_be_stored_is_refused_and_the_turn_goes_on") {
        return;
    }
    let world = World::new().await;
    let mut stream = world.client.chat(&world.session, "HOLD").await;
    stream.until("stream").await;
    world.disk.fill();
    world.send_is_refused("SAY lost").await;
    world.all_can_be_read().await;
    world.disk.free();
    world.model.release();
    let frames = stream.rest().await;
    assert_eq!(frames.last().unwrap().kind(), "complete", "{frames:?}");
    world.disk.fill();
    world.goes_on(&["user: HOLD", "assistant: held free"]).await;
    assert_eq!(world.asked()[2..], ["user: HOLD", "assistant: held free", "user: SAY after"]);
}

#[tokio::test]
async fn text_that_cannot_be_put_on_disk_while_it_comes_is_put_there_later() {
    if !may_mount("text_that_cannot_be_put_on_disk_while_it_comes_is_put_there_later") {
        return;
    }
    let world = World::new().await;
    let mut stream = world.client.chat(&world.session, "HOLD").await;
    world.disk.fill();
    stream.until("stream").await;
    world.server.stderr_with("the text in flight could not be put on disk").await;
    world.all_can_be_read().await;
    world.disk.free();
    world.model.release();
    let frames = stream.rest().await;
    assert_eq!(kinds_of(&frames), ["stream", "complete"], "nobody was told of what went well in the end");
    world.disk.fill();
    world.goes_on(&["user: HOLD", "assistant: held free"]).await;
}

#[tokio::test]
async fn a_turn_whose_tool_call_cannot_be_stored_ends_and_the_tool_does_not_run() {
    if !may_mount("a_turn_whose_tool_call_cannot_be_stored_ends_and_the_tool_does_not_run") {
        return;
    }
    let world = World::new().await;
    let mark = tempfile::tempdir().unwrap();
    let touch = json!({"command": format!("touch {}/ran", mark.path().display())});
    world.model.push(Script::text(["I look"]).and_call("shell_exec", touch).hold_after(1));
    let mut stream = world.client.chat(&world.session, "go").await;
    stream.until("stream").await;
    world.disk.fill();
    world.model.release();
    ends_full(&stream.rest().await);
    assert!(!mark.path().join("ran").exists(), "the tool must not run");
    world.all_can_be_read().await;
    world.send_is_refused("SAY lost").await;
    world.goes_on(&["user: go", "assistant: I look"]).await;
    let asked = world.asked();
    assert_eq!(
        asked[2..],
        ["user: go", "assistant: I look", "tool_use", "tool_result", "user: SAY after"],
        "the call has its result"
    );
}

#[tokio::test]
async fn a_turn_whose_tool_result_cannot_be_stored_ends() {
    if !may_mount("a_turn_whose_tool_result_cannot_be_stored_ends") {
        return;
    }
    let world = World::new().await;
    let signal = tempfile::tempdir().unwrap();
    let go = signal.path().join("go");
    let wait = json!({"command": format!("while [ ! -e {} ]; do sleep 0.01; done; echo seen", go.display())});
    world.model.push(Script::call("shell_exec", wait));
    let mut stream = world.client.chat(&world.session, "go").await;
    stream.until("tool_call").await;
    world.disk.fill();
    fs::write(&go, "").unwrap();
    let frames = stream.rest().await;
    ends_full(&frames);
    world.all_can_be_read().await;
    world.goes_on(&["user: go", "assistant: "]).await;
    assert_eq!(world.asked()[2..], ["user: go", "tool_use", "tool_result", "user: SAY after"]);
    let history = world.client.history(&world.session).await;
    let results = rows(&history).iter().filter(|row| row["type"] == "tool_result").count();
    assert_eq!(results, 1);
}

#[tokio::test]
async fn the_end_of_a_turn_that_cannot_be_stored_is_told_and_stored_later() {
    if !may_mount("the_end_of_a_turn_that_cannot_be_stored_is_told_and_stored_later") {
        return;
    }
    let world = World::new().await;
    let mut stream = world.client.chat(&world.session, "HOLD").await;
    stream.until("stream").await;
    world.disk.fill();
    world.model.release();
    let frames = stream.rest().await;
    ends_full(&frames);
    assert_eq!(text_of(&frames), "free");
    world.all_can_be_read().await;
    world.send_is_refused("SAY lost").await;
    world.goes_on(&["user: HOLD", "assistant: held free"]).await;
    assert_eq!(world.asked()[2..], ["user: HOLD", "assistant: held free", "user: SAY after"]);
}

#[tokio::test]
async fn an_upload_that_cannot_be_saved_is_refused_and_leaves_nothing() {
    if !may_mount("an_upload_that_cannot_be_saved_is_refused_and_leaves_nothing") {
        return;
    }
    let world = World::new().await;
    world.disk.fill();
    let file = json!({"data": "A".repeat(40_000), "mimeType": "audio/ogg"});
    let body = json!({"message": "hear", "sessionId": world.session, "images": [file]});
    let answer = world.client.post("/api/web/chat", &body).await;
    assert_eq!(answer.status, 500, "{answer:?}");
    assert!(answer.body["error"].as_str().unwrap().contains(FULL), "{answer:?}");
    let assets = world.server.workspace().join(".halo/assets");
    let found = std::process::Command::new("find").arg(&assets).args(["-type", "f"]).output().unwrap();
    assert!(found.stdout.is_empty(), "{found:?}");
    world.goes_on(&[]).await;
}

#[tokio::test]
async fn a_folder_that_is_new_to_halo_cannot_be_opened_on_a_full_disk_but_later() {
    if !may_mount("a_folder_that_is_new_to_halo_cannot_be_opened_on_a_full_disk_but_later") {
        return;
    }
    let world = World::new().await;
    let folder = world.server.place().root().join("another");
    fs::create_dir(&folder).unwrap();
    world.disk.fill();
    let body = json!({"message": "SAY hello", "workspace": folder});
    world.refused("/api/web/chat", &body).await;
    world.all_can_be_read().await;
    world.goes_on(&[]).await;
    let request = world.client.request(Method::POST, "/api/web/chat").json(&body);
    assert_eq!(text_of(&world.client.stream(request).await.rest().await), "hello");
}

#[tokio::test]
async fn what_was_kept_while_the_disk_was_full_is_stored_when_the_server_ends_and_not_run_again() {
    if !may_mount("what_was_kept_while_the_disk_was_full_is_stored_when_the_server_ends_and_not_run_again") {
        return;
    }
    let mut world = World::new().await;
    let mut stream = world.client.chat(&world.session, "HOLD").await;
    stream.until("stream").await;
    world.disk.fill();
    world.model.release();
    ends_full(&stream.rest().await);
    world.disk.free();
    let (status, stderr) = world.server.stop().await;
    assert!(status.success(), "{stderr}");
    world.server.restart().await;
    world.client = world.client.at(world.server.url());
    world.disk.fill();
    world.goes_on(&["user: HOLD", "assistant: held free"]).await;
    assert_eq!(world.model.requests().len(), 4, "two at the start, the one that was held, the last");
}

#[tokio::test]
async fn a_start_on_a_full_disk_says_so_in_one_line() {
    if !may_mount("a_start_on_a_full_disk_says_so_in_one_line") {
        return;
    }
    let disk = SmallDisk::mount(16).unwrap();
    let place = Place::new_in(disk.path());
    start_fails_on_the_full_disk(&disk, &place).await;
    let mut server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    assert_eq!(first(&client.turn("a", "say hello").await, "stream")["text"], "hello");
    server.stop().await;
    // Now with databases that are there already.
    start_fails_on_the_full_disk(&disk, server.place()).await;
    server.restart().await;
    let client = client.at(server.url());
    assert_eq!(said(&client.history("a").await), ["user: say hello", "assistant: hello"]);
}
