//! Reads settings out of a parsed file: which keys are known, which values are of the right type, and what
//! to say about the rest. Shared by `config.yaml` and the `general` section of `settings.yaml`.

use super::environment::Environment;
use super::problem::{Problem, Severity};
use super::table::{self, Setting, Source};
use super::value::Value;
use super::yaml::{self, Content, Entry, Node};
use rustix::fs::OFlags;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The longest configuration file that is read, in bytes.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// A value that a file gives to a setting.
#[derive(Debug)]
pub struct Given {
    /// The place of the setting in [`table::SETTINGS`].
    pub index: usize,
    /// The value; never [`Value::Unset`].
    pub value: Value,
    /// Line and column of the value.
    pub place: (u64, u64),
}

/// The keys that may stand beside `value` in a leaf that is a mapping.
const LEAF_KEYS: [&str; 4] = ["value", "default", "description", "description_zh"];

/// The text of a file; `None` when there is none. Never waits: a pipe, whose writer may never come, is no file.
pub fn read(path: &Path) -> Result<Option<String>, Problem> {
    let failed = |text: String| Problem::of(Severity::Error, path.display().to_string(), text);
    let opened = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let found = opened.and_then(|file| Ok((file.metadata()?.is_file(), file)));
    let file = match found {
        Ok((true, file)) => file,
        Ok((false, _)) => return Err(failed("not a plain file".to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed(super::problem::os_reason(&error))),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(super::problem::os_reason(&error)))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(failed(format!("longer than {MAX_FILE_BYTES} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..good]).into_owned();
        let line = before.matches('\n').count() as u64 + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
        Problem::at(Severity::Error, path, (line, column), "not UTF-8 text")
    })
}

/// The tree of a file's text.
pub fn parse(text: &str, path: &Path) -> Result<Node, Problem> {
    yaml::parse(text).map_err(|broken| Problem::at(Severity::Error, path, broken.place, broken.text))
}

/// Collects the settings of one file.
pub struct Reader<'a> {
    /// The file, for messages.
    pub path: &'a Path,
    /// Where the settings of this file belong. `None`: settings of every file are welcome (the example file).
    pub source: Option<Source>,
    /// Resolves `<<NAME>>`; `None` where placeholders have no meaning.
    pub environment: Option<&'a Environment>,
    /// What the file gives.
    pub given: Vec<Given>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

impl<'a> Reader<'a> {
    /// An empty collection.
    pub fn new(path: &'a Path, source: Option<Source>, environment: Option<&'a Environment>) -> Self {
        Self { path, source, environment, given: Vec::new(), problems: Vec::new() }
    }

    /// Notes a finding.
    pub fn note(&mut self, severity: Severity, place: (u64, u64), text: impl Into<String>) {
        self.problems.push(Problem::at(severity, self.path, place, text));
    }

    /// Reads a whole file of settings: a mapping, or nothing.
    pub fn root(&mut self, root: &Node) {
        match &root.content {
            Content::Null => {}
            Content::Map(entries) => entries.iter().for_each(|entry| self.entry("", entry)),
            _ => self.note(
                Severity::Error,
                root.place,
                format!("expected sections such as `server:`, found {}", root.kind()),
            ),
        }
    }

    /// Reads one entry of the section `prefix` (empty: the top).
    pub fn entry(&mut self, prefix: &str, entry: &Entry) {
        let key = if prefix.is_empty() { entry.key.clone() } else { format!("{prefix}.{}", entry.key) };
        if let Some((index, setting)) = table::find(&key).filter(|(_, s)| s.source != Source::Environment) {
            if self.source.is_none_or(|source| source == setting.source) {
                self.leaf(index, setting, &entry.value);
            } else {
                let text = format!("`{key}` has no effect here; it belongs in {}", setting.source.file());
                self.note(Severity::Warning, entry.place, text);
            }
        } else if table::is_unused(&key) {
            self.note(
                Severity::Note,
                entry.place,
                format!("`{key}` is known and has no effect in this version"),
            );
        } else if table::is_section(&key) {
            match &entry.value.content {
                Content::Null => {}
                Content::Map(entries) => entries.iter().for_each(|entry| self.entry(&key, entry)),
                _ => {
                    let text = format!("`{key}`: expected a section with keys, found {}", entry.value.kind());
                    self.note(Severity::Error, entry.value.place, text);
                }
            }
        } else {
            let hint = match table::nearest(&key) {
                Some(known) => format!("; did you mean `{known}`?"),
                None => "; `halo config show` lists the known keys".to_owned(),
            };
            self.note(Severity::Warning, entry.place, format!("unknown key `{key}`{hint}"));
        }
    }

    fn leaf(&mut self, index: usize, setting: &Setting, node: &Node) {
        let node = match &node.content {
            Content::Map(entries) if self.source != Some(Source::Settings) => {
                for entry in entries.iter().filter(|entry| !LEAF_KEYS.contains(&entry.key.as_str())) {
                    let text = format!(
                        "unknown key `{}.{}`; the value is read from `value`",
                        setting.key, entry.key
                    );
                    self.note(Severity::Warning, entry.place, text);
                }
                match node.get("value") {
                    Some(value) => value,
                    None => return,
                }
            }
            _ => node,
        };
        let parsed = match &node.content {
            Content::Null => return,
            Content::Scalar(text) => {
                let text = self.expand(text, node.place);
                setting.kind.parse(&text)
            }
            Content::List(items) => {
                let texts = items.iter().map(|item| match &item.content {
                    Content::Scalar(text) => Ok(text.clone()),
                    _ => Err(format!(
                        "expected {}, found {} in the list",
                        setting.kind.expected(),
                        item.kind()
                    )),
                });
                texts.collect::<Result<Vec<_>, _>>().and_then(|texts| setting.kind.parse_list(texts))
            }
            Content::Map(_) => Err(format!("expected {}, found a section", setting.kind.expected())),
        };
        match parsed {
            Ok(Value::Unset) => {}
            Ok(value) => {
                if setting.key == "server.password" && !super::password::is_hash(&value) {
                    let text = "`server.password` is not a stored hash, so no password fits it; set one with `halo password`";
                    self.note(Severity::Warning, node.place, text);
                }
                self.given.push(Given { index, value, place: node.place });
            }
            Err(text) => self.note(Severity::Error, node.place, format!("`{}`: {text}", setting.key)),
        }
    }

    /// The text with its placeholders resolved; unset ones stay and are warned about.
    pub fn expand(&mut self, text: &str, place: (u64, u64)) -> String {
        let Some(environment) = self.environment else { return text.to_owned() };
        environment.expand(text, |name| {
            let text = format!("the environment variable {name} is not set, so `<<{name}>>` stays as it is");
            self.problems.push(Problem::at(Severity::Warning, self.path, place, text));
        })
    }

    /// What [`Self::expand`] takes out of the environment.
    pub fn values_in(&self, text: &str) -> Vec<String> {
        self.environment.map(|environment| environment.values_in(text)).unwrap_or_default()
    }
}
