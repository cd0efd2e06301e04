//! Params and secrets of providers, skills and remotes, as `settings.yaml` names them:
//! `<id>.params.<key>`, `<id>.secrets.<key>`. The workspace's file counts before the global one.

use super::environment::Environment;
use super::file::{self, Reader};
use super::problem::{Problem, Severity};
use super::table::{self, Source};
use super::yaml::{Content, Entry, Node};
use secrecy::{ExposeSecret, SecretString};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// The sections of one settings file, placeholders resolved.
#[derive(Debug, Default)]
pub struct Sections {
    params: BTreeMap<(String, String), String>,
    secrets: BTreeMap<(String, String), SecretString>,
    /// Line and column of each secret's key.
    secret_places: BTreeMap<(String, String), (u64, u64)>,
    /// What came out of the environment by `<<NAME>>`.
    from_environment: BTreeSet<String>,
}

impl Sections {
    /// The secret, if the file has it and it is not empty.
    pub fn secret(&self, id: &str, key: &str) -> Option<SecretString> {
        self.secrets.get(&(id.to_owned(), key.to_owned())).cloned()
    }

    /// The parameter, if the file has it and it is not empty.
    pub fn param(&self, id: &str, key: &str) -> Option<String> {
        self.params.get(&(id.to_owned(), key.to_owned())).cloned()
    }

    /// Every secret's id and key, in order.
    pub fn secret_names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.secrets.keys().map(|(id, key)| (id.as_str(), key.as_str()))
    }

    /// Every secret's id and key, with the line and column of the key.
    pub fn secret_places(&self) -> impl Iterator<Item = (&str, &str, (u64, u64))> {
        self.secret_places.iter().map(|((id, key), place)| (id.as_str(), key.as_str(), *place))
    }

    /// Every parameter's id, key and value, in order.
    pub fn param_values(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        self.params.iter().map(|((id, key), value)| (id.as_str(), key.as_str(), value.as_str()))
    }

    /// What nobody is to read of what commands print: every secret, and what `<<NAME>>` took out of the environment.
    pub fn masked(&self) -> impl Iterator<Item = &str> {
        let secrets = self.secrets.values().map(ExposeSecret::expose_secret);
        secrets.chain(self.from_environment.iter().map(String::as_str))
    }

    /// Whether two files give the same.
    pub fn same_as(&self, other: &Self) -> bool {
        self.params == other.params
            && self.from_environment == other.from_environment
            && self.secrets.len() == other.secrets.len()
            && self.secrets.iter().zip(&other.secrets).all(|((name, a), (other_name, b))| {
                name == other_name && a.expose_secret() == b.expose_secret()
            })
    }

    /// Reads the section of one id.
    pub(super) fn read(&mut self, entry: &Entry, reader: &mut Reader<'_>) {
        let id = &entry.key;
        let parts = match &entry.value.content {
            Content::Null => return,
            Content::Map(parts) => parts,
            _ => {
                let text = format!("`{id}`: expected `params` and `secrets`, found {}", entry.value.kind());
                return reader.note(Severity::Error, entry.value.place, text);
            }
        };
        for part in parts {
            let is_secret = match part.key.as_str() {
                "params" => false,
                "secrets" => true,
                other => {
                    let key = format!("{id}.{other}");
                    let known =
                        ["params", "secrets"].into_iter().find(|k| strsim::jaro_winkler(k, other) > 0.8);
                    let hint = match (known, table::nearest(&key)) {
                        (Some(known), _) => format!("did you mean `{id}.{known}`?"),
                        (None, Some(known)) => format!("did you mean `{known}`?"),
                        (None, None) => "a provider or skill has `params` and `secrets`".to_owned(),
                    };
                    reader.note(Severity::Warning, part.place, format!("unknown key `{key}`; {hint}"));
                    continue;
                }
            };
            self.read_part(id, part, is_secret, reader);
        }
    }

    fn read_part(&mut self, id: &str, part: &Entry, is_secret: bool, reader: &mut Reader<'_>) {
        if !matches!(part.value.content, Content::Map(_) | Content::Null) {
            let text =
                format!("`{id}.{}`: expected a section with keys, found {}", part.key, part.value.kind());
            return reader.note(Severity::Error, part.value.place, text);
        }
        for leaf in part.value.entries() {
            let name = (id.to_owned(), leaf.key.clone());
            match &leaf.value.content {
                Content::Null => {}
                Content::Scalar(text) if text.is_empty() => {}
                Content::Scalar(text) => {
                    self.from_environment.extend(reader.values_in(text));
                    let text = reader.expand(text, leaf.value.place);
                    if is_secret {
                        self.secret_places.insert(name.clone(), leaf.place);
                        self.secrets.insert(name, text.into());
                    } else {
                        self.params.insert(name, text);
                    }
                }
                _ => {
                    let text = format!(
                        "`{id}.{}.{}`: expected text, found {}",
                        part.key,
                        leaf.key,
                        leaf.value.kind()
                    );
                    reader.note(Severity::Error, leaf.value.place, text);
                }
            }
        }
    }
}

/// Reads `<ws>/.halo/settings.yaml` as far as it counts: params and secrets.
pub fn read_workspace(path: &Path, tree: &Node, environment: &Environment) -> (Sections, Vec<Problem>) {
    let mut reader = Reader::new(path, Some(Source::Settings), Some(environment));
    let mut sections = Sections::default();
    match &tree.content {
        Content::Null => {}
        Content::Map(entries) => {
            for entry in entries {
                if entry.key == "general" {
                    let text = "`general` has no effect in a workspace: its settings count for the whole server \
                                and belong in secrets/settings.yaml of halo's home";
                    reader.note(Severity::Warning, entry.place, text);
                } else {
                    sections.read(entry, &mut reader);
                }
            }
        }
        _ => {
            let text = format!("expected the ids of providers or skills, found {}", tree.kind());
            reader.note(Severity::Error, tree.place, text);
        }
    }
    (sections, reader.problems)
}

/// How many workspaces' files are remembered.
const MAX_REMEMBERED: usize = 64;

/// The settings files of workspaces, read again when they change.
#[derive(Debug, Default)]
pub struct Workspaces(Mutex<HashMap<PathBuf, Remembered>>);

#[derive(Debug)]
struct Remembered {
    stamp: Option<(SystemTime, u64)>,
    sections: Arc<Sections>,
}

impl Workspaces {
    /// The sections of a workspace's file. A missing file has none; a broken one keeps what it said before,
    /// and is logged once.
    pub fn sections(&self, workspace: &Path, environment: &Environment) -> Arc<Sections> {
        let path = workspace.join(".halo").join("settings.yaml");
        let stamp = std::fs::metadata(&path).ok().and_then(|m| Some((m.modified().ok()?, m.len())));
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = remembered.get(&path)
            && known.stamp == stamp
        {
            return known.sections.clone();
        }
        let read = file::read(&path).and_then(|text| match text {
            Some(text) => file::parse(&text, &path).map(|tree| read_workspace(&path, &tree, environment)),
            None => Ok((Sections::default(), Vec::new())),
        });
        let (sections, problems) = match read {
            Ok((sections, problems)) if problems.iter().all(|p| p.severity != Severity::Error) => {
                (Some(Arc::new(sections)), problems)
            }
            Ok((_, problems)) => (None, problems),
            Err(problem) => (None, vec![problem]),
        };
        for problem in problems.iter().filter(|problem| problem.severity != Severity::Note) {
            tracing::warn!("{problem}");
        }
        let sections = sections.unwrap_or_else(|| {
            tracing::warn!("{}: what was read before stays in force", path.display());
            remembered.get(&path).map(|known| known.sections.clone()).unwrap_or_default()
        });
        if remembered.len() >= MAX_REMEMBERED && !remembered.contains_key(&path) {
            remembered.clear();
        }
        remembered.insert(path, Remembered { stamp, sections: sections.clone() });
        sections
    }
}
