//! Files in all encodings and with all line ends: what the tools show, find and leave alone.

use super::*;
use rstest::rstest;

/// A file with the word `old` in its second line, by its bytes.
struct Case {
    bytes: &'static [u8],
    /// The second line, as `file_read` and `grep` show it; none where the file is not taken for text.
    read: Option<&'static str>,
    found: Option<&'static str>,
    /// The bytes after `old` has become `new`; none where that is refused.
    edited: Option<&'static [u8]>,
}

#[rstest]
#[case::lf(Case { bytes: b"a\nold\nb\n", read: Some("old"), found: Some("old"), edited: Some(b"a\nnew\nb\n") })]
#[case::no_final_newline(Case { bytes: b"a\nold", read: Some("old"), found: Some("old"), edited: Some(b"a\nnew") })]
#[case::crlf(Case { bytes: b"a\r\nold\r\n", read: Some("old"), found: Some("old"), edited: Some(b"a\r\nnew\r\n") })]
#[case::mixed(Case { bytes: b"a\nold\r\nb\rc", read: Some("old"), found: Some("old"), edited: Some(b"a\nnew\r\nb\rc") })]
#[case::lone_cr(Case { bytes: b"\na\rold\rb", read: Some("a\rold\rb"), found: Some("a\rold\rb"), edited: Some(b"\na\rnew\rb") })]
#[case::bom(Case { bytes: b"\xef\xbb\xbfa\nold\n", read: Some("old"), found: Some("old"), edited: Some(b"\xef\xbb\xbfa\nnew\n") })]
#[case::utf8(Case { bytes: b"\xc3\xa4\n\xe6\xbc\xa2old\xf0\x9f\xa6\x80", read: Some("漢old🦀"), found: Some("漢old🦀"), edited: Some(b"\xc3\xa4\n\xe6\xbc\xa2new\xf0\x9f\xa6\x80") })]
#[case::latin_1(Case { bytes: b"\xe4\ncaf\xe9 old\n", read: Some("café old"), found: Some("caf\u{fffd} old"), edited: Some(b"\xe4\ncaf\xe9 new\n") })]
#[case::gbk(Case { bytes: b"\xc4\xe3\n\xba\xc3old", read: Some("ºÃold"), found: Some("\u{fffd}\u{fffd}old"), edited: Some(b"\xc4\xe3\n\xba\xc3new") })]
#[case::stray_byte(Case { bytes: b"a\n\xffold\xfe", read: Some("ÿoldþ"), found: Some("\u{fffd}old\u{fffd}"), edited: None })]
#[case::stray_byte_apart(Case { bytes: b"a\n\xff old \xfe", read: Some("ÿ old þ"), found: Some("\u{fffd} old \u{fffd}"), edited: Some(b"a\n\xff new \xfe") })]
#[case::utf16_le(Case { bytes: b"\xff\xfea\0\n\0o\0l\0d\0", read: Some("old"), found: Some("old"), edited: None })]
#[case::utf16_be(Case { bytes: b"\xfe\xff\0a\0\n\0o\0l\0d", read: Some("old"), found: Some("old"), edited: None })]
#[case::utf16_without_bom(Case { bytes: b"a\0\n\0o\0l\0d\0", read: None, found: None, edited: None })]
#[case::binary(Case { bytes: b"\x7fELF\0\nold\n", read: None, found: None, edited: None })]
#[tokio::test]
async fn a_text_is_shown_and_found_and_edited_with_every_other_byte_kept(#[case] case: Case) {
    let place = Place::new();
    place.put("f", case.bytes);
    let output = place.call(&FileRead, json!({"path": "f"})).await;
    let second = output.text.split("\n     2\t").nth(1);
    let line = second.map(|rest| rest.split('\n').next().unwrap());
    assert_eq!((line, output.is_error), (case.read, case.read.is_none()), "{}", output.text);
    let text = place.ok(&Grep, json!({"pattern": "old"})).await;
    assert_eq!(text.strip_prefix("f:2:"), case.found, "{text}");
    let input = json!({"path": "f", "old_string": "old", "new_string": "new"});
    let output = place.call(&FileEdit, input).await;
    assert_eq!(place.bytes("f"), case.edited.unwrap_or(case.bytes), "{}", output.text);
    assert_eq!(output.is_error, case.edited.is_none(), "{}", output.text);
    // A refusal names what to do, or that nothing was done.
    assert!(!output.is_error || output.text.contains("untouched"), "{}", output.text);
}

#[tokio::test]
async fn a_write_puts_exactly_its_bytes_there_whatever_stood_there() {
    let place = Place::new();
    for old in [&b"\xff\xfea\0"[..], b"\xef\xbb\xbfa\r\n", b"\0\0\0", b""] {
        for new in ["", "a\r\nb", "\u{feff}x", "a\rb", "ä\0漢"] {
            place.put("f", old);
            place.ok(&FileWrite, json!({"path": "f", "content": new})).await;
            assert_eq!(place.bytes("f"), new.as_bytes());
        }
    }
}

#[tokio::test]
async fn a_line_of_50_mb_is_read_searched_and_edited_in_bounds() {
    let place = Place::new();
    let mut bytes = vec![b'x'; 50_000_000];
    bytes.extend_from_slice(b" old");
    place.put("f", &bytes);
    let text = place.ok(&FileRead, json!({"path": "f", "offset": 1})).await;
    assert!(text.len() < 3000 && text.ends_with(" [line cut: it has 50000004 bytes]"));
    let text = place.ok(&Grep, json!({"pattern": "old$"})).await;
    assert!(text.len() < 1000 && text.ends_with(" [line cut: it has 50000004 bytes]"), "{text}");
    place.ok(&FileEdit, json!({"path": "f", "old_string": " old", "new_string": " new"})).await;
    bytes.truncate(50_000_000);
    bytes.extend_from_slice(b" new");
    assert!(place.bytes("f") == bytes);
}

#[tokio::test]
async fn a_search_finds_what_stands_behind_long_lines_in_many_files_at_once() {
    let place = Place::new();
    let mut long = vec![b'x'; 5_000_000];
    long.extend_from_slice(b"\nold\n");
    for number in 0..6 {
        place.put(&format!("f{number}"), &long);
    }
    let expected: Vec<String> = (0..6).map(|number| format!("f{number}:2:old")).collect();
    assert_eq!(place.ok(&Grep, json!({"pattern": "^old"})).await, expected.join("\n"));
}
