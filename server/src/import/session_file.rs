//! The file of one session: its log and its model history as JSON texts, and what its header says. Fields may be
//! missing in older layouts; a file that was cut off or is no such JSON is an error that tells why.

use crate::clock::from_iso;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The most that is read of one file, in bytes; archives unpacked.
pub const MAX_BYTES: u64 = 256 << 20;

/// A session file; borrows from its text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionFile<'a> {
    /// The rows of the active log.
    #[serde(borrow)]
    pub messages: Vec<&'a RawValue>,
    /// The model history.
    #[serde(borrow, default)]
    pub raw_messages: Option<Vec<&'a RawValue>>,
    #[serde(default)]
    parent_session_id: Value,
    #[serde(default)]
    created_at: Value,
    #[serde(default)]
    updated_at: Value,
    #[serde(default)]
    last_activity_at: Value,
    #[serde(default)]
    title: Value,
    #[serde(default)]
    archive_count: Value,
}

impl<'a> SessionFile<'a> {
    /// Reads the text of a file.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("broken: {error}"))
    }

    /// The parent's id, where the file tells one.
    pub fn parent(&self) -> Option<&str> {
        self.parent_session_id.as_str().filter(|id| !id.is_empty())
    }

    /// When it was made, in milliseconds since the Unix epoch.
    pub fn created_at(&self) -> Option<i64> {
        time(&self.created_at)
    }

    /// Its last activity.
    pub fn updated_at(&self) -> Option<i64> {
        time(&self.last_activity_at).or_else(|| time(&self.updated_at))
    }

    /// Its title.
    pub fn title(&self) -> Option<&str> {
        self.title.as_str()
    }

    /// How many archives belong to it; later ones were never completed.
    pub fn archives(&self) -> u64 {
        self.archive_count.as_u64().unwrap_or(0)
    }
}

/// A time as a number of milliseconds or in ISO 8601.
pub fn time(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|ms| ms as i64)),
        Value::String(text) => from_iso(text),
        _ => None,
    }
}

/// The text of a file, fit to be parsed.
pub fn read(path: &Path) -> Result<String, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    text_of(file)
}

/// The text that comes out of a reader, fit to be parsed: at most [`MAX_BYTES`], halves of characters that the Node
/// program cut apart replaced.
pub fn text_of(reader: impl Read) -> Result<String, String> {
    let mut bytes = Vec::new();
    reader.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| format!("broken: {error}"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(format!("larger than {} MiB", MAX_BYTES >> 20));
    }
    if bytes.is_empty() {
        return Err("broken: it is empty".into());
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    match whole_characters(&text) {
        Cow::Borrowed(_) => Ok(text),
        Cow::Owned(mended) => Ok(mended),
    }
}

/// JSON text in which every escaped half of a UTF-16 pair without its other half is U+FFFD. JavaScript cuts texts
/// between such halves and writes them as escapes, which no JSON parser here takes.
fn whole_characters(text: &str) -> Cow<'_, str> {
    if !text.contains("\\ud") && !text.contains("\\uD") {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let unit = |at: usize| {
        let digits = bytes.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (mut out, mut copied, mut at) = (String::new(), 0, 0);
    while let Some(found) = bytes.get(at..).and_then(|rest| memchr::memchr(b'\\', rest)) {
        at += found;
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => at += 12,
            Some(0xD800..=0xDFFF) => {
                out.push_str(&text[copied..at]);
                out.push_str("\\ufffd");
                at += 6;
                copied = at;
            }
            // An escape of two characters, such as an escaped backslash; a longer one has no backslash in it.
            _ => at += 2,
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(r#""\ud83d\ude00""#, "😀")]
    #[case(r#""cut \ud83d""#, "cut \u{fffd}")]
    #[case(r#""\ude00 cut""#, "\u{fffd} cut")]
    #[case(r#""\uD83D\ud83d\ude00""#, "\u{fffd}😀")]
    #[case(r#""a \\ud83d b""#, "a \\ud83d b")]
    #[case(r#""ä\n\\\ud83d""#, "ä\n\\\u{fffd}")]
    fn a_character_that_was_cut_apart_does_not_make_a_file_unreadable(
        #[case] json: &str,
        #[case] text: &str,
    ) {
        let mended = text_of(json.as_bytes()).unwrap();
        assert_eq!(serde_json::from_str::<String>(&mended).unwrap(), text);
    }

    #[rstest]
    #[case("", "it is empty")]
    #[case("{\"messages\": [{\"id\"", "broken: EOF")]
    #[case("[]", "broken: ")]
    #[case("{}", "messages")]
    #[case("{\"messages\": 1}", "broken: ")]
    fn a_broken_file_says_why(#[case] text: &str, #[case] part: &str) {
        let read = text_of(text.as_bytes()).and_then(|text| SessionFile::parse(&text).map(|_| ()));
        assert!(read.as_ref().is_err_and(|why| why.contains(part)), "{read:?}");
    }

    #[test]
    fn old_layouts_have_less_in_their_header() {
        let file = SessionFile::parse(r#"{"messages":[{"role":"user"}],"rawMessages":null}"#).unwrap();
        assert_eq!((file.messages.len(), file.archives(), file.created_at()), (1, 0, None));
    }
}
