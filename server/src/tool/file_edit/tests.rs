use super::super::testing::Place;
use super::*;
use crate::access::AccessLevel;
use rstest::rstest;
use std::os::unix::fs::PermissionsExt;

async fn try_edit(content: &[u8], old: &str, new: &str, all: bool) -> (Output, Vec<u8>) {
    let place = Place::new();
    place.put("f", content);
    let input = json!({"path": "f", "old_string": old, "new_string": new, "replace_all": all});
    let output = place.call(&FileEdit, input).await;
    assert_eq!(place.names(""), ["f"]);
    (output, place.bytes("f"))
}

#[rstest]
#[case::lf(b"a\nb\nc\n", "b", "B", b"a\nB\nc\n")]
#[case::no_final_newline(b"a\nb", "b", "B", b"a\nB")]
#[case::crlf(b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\nz\n", b"x\r\ny\r\nz\r\nc\r\n")]
#[case::crlf_as_it_is(b"a\r\nb\r\n", "a\r\nb", "x\r\ny", b"x\r\ny\r\n")]
#[case::crlf_around_one_line(b"a\r\nb\r\n", "b", "b\nc", b"a\r\nb\r\nc\r\n")]
#[case::crlf_last_line(b"a\r\nb", "b", "b\nc", b"a\r\nb\r\nc")]
#[case::mixed_lf_place(b"a\r\nb\nc\r\n", "b\nc", "x\ny", b"a\r\nx\ny\r\n")]
#[case::mixed_crlf_place(b"a\r\nb\nc\n", "a\nb", "x\ny", b"x\r\ny\nc\n")]
#[case::lone_cr(b"a\rb\rc", "b", "B", b"a\rB\rc")]
#[case::bom(b"\xef\xbb\xbfa\r\nb\n", "a", "A", b"\xef\xbb\xbfA\r\nb\n")]
#[case::stray_byte(b"\xff one \xfe\ntwo\n", "two", "2", b"\xff one \xfe\n2\n")]
#[case::latin_1(b"caf\xe9\nname = 1\n", "name = 1", "name = 2", b"caf\xe9\nname = 2\n")]
#[case::gbk(b"\xc4\xe3\xba\xc3 name\n", "name", "NAME", b"\xc4\xe3\xba\xc3 NAME\n")]
#[case::gbk_right_behind(b"\xc4\xe3\xba\xc3name\n", "name", "NAME", b"\xc4\xe3\xba\xc3NAME\n")]
#[case::utf8(b"\xc3\xa4\xe2\x82\xac", "€", "ö", b"\xc3\xa4\xc3\xb6")]
#[case::utf8_beside_stray(b"\xff \xc3\xa4b", "äb", "öb", b"\xff \xc3\xb6b")]
#[case::literal(b"x", "x", "$1 \\0 $&", b"$1 \\0 $&")]
#[case::delete(b"abc", "b", "", b"ac")]
#[case::dashes(b"--flag\n", "--flag", "-f", b"-f\n")]
#[tokio::test]
async fn bytes_that_the_edit_does_not_touch_stay(
    #[case] content: &[u8],
    #[case] old: &str,
    #[case] new: &str,
    #[case] expected: &[u8],
) {
    let (output, bytes) = try_edit(content, old, new, false).await;
    assert_eq!(bytes, expected, "{}", output.text);
    assert_eq!(output, Output::ok("Edited f: 1 place replaced"));
}

#[rstest]
#[case::empty(b"a", "", "b", "old_string is empty")]
#[case::equal(b"a", "a", "a", "are the same")]
#[case::absent(b"a", "b", "c", "old_string is not in f; read the file again")]
#[case::several(b"a\nb\na\n", "a", "c", "old_string is 2 times in f (lines 1, 3)")]
#[case::several_line_ends(b"a\nb a\r\nb", "a\nb", "c", "old_string is 2 times in f (lines 1, 2)")]
#[case::utf16(b"\xff\xfea\0b\0", "a", "c", "is UTF-16")]
#[case::utf16_without_bom(b"a\0b\0", "a", "c", "is a binary file")]
#[case::latin_1_old(b"caf\xe9", "café", "c", "the file is not UTF-8")]
#[case::latin_1_new(b"caf\xe9 x", "x", "é", "would mix two encodings")]
#[case::gbk_half(b"\x81\x41\x82\x42", "A", "c", "may begin inside a character")]
#[case::shift_jis_half_behind_one_byte(b"\xb1\x83A", "A", "c", "may begin inside a character")]
#[case::gbk_half_behind_whole(b"\xc4\xe3\x81A", "A", "c", "may begin inside a character")]
#[tokio::test]
async fn an_edit_that_is_not_clear_or_not_safe_is_refused_with_the_file_untouched(
    #[case] content: &[u8],
    #[case] old: &str,
    #[case] new: &str,
    #[case] reason: &str,
) {
    let (output, bytes) = try_edit(content, old, new, false).await;
    assert!(output.is_error && output.text.contains(reason), "{}", output.text);
    assert_eq!(bytes, content);
}

#[tokio::test]
async fn replace_all_replaces_each_place_with_its_own_line_ends() {
    let (output, bytes) = try_edit(b"a\nb\na\r\nb\r\n", "a\nb", "x\ny", true).await;
    assert_eq!(output, Output::ok("Edited f: 2 places replaced"));
    assert_eq!(bytes, b"x\ny\nx\r\ny\r\n");
    let (output, bytes) = try_edit(b"aaaa", "a", "bb", true).await;
    assert_eq!(output, Output::ok("Edited f: 4 places replaced"));
    assert_eq!(bytes, b"bbbbbbbb");
}

#[tokio::test]
async fn mode_bits_and_the_link_stay() {
    let place = Place::new();
    let path = place.put("sub/run.sh", "old");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o711)).unwrap();
    place.link("sub/run.sh", "link");
    place.ok(&FileEdit, json!({"path": "link", "old_string": "old", "new_string": "new"})).await;
    assert_eq!(place.bytes("sub/run.sh"), b"new");
    assert!(place.at("link").is_symlink());
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o711);
}

#[tokio::test]
async fn a_missing_file_is_not_made_nor_its_folder() {
    let place = Place::new();
    let text = place.err(&FileEdit, json!({"path": "a/b", "old_string": "x", "new_string": "y"})).await;
    assert_eq!(text, "a/b: no such file or folder");
    assert!(place.names("").is_empty());
}

#[tokio::test]
async fn a_file_over_the_limit_is_refused() {
    let place = Place::new();
    let file = std::fs::File::create(place.at("f")).unwrap();
    file.set_len(MAX_BYTES as u64 + 1).unwrap();
    let text = place.err(&FileEdit, json!({"path": "f", "old_string": "x", "new_string": "y"})).await;
    assert!(text.contains("over 64 MiB"), "{text}");
}

#[tokio::test]
async fn of_edits_at_the_same_time_none_is_lost() {
    let place = Place::new();
    place.put("f", "0123456789");
    let edits = (0..10).map(|digit| {
        let place = &place;
        async move {
            let input = json!({"path": "f", "old_string": digit.to_string(), "new_string": "x"});
            // An edit that was overtaken says so, and is then tried again, as a model would.
            while place.call(&FileEdit, input.clone()).await.is_error {}
        }
    });
    futures_util::future::join_all(edits).await;
    assert_eq!(place.bytes("f"), b"xxxxxxxxxx");
}

#[tokio::test]
async fn a_level_below_full_edits_only_what_it_may() {
    let mut place = Place::with_access(AccessLevel::Workspace);
    std::fs::write(place.root.join("x"), "old").unwrap();
    place.put("in", "old");
    let input = |path: &str| json!({"path": path, "old_string": "old", "new_string": "new"});
    assert!(place.err(&FileEdit, input("../x")).await.contains("is outside"));
    place.ok(&FileEdit, input("in")).await;
    place.context.access = AccessLevel::ReadOnly;
    let input = json!({"path": "in", "old_string": "new", "new_string": "old"});
    assert!(place.err(&FileEdit, input).await.contains("read-only"));
    assert_eq!(place.bytes("in"), b"new");
}
