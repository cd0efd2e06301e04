//! Files of the workspace.

use super::table::{Row, row};
use super::world::World;
use reqwest::Method;

const TRAVERSAL: &str = "path traversal not allowed";

/// A file by its path.
fn file(name: &'static str, path: &str) -> Row {
    row(name).get(&format!("/api/web/file?path={path}")).token("full")
}

/// The same where it is served with this type.
fn served(name: &'static str, path: &str, kind: &str) -> Row {
    let shown = path.rsplit('/').next().unwrap();
    let disposition = format!("inline; filename=\"{shown}\"; filename*=UTF-8''{shown}");
    file(name, path)
        .shows("content-type", kind)
        .shows("content-disposition", &disposition)
        .shows("etag", "<text>")
}

#[tokio::test]
async fn what_is_served_and_how() {
    let w = &mut World::new().await;
    let (text, octets) = ("text/plain; charset=utf-8", "application/octet-stream");
    let hello = |name| served(name, "hello.txt", text).says(200, "hello file\n");
    hello("file_good_txt").differs("section 2, file (headers)").check(w).await;
    hello("file_readonly").token("readonly").check(w).await;
    hello("file_observer").token("observer").check(w).await;
    row("file_token_query")
        .get("/api/web/file?path=hello.txt&token={token full}")
        .says(200, "hello file\n")
        .shows("content-type", text)
        .check(w)
        .await;
    served("file_abs_inside", "{ws}/hello.txt", text).says(200, "hello file\n").check(w).await;
    served("file_good_md", "readme.md", "text/markdown; charset=utf-8")
        .sends(200, 5)
        .differs("section 2, file (headers)")
        .check(w)
        .await;
    served("file_good_png", "p.png", "image/png").sends(200, 70).check(w).await;
    served("file_nested_json", "sub/deep.json", "<begins:application/json>")
        .sends(200, 5)
        .differs("section 2, file (headers)")
        .check(w)
        .await;
    served("file_hidden_file", ".env", octets).sends(200, 4).check(w).await;
    served("file_hidden_dir", ".hidden/x.txt", text).says(200, "secret\n").check(w).await;
    served("file_head", "hello.txt", text)
        .ask(Method::HEAD, "/api/web/file?path=hello.txt")
        .sends(200, 0)
        .shows("content-length", "11")
        .check(w)
        .await;
    let big = |name| served(name, "big.bin", octets);
    big("file_gzip")
        .header("accept-encoding", "gzip")
        .sends(200, 102_400)
        .hides("content-encoding")
        .check(w)
        .await;
    big("file_range")
        .header("range", "bytes=0-9")
        .sends(206, 10)
        .shows("content-range", "bytes 0-9/102400")
        .differs("section 2, file (ranges)")
        .check(w)
        .await;
    big("file_range_suffix")
        .header("range", "bytes=-5")
        .sends(206, 5)
        .shows("content-range", "bytes 102395-102399/102400")
        .differs("section 2, file (ranges)")
        .check(w)
        .await;
    file("file_range_bad", "big.bin")
        .header("range", "bytes=999999999-")
        .refused(416, "range not satisfiable")
        .shows("content-range", "bytes */102400")
        .differs("section 2, file (ranges)")
        .check(w)
        .await;
}

#[tokio::test]
async fn what_is_not_served_and_why() {
    let w = &mut World::new().await;
    row("file_no_token").get("/api/web/file?path=hello.txt").refused(401, "token required").check(w).await;
    row("file_nopath").get("/api/web/file").token("full").refused(400, "path required").check(w).await;
    file("file_traversal", "../ws-secret/s.txt").refused(403, TRAVERSAL).check(w).await;
    file("file_traversal_etc", "../../etc/passwd").refused(403, TRAVERSAL).check(w).await;
    file("file_traversal_enc", "..%2F..%2Fetc%2Fpasswd").refused(403, TRAVERSAL).check(w).await;
    file("file_abs_outside", "/etc/hostname").refused(403, TRAVERSAL).check(w).await;
    file("file_sibling_prefix", "{beside}/s.txt").refused(403, TRAVERSAL).check(w).await;
    file("file_symlink_escape", "escape/hostname").refused(403, TRAVERSAL).check(w).await;
    file("file_missing", "nope.txt").refused(404, "file not found").check(w).await;
    file("file_nul", "a%00b").refused(404, "file not found").check(w).await;
    file("file_dir", "sub").refused(400, "cannot serve directory").check(w).await;
    file("file_root", ".").refused(400, "cannot serve directory").check(w).await;
    w.client("full").await.mint().await;
    file("file_halo_internal_db", ".halo/halo.db")
        .refused(403, "path is not accessible")
        .differs("section 2, file (what halo keeps)")
        .check(w)
        .await;
}
