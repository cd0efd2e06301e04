use super::super::testing::Place;
use super::*;
use crate::access::AccessLevel;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_new_file_gets_its_folders_and_exactly_its_content() {
    let place = Place::new();
    let text = place.ok(&FileWrite, json!({"path": "a/b/c.txt", "content": "ä\r\nx"})).await;
    assert_eq!(text, "Created a/b/c.txt: 5 bytes written");
    assert_eq!(place.bytes("a/b/c.txt"), "ä\r\nx".as_bytes());
    let mode = std::fs::metadata(place.at("a/b/c.txt")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode & !0o644, 0, "{mode:o}");
    assert_eq!(place.names("a/b"), ["c.txt"]);
}

#[tokio::test]
async fn an_old_file_is_replaced_behind_its_link_and_keeps_its_mode() {
    let place = Place::new();
    let path = place.put("run.sh", "a longer old text");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o750)).unwrap();
    place.link("run.sh", "link");
    let text = place.ok(&FileWrite, json!({"path": "link", "content": ""})).await;
    assert_eq!(text, "Replaced link: 0 bytes written");
    assert_eq!(place.bytes("run.sh"), b"");
    assert!(place.at("link").is_symlink());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o750);
}

#[tokio::test]
async fn refusals_say_why_and_write_nothing() {
    let mut place = Place::with_access(AccessLevel::Workspace);
    place.fifo("fifo");
    for (path, reason) in [
        ("fifo", "fifo: is a FIFO, not a regular file; it is not opened".to_owned()),
        ("sub/", "sub: is a folder, not a file".to_owned()),
        (".halo/halo.db", ".halo/halo.db: path is not accessible to sessions without full access".to_owned()),
        (
            "../x",
            format!(
                "../x: is outside {}; sessions without full access write only inside it",
                place.context.workspace.display()
            ),
        ),
    ] {
        assert_eq!(place.err(&FileWrite, json!({"path": path, "content": "x"})).await, reason);
    }
    place.context.access = AccessLevel::ReadOnly;
    let text = place.err(&FileWrite, json!({"path": "x", "content": "x"})).await;
    assert!(text.starts_with("x: this session is read-only"), "{text}");
    assert!(place.err(&FileWrite, json!({"path": "x"})).await.contains("needs \"content\""));
    assert_eq!(place.names(""), ["fifo"]);
}

#[tokio::test]
async fn a_full_session_writes_anywhere() {
    let place = Place::new();
    place.ok(&FileWrite, json!({"path": "~/notes/x", "content": "x"})).await;
    assert_eq!(std::fs::read(place.root.join("home/notes/x")).unwrap(), b"x");
}
