//! `USER.md`: who the user is, how they call the agent, and what else they want it to know.

use super::files::split_front_matter;
use super::prompt::text_of;
use crate::workspace::paths::Guard;
use serde::Deserialize;
use std::path::Path;

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct User {
    /// What the user is called.
    #[serde(rename = "user_name")]
    pub name: Option<String>,
    /// What the user calls the agent.
    pub ai_name: Option<String>,
    /// The language to answer in.
    pub lang: Option<String>,
    /// The text below the front matter.
    #[serde(skip)]
    pub text: String,
}

impl User {
    /// The file of the workspace, else of the home; none where neither has any text. Blocks on two small files.
    pub fn read(workspace: &Path, home_global: &Path, guard: &Guard) -> Option<Self> {
        let files = [workspace.join(".halo/USER.md"), home_global.join("USER.md")];
        files.iter().find_map(|file| text_of(file, guard)).map(|text| Self::of(&text))
    }

    /// What is no front matter, or no YAML that we know, belongs to the text.
    fn of(text: &str) -> Self {
        let found = split_front_matter(text)
            .and_then(|(yaml, body)| crate::yaml::from_str::<Self>(yaml).ok().map(|user| (user, body)));
        let (user, body) = found.unwrap_or_else(|| (Self::default(), text));
        Self { text: body.to_owned(), ..user }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_that_is_none_stays_text() {
        for text in ["plain", "---\nno end", "---\n[broken\n---\nbody", "--- x\n"] {
            assert_eq!(User::of(text), User { text: text.into(), ..User::default() });
        }
        let user = User::of("---\r\nai_name: Hal\r\nother: 1\r\n---\r\nbody");
        assert_eq!((user.ai_name.as_deref(), &*user.text), (Some("Hal"), "body"));
    }
}
