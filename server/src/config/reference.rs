//! The table of settings as text: `config.example.yaml`, and the tables of `docs/configuration.md`. Tests
//! compare both files with this; `UPDATE_REFERENCE=1 cargo test -p halo-server reference` writes them anew.

use super::table::{Reload, SETTINGS, Setting, Source, UNUSED};
use super::value::Kind;
use std::fmt::Write;

/// The text of `config.example.yaml`: every setting at its default, with one line of why.
pub fn example() -> String {
    let mut text = String::from(
        "# Every setting that halo honours, with its default. Nothing here is needed: halo runs without any.\n\
         # `halo config check FILE` checks a file, `halo config show` tells what counts and where it comes from.\n",
    );
    for source in [Source::Config, Source::Settings] {
        let title = match source {
            Source::Config => "~/.halo/secrets/config.yaml: what the server itself needs",
            _ => "~/.halo/secrets/settings.yaml: how it behaves",
        };
        let _ = write!(text, "\n# ---- {title}\n");
        let mut open: Vec<&str> = Vec::new();
        for setting in SETTINGS.iter().filter(|setting| setting.source == source) {
            let mut path: Vec<&str> = setting.key.split('.').collect();
            let leaf = path.pop().unwrap_or_default();
            let common = open.iter().zip(&path).take_while(|(a, b)| a == b).count();
            for (depth, section) in path.iter().enumerate().skip(common) {
                let _ = writeln!(text, "{}{section}:", "  ".repeat(depth));
            }
            let indent = "  ".repeat(path.len());
            let _ = writeln!(text, "{indent}# {}", setting.why);
            let _ = writeln!(text, "{indent}#   {}", facts(setting));
            let _ = writeln!(text, "{indent}{leaf}: {}", yaml_default(setting));
            open = path;
        }
    }
    text.push_str(
        "\n# Keys of model providers and parameters of skills, by id. <<NAME>> is that environment variable.\n\
         # anthropic:\n#   secrets:\n#     api_key: <<ANTHROPIC_API_KEY>>\n\
         \n# ---- environment alone\n",
    );
    for setting in SETTINGS.iter().filter(|setting| setting.source == Source::Environment) {
        let default = if setting.default.is_empty() { "none" } else { setting.default };
        let _ = writeln!(text, "# {} (default {default}): {}", setting.key, setting.why);
    }
    text
}

fn facts(setting: &Setting) -> String {
    let mut facts = setting.kind.expected();
    if let Some(env) = setting.env {
        let _ = write!(facts, "; {env}");
    }
    if let Some(flag) = setting.flag {
        let _ = write!(facts, "; {flag}");
    }
    if setting.reload == Reload::Restart {
        facts.push_str("; a change needs a restart");
    }
    facts
}

fn yaml_default(setting: &Setting) -> String {
    match setting.kind {
        Kind::Text | Kind::Secret | Kind::Origins | Kind::AllowList | Kind::Paths => {
            format!("\"{}\"", setting.default)
        }
        _ => setting.default.to_owned(),
    }
}

/// The tables of `docs/configuration.md`, as Markdown.
pub fn tables() -> String {
    let mut text = String::new();
    for source in [Source::Config, Source::Settings, Source::Environment] {
        let title = match source {
            Source::Config => "`secrets/config.yaml`",
            Source::Settings => "`secrets/settings.yaml`",
            Source::Environment => "Environment alone",
        };
        let _ = write!(
            text,
            "### {title}\n\n| Key | Type | Default | Variable | Flag | Change counts | Why |\n|---|---|---|---|---|---|---|\n"
        );
        for setting in SETTINGS.iter().filter(|setting| setting.source == source) {
            let code = |text: Option<&str>| {
                text.filter(|t| !t.is_empty()).map_or("–".into(), |t| format!("`{t}`"))
            };
            let reload = match setting.reload {
                Reload::Live => "at once",
                Reload::Restart => "after a restart",
            };
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {reload} | {} |",
                setting.key,
                setting.kind.expected(),
                code(Some(setting.default)),
                code(setting.env),
                code(setting.flag),
                setting.why
            );
        }
        text.push('\n');
    }
    text.push_str("### Known, without effect in this version\n\n");
    for unused in UNUSED {
        let _ = writeln!(text, "- `{}` ({})", unused.key, unused.source.file());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::environment::Environment;
    use crate::config::settings::{FileKind, read_file};
    use crate::config::value::Value;
    use std::path::{Path, PathBuf};

    const BEGIN: &str = "<!-- settings: begin -->\n";
    const END: &str = "<!-- settings: end -->";

    fn repo(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join(name)
    }

    fn compare(name: &str, expected: &str) {
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(repo(name), expected).unwrap();
        }
        let found = std::fs::read_to_string(repo(name)).unwrap();
        assert!(
            found == expected,
            "{name} differs from the table; write it anew with UPDATE_REFERENCE=1 cargo test -p halo-server reference"
        );
    }

    #[test]
    fn the_example_file_lists_every_setting_with_its_default() {
        compare("config.example.yaml", &example());
    }

    #[test]
    fn the_documentation_lists_every_setting() {
        let page = std::fs::read_to_string(repo("docs/configuration.md")).unwrap();
        let (before, rest) = page.split_once(BEGIN).unwrap();
        let (_, after) = rest.split_once(END).unwrap();
        compare("docs/configuration.md", &format!("{before}{BEGIN}{}{END}{after}", tables()));
    }

    #[test]
    fn the_example_file_is_valid_and_gives_the_defaults() {
        let content = read_file(&repo("config.example.yaml"), FileKind::Mixed, &Environment::default());
        assert_eq!(content.problems, []);
        for given in &content.given {
            let setting = &SETTINGS[given.index];
            assert_eq!(given.value, setting.kind.parse(setting.default).unwrap(), "{}", setting.key);
        }
        let in_files: Vec<&Setting> = SETTINGS.iter().filter(|s| s.source != Source::Environment).collect();
        let set = in_files.iter().filter(|s| s.kind.parse(s.default) != Ok(Value::Unset)).count();
        assert_eq!(content.given.len(), set);
    }
}
