//! What comes in the `images` of a chat on the real server: images reach the model, anything else is a file.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Client, Frame, answer, first, kinds_of};
use reqwest::Method;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn send(client: &Client, body: &Value) -> Vec<Frame> {
    let request = client.request(Method::POST, "/api/web/chat").json(body);
    client.stream(request).await.rest().await
}

/// Every file below a folder; none where the folder is missing.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            _ => found.push(entry.path()),
        }
    }
    found
}

fn inbound(server: &Server) -> PathBuf {
    server.workspace().canonicalize().unwrap().join(".halo/assets/web/inbound")
}

#[tokio::test]
async fn a_sound_is_saved_and_named_and_an_image_goes_to_the_model() {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("readonly").await;
    let session = client.mint().await;
    let images = json!([
        {"data": "AAAA", "mimeType": "audio/webm"},
        {"data": PNG, "mimeType": "image/png"},
        {"data": "JVBERi0=", "mimeType": "application/pdf"},
    ]);
    let frames = send(&client, &json!({"message": "hear", "sessionId": session, "images": images})).await;
    assert_eq!(kinds_of(&frames), ["session", "user", "stream", "complete"]);
    let text = first(&frames, "user")["text"].as_str().unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[1]), (4, "hear", ""), "{text}");
    let path = |line: &str, word: &str| {
        let inside = line.strip_prefix(&format!("[{word}已保存: ")).and_then(|rest| rest.strip_suffix(']'));
        PathBuf::from(inside.unwrap_or_else(|| panic!("{line}")))
    };
    let (sound, paper) = (path(lines[2], "语音"), path(lines[3], "文件"));
    assert_eq!((fs::read(&sound).unwrap(), fs::read(&paper).unwrap()), (vec![0; 3], b"%PDF-".to_vec()));
    let account = session.split('_').nth(1).unwrap();
    let day = sound.parent().unwrap();
    assert_eq!(day.parent().unwrap(), inbound(&server).join(account));
    assert_eq!(fs::metadata(&sound).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(files(&inbound(&server)).len(), 2);

    let asked = model.last_request().unwrap().body.to_string();
    assert!(asked.contains(sound.to_str().unwrap()) && asked.contains(PNG), "{asked}");
    assert!(!asked.contains("AAAA\""), "the sound itself is not for the model");
    let history = client.history(&session).await;
    let row = history["messages"].as_array().unwrap().iter().find(|row| row["type"] == "user").unwrap();
    assert_eq!(row["content"], text);
    let served = client.get(&format!("/api/web/file?path={}", sound.display())).await;
    assert_eq!((served.status, served.headers["content-length"].to_str().unwrap()), (200, "3"));
}

#[tokio::test]
async fn a_file_alone_is_a_message() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let body = json!({"images": [{"data": "AAAA", "mimeType": "video/mp4"}]});
    let frames = send(&client, &body).await;
    let text = first(&frames, "user")["text"].as_str().unwrap();
    assert!(text.starts_with("[视频已保存: /") && text.ends_with(".mp4]"), "{text}");
}

#[tokio::test]
async fn nothing_of_a_refused_message_is_left() {
    let server = Server::start().await;
    let client = server.client("workspace").await;
    let session = client.mint().await;
    let new = session.clone() + "x";
    let sound = json!({"data": "AAAA", "mimeType": "audio/webm"});
    let body = json!({"message": "m", "images": [sound], "sessionId": new, "agentId": "nobody"});
    let frames = send(&client, &body).await;
    assert_eq!(first(&frames, "error")["error"], "agent not available");
    let bad =
        json!({"message": "m", "sessionId": session, "images": [sound, {"data": "%", "mimeType": "a/b"}]});
    let refused = client.post("/api/web/chat", &bad).await;
    assert_eq!((refused.status, &refused.body), (400, &json!({"error": "images[1]: data is not base64"})));
    assert_eq!(files(&inbound(&server)), Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_link_that_leads_out_of_the_workspace_is_not_followed() {
    let server = Server::start().await;
    let client = server.client("full").await;
    let session = client.mint().await;
    let outside = server.place().root().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, server.workspace().join(".halo/assets")).unwrap();
    let body = json!({
        "message": "m", "sessionId": session, "images": [{"data": "AAAA", "mimeType": "audio/webm"}],
    });
    let refused = answer(client.request(Method::POST, "/api/web/chat").json(&body)).await;
    assert_eq!(refused.status, 500);
    let text = refused.body["error"].as_str().unwrap();
    assert!(text.starts_with("an upload could not be saved: .halo/assets/web/inbound/"), "{text}");
    assert_eq!(files(&outside), Vec::<PathBuf>::new());
    assert_eq!(client.history(&session).await["messages"], json!([]));
}

#[tokio::test]
async fn a_message_that_waits_in_the_queue_keeps_its_files() {
    let place = Place::new();
    place.demo("demo");
    let server = Server::launch(place, Launch::default()).await;
    let client = server.client("full").await;
    let session = client.mint().await;
    let mut running = client.chat(&session, "run sleep 60").await;
    running.until("tool_call").await;
    let sound = json!({"data": "AAAA", "mimeType": "audio/webm"});
    let frames = send(&client, &json!({"message": "m", "sessionId": session, "images": [sound]})).await;
    assert_eq!(kinds_of(&frames), ["session", "queued"]);
    assert_eq!(files(&inbound(&server)).len(), 1);
    assert!(client.stop(&session).await);
    assert_eq!(files(&inbound(&server)).len(), 1);
}
