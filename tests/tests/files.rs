//! `/api/web/file` on the real server: what is served and how, and what is not.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use futures_util::StreamExt;
use halo_tests::place::Place;
use halo_tests::server::{Launch, Server};
use halo_tests::web::{Answer, Client, answer};
use halo_tests::within;
use reqwest::Method;
use rstest::rstest;
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

/// A workspace with a file outside of it, links, and what halo keeps.
async fn server() -> Server {
    let place = Place::new();
    let workspace = place.workspace();
    fs::write(place.root().join("outside.txt"), "from outside").unwrap();
    fs::create_dir(place.root().join("workspace-secret")).unwrap();
    fs::write(place.root().join("workspace-secret/s.txt"), "from beside").unwrap();
    symlink("../outside.txt", workspace.join("out")).unwrap();
    symlink("..", workspace.join("up")).unwrap();
    symlink("notes.txt", workspace.join("in.txt")).unwrap();
    symlink("nowhere", workspace.join("dangling")).unwrap();
    symlink("circle", workspace.join("circle")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(workspace.join("socket")).unwrap();
    place.write(".hidden/x.txt", "dot folders are no secret\n");
    place.write("page.html", "<script>alert(1)</script>");
    place.write("Übung \"1\".md", "# hi\n");
    Server::launch(place, Launch::default()).await
}

fn file(path: &str) -> String {
    let mut url = "/api/web/file?path=".to_owned();
    for byte in path.bytes() {
        write!(url, "%{byte:02X}").unwrap();
    }
    url
}

async fn bytes(client: &Client, path: &str, headers: &[(&str, &str)]) -> (u16, Vec<u8>) {
    let mut request = client.request(Method::GET, &file(path));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = within("an answer", request.send()).await.unwrap();
    let status = response.status().as_u16();
    (status, within("a body", response.bytes()).await.unwrap().to_vec())
}

fn header<'a>(answer: &'a Answer, name: &str) -> &'a str {
    answer.headers.get(name).map_or("", |value| value.to_str().unwrap())
}

#[rstest]
#[case("full")]
#[case("workspace")]
#[case("readonly")]
#[case("observer")]
#[tokio::test]
async fn every_level_reads_its_workspace_and_looking_makes_nothing(#[case] access: &str) {
    let server = server().await;
    let client = server.client(access).await;
    let notes = server.workspace().join("notes.txt");
    for path in ["notes.txt", "in.txt", "./src/../notes.txt", notes.to_str().unwrap()] {
        assert_eq!(bytes(&client, path, &[]).await, (200, b"one\ntwo\nthree\n".to_vec()), "{path}");
    }
    assert_eq!(bytes(&client, ".hidden/x.txt", &[]).await.0, 200);
    let named = client.get(&file("Übung \"1\".md")).await;
    assert_eq!(header(&named, "content-type"), "text/markdown; charset=utf-8");
    assert_eq!(
        header(&named, "content-disposition"),
        "inline; filename=\"_bung _1_.md\"; filename*=UTF-8''%C3%9Cbung%20%221%22.md"
    );
    assert_eq!(header(&named, "x-content-type-options"), "nosniff");
    assert_eq!(header(&client.get(&file("page.html")).await, "content-security-policy"), "sandbox");
    assert!(!server.workspace().join(".halo").exists());
}

#[rstest]
#[case("full")]
#[case("readonly")]
#[tokio::test]
async fn each_refusal_has_its_status_and_its_text(#[case] access: &str) {
    let server = server().await;
    let client = server.client(access).await;
    client.mint().await;
    server.place().write(".halo/sessions/1.json", "{}");
    let halo = server.workspace().join(".halo");
    fs::hard_link(halo.join("halo.db"), server.workspace().join("hard.db")).unwrap();
    symlink(".halo/halo.db", server.workspace().join("soft.db")).unwrap();
    let outside = server.place().root().join("outside.txt").display().to_string();
    let beside = server.place().root().join("workspace-secret/s.txt").display().to_string();
    let table = [
        ("", 400, "path required"),
        ("../outside.txt", 403, "path traversal not allowed"),
        (outside.as_str(), 403, "path traversal not allowed"),
        (beside.as_str(), 403, "path traversal not allowed"),
        ("../workspace-secret/s.txt", 403, "path traversal not allowed"),
        ("../nothing", 403, "path traversal not allowed"),
        ("/etc/passwd", 403, "path traversal not allowed"),
        ("out", 403, "path traversal not allowed"),
        ("up/outside.txt", 403, "path traversal not allowed"),
        ("/proc/self/root/etc/passwd", 403, "path traversal not allowed"),
        (".halo/halo.db", 403, "path is not accessible"),
        ("src/../.halo/./halo.db", 403, "path is not accessible"),
        (".halo/halo.db-wal", 403, "path is not accessible"),
        (".halo/sessions/1.json", 403, "path is not accessible"),
        ("hard.db", 403, "path is not accessible"),
        ("soft.db", 403, "path is not accessible"),
        ("nope.txt", 404, "file not found"),
        ("notes.txt/x", 404, "file not found"),
        ("dangling", 404, "file not found"),
        ("circle", 404, "file not found"),
        ("a\0b", 404, "file not found"),
        ("src", 400, "cannot serve directory"),
        (".", 400, "cannot serve directory"),
        ("socket", 400, "not a regular file"),
    ];
    for (path, status, text) in table {
        let refused = client.get(&file(path)).await;
        assert_eq!((refused.status, &refused.body), (status, &json!({"error": text})), "{path:?}");
    }
    assert_eq!(client.get(&file(&"x".repeat(5000))).await.status, 404);
    assert_eq!(client.get("/api/web/file").await.body, json!({"error": "path required"}));
    let posted = client.post("/api/web/file", &json!({})).await;
    assert_eq!((posted.status, header(&posted, "allow")), (405, "GET,HEAD"));
}

#[tokio::test]
async fn only_a_full_token_reads_another_folder_and_that_folder_stays_as_it_is() {
    let server = server().await;
    let other = server.place().root().join("workspace-secret");
    let path = format!("/api/web/file?path=s.txt&workspace={}", other.display());
    let full = server.client("full").await.get(&path).await;
    assert_eq!((full.status, &full.body), (200, &json!("from beside")));
    let reader = server.client("readonly").await.get(&path).await;
    let refused = json!({"error": "workspace override requires a full-access token"});
    assert_eq!((reader.status, reader.body), (403, refused));
    assert_eq!(fs::read_dir(&other).unwrap().count(), 1);
}

#[tokio::test]
async fn a_workspace_that_holds_the_home_gives_its_keys_to_full_tokens_alone() {
    let server = server().await;
    let place = server.place();
    place.private("secrets/settings.yaml", "demo:\n  secrets:\n    api_key: sk-of-nobody\n");
    fs::create_dir(place.user_home().join(".ssh")).unwrap();
    fs::write(place.user_home().join(".ssh/id"), "key").unwrap();
    let keys = ["home/secrets/settings.yaml", "home/secrets/channels/channels.db", "user/.ssh/id"];
    for (access, status) in [("readonly", 403), ("observer", 403), ("workspace", 403), ("full", 200)] {
        let token = place.token_for(access, place.root()).await;
        let client = Client::new(server.url(), Some(&token));
        for path in keys {
            assert_eq!(bytes(&client, path, &[]).await.0, status, "{path} for {access}");
        }
        assert_eq!(bytes(&client, "outside.txt", &[]).await.0, 200);
    }
}

#[tokio::test]
async fn a_workspace_that_is_gone_is_not_found() {
    let server = server().await;
    let gone = server.place().root().join("gone");
    fs::create_dir(&gone).unwrap();
    let token = server.place().token_for("readonly", &gone).await;
    let client = Client::new(server.url(), Some(&token));
    fs::remove_dir_all(&gone).unwrap();
    let refused = client.get(&file("x")).await;
    assert_eq!((refused.status, refused.body), (404, json!({"error": "workspace not found"})));
}

#[tokio::test]
async fn a_head_says_what_a_get_would_send() {
    let server = server().await;
    let client = server.client("readonly").await;
    let get = client.get(&file("notes.txt")).await;
    let head = answer(client.request(Method::HEAD, &file("notes.txt"))).await;
    assert_eq!((head.status, &head.body), (200, &json!("")));
    for name in ["content-length", "content-type", "content-disposition", "etag", "last-modified"] {
        assert!(!header(&get, name).is_empty() && header(&get, name) == header(&head, name), "{name}");
    }
    assert_eq!(answer(client.request(Method::HEAD, &file("nope"))).await.status, 404);
}

#[tokio::test]
async fn a_range_and_a_known_state_save_the_rest() {
    let server = server().await;
    let client = server.client("readonly").await;
    let content: Vec<u8> = (0..102_400_u32).map(|n| n as u8).collect();
    fs::write(server.workspace().join("big.bin"), &content).unwrap();
    assert_eq!(bytes(&client, "big.bin", &[("range", "bytes=256-260")]).await, (206, vec![0, 1, 2, 3, 4]));
    assert_eq!(bytes(&client, "big.bin", &[("range", "bytes=-2")]).await, (206, vec![254, 255]));
    assert_eq!(bytes(&client, "big.bin", &[("range", "bytes=0-1,5-6")]).await, (200, content.clone()));
    let request = client.request(Method::GET, &file("big.bin")).header("range", "bytes=102400-");
    let behind = answer(request).await;
    assert_eq!((behind.status, header(&behind, "content-range")), (416, "bytes */102400"));
    assert_eq!(behind.body, json!({"error": "range not satisfiable"}));

    let etag = header(&client.get(&file("big.bin")).await, "etag").to_owned();
    assert_eq!(bytes(&client, "big.bin", &[("if-none-match", &etag)]).await, (304, Vec::new()));
    let part = [("range", "bytes=0-1"), ("if-range", etag.as_str())];
    assert_eq!(bytes(&client, "big.bin", &part).await, (206, vec![0, 1]));
    fs::write(server.workspace().join("big.bin"), "new").unwrap();
    assert_eq!(bytes(&client, "big.bin", &[("if-none-match", &etag)]).await, (200, b"new".to_vec()));
    assert_eq!(bytes(&client, "big.bin", &part).await, (200, b"new".to_vec()));
}

#[tokio::test]
async fn text_is_compressed_whole_but_neither_in_parts_nor_where_it_does_not_help() {
    let server = server().await;
    let client = server.client("readonly").await;
    let long = "word ".repeat(10_000);
    for name in ["long.txt", "long.bin", "long.png", "long.mp4"] {
        server.place().write(name, &long);
    }
    let ask = |name: &str, range: Option<&str>| {
        let request = client.request(Method::GET, &file(name)).header("accept-encoding", "gzip");
        range.into_iter().fold(request, |request, range| request.header("range", range))
    };
    let whole = within("an answer", ask("long.txt", None).send()).await.unwrap();
    assert_eq!(whole.headers()["content-encoding"], "gzip");
    let etag = whole.headers()["etag"].to_str().unwrap().to_owned();
    assert!(etag.starts_with("W/\""), "these bytes are others than a range would count: {etag}");
    assert!(whole.bytes().await.unwrap().len() < long.len() / 10);
    assert_eq!(bytes(&client, "long.txt", &[("if-none-match", &etag)]).await.0, 304);
    let part = answer(ask("long.txt", Some("bytes=5-2000"))).await;
    assert_eq!((part.status, header(&part, "content-encoding")), (206, ""));
    assert_eq!(part.body, long[5..=2000]);
    for name in ["long.bin", "long.png", "long.mp4"] {
        let plain = answer(ask(name, None)).await;
        assert_eq!((header(&plain, "content-encoding"), header(&plain, "content-length")), ("", "50000"));
    }
}

/// Whether the server has the file open.
fn holds(server: &Server, path: &Path) -> bool {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| target == path)
}

fn resident_kib(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_huge_file_is_streamed_in_little_memory_and_let_go_when_the_client_leaves() {
    let server = server().await;
    let client = server.client("readonly").await;
    let path = server.workspace().canonicalize().unwrap().join("huge.bin");
    File::create(&path).unwrap().set_len(64 << 30).unwrap();
    let before = resident_kib(&server);
    let mut streams = Vec::new();
    for _ in 0..8 {
        let response =
            within("an answer", client.request(Method::GET, &file("huge.bin")).send()).await.unwrap();
        assert_eq!(response.content_length(), Some(64 << 30));
        let mut stream = response.bytes_stream();
        let mut seen = 0;
        while seen < 4 << 20 {
            seen += within("a piece", stream.next()).await.unwrap().unwrap().len();
        }
        streams.push(stream);
    }
    assert!(holds(&server, &path));
    let grown = resident_kib(&server).saturating_sub(before);
    assert!(grown < 32 * 1024, "{grown} KiB for 8 readers");
    drop(streams);
    within("the file is let go", async {
        while holds(&server, &path) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let last = bytes(&client, "huge.bin", &[("range", "bytes=-3")]).await;
    assert_eq!(last, (206, vec![0, 0, 0]));
}
