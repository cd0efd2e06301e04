//! What a path may lead to besides a plain file.

use super::*;
use crate::access::AccessLevel;
use rstest::rstest;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixListener;

/// What `file_list` and `glob` say of what is no folder, and the others of what is no file.
fn no_folder_or(word: &'static str) -> impl Fn(&str) -> &'static str {
    move |tool| if matches!(tool, "file_list" | "glob") { "is not a folder" } else { word }
}

#[tokio::test]
async fn what_is_neither_file_nor_folder_is_refused_at_once_and_stays() {
    let place = Place::new();
    place.fifo("fifo");
    let _socket = UnixListener::bind(place.at("socket")).unwrap();
    place.link("fifo", "link");
    for (path, words) in [
        ("fifo", "is a FIFO, not a regular file"),
        ("link", "is a FIFO, not a regular file"),
        ("socket", "is a socket, not a regular file"),
        ("/dev/zero", "is a device, not a regular file"),
        ("/dev/null", "is a device, not a regular file"),
        ("/dev/full", "is a device, not a regular file"),
        ("/dev/tty", "is a device, not a regular file"),
    ] {
        all_fail(&place, path, no_folder_or(words)).await;
    }
    assert!(place.at("fifo").metadata().unwrap().file_type().is_fifo());
    assert!(place.at("socket").metadata().unwrap().file_type().is_socket());
    assert_eq!(place.names(""), ["fifo", "link", "socket"]);
}

#[tokio::test]
async fn files_of_the_kernel_are_read_as_far_as_they_are_text_and_never_hang() {
    let place = Place::new();
    let read = |path: &str| json!({"path": path});
    assert!(place.ok(&FileRead, read("/proc/self/status")).await.contains("\tName:"));
    let text = place.ok(&Grep, json!({"pattern": "^Pid:", "path": "/proc/self/status"})).await;
    assert!(text.starts_with("/proc/self/status:"), "{text}");
    for path in ["/proc/kmsg", "/proc/self/mem", "/proc/self/pagemap", "/proc/self/auxv", "/proc/version"] {
        for (name, tool, input) in calls(path) {
            let output = soon(&place, tool.as_ref(), input).await;
            let reads = matches!(name, "file_read" | "grep");
            assert!(reads || output.is_error, "{name} {path}: {}", output.text);
        }
    }
}

#[tokio::test]
async fn the_environment_of_a_process_is_hidden_below_full() {
    let place = Place::with_access(AccessLevel::Workspace);
    place.link("/proc/self/environ", "link");
    for path in ["/proc/self/environ", "/proc/1/environ", "/proc/thread-self/environ", "link"] {
        for tool in [&FileRead as &dyn Tool, &ViewImage, &Grep] {
            let output = soon(&place, tool, json!({"path": path, "pattern": "PATH"})).await;
            assert!(output.is_error, "{path}: {}", output.text);
        }
    }
}

#[tokio::test]
async fn links_lead_where_they_lead_and_stay_links() {
    let place = Place::with_access(AccessLevel::Workspace);
    place.put("sub/f", "old");
    std::fs::write(place.root.join("outside"), "old").unwrap();
    place.link("sub/f", "inside");
    place.link("sub", "folder");
    place.link("../outside", "out");
    place.link("nowhere", "dangling");
    place.link("loop2", "loop");
    place.link("loop", "loop2");
    for path in ["inside", "folder/f", "out"] {
        assert_eq!(place.ok(&FileRead, json!({"path": path})).await, "     1\told");
        assert!(place.ok(&Grep, json!({"pattern": "o", "path": path})).await.contains(":1:old"));
    }
    assert_eq!(place.ok(&FileList, json!({"path": "folder"})).await, "📄 f");
    assert_eq!(place.ok(&Glob, json!({"pattern": "*", "path": "folder"})).await, "sub/f");
    assert_eq!(place.ok(&Grep, json!({"pattern": "old", "path": "folder"})).await, "sub/f:1:old");
    for (name, tool, input) in calls("out") {
        if matches!(name, "file_write" | "file_edit") {
            assert!(place.err(tool.as_ref(), input).await.contains("is outside"), "{name}");
        }
    }
    all_fail(&place, "loop", |_| "the links in it go in a circle").await;
    assert!(place.err(&FileRead, json!({"path": "dangling"})).await.contains("no such file or folder"));
    assert!(place.err(&ViewImage, json!({"path": "dangling"})).await.contains("no such file or folder"));
    let edit = |path: &str| json!({"path": path, "old_string": "old", "new_string": "new"});
    assert!(place.err(&FileEdit, edit("dangling")).await.contains("no such file or folder"));
    place.ok(&FileEdit, edit("inside")).await;
    place.ok(&FileWrite, json!({"path": "dangling", "content": "filled"})).await;
    assert_eq!((place.bytes("sub/f"), place.bytes("nowhere")), (b"new".to_vec(), b"filled".to_vec()));
    for path in ["inside", "dangling", "out", "loop"] {
        assert!(place.at(path).is_symlink(), "{path}");
    }
    assert_eq!(std::fs::read(place.root.join("outside")).unwrap(), b"old");
}

#[rstest]
#[case(0o644)]
#[case(0o600)]
#[case(0o755)]
#[case(0o4755)]
#[case(0o2755)]
#[case(0o1666)]
#[tokio::test]
async fn mode_bits_stay(#[case] mode: u32) {
    let place = Place::new();
    for (name, tool, input) in calls("f") {
        if !matches!(name, "file_write" | "file_edit") {
            continue;
        }
        let path = place.put("f", "old");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        place.ok(tool.as_ref(), input).await;
        assert_eq!(place.bytes("f"), b"new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, mode, "{name}");
    }
}

#[tokio::test]
async fn a_file_that_nobody_may_write_is_left_as_it_is() {
    let place = Place::new();
    let path = place.put("f", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o444)).unwrap();
    for (name, tool, input) in calls("f") {
        if matches!(name, "file_write" | "file_edit") {
            let text = place.err(tool.as_ref(), input).await;
            assert!(
                text.starts_with("f: is write-protected (mode 0444)") && text.contains("chmod u+w"),
                "{text}"
            );
        }
    }
    assert_eq!(place.bytes("f"), b"old");
    assert_eq!(place.names(""), ["f"]);
}
