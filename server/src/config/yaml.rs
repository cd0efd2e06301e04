//! YAML as a tree that knows the line and column of every node. What the tree means is decided elsewhere.

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, Spanned};
use std::fmt;
use std::ops::Range;

/// A value with its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub content: Content,
    /// Line and column, both from 1. A value that is missing stands behind its key.
    pub place: (u64, u64),
    /// The bytes of a scalar with its quotes; for other nodes where they begin, for a missing one the colon.
    pub span: Range<usize>,
}

/// The content of a [`Node`].
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing, `~` or `null`.
    Null,
    /// Any scalar as its author wrote it, without quotes.
    Scalar(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Line and column of the key, both from 1.
    pub place: (u64, u64),
    /// The bytes of the key.
    pub span: Range<usize>,
    /// The value.
    pub value: Node,
}

/// The text is no YAML that we take.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken {
    /// Line and column, both from 1.
    pub place: (u64, u64),
    /// What is wrong; quotes no values.
    pub text: String,
}

impl Node {
    /// The value of a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The entries of a mapping; none for everything else.
    pub fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// What it is, for error messages that must not quote the value.
    pub fn kind(&self) -> &'static str {
        match self.content {
            Content::Null => "nothing",
            Content::Scalar(_) => "a single value",
            Content::List(_) => "a list",
            Content::Map(_) => "a section",
        }
    }
}

/// Reads one YAML document. Duplicate keys and further documents are errors; depth and size are bounded.
pub fn parse(text: &str) -> Result<Node, Broken> {
    let raw: Spanned<Raw> = crate::yaml::from_str(text).map_err(|error| broken(&error))?;
    Ok(node(raw, text))
}

fn broken(error: &Error) -> Broken {
    let error = error.without_snippet();
    let place = error.location().map_or((1, 1), |at| (at.line().max(1), at.column().max(1)));
    let text = match error {
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` is here a second time"),
        Error::MultipleDocuments { .. } => {
            "a second document begins here; only one is read: remove the `---`".to_owned()
        }
        other => {
            let text = other.to_string();
            text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text).replace('\n', " ")
        }
    };
    Broken { place, text }
}

enum Raw {
    Null,
    Text(String),
    /// A number or truth value, whose text stands in the source.
    Typed,
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
        Ok(Raw::Typed)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

fn span(at: Location) -> Range<usize> {
    let start = at.span().byte_offset().unwrap_or_default() as usize;
    start..start + at.span().byte_len().unwrap_or_default() as usize
}

fn node(raw: Spanned<Raw>, source: &str) -> Node {
    let place = (raw.referenced.line().max(1), raw.referenced.column().max(1));
    let here = span(raw.referenced);
    let content = match raw.value {
        Raw::Null => Content::Null,
        Raw::Text(text) => Content::Scalar(text),
        Raw::Typed => Content::Scalar(source.get(span(raw.defined)).unwrap_or_default().trim().to_owned()),
        Raw::List(items) => Content::List(items.into_iter().map(|item| node(item, source)).collect()),
        Raw::Map(entries) => Content::Map(
            entries
                .into_iter()
                .map(|(key, value)| Entry {
                    place: (key.referenced.line(), key.referenced.column()),
                    span: span(key.referenced),
                    key: key.value,
                    value: node(value, source),
                })
                .collect(),
        ),
    };
    Node { content, place, span: here }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn scalars_are_read_as_they_were_written() {
        let text = "a: 007\nb: 1.50\nc: yes\nd: '9'\ne: \"a\\tb\"\nf:\ng: <<NAME>>\nh: &x 12\ni: *x\n";
        let tree = parse(text).unwrap();
        let scalar = |key: &str| match &tree.get(key).unwrap().content {
            Content::Scalar(text) => Some(text.as_str()),
            _ => None,
        };
        assert_eq!(
            ["a", "b", "c", "d", "e", "f", "g", "h", "i"].map(scalar),
            [
                Some("007"),
                Some("1.50"),
                Some("yes"),
                Some("9"),
                Some("a\tb"),
                None,
                Some("<<NAME>>"),
                Some("12"),
                Some("12")
            ]
        );
    }

    #[rstest]
    #[case("a: [1\nb: 2", (2, 2))]
    #[case("a:\n  b: 1\n c: 2\n", (3, 2))]
    #[case("a: 1\nb: 2\na: 3\n", (3, 1))]
    #[case("a: \"x\n", (1, 4))]
    #[case("a: 1\n---\nb: 2\n", (3, 1))]
    #[case("a: *nowhere\n", (1, 4))]
    fn what_is_broken_is_named_with_its_line_and_column(#[case] text: &str, #[case] place: (u64, u64)) {
        assert_eq!(parse(text).unwrap_err().place, place);
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        assert_eq!(parse("a: 1\na: 2\n").unwrap_err().text, "the key `a` is here a second time");
    }
}
