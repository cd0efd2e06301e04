//! Which value of a setting counts: flag, then environment, then file, then default.

use super::environment::Environment;
use super::problem::{Problem, Severity, Unusable};
use super::settings::Files;
use super::table::{self, SETTINGS};
use super::value::Value;
use std::fmt;
use std::path::PathBuf;

/// Values that flags give, by key.
#[derive(Clone, Debug, Default)]
pub struct Overrides(pub Vec<(&'static str, String)>);

impl Overrides {
    /// Adds the value of a flag that was given.
    #[must_use]
    pub fn with(mut self, key: &'static str, value: Option<String>) -> Self {
        self.0.extend(value.map(|value| (key, value)));
        self
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Built in.
    Default,
    /// A file, with line and column.
    File(PathBuf, (u64, u64)),
    /// An environment variable.
    Environment(&'static str),
    /// A flag.
    Flag(&'static str),
    /// Made at the first start, and on its way into the file.
    FirstStart,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path, (line, _)) => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) | Self::Flag(name) => f.write_str(name),
            Self::FirstStart => f.write_str("first start"),
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolved {
    /// The value.
    pub value: Value,
    /// Where it comes from.
    pub origin: Origin,
}

/// The values of all settings, in the order of [`SETTINGS`].
pub fn resolve(
    files: &Files,
    environment: &Environment,
    overrides: &Overrides,
) -> Result<Vec<Resolved>, Unusable> {
    let mut problems = Vec::new();
    let mut resolved: Vec<Resolved> = SETTINGS
        .iter()
        .map(|setting| Resolved {
            value: setting.kind.parse(setting.default).unwrap_or(Value::Unset),
            origin: Origin::Default,
        })
        .collect();
    for content in [&files.config, &files.settings] {
        for given in &content.given {
            resolved[given.index] = Resolved {
                value: given.value.clone(),
                origin: Origin::File(content.path.clone(), given.place),
            };
        }
    }
    for (setting, slot) in SETTINGS.iter().zip(&mut resolved) {
        let Some(name) = setting.env else { continue };
        let Some(text) = environment.get(name) else { continue };
        match setting.kind.parse(text) {
            Ok(Value::Unset) => {}
            Ok(value) => *slot = Resolved { value, origin: Origin::Environment(name) },
            Err(text) => problems.push(Problem::of(Severity::Error, name, text)),
        }
    }
    for (key, text) in &overrides.0 {
        let Some((index, setting)) = table::find(key) else { continue };
        let flag = setting.flag.unwrap_or(setting.key);
        match setting.kind.parse(text) {
            Ok(value) => resolved[index] = Resolved { value, origin: Origin::Flag(flag) },
            Err(text) => problems.push(Problem::of(Severity::Error, flag, text)),
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(Unusable(problems)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::{FileKind, read_file};

    fn files(config: &str) -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, config).unwrap();
        let config = read_file(&path, FileKind::Config, &Environment::default());
        (dir, Files { config, ..Files::default() })
    }

    fn port(resolved: &[Resolved]) -> (String, String) {
        let (index, _) = table::find("server.port").unwrap();
        (resolved[index].value.to_string(), resolved[index].origin.to_string())
    }

    #[test]
    fn a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default() {
        let (dir, files) = files("server:\n  port: 2\n");
        let none = Overrides::default();
        let set = Environment::from_iter([("HALO_PORT", "3")]);
        let flag = Overrides::default().with("server.port", Some("4".into()));
        let look =
            |files: &Files, env: &Environment, flags: &Overrides| port(&resolve(files, env, flags).unwrap());
        assert_eq!(
            look(&Files::default(), &Environment::default(), &none),
            ("9527".into(), "default".into())
        );
        let file = format!("{}:2", dir.path().join("config.yaml").display());
        assert_eq!(look(&files, &Environment::default(), &none), ("2".into(), file));
        assert_eq!(look(&files, &set, &none), ("3".into(), "HALO_PORT".into()));
        assert_eq!(look(&files, &set, &flag), ("4".into(), "--port".into()));
    }

    #[test]
    fn an_empty_variable_counts_as_unset_and_a_wrong_one_is_an_error_that_names_it() {
        let none = Overrides::default();
        let empty = Environment::from_iter([("HALO_PORT", "")]);
        assert_eq!(port(&resolve(&Files::default(), &empty, &none).unwrap()).1, "default");
        let wrong = Environment::from_iter([("HALO_PORT", "x"), ("HALO_LOG_LEVEL", "loud")]);
        let error = resolve(&Files::default(), &wrong, &none).unwrap_err().to_string();
        assert_eq!(
            error,
            "HALO_PORT: expected a port number from 0 to 65535, found `x` (and 1 more error: see halo config check)"
        );
    }
}
