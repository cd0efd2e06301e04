//! The file browser, with the admin's cookie and without.

use super::table::{Row, row};
use super::world::World;
use serde_json::{Value, json};

const RESOLVE: &str = "/api/fs/workspace/resolve";

fn look(name: &'static str, path: &str) -> Row {
    row(name).get(&format!("/api/fs/{path}")).cookie()
}

fn resolve(name: &'static str, path: &str) -> Row {
    row(name).post(RESOLVE, &json!({ "path": path })).cookie()
}

fn browsed(path: &str, parent: &str, entries: &Value) -> Value {
    json!({ "path": path, "parent": parent, "entries": entries })
}

#[tokio::test]
async fn nothing_opens_without_the_cookie() {
    let w = &mut World::new().await;
    for (name, path) in [
        ("fs_home_nocookie", "home"),
        ("fs_browse_nocookie", "browse?path={ws}"),
        ("fs_browse_default_nocookie", "browse"),
        ("fs_browse_file_nocookie", "browse?path={ws}/hello.txt"),
        ("fs_browse_missing_nocookie", "browse?path={root}/nope"),
        ("fs_browse_rel_nocookie", "browse?path=rel"),
        ("fs_browse_root_nocookie", "browse?path=/"),
        ("fs_exists_dir_nocookie", "exists?path={ws}"),
        ("fs_exists_file_nocookie", "exists?path={ws}/hello.txt"),
        ("fs_exists_missing_nocookie", "exists?path={root}/nope"),
        ("fs_exists_none_nocookie", "exists"),
        ("fs_exists_rel_nocookie", "exists?path=rel"),
    ] {
        row(name).get(&format!("/api/fs/{path}")).refused(401, "Unauthorized").check(w).await;
    }
    for (name, body) in [
        ("fs_resolve_ok_nocookie", json!({ "path": "{ws2}" })),
        ("fs_resolve_trailing_nocookie", json!({ "path": "{ws2}/../ws2/" })),
        ("fs_resolve_file_nocookie", json!({ "path": "{ws}/hello.txt" })),
        ("fs_resolve_missing_nocookie", json!({ "path": "{root}/nope" })),
        ("fs_resolve_none_nocookie", json!({})),
        ("fs_resolve_rel_nocookie", json!({ "path": "src" })),
        ("fs_resolve_root_nocookie", json!({ "path": "/" })),
    ] {
        row(name).post(RESOLVE, &body).refused(401, "Unauthorized").check(w).await;
    }
    let home = |name, header, value| {
        row(name).get("/api/fs/home").header(header, value).refused(401, "Unauthorized")
    };
    home("fs_home_badcookie", "cookie", "halo_token=a.b.c").check(w).await;
    home("fs_home_xtoken", "x-token", "{token full}").check(w).await;
    // Not even the cookie's own value, in another place.
    w.make_named("{cookie}").await;
    let value = w.name("cookie").strip_prefix("halo_token=").unwrap().to_owned();
    home("fs_home_bearer", "authorization", &format!("Bearer {value}")).check(w).await;
}

#[tokio::test]
async fn folders_are_shown_and_what_is_none_is_named() {
    let w = &mut World::new().await;
    look("fs_home_cookie", "home").answers(200, json!({ "home": "{user}" })).check(w).await;
    let sub = json!([{ "name": "sub", "path": "{ws2}/sub" }]);
    std::fs::create_dir(format!("{}/sub", w.name("ws2"))).unwrap();
    std::fs::create_dir(format!("{}/.hidden", w.name("ws2"))).unwrap();
    std::fs::write(format!("{}/file", w.name("ws2")), "").unwrap();
    look("fs_browse_cookie", "browse?path={ws2}")
        .answers(200, browsed("{ws2}", "{root}", &sub))
        .check(w)
        .await;
    look("fs_browse_default_cookie", "browse")
        .answers(200, browsed("{user}", "{root}", &json!([])))
        .check(w)
        .await;
    look("fs_browse_root_cookie", "browse?path=/")
        .answers(200, browsed("/", "/", &json!("<any>")))
        .check(w)
        .await;
    look("fs_browse_rel_cookie", "browse?path=rel").refused(400, "absolute path required").check(w).await;
    look("fs_browse_missing_cookie", "browse?path={root}/nope").refused(404, "<has:ENOENT>").check(w).await;
    look("fs_browse_file_cookie", "browse?path={ws}/hello.txt").refused(404, "<has:ENOTDIR>").check(w).await;

    let there = |folder: bool| json!({ "exists": true, "isDirectory": folder });
    look("fs_exists_dir_cookie", "exists?path={ws}").answers(200, there(true)).check(w).await;
    look("fs_exists_file_cookie", "exists?path={ws}/hello.txt").answers(200, there(false)).check(w).await;
    look("fs_exists_missing_cookie", "exists?path={root}/nope")
        .answers(200, json!({ "exists": false }))
        .check(w)
        .await;
    let relative = || json!({ "exists": false, "reason": "absolute path required" });
    look("fs_exists_none_cookie", "exists").answers(200, relative()).check(w).await;
    look("fs_exists_rel_cookie", "exists?path=rel").answers(200, relative()).check(w).await;
}

#[tokio::test]
async fn a_workspace_is_resolved_to_where_it_really_is() {
    let w = &mut World::new().await;
    let resolved = |path: &str| json!({ "id": path, "path": path });
    resolve("fs_resolve_ok_cookie", "{ws2}").answers(200, resolved("{ws2}")).check(w).await;
    assert!(std::path::Path::new(w.name("ws2")).join(".halo").is_dir());
    resolve("fs_resolve_trailing_cookie", "{ws2}/../ws2/").answers(200, resolved("{ws2}")).check(w).await;
    // From where the server was started.
    resolve("fs_resolve_rel_cookie", "src").answers(200, resolved("{root}/workspace/src")).check(w).await;
    resolve("fs_resolve_missing_cookie", "{root}/nope").refused(404, "path not found").check(w).await;
    resolve("fs_resolve_file_cookie", "{ws}/hello.txt").refused(400, "not a directory").check(w).await;
    resolve("fs_resolve_root_cookie", "/")
        .refused(400, "filesystem root cannot be a workspace")
        .check(w)
        .await;
    row("fs_resolve_none_cookie")
        .post(RESOLVE, &json!({}))
        .cookie()
        .refused(400, "path required")
        .check(w)
        .await;
    row("fs_resolve_badjson_cookie")
        .post(RESOLVE, &json!({}))
        .body("{bad")
        .cookie()
        .refused(400, "<text>")
        .differs("section 3, resolve")
        .check(w)
        .await;
}
