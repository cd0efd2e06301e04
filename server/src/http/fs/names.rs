//! File names are bytes, and JSON is text. A byte that is no UTF-8 goes out as `␀` (U+2400) and its two hexadecimal
//! digits, and so do the bytes of a `␀` that is really there: so every name has one text, and every text that was
//! listed leads back to its name. All other names are what they are.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const MARK: char = '\u{2400}';

/// The text of a name or path.
pub fn text_of(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            if c == MARK {
                escape(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn escape(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{MARK}{byte:02x}");
    }
}

/// The path that a text stands for. A mark that no byte above 0x7f follows is a character like any other.
pub fn path_of(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(MARK) {
        let after = &rest[at + MARK.len_utf8()..];
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        if let Some(byte) = after.get(..2).and_then(escaped) {
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.extend_from_slice(MARK.encode_utf8(&mut [0; 4]).as_bytes());
            rest = after;
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    OsString::from_vec(bytes).into()
}

fn escaped(digits: &str) -> Option<u8> {
    let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = u8::from_str_radix(digits, 16).ok().filter(|_| are_digits)?;
    (byte >= 0x80).then_some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    #[rstest]
    #[case(b"plain.txt", "plain.txt")]
    #[case("übung 日本".as_bytes(), "übung 日本")]
    #[case(b"back\\slash %41 \"quoted\"", "back\\slash %41 \"quoted\"")]
    #[case(b"bad\xff.txt", "bad␀ff.txt")]
    #[case(b"\xe2\x90", "␀e2␀90")]
    #[case("␀ff".as_bytes(), "␀e2␀90␀80ff")]
    fn a_name_has_one_text_and_the_text_leads_back(#[case] name: &[u8], #[case] text: &str) {
        assert_eq!(text_of(OsStr::from_bytes(name)), text);
        assert_eq!(path_of(text).as_os_str().as_bytes(), name);
    }

    #[rstest]
    #[case("a␀", "a␀")]
    #[case("a␀f", "a␀f")]
    #[case("a␀zz", "a␀zz")]
    #[case("a␀+f", "a␀+f")]
    #[case("a␀ü", "a␀ü")]
    // neither a slash nor a dot comes out of an escape
    #[case("a␀2fb", "a␀2fb")]
    #[case("a␀00", "a␀00")]
    fn a_mark_that_escapes_nothing_is_a_character(#[case] text: &str, #[case] path: &str) {
        assert_eq!(path_of(text), PathBuf::from(path));
    }

    proptest! {
        #[test]
        fn every_name_comes_back(name in proptest::collection::vec(
            prop_oneof![any::<u8>(), Just(0xe2), Just(0x90), Just(0x80), Just(b'f')], 0..40,
        )) {
            let back = path_of(&text_of(OsStr::from_bytes(&name)));
            prop_assert_eq!(back.as_os_str().as_bytes(), &name[..]);
        }
    }
}
