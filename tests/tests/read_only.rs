//! Disks that take no writes: a server does not start on one and says so in one line; a workspace on one can be read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::small_disk::{SmallDisk, may_mount};
use halo_tests::web::{Client, kinds_of, text_of};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;

#[tokio::test]
async fn a_start_on_a_read_only_disk_says_so_in_one_line() {
    if !may_mount("a_start_on_a_read_only_disk_says_so_in_one_line") {
        return;
    }
    for used in [false, true] {
        let disk = SmallDisk::mount(16).unwrap();
        let mut place = Place::new_in(disk.path());
        if used {
            let mut server = Server::launch(place, Launch::default()).await;
            server.client("full").await.turn("a", "say hello").await;
            server.stop().await;
            place = server.into_place();
        }
        disk.make_read_only();
        let ended = place.run(["server", "--port", "0"]).await;
        disk.make_writable();
        assert_ne!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.stdout, "", "nothing was promised");
        assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
        assert!(ended.stderr.contains("read-only"), "{ended:?}");
        assert!(ended.stderr.contains(disk.path().to_str().unwrap()), "{ended:?}");
    }
}

/// A server with its home elsewhere, and a workspace on a disk with a session that had a turn.
struct World {
    server: Server,
    client: Client,
    folder: PathBuf,
    disk: SmallDisk,
}

impl World {
    async fn new() -> Self {
        let disk = SmallDisk::mount(16).unwrap();
        let folder = disk.path().join("ws");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("notes.txt"), "one\n").unwrap();
        let server = Server::start().await;
        let token = server.place().token_for("full", &folder).await;
        let client = Client::new(server.url(), Some(&token));
        assert_eq!(text_of(&client.turn("web_s", "say before").await), "before");
        Self { server, client, folder, disk }
    }

    async fn restart(&mut self) {
        self.server.restart().await;
        self.client = self.client.at(self.server.url());
    }

    async fn said(&self) -> Vec<Value> {
        let history = self.client.history("web_s").await;
        let rows = history["messages"].as_array().unwrap().iter();
        rows.filter(|row| row["type"] != "usage").map(|row| row["content"].clone()).collect()
    }

    async fn can_only_be_read(&self) {
        let client = &self.client;
        assert_eq!(self.said().await[1..], ["say before", "before"]);
        assert_eq!(client.get("/api/web/sessions").await.status, 200);
        assert_eq!(client.get("/api/web/file?path=notes.txt").await.status, 200);
        assert_eq!(kinds_of(&client.subscribe("web_s", None).await.rest().await), ["session", "complete"]);
        assert!(!client.stop("web_s").await);
        let message = json!({"message": "say no", "sessionId": "web_s"});
        for (path, body) in [("/api/web/chat", message), ("/api/web/sessions", json!({}))] {
            let answer = client.post(path, &body).await;
            let error = answer.body["error"].as_str().unwrap();
            assert!(answer.status == 503 && error.contains("read-only"), "{answer:?}");
            assert!(error.starts_with(self.folder.to_str().unwrap()), "{error}");
        }
    }

    /// The same server, once the disk takes writes.
    async fn goes_on(&self) {
        self.disk.make_writable();
        let frames = self.client.turn("web_s", "say after").await;
        assert_eq!(text_of(&frames), "after", "{frames:?}");
        assert_eq!(self.said().await[1..], ["say before", "before", "say after", "after"]);
    }
}

#[tokio::test]
async fn a_workspace_on_a_read_only_disk_can_be_read_and_goes_on_when_the_disk_takes_writes() {
    if !may_mount("a_workspace_on_a_read_only_disk_can_be_read_and_goes_on_when_the_disk_takes_writes") {
        return;
    }
    let mut world = World::new().await;
    world.server.stop().await;
    world.disk.make_read_only();
    world.restart().await;
    world.can_only_be_read().await;
    world.goes_on().await;
}

#[tokio::test]
async fn what_a_killed_server_left_on_a_disk_that_is_read_only_now_can_be_read() {
    if !may_mount("what_a_killed_server_left_on_a_disk_that_is_read_only_now_can_be_read") {
        return;
    }
    let mut world = World::new().await;
    world.server.kill9().await;
    assert!(world.folder.join(".halo/halo.db-wal").metadata().unwrap().len() > 0, "the log is not folded in");
    world.disk.make_read_only();
    world.restart().await;
    world.can_only_be_read().await;
    world.goes_on().await;
}

#[tokio::test]
async fn a_folder_that_is_new_to_halo_on_a_read_only_disk_is_refused_with_the_reason() {
    if !may_mount("a_folder_that_is_new_to_halo_on_a_read_only_disk_is_refused_with_the_reason") {
        return;
    }
    let disk = SmallDisk::mount(1).unwrap();
    let server = Server::start().await;
    let token = server.place().token_for("full", disk.path()).await;
    disk.make_read_only();
    let client = Client::new(server.url(), Some(&token));
    let answer = client.post("/api/web/chat", &json!({"message": "say hello"})).await;
    let error = answer.body["error"].as_str().unwrap().to_lowercase();
    assert!(answer.status == 500 && error.contains("read-only"), "{answer:?}");
    assert_eq!(client.sessions().await["sessions"], json!([]));
}
