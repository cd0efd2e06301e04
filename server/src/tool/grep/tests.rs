use super::super::testing::Place;
use super::*;
use crate::access::AccessLevel;
use rstest::rstest;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

async fn find(place: &Place, pattern: &str) -> String {
    place.ok(&Grep, json!({"pattern": pattern})).await
}

#[tokio::test]
async fn matches_are_given_as_file_line_and_content() {
    let place = Place::new();
    place.put("b.txt", "one\r\ntwo x\r\n");
    place.put("a/c.txt", "x");
    place.put(".gitignore", "*");
    assert_eq!(find(&place, "x$").await, "a/c.txt:1:x\nb.txt:2:two x");
    assert_eq!(find(&place, "^two").await, "b.txt:2:two x");
    assert_eq!(find(&place, "(?i)TWO").await, "b.txt:2:two x");
    assert_eq!(find(&place, "nothing").await, "No matches.");
    let text = place.ok(&Grep, json!({"pattern": "x", "path": "b.txt"})).await;
    assert_eq!(text, "b.txt:2:two x");
    let text = place.ok(&Grep, json!({"pattern": "x", "path": "a"})).await;
    assert_eq!(text, "a/c.txt:1:x");
}

#[rstest]
#[case("-v", "f:1:-v --include=x")]
#[case("--include=x", "f:1:-v --include=x")]
#[case("-e", "No matches.")]
#[case("$(x)", "No matches.")]
#[tokio::test]
async fn a_pattern_is_never_a_flag(#[case] pattern: &str, #[case] expected: &str) {
    let place = Place::new();
    place.put("f", "-v --include=x\nother\n");
    assert_eq!(find(&place, pattern).await, expected);
}

#[rstest]
#[case("*.ts", "a.ts:1:x\nsub/b.ts:1:x")]
#[case("*.{ts,tsx}", "a.ts:1:x\nc.tsx:1:x\nsub/b.ts:1:x")]
#[case("*.md, *.tsx", "c.tsx:1:x\nd.md:1:x")]
#[case("sub/*.ts", "sub/b.ts:1:x")]
#[case("", "a.ts:1:x\nc.tsx:1:x\nd.md:1:x\nsub/b.ts:1:x")]
#[tokio::test]
async fn include_is_a_glob_or_several(#[case] include: &str, #[case] expected: &str) {
    let place = Place::new();
    for path in ["a.ts", "sub/b.ts", "c.tsx", "d.md"] {
        place.put(path, "x");
    }
    assert_eq!(place.ok(&Grep, json!({"pattern": "x", "include": include})).await, expected);
}

#[tokio::test]
async fn binaries_and_the_usual_folders_are_skipped_and_utf_16_is_read() {
    let place = Place::new();
    for path in ["node_modules/a", ".git/a", ".next/a", "dist/a", ".halo/logs/a", ".halo/tmp/a"] {
        place.put(path, "needle");
    }
    place.put("bin", b"\0\0 needle");
    place.put(".halo/skills/a", "needle");
    let utf16: Vec<u8> = "\u{feff}a needle\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    place.put("utf16", utf16);
    place.put("latin1", b"\xe9 needle");
    assert_eq!(
        find(&place, "needle").await,
        ".halo/skills/a:1:needle\nlatin1:1:\u{fffd} needle\nutf16:1:a needle"
    );
}

#[tokio::test]
async fn matches_end_at_the_limit_with_a_note() {
    let mut place = Place::new();
    place.put("f", "x\n".repeat(60));
    let note = |max| format!("\n[Ended at {max} matches: narrow the search, or raise max_results]");
    let text = find(&place, "x").await;
    assert!(text.ends_with(&format!("f:50:x{}", note(50))), "{text}");
    let text = place.ok(&Grep, json!({"pattern": "x", "max_results": 2})).await;
    assert_eq!(text, format!("f:1:x\nf:2:x{}", note(2)));
    let text = place.ok(&Grep, json!({"pattern": "x", "max_results": 60})).await;
    assert!(text.ends_with("f:60:x"), "{text}");
    place.context.limits.grep_default_matches = 1;
    assert_eq!(find(&place, "x").await, format!("f:1:x{}", note(1)));
}

#[tokio::test]
async fn long_lines_are_cut_on_a_character_boundary() {
    let place = Place::new();
    place.put("f", "€".repeat(50_000_000 / 3));
    assert_eq!(
        find(&place, "^€").await,
        format!("f:1:{} [line cut: it has 49999998 bytes]", "€".repeat(LINE_CHARS))
    );
}

#[tokio::test]
async fn links_to_files_are_searched_and_circles_end_and_fifos_are_not_opened() {
    let place = Place::new();
    place.put("sub/f", "needle");
    place.link("sub/f", "link");
    place.link("..", "sub/up");
    place.fifo("fifo");
    assert_eq!(find(&place, "needle").await, "link:1:needle\nsub/f:1:needle");
    for path in ["fifo", "/dev/zero"] {
        assert!(place.err(&Grep, json!({"pattern": "x", "path": path})).await.contains("not a regular file"));
    }
}

#[tokio::test]
async fn hidden_files_are_not_searched_below_full() {
    let place = Place::with_access(AccessLevel::ReadOnly);
    let db = place.put(".halo/halo.db", "needle");
    place.put(".halo/settings.yaml", "needle");
    place.link(".halo/halo.db", "link");
    std::fs::hard_link(db, place.at("hard")).unwrap();
    assert_eq!(
        find(&place, "needle").await,
        ".halo/settings.yaml:1:needle\n[Files that could not be searched: 1]"
    );
    assert!(place.err(&Grep, json!({"pattern": "x", "path": "hard"})).await.contains("not accessible"));
}

#[tokio::test]
async fn names_that_are_not_utf_8_are_searched_and_shown_lossily() {
    let place = Place::new();
    std::fs::write(place.context.workspace.join(OsStr::from_bytes(b"\xff")), "needle").unwrap();
    assert_eq!(find(&place, "needle").await, "\u{fffd}:1:needle");
}

#[tokio::test]
async fn a_wrong_pattern_says_what_is_wrong() {
    let place = Place::new();
    for pattern in ["(", "a\nb"] {
        let text = place.err(&Grep, json!({"pattern": pattern})).await;
        assert!(text.contains("not a valid regular expression"), "{text}");
    }
    assert!(place.err(&Grep, json!({"pattern": ""})).await.contains("is empty"));
    assert!(place.err(&Grep, json!({"pattern": "x", "path": "gone"})).await.contains("no such file"));
}

#[tokio::test]
async fn a_stop_ends_the_search_of_a_big_file() {
    let place = Place::new();
    let file = std::fs::File::create(place.at("f")).unwrap();
    file.set_len(1 << 40).unwrap();
    std::fs::write(place.at("e"), "x").unwrap();
    let place = std::sync::Arc::new(place);
    let cancel = place.context.cancel.clone();
    let own = std::sync::Arc::clone(&place);
    let task = tokio::spawn(async move { own.call(&Grep, json!({"pattern": "x"})).await });
    cancel.cancel();
    let output = tokio::time::timeout(std::time::Duration::from_secs(5), task).await.unwrap().unwrap();
    assert_eq!(output, Output::error("stopped"));
}
