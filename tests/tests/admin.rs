//! The admin, against the real program: the password and its cookie over restarts, accounts whose tokens die at
//! once and take their streams with them, from inside and from another process, and the file browser.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use halo_tests::model_server::script::Script;
use halo_tests::model_server::{ModelServer, Protocol};
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Answer, Client, Frames, answer, text_of};
use halo_tests::within;
use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use tokio::io::AsyncWriteExt;

const PASSWORD: &str = "correct horse 1";

/// Sets the admin password by `halo password --stdin`.
async fn set_password(place: &Place, password: &str) {
    let mut command = place.halo(["password", "--stdin"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(password.as_bytes()).await.unwrap();
    let ended = within("halo password ends", child.wait_with_output()).await.unwrap();
    assert!(ended.status.success(), "{ended:?}");
}

/// A browser that is logged in.
struct Admin {
    client: Client,
    cookie: String,
}

impl Admin {
    async fn login(server: &Server, password: &str) -> Self {
        let client = Client::new(server.url(), None);
        let answer = client.post("/api/auth/login", &json!({ "password": password })).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let cookie = answer.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        Self { client, cookie }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Answer {
        let request = self.client.request(method, path).header("cookie", &self.cookie);
        answer(match body {
            Some(body) => request.json(body),
            None => request,
        })
        .await
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.ask(Method::GET, path, None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body
    }

    /// A new account of the server's workspace: its id, and a client with its token.
    async fn account(&self, server: &Server, level: &str) -> (String, Client) {
        let body = json!({ "workspacePath": server.workspace(), "accessLevel": level });
        let made = self.ask(Method::POST, "/api/web/accounts", Some(&body)).await;
        assert_eq!(made.status, 200, "{made:?}");
        let text = |field: &str| made.body[field].as_str().unwrap().to_owned();
        (text("accountId"), self.client.with_token(Some(&text("token"))))
    }
}

#[tokio::test]
async fn a_login_outlasts_a_restart_and_a_new_password() {
    let place = Place::fresh();
    std::fs::create_dir_all(place.home().join("secrets")).unwrap();
    set_password(&place, PASSWORD).await;
    let mut server = Server::launch(place, Launch::default()).await;
    let mut admin = Admin::login(&server, PASSWORD).await;
    let body = json!({ "oldPassword": PASSWORD, "newPassword": "battery staple 2" });
    let changed = admin.ask(Method::POST, "/api/auth/change-password", Some(&body)).await;
    assert_eq!((changed.status, &changed.body), (200, &json!({ "ok": true })));
    let config = server.place().home().join("secrets/config.yaml");
    assert_eq!(std::fs::metadata(&config).unwrap().permissions().mode() & 0o777, 0o600);
    server.stop().await;
    server.restart().await;
    admin.client = admin.client.at(server.url());
    let check = admin.get("/api/auth/check").await;
    assert_eq!(check, json!({ "authenticated": true, "badge": null }));
    Admin::login(&server, "battery staple 2").await;
    let old = admin.client.post("/api/auth/login", &json!({ "password": PASSWORD })).await;
    assert_eq!((old.status, &old.body), (401, &json!({ "error": "Invalid password" })));
    // The command changes it under the running server.
    set_password(server.place(), "third time lucky 3").await;
    within("the new password counts", async {
        while admin.client.post("/api/auth/login", &json!({ "password": "third time lucky 3" })).await.status
            != 200
        {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_password_of_the_environment_opens_and_is_not_changed_here() {
    let env =
        vec![("HALO_PASSWORD".to_owned(), PASSWORD.to_owned()), ("HALO_BADGE".to_owned(), "lab".to_owned())];
    let server = Server::launch(Place::new(), Launch { env, ..Launch::default() }).await;
    let admin = Admin::login(&server, PASSWORD).await;
    assert_eq!(admin.get("/api/auth/check").await["badge"], "lab");
    let body = json!({ "oldPassword": PASSWORD, "newPassword": "battery staple 2" });
    let refused = admin.ask(Method::POST, "/api/auth/change-password", Some(&body)).await;
    assert_eq!(refused.status, 400);
    assert!(refused.body["error"].as_str().unwrap().contains("HALO_PASSWORD"), "{refused:?}");
}

struct Talk {
    server: Server,
    model: ModelServer,
    admin: Admin,
}

/// A server with a password and a scripted model.
async fn talk() -> Talk {
    let model = ModelServer::start().await.unwrap();
    let place = Place::new();
    place.scripted(&model, Protocol::OpenAi);
    set_password(&place, PASSWORD).await;
    let server = Server::launch(place, Launch::default()).await;
    let admin = Admin::login(&server, PASSWORD).await;
    Talk { server, model, admin }
}

/// Reads to the end, which must come without a terminal frame.
async fn ends_without_a_last_frame(mut stream: Frames) {
    while let Some(frame) = stream.next().await {
        assert!(!frame.is_last(), "{frame:?}");
    }
    assert!(!stream.is_broken());
}

#[derive(Clone, Copy, Debug)]
enum End {
    Deleted,
    Disabled,
    Rotated,
    RevokedByCommand,
    RotatedByCommand,
}

#[rstest]
#[case(End::Deleted)]
#[case(End::Disabled)]
#[case(End::Rotated)]
#[case(End::RevokedByCommand)]
#[case(End::RotatedByCommand)]
#[tokio::test]
async fn a_dead_token_takes_its_streams_with_it_and_leaves_the_run(#[case] end: End) {
    let Talk { server, model, admin } = talk().await;
    let (id, client) = admin.account(&server, "workspace").await;
    let (_, other) = admin.account(&server, "full").await;
    let words: Vec<String> = (1..=6).map(|n| format!("word-{n} ")).collect();
    model.push(Script::text(words.clone()).hold_after(3));
    let session = client.mint().await;
    let mut chat = client.chat(&session, "begin").await;
    chat.until("stream").await;
    let mut watcher = client.subscribe(&session, None).await;
    watcher.until("session").await;
    let others = other.subscribe(&session, None).await;

    let uri = format!("/api/web/accounts/{id}");
    let ended = match end {
        End::Deleted => admin.ask(Method::DELETE, &uri, None).await,
        End::Disabled => admin.ask(Method::PATCH, &uri, Some(&json!({ "enabled": false }))).await,
        End::Rotated => admin.ask(Method::PATCH, &uri, Some(&json!({ "rotateToken": true }))).await,
        End::RevokedByCommand | End::RotatedByCommand => {
            let verb = if matches!(end, End::RevokedByCommand) { "revoke" } else { "rotate" };
            let ended = server.place().run(["token", verb, &id]).await;
            assert_eq!(ended.code, Some(0), "{ended:?}");
            admin.ask(Method::GET, "/api/web/accounts", None).await
        }
    };
    assert_eq!(ended.status, 200, "{ended:?}");
    let refused = client.get("/api/web/sessions").await;
    assert_eq!((refused.status, &refused.body), (401, &json!({ "error": "invalid token" })));
    ends_without_a_last_frame(chat).await;
    ends_without_a_last_frame(watcher).await;

    model.release();
    let rest = others.rest().await;
    assert_eq!(rest.last().unwrap().kind(), "complete");
    assert!(text_of(&rest).ends_with("word-6 "), "{rest:?}");
    let history = other.history(&session).await;
    assert_eq!(history["messages"].as_array().unwrap().last().unwrap()["content"], words.concat());
    if let Some(token) = ended.body["token"].as_str() {
        let again = client.with_token(Some(token));
        assert_eq!(again.history(&session).await["running"], false, "the new token has the old sessions");
    }
}

#[tokio::test]
async fn a_changed_label_disturbs_nobody() {
    let Talk { server, model, admin } = talk().await;
    let (id, client) = admin.account(&server, "workspace").await;
    model.push(Script::text(["one ", "two ", "three"]).hold_after(1));
    let session = client.mint().await;
    let mut chat = client.chat(&session, "begin").await;
    let mut frames = chat.until("stream").await;
    let body = json!({ "label": "desk", "accessLevel": "full" });
    let changed = admin.ask(Method::PATCH, &format!("/api/web/accounts/{id}"), Some(&body)).await;
    assert_eq!(changed.status, 200, "{changed:?}");
    model.release();
    frames.extend(chat.rest().await);
    assert_eq!((frames.last().unwrap().kind(), text_of(&frames).as_str()), ("complete", "one two three"));
}

#[tokio::test]
async fn a_large_folder_comes_in_pages_without_being_asked_to() {
    const FILES: usize = 25_000;
    let place = Place::new();
    set_password(&place, PASSWORD).await;
    let server = Server::launch(place, Launch::default()).await;
    let admin = Admin::login(&server, PASSWORD).await;
    let folder = server.place().root().join("big");
    std::fs::create_dir(&folder).unwrap();
    for n in 0..FILES {
        std::fs::File::create(folder.join(format!("{n:06}"))).unwrap();
    }
    let path = folder.to_str().unwrap();
    let (mut seen, mut after) = (0, String::new());
    loop {
        let page = admin.get(&format!("/api/fs/browse?path={path}&files=1{after}")).await;
        let entries = page["entries"].as_array().unwrap();
        assert!(entries.len() <= 10_000);
        for entry in entries {
            assert_eq!(entry["name"], format!("{seen:06}"));
            seen += 1;
        }
        if page["hasMore"] == false {
            break;
        }
        after = format!("&after={}", page["next"].as_str().unwrap());
    }
    assert_eq!(seen, FILES);
}

#[tokio::test]
async fn secrets_of_the_server_are_not_in_its_file_browser() {
    let place = Place::new();
    set_password(&place, PASSWORD).await;
    let server = Server::launch(place, Launch::default()).await;
    let admin = Admin::login(&server, PASSWORD).await;
    let home = server.place().home();
    for path in ["secrets", "secrets/config.yaml", "secrets/channels/channels.db", "global/runs.db"] {
        let path = home.join(path).display().to_string();
        let expected = json!({ "error": format!("ENOENT: no such file or directory, realpath '{path}'") });
        for route in ["raw", "stat"] {
            let refused = admin.ask(Method::GET, &format!("/api/fs/{route}?path={path}"), None).await;
            assert_eq!((refused.status, &refused.body), (404, &expected), "{route}");
        }
    }
    let shown = admin.get(&format!("/api/fs/browse?path={}&files=1", home.display())).await;
    assert!(!shown.to_string().contains("secrets\""), "{shown}");
    let readme = server.workspace().join("README.md").display().to_string();
    let raw = admin.ask(Method::GET, &format!("/api/fs/raw?path={readme}"), None).await;
    assert_eq!(raw.body, halo_tests::place::README);
}
