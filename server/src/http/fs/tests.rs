//! The file browser as the admin sees it.

use super::Named;
use crate::http::testing::{Server, error, get, text_of};
use crate::workspace::paths::PathError;
use axum::body::Body;
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rstest::rstest;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

/// A server with folders to look at: `d` below the test's folder.
fn place() -> Server {
    let server = Server::new();
    for folder in ["d/sub/deep", "d/Zed", "d/.hidden", "d/node_modules", "d/.git", "d/__pycache__"] {
        fs::create_dir_all(server.at(folder)).unwrap();
    }
    for (file, text) in
        [("d/b.txt", "12345"), ("d/a.html", "<p>"), ("d/.env", "e"), ("d/.DS_Store", "x"), ("d/empty", "")]
    {
        fs::write(server.at(file), text).unwrap();
    }
    symlink("sub", server.at("d/link")).unwrap();
    symlink("b.txt", server.at("d/alias")).unwrap();
    symlink("gone", server.at("d/dangling")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, server.at("d/fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    // What is hidden: a folder and a file of the person's home, a secret of halo's, each with a way around.
    fs::create_dir_all(server.at("user/.ssh")).unwrap();
    fs::write(server.at("user/.ssh/id"), "key").unwrap();
    fs::write(server.at("user/.netrc"), "login").unwrap();
    fs::write(server.at("user/shown"), "shown").unwrap();
    fs::write(server.at("home/secrets/config.yaml"), "server: {}\n").unwrap();
    symlink(server.at("user/.ssh"), server.at("d/keys")).unwrap();
    fs::hard_link(server.at("user/.netrc"), server.at("d/hard")).unwrap();
    server
}

impl Server {
    fn text(&self, path: &str) -> String {
        self.at(path).to_str().unwrap().to_owned()
    }

    /// `/api/fs/<route>?path=<path>&…`
    async fn fs(&self, route: &str, path: &str, rest: &str) -> (u16, Value) {
        self.admin("GET", &uri(route, path, rest), &Value::Null).await
    }

    async fn raw(&self, path: &str) -> Response {
        let request = get(&uri("raw", path, "")).header("cookie", self.cookie().await);
        self.send(request.body(Body::empty()).unwrap()).await
    }

    /// The names that a listing shows.
    async fn names(&self, path: &str, rest: &str) -> Vec<String> {
        names_of(&self.fs("browse", path, rest).await.1)
    }
}

fn uri(route: &str, path: &str, rest: &str) -> String {
    format!("/api/fs/{route}?path={}{rest}", utf8_percent_encode(path, NON_ALPHANUMERIC))
}

fn names_of(page: &Value) -> Vec<String> {
    let entries = page["entries"].as_array().unwrap_or_else(|| panic!("{page}"));
    entries.iter().map(|entry| entry["name"].as_str().unwrap().to_owned()).collect()
}

fn missing(call: &str, path: &str) -> (u16, Value) {
    (404, error(&format!("ENOENT: no such file or directory, {call} '{path}'")))
}

#[tokio::test]
async fn home_is_the_persons() {
    let server = place();
    let answer = server.admin("GET", "/api/fs/home", &Value::Null).await;
    assert_eq!(answer, (200, json!({ "home": server.text("user") })));
}

#[tokio::test]
async fn exists_tells_files_from_folders_and_refuses_nothing() {
    let server = place();
    let exists = async |path: &str| {
        let (status, body) = server.fs("exists", path, "").await;
        assert_eq!(status, 200);
        body
    };
    assert_eq!(exists(&server.text("d")).await, json!({ "exists": true, "isDirectory": true }));
    assert_eq!(exists(&server.text("d/link")).await, json!({ "exists": true, "isDirectory": true }));
    assert_eq!(exists(&server.text("d/b.txt")).await, json!({ "exists": true, "isDirectory": false }));
    for nothing in [server.text("d/dangling"), server.text("nope"), "/x\0".into()] {
        assert_eq!(exists(&nothing).await, json!({ "exists": false }), "{nothing:?}");
    }
    for path in ["rel", ""] {
        assert_eq!(exists(path).await, json!({ "exists": false, "reason": "absolute path required" }));
    }
    let without = server.admin("GET", "/api/fs/exists", &Value::Null).await;
    assert_eq!(without, (200, json!({ "exists": false, "reason": "absolute path required" })));
}

#[tokio::test]
async fn a_folder_is_picked_among_folders() {
    let server = place();
    let root = server.text("d");
    let entries = ["Zed", "__pycache__", "keys", "link", "node_modules", "sub"]
        .map(|name| json!({ "name": name, "path": format!("{root}/{name}") }));
    assert_eq!(
        server.fs("browse", &root, "").await,
        (
            200,
            json!({
                "path": root, "parent": server.folder.path(),
                "entries": entries,
            })
        )
    );
    assert_eq!(server.fs("browse", &format!("{root}/sub/.."), "").await.1["path"], root.as_str());
    let home = server.admin("GET", "/api/fs/browse", &Value::Null).await.1;
    assert_eq!((&home["path"], &home["entries"]), (&json!(server.text("user")), &json!([])));
    let top = server.fs("browse", "/", "").await.1;
    assert_eq!((&top["path"], &top["parent"]), (&json!("/"), &json!("/")));
    assert!(names_of(&top).contains(&"proc".to_owned()));
    assert_eq!(server.fs("browse", &server.text("user/.ssh"), "").await.0, 200, "the picker goes everywhere");
}

#[tokio::test]
async fn a_folder_that_cannot_be_listed_says_why() {
    let server = place();
    let (nope, file) = (server.text("nope"), server.text("d/b.txt"));
    assert_eq!(server.fs("browse", "rel", "").await, (400, error("absolute path required")));
    for rest in ["", "&files=1"] {
        assert_eq!(server.fs("browse", &nope, rest).await, missing("scandir", &nope));
        let text = format!("ENOTDIR: not a directory, scandir '{file}'");
        assert_eq!(server.fs("browse", &file, rest).await, (404, error(&text)));
    }
    for limit in ["0", "10001", "x", "-1", "+5"] {
        let answer = server.fs("browse", &server.text("d"), &format!("&limit={limit}")).await;
        assert_eq!(answer, (400, error("Invalid limit")), "{limit}");
    }
}

#[tokio::test]
async fn files_come_after_folders_with_their_sizes_and_links_as_what_they_lead_to() {
    let server = place();
    let root = server.text("d");
    let folder = |name: &str| json!({ "name": name, "path": format!("{root}/{name}"), "type": "directory" });
    let file = |name: &str, size: u64| json!({ "name": name, "path": format!("{root}/{name}"), "type": "file", "size": size });
    let entries = json!([
        folder(".hidden"),
        folder("Zed"),
        folder("link"),
        folder("sub"),
        file(".env", 1),
        file("a.html", 3),
        file("alias", 5),
        file("b.txt", 5),
        file("empty", 0),
    ]);
    let (status, page) = server.fs("browse", &root, "&files=1&sizes=1").await;
    assert_eq!((status, &page["entries"]), (200, &entries));
    assert!(page.get("hasMore").is_none(), "{page}");
    let (_, plain) = server.fs("browse", &root, "&files=1").await;
    assert!(plain["entries"].as_array().unwrap().iter().all(|entry| entry.get("size").is_none()));
}

#[tokio::test]
async fn a_folder_comes_in_pages_that_follow_on_one_another() {
    let server = Server::new();
    fs::create_dir(server.at("big")).unwrap();
    for n in 0..250 {
        fs::write(server.at(&format!("big/file-{n:03}")), "").unwrap();
    }
    for n in 0..50 {
        fs::create_dir(server.at(&format!("big/z-folder-{n:02}"))).unwrap();
    }
    let root = server.text("big");
    let whole = server.names(&root, "&files=1").await;
    assert_eq!((whole.len(), &whole[0][..], &whole[299][..]), (300, "z-folder-00", "file-249"));
    for by_name in [false, true] {
        let (mut seen, mut after) = (Vec::new(), String::new());
        loop {
            let (_, page) = server.fs("browse", &root, &format!("&files=1&limit=40{after}")).await;
            seen.extend(names_of(&page));
            let next = if by_name {
                seen.last().unwrap().clone()
            } else {
                page["next"].as_str().unwrap_or("").into()
            };
            after = format!("&after={}", utf8_percent_encode(&next, NON_ALPHANUMERIC));
            assert_eq!(page["hasMore"], json!(seen.len() < 300));
            if page["hasMore"] == false {
                assert!(page.get("next").is_none());
                break;
            }
        }
        assert_eq!(seen, whole);
    }
    // An entry that is gone is no hole: the cursor still knows where it stood.
    let (_, page) = server.fs("browse", &root, "&files=1&limit=60").await;
    fs::remove_file(server.at("big/file-009")).unwrap();
    let after = utf8_percent_encode(page["next"].as_str().unwrap(), NON_ALPHANUMERIC);
    assert_eq!(server.names(&root, &format!("&files=1&limit=1&after={after}")).await, ["file-010"]);
    let by_path = utf8_percent_encode(&format!("{root}/file-020"), NON_ALPHANUMERIC).to_string();
    assert_eq!(server.names(&root, &format!("&files=1&limit=1&after={by_path}")).await, ["file-021"]);
}

#[rstest]
#[case("user/.ssh")]
#[case("user/.ssh/id")]
#[case("user/.netrc")]
#[case("home/secrets/config.yaml")]
#[case("home/secrets/nothing-is-there")]
#[case("home/secrets/config.yaml/below")]
#[case("d/keys")]
#[case("d/keys/id")]
#[case("d/hard")]
#[case("extra/x")]
#[tokio::test]
async fn what_is_hidden_answers_like_what_is_missing(#[case] path: &str) {
    let server = place();
    fs::create_dir(server.at("extra")).unwrap();
    fs::write(server.at("extra/x"), "x").unwrap();
    server.settings.lock().unwrap().hidden.dirs = vec![server.at("extra")].into();
    let path = server.text(path);
    assert_eq!(server.fs("stat", &path, "").await, missing("realpath", &path));
    assert_eq!(server.fs("raw", &path, "").await, missing("realpath", &path));
    assert_eq!(server.fs("browse", &path, "&files=1").await, missing("scandir", &path));
}

#[tokio::test]
async fn hidden_entries_are_left_out_of_listings() {
    let server = place();
    assert_eq!(server.names(&server.text("user"), "&files=1").await, ["shown"]);
    assert!(!server.names(&server.text("home"), "&files=1").await.contains(&"secrets".to_owned()));
    let names = server.names(&server.text("d"), "&files=1").await;
    assert!(!names.contains(&"keys".to_owned()) && !names.contains(&"hard".to_owned()), "{names:?}");
}

#[rstest]
#[case("rel")]
#[case("")]
#[case("./rel")]
#[case("/tmp/../etc")]
#[case("/tmp/..")]
#[tokio::test]
async fn a_path_must_be_absolute_and_go_straight_down(#[case] path: &str) {
    let server = place();
    let refused = (400, error("absolute path without .. required"));
    assert_eq!(server.fs("stat", path, "").await, refused);
    assert_eq!(server.fs("raw", path, "").await, refused);
    assert_eq!(server.fs("browse", path, "&files=1").await, refused);
}

#[tokio::test]
async fn stat_tells_where_a_link_leads_and_when_it_changed() {
    let server = place();
    let alias = server.text("d/alias");
    let file = fs::File::options().write(true).open(server.at("d/b.txt")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_796_148_000_000_500))
        .unwrap();
    let real = server.at("d/b.txt").canonicalize().unwrap();
    assert_eq!(
        server.fs("stat", &alias, "").await,
        (
            200,
            json!({
                "path": alias, "realPath": real, "size": 5, "modifiedAt": 1_796_148_000_000.5, "isDirectory": false,
            })
        )
    );
    assert_eq!(server.fs("stat", &server.text("d/link"), "").await.1["isDirectory"], true);
    assert_eq!(server.fs("stat", &server.text("d/fifo"), "").await.1["isDirectory"], false);
    for nothing in ["nope", "d/dangling", "d/b.txt/below"].map(|path| server.text(path)) {
        assert_eq!(server.fs("stat", &nothing, "").await, missing("realpath", &nothing));
    }
    assert_eq!(server.fs("stat", "/x\0", "").await, missing("realpath", "/x\0"));
}

#[tokio::test]
async fn raw_gives_the_bytes_and_nothing_that_a_browser_would_run() {
    let server = place();
    let response = server.raw(&server.text("d/a.html")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/octet-stream");
    assert_eq!(response.headers()["content-length"], "3");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    assert_eq!(text_of(response).await, "<p>");
    let empty = server.raw(&server.text("d/empty")).await;
    assert_eq!((empty.status().as_u16(), &empty.headers()["content-length"]), (200, &"0".parse().unwrap()));
    assert_eq!(text_of(empty).await, "");
}

#[test]
fn what_the_operating_system_refuses_is_forbidden() {
    let named = Named { text: "/root/x".into(), path: "/root/x".into() };
    let refused = named.refusal(PathError::Denied("/root/x".into()), "open");
    assert_eq!(refused.to_string(), "EACCES: permission denied, open '/root/x'");
    assert_eq!(refused.code_and_status().1, 403);
}

#[tokio::test]
async fn raw_refuses_what_is_no_file_at_once() {
    let server = place();
    assert_eq!(server.fs("raw", &server.text("d"), "").await, (400, error("not a file")));
    let _socket = std::os::unix::net::UnixListener::bind(server.at("d/socket")).unwrap();
    for special in [server.text("d/fifo"), server.text("d/socket"), "/dev/zero".into()] {
        assert_eq!(server.fs("raw", &special, "").await, (400, error("not a regular file")), "{special}");
    }
}

#[tokio::test]
async fn a_name_that_is_no_utf8_is_listed_and_opened_by_its_escape() {
    let server = Server::new();
    let folder = server.at(".").join(OsStr::from_bytes(b"bad\xff"));
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join(OsStr::from_bytes(b"\xe2\x90name")), "inside").unwrap();
    let (_, page) = server.fs("browse", server.folder.path().to_str().unwrap(), "").await;
    let path =
        page["entries"].as_array().unwrap().iter().find(|entry| entry["name"] == "bad␀ff").unwrap()["path"]
            .as_str()
            .unwrap()
            .to_owned();
    assert_eq!(server.fs("exists", &path, "").await.1["isDirectory"], true);
    let (_, page) = server.fs("browse", &path, "&files=1").await;
    let file = page["entries"][0]["path"].as_str().unwrap();
    assert_eq!(file, format!("{path}/␀e2␀90name"));
    assert_eq!(text_of(server.raw(file).await).await, "inside");
    let (status, made) = server.admin("POST", RESOLVE, &json!({ "path": path })).await;
    assert_eq!((status, &made["id"]), (200, &json!(path)));
    assert!(folder.join(".halo").is_dir());
}

const RESOLVE: &str = "/api/fs/workspace/resolve";

#[tokio::test]
async fn a_resolved_folder_is_a_workspace_under_its_real_path() {
    let server = place();
    let real = server.at("d/sub").canonicalize().unwrap();
    for path in ["d/sub", "d/sub/deep/../", "d/link/"] {
        let answer = server.admin("POST", RESOLVE, &json!({ "path": server.text(path) })).await;
        assert_eq!(answer, (200, json!({ "id": real, "path": real })), "{path}");
    }
    assert!(real.join(".halo/agents").is_dir());
}

#[rstest]
#[case(json!({}), 400, "path required")]
#[case(json!({ "path": "" }), 400, "path required")]
#[case(json!({ "path": 5 }), 400, "path must be a string")]
#[case(json!([]), 400, "body must be a JSON object")]
#[case(json!({ "path": "/no/such/folder" }), 404, "path not found")]
#[case(json!({ "path": "/x\u{0}" }), 404, "path not found")]
#[case(json!({ "path": "/" }), 400, "filesystem root cannot be a workspace")]
#[case(json!({ "path": "/tmp/../" }), 400, "filesystem root cannot be a workspace")]
#[case(json!({ "path": "FILE" }), 400, "not a directory")]
#[tokio::test]
async fn what_is_no_folder_is_no_workspace(#[case] mut body: Value, #[case] status: u16, #[case] text: &str) {
    let server = place();
    if body["path"] == "FILE" {
        body["path"] = server.text("d/b.txt").into();
    }
    assert_eq!(server.admin("POST", RESOLVE, &body).await, (status, error(text)));
    assert!(!Path::new("/.halo").exists());
}
