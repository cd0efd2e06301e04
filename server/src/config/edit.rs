//! Writing `config.yaml`: a new file from a template, or one value set in a file that people wrote, whose
//! comments and order stay. What is written is private (0600), whole or not at all, and on disk.

use super::file;
use super::problem::os_reason;
use super::yaml::{self, Content, Entry, Node};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The value cannot be written; the file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file is no YAML, or cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The file is laid out in a way that the value cannot be put into safely.
    #[error(
        "{path}: cannot set `{key}` without touching the rest; write this line below `{section}:` by hand: {line}"
    )]
    Layout {
        /// The file.
        path: String,
        /// The key.
        key: String,
        /// Its section.
        section: String,
        /// The line to write.
        line: String,
    },
    /// The operating system refused.
    #[error("{path}: {reason}")]
    Io {
        /// The file.
        path: String,
        /// What it said.
        reason: String,
    },
}

/// A new `config.yaml` with these values below `server:`, each with the comment that explains it.
pub fn new_config(values: &[(&str, &str, &str)]) -> String {
    let mut text = String::from(
        "# What the halo server itself needs. Every key with its default: `halo config show`.\nserver:\n",
    );
    for (key, value, comment) in values {
        let _ = write!(text, "  # {comment}\n  {key}: {}\n", quoted(value));
    }
    text
}

/// Sets `section.key` in the file, or makes the file.
pub fn set(path: &Path, section: &str, key: &str, value: &str) -> Result<(), EditError> {
    let old = file::read(path).map_err(|problem| EditError::Unreadable(problem.to_string()))?;
    let old = old.unwrap_or_default();
    file::parse(&old, path).map_err(|problem| EditError::Unreadable(problem.to_string()))?;
    let new = set_leaf(&old, section, key, value).ok_or_else(|| EditError::Layout {
        path: path.display().to_string(),
        key: format!("{section}.{key}"),
        section: section.to_owned(),
        line: format!("{key}: {}", quoted(value)),
    })?;
    write_private(path, &new)
}

/// Writes the file: private, at once, and synced with its folder. A link keeps pointing at its target.
pub fn write_private(path: &Path, text: &str) -> Result<(), EditError> {
    let io = |error: io::Error| EditError::Io { path: path.display().to_string(), reason: os_reason(&error) };
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (Some(dir), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(io(io::ErrorKind::InvalidInput.into()));
    };
    let temporary = dir.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = (|| {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, &target)?;
        File::open(dir)?.sync_all()
    })();
    written.map_err(|error| {
        let _ = std::fs::remove_file(&temporary);
        io(error)
    })
}

/// Writes the file, private, where there is none; what is there stays.
pub fn write_new_private(path: &Path, text: &str) -> Result<(), EditError> {
    let written = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(mut file) => file.write_all(text.as_bytes()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    };
    written.map_err(|error| EditError::Io { path: path.display().to_string(), reason: os_reason(&error) })
}

/// The text with one leaf set. `None` when the layout does not allow it: the result is read again, and
/// must differ from the old in that leaf alone.
fn set_leaf(text: &str, section: &str, key: &str, value: &str) -> Option<String> {
    let tree = yaml::parse(text).ok()?;
    let line = format!("{key}: {}", quoted(value));
    let mut changed = format!("{section}.{key}");
    let (at, new) = match (&tree.content, tree.get(section)) {
        (Content::Null | Content::Map(_), None) => {
            let gap = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
            (text.len()..text.len(), format!("{gap}{section}:\n  {line}\n"))
        }
        (_, Some(node)) => match (&node.content, node.get(key)) {
            (Content::Null, _) => (value_span(text, node)?, format!("\n  {line}")),
            (Content::Map(_), None) => at_front(text, node, &line)?,
            (Content::Map(_), Some(leaf)) => match &leaf.content {
                Content::Map(_) => {
                    changed.push_str(".value");
                    match leaf.get("value") {
                        Some(inner) => in_place(text, inner, value)?,
                        None => at_front(text, leaf, &format!("value: {}", quoted(value)))?,
                    }
                }
                Content::List(_) => return None,
                _ => in_place(text, leaf, value)?,
            },
            _ => return None,
        },
        _ => return None,
    };
    let result = format!("{}{new}{}", text.get(..at.start)?, text.get(at.end..)?);
    let mut expected = leaves(&tree);
    expected.insert(changed, value.to_owned());
    (leaves(&yaml::parse(&result).ok()?) == expected).then_some(result)
}

fn in_place(text: &str, node: &Node, value: &str) -> Option<(Range<usize>, String)> {
    let gap = if node.span.is_empty() { " " } else { "" };
    Some((value_span(text, node)?, format!("{gap}{}", quoted(value))))
}

/// Where a value stands, or would stand: right behind the colon.
fn value_span(text: &str, node: &Node) -> Option<Range<usize>> {
    if !node.span.is_empty() {
        return Some(node.span.clone());
    }
    let at = node.span.start + text.get(node.span.start..)?.find(':')? + 1;
    Some(at..at)
}

/// Puts a line before the first entry of a mapping.
fn at_front(text: &str, map: &Node, line: &str) -> Option<(Range<usize>, String)> {
    if text[map.span.start..].starts_with('{') {
        let comma = if map.entries().is_empty() { "" } else { ", " };
        let at = map.span.start + 1;
        return Some((at..at, format!("{line}{comma}")));
    }
    let Entry { span, place, .. } = map.entries().first()?;
    let indent = " ".repeat(place.1.saturating_sub(1) as usize);
    Some((span.start..span.start, format!("{line}\n{indent}")))
}

/// Every leaf of a tree by its path.
fn leaves(tree: &Node) -> BTreeMap<String, String> {
    fn walk(path: &str, node: &Node, into: &mut BTreeMap<String, String>) {
        let below = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
        match &node.content {
            Content::Null => {}
            Content::Scalar(text) => {
                into.insert(path.to_owned(), text.clone());
            }
            Content::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(&below(&index.to_string()), item, into);
                }
            }
            Content::Map(entries) => {
                for entry in entries {
                    walk(&below(&entry.key), &entry.value, into);
                }
            }
        }
    }
    let mut into = BTreeMap::new();
    walk("", tree, &mut into);
    into
}

/// A double-quoted scalar; JSON strings are YAML.
fn quoted(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::os::unix::fs::PermissionsExt;

    #[rstest]
    #[case::empty("", "server:\n  password: \"new\"\n")]
    #[case::comments("# mine", "# mine\nserver:\n  password: \"new\"\n")]
    #[case::other_section(
        "timeout:\n  shell_exec: 1\n",
        "timeout:\n  shell_exec: 1\nserver:\n  password: \"new\"\n"
    )]
    #[case::plain(
        "server: # s\n  port: 1 # p\n\n  password: old # why\n  host: h\n",
        "server: # s\n  port: 1 # p\n\n  password: \"new\" # why\n  host: h\n"
    )]
    #[case::missing(
        "server:\n    # the port\n    port: 1\n",
        "server:\n    # the port\n    password: \"new\"\n    port: 1\n"
    )]
    #[case::null("server:\n  password:\n  port: 1\n", "server:\n  password: \"new\"\n  port: 1\n")]
    #[case::null_section("server:\ntimeout: {}\n", "server:\n  password: \"new\"\ntimeout: {}\n")]
    #[case::quoted("server: {password: 'o''ld', port: 1}\n", "server: {password: \"new\", port: 1}\n")]
    #[case::flow("server: {port: 1}\n", "server: {password: \"new\", port: 1}\n")]
    #[case::empty_flow("server: {}\n", "server: {password: \"new\"}\n")]
    #[case::leaf(
        "server:\n  password:\n    description: d\n    value: ''\n",
        "server:\n  password:\n    description: d\n    value: \"new\"\n"
    )]
    #[case::leaf_without_value(
        "server:\n  password:\n    default: ''\n",
        "server:\n  password:\n    value: \"new\"\n    default: ''\n"
    )]
    fn one_value_is_set_and_the_rest_stays(#[case] old: &str, #[case] new: &str) {
        assert_eq!(set_leaf(old, "server", "password", "new").as_deref(), Some(new));
    }

    #[rstest]
    #[case("server:\n  password: |\n    old\n  port: 1\n")]
    #[case("server:\n  password: [a]\n")]
    #[case("server: 1\n")]
    #[case("- a\n")]
    #[case("x: &s {port: 1}\nserver: *s\n")]
    fn a_layout_that_cannot_be_edited_safely_is_left_alone(#[case] old: &str) {
        let new = set_leaf(old, "server", "password", "new");
        assert!(new.is_none(), "{new:?}");
    }

    #[test]
    fn a_written_file_is_private_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "# mine\n").unwrap();
        set(&path, "server", "jwt_secret", "a\"b\\c").unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "# mine\nserver:\n  jwt_secret: \"a\\\"b\\\\c\"\n");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_broken_file_is_refused_with_line_and_column_and_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, "server:\n  port: [1\n").unwrap();
        let error = set(&path, "server", "password", "x").unwrap_err().to_string();
        assert!(error.contains("config.yaml:"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "server:\n  port: [1\n");
    }
}
