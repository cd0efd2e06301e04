//! Paths, names and patterns as nobody would type them.

use super::*;
use rstest::rstest;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

#[tokio::test]
async fn a_path_that_cannot_be_is_refused_by_every_tool_with_the_reason() {
    let place = Place::new();
    all_fail(&place, "a\0b", |_| "the path holds a NUL character").await;
    let long_name = "n".repeat(256);
    all_fail(&place, &long_name, |_| "the path is too long").await;
    let long_path = "d/".repeat(3000) + "f";
    all_fail(&place, &long_path, |_| "the path is too long").await;
    place.put("file", "");
    all_fail(&place, "file/below", |_| "is not a folder").await;
    assert_eq!(place.names(""), ["file"]);
}

#[rstest]
#[case::relative("sub/f")]
#[case::with_dots("./a/./f")]
#[case::dash("-rf")]
#[case::two_dashes("--include=x")]
#[case::blanks(" a  b ")]
#[case::quotes("a'b\"c`d$e")]
#[case::newline("a\nb")]
#[case::tab_and_escape("a\tb\x1b[0m")]
#[case::pattern("[a]{b}*?")]
#[case::tilde_inside("a~/f")]
#[case::tilde_of_nobody("~nobody-here")]
#[case::other_script("Übung 漢字 🦀")]
#[case::longest(&"n".repeat(255))]
#[tokio::test]
async fn a_name_is_taken_as_it_is(#[case] path: &str) {
    let place = Place::new();
    let shown = crate::text::on_one_line(path).replace("./", "");
    place.ok(&FileWrite, json!({"path": path, "content": "old"})).await;
    assert_eq!(place.ok(&FileRead, json!({"path": path})).await, "     1\told");
    place.ok(&FileEdit, json!({"path": path, "old_string": "old", "new_string": "text"})).await;
    assert_eq!(place.bytes(path), b"text");
    // Searches and lists name each file on one line.
    assert_eq!(place.ok(&Glob, json!({"pattern": "**"})).await, shown);
    assert_eq!(place.ok(&Grep, json!({"pattern": "text"})).await, format!("{shown}:1:text"));
    let text = place.ok(&FileList, json!({"recursive": true})).await;
    assert!(text.ends_with(&format!("📄 {shown}")), "{text}");
    assert!(place.err(&ViewImage, json!({"path": path})).await.contains("is no png"));
}

#[tokio::test]
async fn paths_are_relative_to_the_workspace_absolute_or_in_the_home_for_every_tool() {
    let place = Place::new();
    std::fs::create_dir(place.root.join("home/d")).unwrap();
    place.put("d/f", "");
    let absolute = place.at("d").display().to_string();
    for (folder, real) in
        [("d", "ws/d"), (absolute.as_str(), "ws/d"), ("~/d", "home/d"), ("../home/d", "home/d")]
    {
        let path = format!("{folder}/f");
        place.ok(&FileWrite, json!({"path": path, "content": "old"})).await;
        assert_eq!(std::fs::read(place.root.join(real).join("f")).unwrap(), b"old");
        for (name, tool, input) in calls(&path) {
            if matches!(name, "file_read" | "file_edit" | "grep") {
                place.ok(tool.as_ref(), input).await;
            }
        }
        assert_eq!(place.ok(&FileList, json!({"path": folder})).await, "📄 f");
        assert!(place.ok(&Glob, json!({"pattern": "*", "path": folder})).await.ends_with("d/f"));
    }
}

#[tokio::test]
async fn names_that_are_not_utf_8_are_found_and_searched() {
    let place = Place::new();
    let folder = place.context.workspace.join(OsStr::from_bytes(b"d\xff"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join(OsStr::from_bytes(b"\xe9.txt")), "old").unwrap();
    let name = "d\u{fffd}/\u{fffd}.txt";
    assert_eq!(place.ok(&Glob, json!({"pattern": "**/*.txt"})).await, name);
    assert_eq!(place.ok(&Grep, json!({"pattern": "old", "include": "*.txt"})).await, format!("{name}:1:old"));
    let text = place.ok(&FileList, json!({"recursive": true})).await;
    assert_eq!(text, format!("📁 d\u{fffd}/\n📄 {name}"));
}

#[rstest]
#[case::empty("", "is empty")]
#[case::open("(", "not a valid regular expression")]
#[case::too_large("(((a{100}){100}){100}){100}", "not a valid regular expression")]
#[case::too_large_by_class("\\pL{1000}{1000}", "not a valid regular expression")]
#[case::look_around("(?=a)", "not a valid regular expression")]
#[tokio::test]
async fn a_pattern_that_cannot_be_searched_is_an_error_that_is_short(
    #[case] pattern: &str,
    #[case] words: &str,
) {
    let place = Place::new();
    let output = soon(&place, &Grep, json!({"pattern": pattern})).await;
    assert!(output.is_error && output.text.contains(words), "{}", output.text);
    assert!(output.text.len() < 2000, "{} bytes", output.text.len());
}

#[tokio::test]
async fn a_huge_pattern_is_a_pattern_or_a_short_error() {
    let place = Place::new();
    place.put("f", "a".repeat(1000));
    place.put(&format!("{}.c", "a".repeat(250)), "");
    for pattern in ["a".repeat(100_000), "(".repeat(4000), "a".repeat(4000), "\\w{1,50}".to_owned()] {
        let output = soon(&place, &Grep, json!({"pattern": pattern})).await;
        assert!(output.text.len() < 4000, "{} bytes", output.text.len());
    }
    // Such a pattern takes others forever.
    let output = soon(&place, &Grep, json!({"pattern": "(a*)*(a*)*(a*)*b"})).await;
    assert_eq!(output, Output::ok("No matches."));
    let mut words = String::new();
    for word in 0..20_000 {
        let _ = write!(words, "w{word},");
    }
    let long = [
        format!("{{{words}a}}"),
        "{a,b}".repeat(200),
        "*".repeat(1000),
        "[a-z]".repeat(200),
        "*a".repeat(500),
    ];
    for pattern in long {
        for (tool, input) in [
            (&Glob as &dyn Tool, json!({"pattern": pattern})),
            (&Grep, json!({"pattern": "b", "include": pattern})),
        ] {
            let output = soon(&place, tool, input).await;
            assert!(output.text.len() < 4000, "{} bytes", output.text.len());
        }
    }
}

#[tokio::test]
async fn patterns_that_begin_with_a_dash_or_are_empty_are_no_flags() {
    let place = Place::new();
    place.put("--files", "-e old");
    place.put("-v", "other");
    assert_eq!(place.ok(&Grep, json!({"pattern": "-e"})).await, "--files:1:-e old");
    assert_eq!(
        place.ok(&Grep, json!({"pattern": "o", "include": "-*"})).await,
        "--files:1:-e old\n-v:1:other"
    );
    assert_eq!(place.ok(&Glob, json!({"pattern": "--*"})).await, "--files");
    assert_eq!(place.err(&Grep, json!({"pattern": ""})).await, "grep: \"pattern\" is empty");
    assert_eq!(place.err(&Glob, json!({"pattern": " "})).await, "glob: \"pattern\" is empty");
    assert_eq!(place.ok(&Grep, json!({"pattern": "old", "include": " , "})).await, "--files:1:-e old");
}

#[rstest]
#[case("*.{rs,toml}", "a.rs\nb.toml")]
#[case("{a,b}.{rs,toml}", "a.rs\nb.toml")]
#[case("*.rs,*.toml", "a.rs\nb.toml")]
#[case("{*.rs,sub/*.c}", "a.rs\nsub/d.c")]
#[case("*.[rc]*", "a.rs\nsub/d.c")]
#[case("**/d.*", "sub/d.c")]
#[tokio::test]
async fn an_include_may_hold_alternatives(#[case] include: &str, #[case] expected: &str) {
    let place = Place::new();
    for path in ["a.rs", "b.toml", "c.md", "sub/d.c"] {
        place.put(path, "old");
    }
    let text = place.ok(&Grep, json!({"pattern": "old", "include": include})).await;
    assert_eq!(text, expected.lines().map(|path| format!("{path}:1:old")).collect::<Vec<_>>().join("\n"));
}
