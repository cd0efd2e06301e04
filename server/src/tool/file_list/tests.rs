use super::super::testing::{Place, nothing};
use super::*;
use crate::access::AccessLevel;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

#[tokio::test]
async fn names_are_sorted_and_marked_and_the_usual_folders_left_out() {
    let place = Place::new();
    for path in ["b.txt", "a/x", "node_modules/m", ".git/HEAD", "c/deep/y", ".env"] {
        place.put(path, "");
    }
    let text = place.ok(&FileList, nothing()).await;
    assert_eq!(text, "📄 .env\n📁 a/\n📄 b.txt\n📁 c/");
    let text = place.ok(&FileList, json!({"recursive": true})).await;
    assert_eq!(text, "📄 .env\n📁 a/\n📄 a/x\n📄 b.txt\n📁 c/\n📁 c/deep/\n📄 c/deep/y");
    let text = place.ok(&FileList, json!({"path": "node_modules"})).await;
    assert_eq!(text, "📄 m");
}

#[tokio::test]
async fn links_are_shown_as_what_they_lead_to_and_circles_end() {
    let place = Place::new();
    place.put("a/x", "");
    place.link("..", "a/up");
    place.link("a/x", "file");
    place.link("nowhere", "gone");
    place.fifo("fifo");
    let text = place.ok(&FileList, json!({"recursive": true})).await;
    assert_eq!(text, "📁 a/\n📁 a/up/\n📄 a/x\n📄 fifo\n📄 file\n📄 gone");
}

#[tokio::test]
async fn the_501st_entry_is_left_out_with_a_pointer_to_glob() {
    let place = Place::new();
    for number in 0..500 {
        place.put(&format!("{number:04}"), "");
    }
    assert_eq!(place.ok(&FileList, nothing()).await.lines().count(), 500);
    place.put("9999", "");
    let text = place.ok(&FileList, nothing()).await;
    assert_eq!(text.lines().count(), 501);
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("[truncated]") && last.contains("glob"), "{last}");
}

#[tokio::test]
async fn names_that_are_not_utf_8_are_shown_lossily() {
    let place = Place::new();
    std::fs::write(place.context.workspace.join(OsStr::from_bytes(b"\xff.txt")), "").unwrap();
    assert_eq!(place.ok(&FileList, nothing()).await, "📄 \u{fffd}.txt");
}

#[tokio::test]
async fn hidden_names_are_left_out_below_full() {
    let mut place = Place::with_access(AccessLevel::ReadOnly);
    for path in [".halo/halo.db", ".halo/sessions/1", ".halo/settings.yaml"] {
        place.put(path, "");
    }
    place.link(place.at(".halo/sessions"), "link");
    let text = place.ok(&FileList, json!({"recursive": true})).await;
    assert_eq!(text, "📁 .halo/\n📄 .halo/settings.yaml");
    let text = place.err(&FileList, json!({"path": ".halo/sessions"})).await;
    assert!(text.contains("not accessible"), "{text}");
    place.context.access = AccessLevel::Full;
    assert!(place.ok(&FileList, json!({"recursive": true})).await.contains("📄 .halo/sessions/1"));
}

#[tokio::test]
async fn odd_paths_get_plain_answers() {
    let place = Place::new();
    assert_eq!(place.ok(&FileList, nothing()).await, "(the folder is empty)");
    place.put("f", "");
    assert_eq!(place.err(&FileList, json!({"path": "f"})).await, "f: is not a folder");
    assert_eq!(place.err(&FileList, json!({"path": "g"})).await, "g: no such file or folder");
}
