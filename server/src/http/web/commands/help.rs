//! What there is to say about commands themselves. Nobody is shown a verb that its level may not use.

use super::table::{OBJECTS, Object};
use super::texts;
use crate::access::AccessLevel;
use crate::store::accounts::Language;
use crate::text::head_chars;
use std::fmt::Write as _;

/// The longest unknown command that is repeated, in characters.
const SHOWN_CHARS: usize = 60;

/// `/help`.
pub fn all(language: Language, access: AccessLevel) -> String {
    let mut rows = vec![("/help".to_owned(), texts::help_about(language))];
    for object in &OBJECTS {
        let verbs: Vec<&str> = object.verbs_for(access).map(|verb| verb.name).collect();
        if !verbs.is_empty() {
            let about = format!("{} ({})", object.about(language), verbs.join("/"));
            rows.push((format!("/{} <verb>", object.name), about));
        }
    }
    rows.sort();
    format!("{}{}\n\n{}", texts::help_head(language), columns(&rows), texts::help_escape(language))
}

/// `/<object>` and `/<object> help`.
pub fn of(object: &Object, language: Language, access: AccessLevel) -> String {
    let rows: Vec<(String, String)> = object
        .verbs_for(access)
        .map(|verb| {
            let usage = format!("/{} {} {}", object.name, verb.name, verb.takes);
            (usage.trim_end().to_owned(), verb.about(language).to_owned())
        })
        .collect();
    format!("{}{}", texts::object_head(language, object.name), columns(&rows))
}

/// For what is no command.
pub fn unknown(language: Language, command: &str) -> String {
    let shown = head_chars(command, SHOWN_CHARS);
    let cut = if shown.len() < command.len() { "…" } else { "" };
    format!("{}\n{}", texts::unknown(language, shown, cut), texts::help_escape(language))
}

/// One line a row, the second column aligned.
fn columns(rows: &[(String, String)]) -> String {
    let width = rows.iter().map(|(left, _)| left.chars().count()).max().unwrap_or_default();
    rows.iter().fold(String::new(), |mut text, (left, right)| {
        let _ = write!(text, "\n  {left:width$}  {right}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::super::table;
    use super::*;

    #[test]
    fn help_shows_what_the_level_may_use_and_nothing_else() {
        let full = all(Language::En, AccessLevel::Full);
        assert!(full.contains("(info/switch)") && full.contains("(list/desc/enable/disable)"), "{full}");
        let workspace = all(Language::En, AccessLevel::Workspace);
        assert!(workspace.contains("(info)") && workspace.contains("(list/desc/enable/disable)"));
        let readonly = all(Language::En, AccessLevel::ReadOnly);
        assert!(readonly.contains("(info)") && readonly.contains("(list/desc)"), "{readonly}");
        for object in &OBJECTS {
            let lines = of(object, Language::En, AccessLevel::ReadOnly);
            for verb in object.verbs {
                let listed = lines.contains(&format!("/{} {}", object.name, verb.name));
                assert_eq!(listed, verb.needs == AccessLevel::ReadOnly, "{lines}");
            }
        }
    }

    #[test]
    fn help_speaks_the_language_of_the_account() {
        let text = all(Language::Zh, AccessLevel::Full);
        assert!(text.starts_with("可用命令") && text.contains("/session <verb>") && text.contains("会话"));
        let session = of(table::object("session").unwrap(), Language::Zh, AccessLevel::ReadOnly);
        assert!(session.contains("/session switch <number>") && session.contains("开启新会话"), "{session}");
    }

    #[test]
    fn a_long_unknown_command_is_repeated_in_part() {
        let text = unknown(Language::En, &format!("/{}", "ä".repeat(100)));
        assert!(text.starts_with(&format!("Unknown command: /{}…\n", "ä".repeat(59))), "{text}");
        assert!(unknown(Language::En, "/x").starts_with("Unknown command: /x\n"));
    }
}
