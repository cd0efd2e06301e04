//! The files of the home: `secrets/config.yaml` and `secrets/settings.yaml`, read into values and findings.
//! Says nothing of precedence; that is [`super::resolve`].

use super::environment::Environment;
use super::file::{self, Given, Reader};
use super::home::Home;
use super::problem::{Problem, Severity, Unusable};
use super::sections::{self, Sections};
use super::table::Source;
use super::yaml::Content;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

/// What one file says.
#[derive(Debug, Default)]
pub struct FileContent {
    /// The file.
    pub path: PathBuf,
    /// Whether it exists.
    pub exists: bool,
    /// Changes when the text does.
    pub fingerprint: u64,
    /// The settings that it gives.
    pub given: Vec<Given>,
    /// Params and secrets of providers and skills.
    pub sections: Sections,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// `secrets/config.yaml`.
    Config,
    /// `secrets/settings.yaml`.
    Settings,
    /// `<ws>/.halo/settings.yaml`.
    Workspace,
    /// A file that holds settings of both kinds, as `config.example.yaml`.
    Mixed,
}

impl FileKind {
    /// The kind that a path's name tells.
    pub fn of(path: &Path) -> Self {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let parent =
            path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).unwrap_or_default();
        match (name, parent) {
            ("config.yaml" | "config.yml", _) => Self::Config,
            ("settings.yaml" | "settings.yml", ".halo") => Self::Workspace,
            ("settings.yaml" | "settings.yml", _) => Self::Settings,
            _ => Self::Mixed,
        }
    }
}

/// Reads one file. A missing file gives nothing.
pub fn read_file(path: &Path, kind: FileKind, environment: &Environment) -> FileContent {
    let mut content = FileContent { path: path.to_owned(), ..FileContent::default() };
    match file::read(path) {
        Ok(None) => {}
        Ok(Some(text)) => {
            content.exists = true;
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            content.fingerprint = hasher.finish();
            read_text(&text, kind, environment, &mut content);
        }
        Err(problem) => {
            content.exists = true;
            content.problems.push(problem);
        }
    }
    content
}

fn read_text(text: &str, kind: FileKind, environment: &Environment, content: &mut FileContent) {
    let path = content.path.clone();
    let tree = match file::parse(text, &path) {
        Ok(tree) => tree,
        Err(problem) => return content.problems.push(problem),
    };
    if kind == FileKind::Workspace {
        (content.sections, content.problems) = sections::read_workspace(&path, &tree, environment);
        return;
    }
    let source = match kind {
        FileKind::Config => Some(Source::Config),
        FileKind::Settings => Some(Source::Settings),
        _ => None,
    };
    let placeholders = (kind != FileKind::Config).then_some(environment);
    let mut reader = Reader::new(&path, source, placeholders);
    match &tree.content {
        Content::Map(entries) if kind != FileKind::Config => {
            for entry in entries {
                let is_config = matches!(entry.key.as_str(), "server" | "timeout" | "logging");
                if entry.key == "general" || is_config {
                    reader.entry("", entry);
                } else {
                    content.sections.read(entry, &mut reader);
                }
            }
        }
        _ => reader.root(&tree),
    }
    content.given = reader.given;
    content.problems = reader.problems;
}

/// Both files of a home.
#[derive(Debug, Default)]
pub struct Files {
    /// `secrets/config.yaml`.
    pub config: FileContent,
    /// `secrets/settings.yaml`.
    pub settings: FileContent,
}

impl Files {
    /// Reads both.
    pub fn read(home: &Home, environment: &Environment) -> Self {
        Self {
            config: read_file(&home.config_yaml(), FileKind::Config, environment),
            settings: read_file(&home.settings_yaml(), FileKind::Settings, environment),
        }
    }

    /// Every finding.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.config.problems.iter().chain(&self.settings.problems)
    }

    /// The error of files that cannot be used.
    pub fn check(&self) -> Result<(), Unusable> {
        if self.problems().any(|problem| problem.severity == Severity::Error) {
            return Err(Unusable(self.problems().cloned().collect()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::SETTINGS;
    use rstest::rstest;
    use secrecy::ExposeSecret;

    fn read(kind: FileKind, text: &str) -> FileContent {
        let name = if kind == FileKind::Config { "/h/config.yaml" } else { "/h/settings.yaml" };
        let environment = Environment::from_iter([("KEY", "sk-1"), ("MANY", "77")]);
        let mut content = FileContent { path: name.into(), ..FileContent::default() };
        read_text(text, kind, &environment, &mut content);
        content
    }

    fn problems(kind: FileKind, text: &str) -> Vec<String> {
        read(kind, text).problems.iter().map(|p| format!("{:?} {p}", p.severity)).collect()
    }

    fn given(kind: FileKind, text: &str) -> Vec<(&'static str, String)> {
        let content = read(kind, text);
        assert_eq!(content.problems, []);
        content.given.iter().map(|given| (SETTINGS[given.index].key, given.value.to_string())).collect()
    }

    #[rstest]
    #[case(
        "server:\n  port: 95x\n",
        "/h/config.yaml:2:9: `server.port`: expected a port number from 0 to 65535, found `95x`"
    )]
    #[case(
        "server:\n  port:\n    value: yes\n",
        "/h/config.yaml:3:12: `server.port`: expected a port number from 0 to 65535, found `yes`"
    )]
    #[case(
        "server:\n  port: [1]\n",
        "/h/config.yaml:2:9: `server.port`: expected a port number from 0 to 65535, found a list"
    )]
    #[case(
        "server: 9527\n",
        "/h/config.yaml:1:9: `server`: expected a section with keys, found a single value"
    )]
    #[case("- server\n", "/h/config.yaml:1:1: expected sections such as `server:`, found a list")]
    #[case("server:\n  port: 1\n  port: 2\n", "/h/config.yaml:3:3: the key `port` is here a second time")]
    #[case("server:\n  password: {a: [b}\n", "/h/config.yaml:2:17: ")]
    #[case(
        "server:\n  password: [hunter2]\n",
        "/h/config.yaml:2:13: `server.password`: expected text, found a list"
    )]
    #[case(
        "timeout:\n  shell_exec: 0\n",
        "/h/config.yaml:2:15: `timeout.shell_exec`: expected milliseconds, a whole number from 1 to 86400000, found `0`"
    )]
    fn an_error_names_file_line_column_and_what_is_allowed(#[case] text: &str, #[case] error: &str) {
        let found = problems(FileKind::Config, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("Error {error}")), "{found:?}");
        assert!(!found[0].contains("hunter2"), "{found:?}");
    }

    #[rstest]
    #[case(
        "server:\n  prot: 1\n",
        "Warning /h/config.yaml:2:3: unknown key `server.prot`; did you mean `server.port`?"
    )]
    #[case(
        "xyzzy: 1\n",
        "Warning /h/config.yaml:1:1: unknown key `xyzzy`; `halo config show` lists the known keys"
    )]
    #[case(
        "general:\n  agent:\n    max_retries: 1\n",
        "Warning /h/config.yaml:3:5: `general.agent.max_retries` has no effect here; it belongs in secrets/settings.yaml"
    )]
    #[case(
        "server:\n  port: {value: 1, valeu: 2}\n",
        "Warning /h/config.yaml:2:20: unknown key `server.port.valeu`; the value is read from `value`"
    )]
    #[case(
        "server:\n  password: hunter2\n",
        "Warning /h/config.yaml:2:13: `server.password` is not a stored hash, so no password fits it; set one with `halo password`"
    )]
    #[case(
        "timeout:\n  session_grace: 1\n",
        "Note /h/config.yaml:2:3: `timeout.session_grace` is known and has no effect in this version"
    )]
    fn what_has_no_effect_is_never_silent(#[case] text: &str, #[case] problem: &str) {
        assert_eq!(problems(FileKind::Config, text), [problem]);
    }

    #[rstest]
    #[case(
        "generall:\n  agent:\n    max_retries: 1\n",
        "Warning /h/settings.yaml:2:3: unknown key `generall.agent`; did you mean `general.agent.max_retries`?"
    )]
    #[case(
        "anthropic:\n  secret:\n    api_key: x\n",
        "Warning /h/settings.yaml:2:3: unknown key `anthropic.secret`; did you mean `anthropic.secrets`?"
    )]
    #[case(
        "anthropic: sk-1\n",
        "Error /h/settings.yaml:1:12: `anthropic`: expected `params` and `secrets`, found a single value"
    )]
    #[case(
        "anthropic:\n  secrets:\n    api_key: [sk-1]\n",
        "Error /h/settings.yaml:3:14: `anthropic.secrets.api_key`: expected text, found a list"
    )]
    #[case(
        "a:\n  secrets:\n    k: <<GONE>>\n",
        "Warning /h/settings.yaml:3:8: the environment variable GONE is not set, so `<<GONE>>` stays as it is"
    )]
    #[case(
        "server:\n  port: 1\n",
        "Warning /h/settings.yaml:2:3: `server.port` has no effect here; it belongs in secrets/config.yaml"
    )]
    fn settings_are_checked_in_the_same_way(#[case] text: &str, #[case] problem: &str) {
        assert_eq!(problems(FileKind::Settings, text), [problem]);
    }

    #[test]
    fn leaves_are_plain_values_or_mappings_with_a_value() {
        let text =
            "server:\n  port: {value: 1, default: 9527, description: d, description_zh: z}\n  host: ::1\n";
        assert_eq!(
            given(FileKind::Config, text),
            [("server.port", "1".into()), ("server.host", "::1".into())]
        );
        assert_eq!(given(FileKind::Config, "server:\n  port: {default: 1}\n  host:\ntimeout:\n"), []);
        assert_eq!(given(FileKind::Config, ""), []);
    }

    #[test]
    fn lists_are_yaml_lists_or_text_with_commas() {
        for text in ["[/a, ~/b]", "/a, ~/b", "\"/a,~/b\""] {
            let text = format!("general:\n  sandbox:\n    hidden_dirs: {text}\n");
            assert_eq!(given(FileKind::Settings, &text), [("general.sandbox.hidden_dirs", "/a,~/b".into())]);
        }
    }

    #[test]
    fn placeholders_count_in_settings() {
        let text = "general:\n  limits:\n    grep_default_matches: <<MANY>>\nopenai:\n  secrets:\n    api_key: <<KEY>>\n    \
                    empty: ''\n  params:\n    url: http://x/<<KEY>>\n    zeros: 007\n";
        assert_eq!(given(FileKind::Settings, text), [("general.limits.grep_default_matches", "77".into())]);
        let sections = read(FileKind::Settings, text).sections;
        assert_eq!(sections.secret("openai", "api_key").unwrap().expose_secret(), "sk-1");
        assert!(sections.secret("openai", "empty").is_none());
        assert_eq!(sections.param("openai", "url").as_deref(), Some("http://x/sk-1"));
        assert_eq!(sections.param("openai", "zeros").as_deref(), Some("007"));
    }

    #[test]
    fn an_unset_placeholder_stays_literal() {
        let sections = read(FileKind::Settings, "a:\n  secrets:\n    k: <<GONE>>\n").sections;
        assert_eq!(sections.secret("a", "k").unwrap().expose_secret(), "<<GONE>>");
    }

    #[test]
    fn general_settings_of_a_workspace_are_refused_with_the_reason() {
        let text = "general:\n  agent:\n    max_retries: 1\na:\n  secrets:\n    k: v\n";
        let found = problems(FileKind::Workspace, text);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("Warning /h/settings.yaml:1:1: `general` has no effect in a workspace"),
            "{found:?}"
        );
        assert!(read(FileKind::Workspace, text).sections.secret("a", "k").is_some());
    }

    #[test]
    fn a_file_that_is_not_text_is_refused_with_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, b"server:\n  host: \xff\n").unwrap();
        let content = read_file(&path, FileKind::Config, &Environment::default());
        assert!(content.problems[0].to_string().ends_with("config.yaml:2:9: not UTF-8 text"));
    }
}
