//! The front matter of a `SKILL.md`: which keys there are, what they may hold, and where a mistake is. Keys that are
//! not known here are for other programs.

use super::{MAX_ID_CHARS, Skill};
use crate::access::AccessLevel;
use crate::agent::files::split_front_matter;
use crate::agent::yaml::{Mistake, mistake};
use serde::de::{self, Deserialize, Deserializer};
use serde_json::Value;

/// Verbs of one skill.
const MAX_VERBS: usize = 50;

/// Lines above the YAML: the `---`.
const LINES_ABOVE: u64 = 1;

/// One thing that can be done with a skill's command.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verb {
    /// Its name, the first word after the command.
    pub name: String,
    /// Whether the program itself does it, so that the skill only tells of it.
    #[serde(default)]
    pub builtin: Option<bool>,
    /// The level that it needs, where that is more than the skill's.
    #[serde(default, rename = "requiresAccess", deserialize_with = "level")]
    pub requires: Option<AccessLevel>,
    /// What help says of it.
    #[serde(default)]
    pub desc: Option<String>,
}

/// What the front matter says.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Front {
    name: String,
    description: String,
    command: Option<String>,
    #[serde(default, rename = "requiresAccess", deserialize_with = "level")]
    requires: Option<AccessLevel>,
    verbs: Option<Vec<Verb>>,
    disable_model_invocation: Option<bool>,
    user_invocable: Option<bool>,
    allowed_tools: Option<Words>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
}

/// A list, or one text with blanks or commas between the items.
#[derive(Debug, serde::Deserialize)]
#[serde(untagged)]
enum Words {
    List(Vec<String>),
    Text(String),
}

impl Front {
    /// Reads the front matter of a `SKILL.md`.
    pub fn read(text: &str) -> Result<Self, Mistake> {
        let Some((yaml, _)) = split_front_matter(text) else {
            return Err(Mistake {
                line: 1,
                column: 1,
                field: None,
                text: "no front matter: the file begins with a line `---`, then `name:` and `description:`, then a \
                       line `---`"
                    .into(),
            });
        };
        let front: Self = crate::yaml::from_str(yaml).map_err(|error| {
            let mistake = mistake(&error, yaml);
            Mistake { line: mistake.line + LINES_ABOVE, ..mistake }
        })?;
        let wrong = |key: &str, text: &str| {
            let at = Mistake::at_key(yaml, key, key, text);
            Mistake { line: at.line + LINES_ABOVE, ..at }
        };
        if front.name.trim().is_empty() {
            return Err(wrong("name", "must not be empty"));
        }
        if front.description.trim().is_empty() {
            return Err(wrong("description", "must not be empty: it says when the skill is of use"));
        }
        if front.command.as_deref().is_some_and(|command| word_of(command).is_none()) {
            return Err(wrong("command", "must be `/` and one word of letters, digits, `_` and `-`"));
        }
        if front.verbs.as_ref().is_some_and(|verbs| verbs.len() > MAX_VERBS) {
            return Err(wrong("verbs", &format!("must be at most {MAX_VERBS}")));
        }
        Ok(front)
    }

    /// Puts what it says into the skill.
    pub fn tell(self, skill: &mut Skill) {
        skill.name = self.name.trim().to_owned();
        if skill.name != skill.id {
            skill
                .warnings
                .push(format!("the name `{}` is not that of the folder, which is the id", skill.name));
        }
        let plain = |c: char| {
            c.is_lowercase() || c.is_numeric() || c == '-' || ('\u{4e00}'..='\u{9fff}').contains(&c)
        };
        if skill.name.chars().count() > MAX_ID_CHARS || !skill.name.chars().all(plain) {
            let text =
                format!("a name has small letters, digits and `-`, and at most {MAX_ID_CHARS} characters");
            skill.warnings.push(text);
        }
        skill.description = self.description.trim().to_owned();
        skill.requires = self.requires.unwrap_or(AccessLevel::ReadOnly);
        skill.command = self.command.as_deref().and_then(word_of);
        skill.verbs = self.verbs.unwrap_or_default();
        for verb in &mut skill.verbs {
            verb.name = verb.name.trim().to_lowercase();
        }
        skill.for_models = !self.disable_model_invocation.unwrap_or_default();
        skill.for_people = self.user_invocable.unwrap_or(true);
        skill.allowed_tools = match self.allowed_tools {
            None => Vec::new(),
            Some(Words::List(items)) => items,
            Some(Words::Text(text)) => {
                let items = text.split([',', ' ']).map(str::trim).filter(|item| !item.is_empty());
                items.map(str::to_owned).collect()
            }
        };
    }
}

/// The word of a command, in small letters and without `/`.
fn word_of(command: &str) -> Option<String> {
    let word = command.trim();
    let word = word.strip_prefix('/').unwrap_or(word);
    let good = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    (!word.is_empty() && word.chars().count() <= MAX_ID_CHARS && word.chars().all(good))
        .then(|| word.to_lowercase())
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<AccessLevel>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    match text.as_str() {
        "readonly" => Ok(Some(AccessLevel::ReadOnly)),
        "workspace" => Ok(Some(AccessLevel::Workspace)),
        "full" => Ok(Some(AccessLevel::Full)),
        other => {
            let expected = "one of full, workspace, readonly";
            Err(de::Error::invalid_value(de::Unexpected::Str(other), &expected))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn file(yaml: &str) -> String {
        format!("---\n{yaml}---\nbody\n")
    }

    #[rstest]
    #[case("name: x\n", (2, 1), None, "description")]
    #[case("description: d\n", (2, 1), None, "name")]
    #[case("name: ' '\ndescription: d\n", (2, 7), Some("name"), "empty")]
    #[case("name: x\ndescription: ''\n", (3, 14), Some("description"), "empty")]
    #[case("name: x\ndescription: d\nrequiresAccess: root\n", (4, 1), Some("requiresAccess"), "full, workspace")]
    #[case("name: x\ndescription: d\ndisable-model-invocation: maybe\n", (4, 27), Some("disable-model-invocation"), "bool")]
    #[case("name: x\ndescription: d\nverbs:\n  - name: a\n    builtin: perhaps\n", (6, 14), Some("verbs.builtin"), "bool")]
    #[case("name: x\ndescription: d\ncommand: /a b\n", (4, 10), Some("command"), "one word")]
    #[case("name: [x]\ndescription: d\n", (2, 7), Some("name"), "")]
    fn a_mistake_has_its_place_in_the_file_and_its_field(
        #[case] yaml: &str,
        #[case] place: (u64, u64),
        #[case] field: Option<&str>,
        #[case] text: &str,
    ) {
        let mistake = Front::read(&file(yaml)).unwrap_err();
        assert_eq!((mistake.line, mistake.field.as_deref()), (place.0, field), "{mistake:?}");
        assert!(mistake.text.contains(text), "{mistake:?}");
    }

    #[test]
    fn without_front_matter_there_is_no_skill() {
        for text in ["", "plain", "---\nname: x\n", "\n---\nname: x\ndescription: d\n---\n"] {
            assert!(Front::read(text).unwrap_err().text.contains("front matter"), "{text}");
        }
    }

    #[rstest]
    #[case("/Review", Some("review"))]
    #[case("review", Some("review"))]
    #[case("/评审", Some("评审"))]
    #[case("/", None)]
    #[case("//x", None)]
    fn a_command_is_one_word(#[case] command: &str, #[case] word: Option<&str>) {
        assert_eq!(word_of(command).as_deref(), word);
    }
}
