//! Short forms of chat commands, `global/aliases.yaml`: `top` for the first word of a command, `verb` for its second.
//! The file is made once, at the first start, and is its owner's from then on: a change counts with the next command,
//! a broken one is logged once and leaves the aliases as they were, and without the file there are none. What a
//! command is, others know.

use super::edit::{self, EditError};
use super::file;
use super::home::Home;
use super::problem::{Problem, Severity};
use super::yaml::{Content, Entry, Node};
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What the file holds at first.
const SEED: &str = "\
# Short forms of chat commands. A change counts with the next command; without this file there are none.
# `top` stands for the first word of a command, `verb` for the word after it.
top:
  /new: /session new
  /s: /session
  /ss: /session switch
  /sl: /session list
  /si: /session info
  /sn: /session new
  /a: /agent
  /as: /agent switch
  /al: /agent list
  /w: /workspace
  /ws: /workspace switch
  /wi: /workspace info
  /h: /help
verb:
  sw: switch
  ls: list
  i: info
  n: new
  ctx: context
  st: stop
  int: interrupt
";

/// The aliases that a file gives. Names are in small letters and without `/`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    top: HashMap<String, String>,
    verb: HashMap<String, String>,
}

impl Table {
    /// The words that stand for this first word: a command, or a command with its verb.
    pub fn top(&self, word: &str) -> Option<&str> {
        self.top.get(word).map(String::as_str)
    }

    /// The verb that stands for this second word.
    pub fn verb(&self, word: &str) -> Option<&str> {
        self.verb.get(word).map(String::as_str)
    }
}

/// The aliases of a home, read again when their file has changed.
#[derive(Debug)]
pub struct Aliases {
    file: PathBuf,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    stamp: Option<Stamp>,
    table: Arc<Table>,
}

/// Device, inode, length, time of the last change to content and to attributes.
type Stamp = (u64, u64, u64, (i64, i64), (i64, i64));

impl Aliases {
    /// Those of the home.
    pub fn of(home: &Home) -> Self {
        Self { file: home.aliases_yaml(), seen: Mutex::default() }
    }

    /// The aliases in force. Blocks for a look at the file, and for reading it when it has changed.
    pub fn current(&self) -> Arc<Table> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.file);
        if stamp == seen.stamp {
            return seen.table.clone();
        }
        // A change between the look and the reading shows at the next look.
        seen.stamp = stamp;
        let (table, problems) = read(&self.file);
        for problem in &problems {
            if problem.severity == Severity::Error {
                tracing::warn!("{problem}; the aliases from before stay in force");
            } else {
                tracing::warn!("{problem}");
            }
        }
        if let Some(table) = table {
            seen.table = Arc::new(table);
        }
        seen.table.clone()
    }
}

/// Writes the file where the home has never been started; one that its owner took away does not come back.
pub fn seed(home: &Home) -> Result<(), EditError> {
    if home.runs_db().exists() { Ok(()) } else { edit::write_new_private(&home.aliases_yaml(), SEED) }
}

/// What is wrong with the home's file.
pub fn check(home: &Home) -> Vec<Problem> {
    read(&home.aliases_yaml()).1
}

fn stamp(file: &Path) -> Option<Stamp> {
    let found = std::fs::metadata(file).ok()?;
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), found.len(), modified, changed))
}

/// The aliases, unless the file is broken, and what is wrong with it.
fn read(path: &Path) -> (Option<Table>, Vec<Problem>) {
    let text = match file::read(path) {
        Ok(None) => return (Some(Table::default()), Vec::new()),
        Ok(Some(text)) => text,
        Err(problem) => return (None, vec![problem]),
    };
    match file::parse(&text, path) {
        Ok(tree) => {
            let mut reader = Reader { path, table: Table::default(), problems: Vec::new() };
            reader.root(&tree);
            let broken = reader.problems.iter().any(|problem| problem.severity == Severity::Error);
            ((!broken).then_some(reader.table), reader.problems)
        }
        Err(problem) => (None, vec![problem]),
    }
}

struct Reader<'a> {
    path: &'a Path,
    table: Table,
    problems: Vec<Problem>,
}

impl Reader<'_> {
    fn note(&mut self, severity: Severity, place: (u64, u64), text: impl Into<String>) {
        self.problems.push(Problem::at(severity, self.path, place, text));
    }

    fn root(&mut self, root: &Node) {
        match &root.content {
            Content::Null => {}
            Content::Map(sections) => sections.iter().for_each(|section| self.section(section)),
            _ => {
                let text = format!("expected the sections `top:` and `verb:`, found {}", root.kind());
                self.note(Severity::Error, root.place, text);
            }
        }
    }

    fn section(&mut self, section: &Entry) {
        if !matches!(section.key.as_str(), "top" | "verb") {
            let text = format!("unknown section `{}`; the sections are `top` and `verb`", section.key);
            self.note(Severity::Warning, section.place, text);
            return;
        }
        match &section.value.content {
            Content::Null => {}
            Content::Map(entries) => entries.iter().for_each(|entry| self.alias(&section.key, entry)),
            _ => {
                let text = format!(
                    "`{}`: expected aliases, one a line, found {}",
                    section.key,
                    section.value.kind()
                );
                self.note(Severity::Error, section.value.place, text);
            }
        }
    }

    fn alias(&mut self, section: &str, entry: &Entry) {
        let Content::Scalar(value) = &entry.value.content else {
            let text = format!("`{section}.{}`: expected words, found {}", entry.key, entry.value.kind());
            self.note(Severity::Error, entry.value.place, text);
            return;
        };
        let top = section == "top";
        let (name, target) = (words(&entry.key), words(value));
        if name.is_empty() || name.contains(' ') {
            self.note(Severity::Error, entry.place, "an alias is one word".to_owned());
        } else if target.is_empty() || !top && target.contains(' ') {
            let wanted = if top { "a command such as `/session new`" } else { "one verb such as `list`" };
            let text = format!("`{section}.{}`: expected {wanted}", entry.key);
            self.note(Severity::Error, entry.value.place, text);
        } else {
            let into = if top { &mut self.table.top } else { &mut self.table.verb };
            into.insert(name, target);
        }
    }
}

/// Small letters, one space between words, no `/` in front.
fn words(text: &str) -> String {
    let text = text.trim();
    let words: Vec<&str> = text.strip_prefix('/').unwrap_or(text).split_whitespace().collect();
    words.join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;
    use rstest::rstest;
    use std::fs;
    use tempfile::TempDir;

    fn home() -> (TempDir, Home) {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(folder.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        (folder, home)
    }

    #[test]
    fn the_first_start_makes_the_file_and_no_later_one_brings_it_back() {
        let (_folder, home) = home();
        seed(&home).unwrap();
        assert!(check(&home).is_empty());
        let table = Aliases::of(&home).current();
        assert_eq!(table.top("ss"), Some("session switch"));
        assert_eq!(table.top("new"), Some("session new"));
        assert_eq!(table.verb("ctx"), Some("context"));
        assert_eq!((table.top("session"), table.verb("ss")), (None, None));

        fs::write(home.aliases_yaml(), "top: { /x: /help }\n").unwrap();
        seed(&home).unwrap();
        assert_eq!(fs::read_to_string(home.aliases_yaml()).unwrap(), "top: { /x: /help }\n");
        fs::remove_file(home.aliases_yaml()).unwrap();
        fs::write(home.runs_db(), "").unwrap();
        seed(&home).unwrap();
        assert!(!home.aliases_yaml().exists());
    }

    #[test]
    fn a_change_counts_a_broken_one_does_not_and_without_the_file_there_are_none() {
        let (_folder, home) = home();
        let aliases = Aliases::of(&home);
        assert_eq!(aliases.current().top("x"), None);
        fs::write(home.aliases_yaml(), "top: { x: session  list }\nverb: { /L: list }\n").unwrap();
        assert_eq!(aliases.current().top("x"), Some("session list"));
        assert_eq!(aliases.current().verb("l"), Some("list"));
        fs::write(home.aliases_yaml(), "top: [broken\n").unwrap();
        assert_eq!(aliases.current().top("x"), Some("session list"));
        fs::remove_file(home.aliases_yaml()).unwrap();
        assert_eq!(aliases.current().top("x"), None);
        fs::create_dir(home.aliases_yaml()).unwrap();
        assert_eq!(check(&home)[0].text, "not a plain file");
    }

    #[rstest]
    #[case("top: [", "aliases.yaml:", Severity::Error)]
    #[case("- x\n", "aliases.yaml:1:1: expected the sections", Severity::Error)]
    #[case("top:\n  /x y: /help\n", "aliases.yaml:2:3: an alias is one word", Severity::Error)]
    #[case("verb:\n  x: a b\n", "aliases.yaml:2:6: `verb.x`: expected one verb", Severity::Error)]
    #[case("top:\n  x:\n", "`top.x`: expected words, found nothing", Severity::Error)]
    #[case("top: x\n", "`top`: expected aliases", Severity::Error)]
    #[case("tops:\n  x: /help\n", "unknown section `tops`", Severity::Warning)]
    fn a_mistake_is_told_with_its_place(#[case] text: &str, #[case] part: &str, #[case] severity: Severity) {
        let (_folder, home) = home();
        fs::write(home.aliases_yaml(), text).unwrap();
        let problems = check(&home);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().contains(part), "{}", problems[0]);
        assert_eq!(problems[0].severity, severity);
    }
}
