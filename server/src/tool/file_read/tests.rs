use super::super::testing::Place;
use super::*;
use rstest::rstest;

async fn show(content: &[u8]) -> String {
    let place = Place::new();
    place.put("f", content);
    place.ok(&FileRead, json!({"path": "f"})).await
}

#[rstest]
#[case(b"one\ntwo\n", "     1\tone\n     2\ttwo")]
#[case(b"one\ntwo", "     1\tone\n     2\ttwo")]
#[case(b"one\r\n\r\ntwo\r\n", "     1\tone\n     2\t\n     3\ttwo")]
#[case(b"a\rb\n", "     1\ta\rb")]
#[case(b"\xef\xbb\xbfbom\n", "     1\tbom")]
#[case(b"", "(the file is empty)")]
#[case(b"caf\xe9\n", "     1\tcafé\n[Some bytes are not UTF-8; they are shown as Latin-1]")]
#[case(b"\xc3\xa4 \xff x", "     1\tä ÿ x\n[Some bytes are not UTF-8; they are shown as Latin-1]")]
#[case(b"\xc4\xe3\xba\xc3", "     1\tÄãºÃ\n[Some bytes are not UTF-8; they are shown as Latin-1]")]
#[case(
    b"\xff\xfea\0\xe4\0\n\0b\0",
    "     1\taä\n     2\tb\n[The file is UTF-16; it is shown as text, but file_edit cannot change it]"
)]
#[tokio::test]
async fn text_is_shown_with_line_numbers(#[case] content: &[u8], #[case] expected: &str) {
    assert_eq!(show(content).await, expected);
}

#[tokio::test]
async fn a_range_counts_from_one_and_says_where_the_file_goes_on() {
    let place = Place::new();
    place.put("f", "1\n2\n3\n4\n5\n");
    let text = place.ok(&FileRead, json!({"path": "f", "offset": 2, "limit": 2})).await;
    assert_eq!(text, "     2\t2\n     3\t3\n[The file goes on: continue with offset 4]");
    let text = place.ok(&FileRead, json!({"path": "f", "offset": 4, "limit": 2})).await;
    assert_eq!(text, "     4\t4\n     5\t5");
    let text = place.err(&FileRead, json!({"path": "f", "offset": 6})).await;
    assert_eq!(text, "f has 5 lines; offset 6 is beyond its end");
}

#[tokio::test]
async fn without_a_limit_2000_lines_are_shown() {
    let place = Place::new();
    place.put("f", "x\n".repeat(2001));
    let text = place.ok(&FileRead, json!({"path": "f"})).await;
    assert!(text.ends_with("  2000\tx\n[The file goes on: continue with offset 2001]"), "{text}");
}

#[tokio::test]
async fn a_big_file_is_read_by_range_only() {
    let place = Place::new();
    let mut content = String::new();
    for line in 1..=400_000 {
        let _ = writeln!(content, "line {line}");
    }
    place.put("f", &content);
    let text = place.err(&FileRead, json!({"path": "f"})).await;
    assert!(text.contains("give offset and limit"), "{text}");
    let text = place.ok(&FileRead, json!({"path": "f", "offset": 399_999, "limit": 9})).await;
    assert_eq!(text, "399999\tline 399999\n400000\tline 400000");
}

#[tokio::test]
async fn a_line_of_50_mb_is_cut_on_a_character_boundary() {
    let place = Place::new();
    place.put("f", "€".repeat(50_000_000 / 3) + "\nnext\n");
    let text = place.ok(&FileRead, json!({"path": "f", "offset": 1})).await;
    let expected =
        format!("     1\t{} [line cut: it has 49999998 bytes]\n     2\tnext", "€".repeat(LINE_CHARS));
    assert!(text == expected, "{}", head_chars(&text, 100));
}

#[tokio::test]
async fn the_answer_is_bounded_and_goes_on_at_the_line_it_names() {
    let place = Place::new();
    place.put("f", format!("{}\n", "x".repeat(1000)).repeat(1500));
    let text = place.ok(&FileRead, json!({"path": "f", "limit": 100_000})).await;
    assert!(text.len() < OUTPUT_BYTES + 4096);
    assert!(text.ends_with("[The file goes on: continue with offset 262]"), "{}", &text[text.len() - 80..]);
}

#[tokio::test]
async fn what_is_no_text_file_is_refused_with_the_reason() {
    let place = Place::new();
    place.put("bin", b"\x7fELF\0\0");
    place.fifo("fifo");
    std::fs::create_dir(place.at("folder")).unwrap();
    for (path, reason) in [
        ("bin", "bin is a binary file (6 bytes); file_read shows only text"),
        ("fifo", "fifo: is a FIFO, not a regular file; it is not opened"),
        ("/dev/zero", "/dev/zero: is a device, not a regular file; it is not opened"),
        ("folder", "folder: is a folder, not a file"),
        ("gone", "gone: no such file or folder"),
        ("a\0b", "the path holds a NUL character, which no file name can"),
        ("", "file_read: \"path\" is empty"),
    ] {
        assert_eq!(place.err(&FileRead, json!({"path": path})).await, reason);
    }
    assert!(place.err(&FileRead, json!({})).await.contains("needs \"path\""));
}

#[tokio::test]
async fn a_stopped_session_reads_nothing() {
    let place = Place::new();
    place.put("f", "text");
    place.context.cancel.cancel();
    assert_eq!(place.err(&FileRead, json!({"path": "f"})).await, "stopped");
}
