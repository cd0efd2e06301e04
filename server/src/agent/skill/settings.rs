//! `config.yaml` beside a `SKILL.md`, and `agent-config.yaml` beside the `agent.yaml` of a global agent: which params
//! and secrets there are to set. A `default` is a hint for people and never a value.

use crate::agent::files::read_text;
use serde::Deserialize;
use std::path::Path;

/// Entries that are looked at.
const MAX_ENTRIES: usize = 200;

/// What a file declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Declared {
    /// What may stand in texts and commands.
    #[serde(default)]
    pub params: Option<Vec<Entry>>,
    /// What no agent sees.
    #[serde(default)]
    pub secrets: Option<Vec<Entry>>,
}

/// One thing to set.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Entry {
    /// Its key below `<id>.params` or `<id>.secrets`.
    pub key: String,
    /// What it is for.
    #[serde(default)]
    pub description: Option<String>,
    /// Whether nobody is to read it in what commands print.
    #[serde(default)]
    pub secret: Option<bool>,
}

impl Declared {
    /// What the file declares; nothing where there is none. The error says what is wrong with it.
    pub fn read(file: &Path) -> Result<Self, String> {
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
        let Some(text) = read_text(file).map_err(|error| failed(&error))? else { return Ok(Self::default()) };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut declared: Self = crate::yaml::from_str(&text)
            .map_err(|error| crate::agent::yaml::mistake(&error, &text).at(file))?;
        for entries in [&mut declared.params, &mut declared.secrets].into_iter().flatten() {
            entries.truncate(MAX_ENTRIES);
        }
        Ok(declared)
    }
}

/// Whether a skill or an agent of this id declares the param as secret. With a file that cannot be read every param
/// is: better one masked too many.
pub fn is_secret(home_global: &Path, workspace: &Path, id: &str, key: &str) -> bool {
    if !super::is_skill_id(id) {
        return false;
    }
    let own = workspace.join(".halo/skills").join(id);
    let global = home_global.join("skills").join(id);
    let skill = if own.is_dir() { own } else { global };
    let files = [skill.join("config.yaml"), home_global.join("agents").join(id).join("agent-config.yaml")];
    files.into_iter().any(|file| match Declared::read(&file) {
        Ok(declared) => {
            let mut params = declared.params.into_iter().flatten();
            params.any(|entry| entry.key == key && entry.secret == Some(true))
        }
        Err(why) => {
            tracing::warn!("{why}; every param of `{id}` counts as secret");
            true
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_param_is_secret_where_the_skill_or_the_agent_says_so_and_where_nobody_can_tell() {
        let folder = tempfile::tempdir().unwrap();
        let (home, workspace) = (folder.path().join("global"), folder.path().join("ws"));
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let params = "displayName_zh: x\nparams:\n  - { key: pin, type: string, default: 1, secret: true }\n  - key: who\n";
        write("global/skills/s/config.yaml", params);
        write("global/agents/a/agent-config.yaml", "params: [{ key: pin, secret: true }]\nsecrets:\n");
        let secret = |id: &str, key: &str| is_secret(&home, &workspace, id, key);
        assert!(secret("s", "pin") && secret("a", "pin"));
        assert!(!secret("s", "who") && !secret("none", "pin") && !secret("../skills/s", "pin"));
        write("ws/.halo/skills/s/config.yaml", "params: [{ key: who, secret: true }]\n");
        assert!(!secret("s", "pin") && secret("s", "who"));
        write("ws/.halo/skills/s/config.yaml", "params: {\n");
        assert!(secret("s", "pin") && secret("s", "who"));
        let error = Declared::read(&workspace.join(".halo/skills/s/config.yaml")).unwrap_err();
        assert!(error.contains("config.yaml:"), "{error}");
    }
}
