//! Random edits of random files: every byte that the edit does not name stays, or nothing changes.

use super::*;
use crate::tool::file_edit::bytes::Edit;
use encoding_rs::{BIG5, EUC_JP, EUC_KR, Encoding, GBK, SHIFT_JIS, WINDOWS_1252};
use proptest::prelude::*;
use std::collections::HashSet;

const LIMIT: usize = 1 << 20;

/// Pieces of files as they come: line ends, marks, words, and characters of several encodings, whole and in half.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::sample::select(vec![
            &b"\n"[..],
            b"\r\n",
            b"\r",
            b"\xef\xbb\xbf",
            b"a",
            b"ab",
            b"A",
            b" ",
            b"--",
            b"\xc3\xa4",
            b"\xe6\xbc\xa2",
            b"\xff",
            b"\x81",
            b"\x81A",
            b"\xc4\xe3",
            b"\xb1",
            b"\x810\x810",
            b"\xc3",
            b"\xa4",
            b"$1",
            b"\\",
        ])
        .prop_map(<[u8]>::to_vec),
        prop::collection::vec(1u8.., 1..4),
    ]
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..16).prop_map(|pieces| pieces.concat())
}

fn words() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop::sample::select(vec!["a", "b", "A", "ab", "\n", "\r\n", "\r", " ", "ä", "漢", "-", "$1", "0"]),
        0..5,
    )
    .prop_map(|words| words.concat())
}

fn crlf(text: &str) -> String {
    text.replace("\r\n", "\n").replace('\n', "\r\n")
}

/// Whether `after` is `before` with some places of `old` replaced by `new`, each with line ends of its own.
fn is_explained(before: &[u8], after: &[u8], old: &str, new: &str) -> bool {
    let olds = [old.to_owned(), crlf(old), old.replace('\n', "\r\n")];
    let news = [new.to_owned(), crlf(new), new.replace('\n', "\r\n")];
    let (mut ways, mut seen) = (vec![(0, 0)], HashSet::new());
    while let Some((at, to)) = ways.pop() {
        if !seen.insert((at, to)) {
            continue;
        }
        if at == before.len() && to == after.len() {
            return true;
        }
        if at < before.len() && before.get(at) == after.get(to) {
            ways.push((at + 1, to + 1));
        }
        for old in olds.iter().filter(|old| before[at..].starts_with(old.as_bytes())) {
            for new in news.iter().filter(|new| after[to..].starts_with(new.as_bytes())) {
                ways.push((at + old.len(), to + new.len()));
            }
        }
    }
    false
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn bytes_that_an_edit_does_not_name_stay(
        content in file(), old in words(), new in words(), replace_all: bool,
        cut in any::<(prop::sample::Index, prop::sample::Index)>(), own: bool,
    ) {
        // Half of the edits are about a piece of the file itself.
        let (from, to) = (cut.0.index(content.len() + 1), cut.1.index(content.len() + 1));
        let piece = std::str::from_utf8(&content[from.min(to)..from.max(to)]).unwrap_or(&old);
        let old = if own && !piece.is_empty() { piece } else { &old };
        prop_assume!(!old.is_empty() && *old != new);
        let edit = Edit { content: &content, old, new: &new, replace_all, limit: LIMIT };
        if let Ok((changed, places)) = edit.apply() {
            prop_assert!(places == 1 || replace_all);
            prop_assert!(is_explained(&content, &changed, old, &new), "{:?}", changed);
            // A file in one encoding stays in it.
            let was_utf8 = std::str::from_utf8(&content).is_ok();
            prop_assert!(!was_utf8 || std::str::from_utf8(&changed).is_ok());
        }
    }

    #[test]
    fn in_an_encoding_of_old_an_edit_is_one_of_whole_characters(
        encoding in prop::sample::select(vec![GBK, SHIFT_JIS, BIG5, EUC_KR, EUC_JP, WINDOWS_1252]),
        text in "[A-C0-1 äéöあいうアイｱｲ漢字表十予能你好的한국\n]{1,12}",
        old in "[A-C0-1 ]{1,2}", new in "[x\n]{0,2}", replace_all: bool,
    ) {
        let known = |c: &char| !encoding.encode(c.encode_utf8(&mut [0; 4])).2;
        let text: String = text.chars().filter(known).collect();
        let content = encoding.encode(&text).0;
        let edit = Edit { content: &content, old: &old, new: &new, replace_all, limit: LIMIT };
        if let Ok((changed, places)) = edit.apply() {
            let expected = if places == 1 { text.replacen(&old, &new, 1) } else { text.replace(&old, &new) };
            prop_assert_eq!(decoded(encoding, &changed), expected);
        }
    }
}

fn decoded(encoding: &'static Encoding, bytes: &[u8]) -> String {
    encoding.decode_without_bom_handling(bytes).0.into_owned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_refused_edit_leaves_the_file_and_its_folder_untouched(content in file(), old in words(), new in words()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let place = Place::new();
            let path = place.put("f", &content);
            let before = path.metadata().unwrap().modified().unwrap();
            let input = json!({"path": "f", "old_string": old, "new_string": new});
            let output = place.call(&FileEdit, input).await;
            if output.is_error {
                assert_eq!(place.bytes("f"), content);
                assert_eq!(path.metadata().unwrap().modified().unwrap(), before);
            } else {
                assert!(is_explained(&content, &place.bytes("f"), &old, &new));
            }
            assert_eq!(place.names(""), ["f"]);
        });
    }
}
