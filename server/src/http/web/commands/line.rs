//! A line that begins with `/`, taken apart.

use crate::config::aliases::Table;

/// A command taken apart, aliases filled in. Object and verb are in small letters: phones begin with a large one.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// The first word as it was typed.
    pub typed: String,
    /// What is managed, without `/`.
    pub object: String,
    /// May be empty.
    pub verb: String,
    /// What follows the verb, as typed.
    pub rest: String,
    /// What follows the first word, as typed.
    pub args: String,
}

impl Line {
    /// Takes a message apart.
    pub fn read(message: &str, aliases: &Table) -> Self {
        let message = message.trim_end();
        let (typed, rest) = first_word(message);
        let word = typed.strip_prefix('/').unwrap_or(typed).to_lowercase();
        // An alias may bring its verb with it, and more.
        let expanded = aliases.top(&word).map_or_else(|| word.clone(), str::to_owned);
        let full = format!("{expanded} {rest}");
        let (object, rest) = first_word(&full);
        let args = rest.trim_end().to_owned();
        let (verb, rest) = first_word(rest);
        let verb = verb.to_lowercase();
        Self {
            typed: typed.to_owned(),
            object: object.to_owned(),
            verb: aliases.verb(&verb).map_or(verb.clone(), str::to_owned),
            rest: rest.to_owned(),
            args,
        }
    }
}

/// The first word, and what follows the blanks after it.
pub fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::aliases::{self, Aliases};
    use crate::config::{Environment, Home};
    use rstest::rstest;
    use std::sync::Arc;

    fn seeded() -> Arc<Table> {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(folder.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        aliases::seed(&home).unwrap();
        Aliases::of(&home).current()
    }

    #[rstest]
    #[case("/help", "help", "", "")]
    #[case("/session list", "session", "list", "")]
    #[case("/Session  LIST \n", "session", "list", "")]
    #[case("/ss 2", "session", "switch", "2")]
    #[case("/s sw 2", "session", "switch", "2")]
    #[case("/session sw  2", "session", "switch", "2")]
    #[case("/new", "session", "new", "")]
    #[case("/w", "workspace", "", "")]
    #[case("/ws /a  b/C ", "workspace", "switch", "/a  b/C")]
    #[case("/sw 2", "sw", "2", "")]
    #[case("/usr/bin/foo does not work", "usr/bin/foo", "does", "not work")]
    #[case("/", "", "", "")]
    #[case("//help", "/help", "", "")]
    fn a_line_is_taken_apart_with_aliases_in_two_stages(
        #[case] message: &str,
        #[case] object: &str,
        #[case] verb: &str,
        #[case] rest: &str,
    ) {
        let line = Line::read(message, &seeded());
        assert!(line.args.ends_with(rest));
        assert_eq!((&*line.object, &*line.verb, &*line.rest), (object, verb, rest));
    }

    #[test]
    fn an_alias_may_bring_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(folder.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        std::fs::write(home.global().join("aliases.yaml"), "top:\n  /go: /agent switch poet\n").unwrap();
        let table = Aliases::of(&home).current();
        for (message, rest) in [("/go", "poet"), ("/go now", "poet now")] {
            let line = Line::read(message, &table);
            assert_eq!((&*line.object, &*line.verb, line.rest.trim_end()), ("agent", "switch", rest));
        }
    }
}
