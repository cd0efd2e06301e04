//! What there is to say about commands themselves. Nobody is shown a verb that its level may not use.

use super::table::{self, OBJECTS, Object};
use super::{one_line, texts};
use crate::access::AccessLevel;
use crate::agent::skill::{Skill, Verb};
use crate::store::accounts::Language;
use crate::text::head_chars;
use std::fmt::Write as _;

/// The longest unknown command that is repeated, in characters.
const SHOWN_CHARS: usize = 60;
/// The longest description of a skill, in characters.
const ABOUT_CHARS: usize = 100;

/// `/help`; `skills` are those with a command, `verbs` those with verbs of an object.
pub fn all(language: Language, access: AccessLevel, skills: &[Skill], verbs: &[Skill]) -> String {
    let mut rows = vec![("/help".to_owned(), texts::help_about(language))];
    for object in &OBJECTS {
        let own = object.verbs_for(access).map(|verb| verb.name);
        let names: Vec<&str> =
            own.chain(of_skill(verbs, object.name, access).map(|verb| &*verb.name)).collect();
        if !names.is_empty() {
            let about = format!("{} ({})", object.about(language), names.join("/"));
            rows.push((format!("/{} <verb>", object.name), about));
        }
    }
    for skill in skills {
        let Some(command) = &skill.command else { continue };
        let names: Vec<&str> = usable(skill, access).map(|verb| &*verb.name).collect();
        let about = one_line(&skill.description, ABOUT_CHARS);
        rows.push(if names.is_empty() {
            (format!("/{command}"), about)
        } else {
            (format!("/{command} <verb>"), format!("{about} ({})", names.join("/")))
        });
    }
    rows.sort();
    format!("{}{}\n\n{}", texts::help_head(language), columns(&rows), texts::help_escape(language))
}

/// `/<object>` and `/<object> help`.
pub fn of(object: &Object, language: Language, access: AccessLevel, verbs: &[Skill]) -> String {
    let own = object.verbs_for(access).map(|verb| {
        let usage = format!("/{} {} {}", object.name, verb.name, verb.takes);
        (usage.trim_end().to_owned(), verb.about(language).to_owned())
    });
    let more = of_skill(verbs, object.name, access).map(|verb| row(object.name, verb));
    let rows: Vec<(String, String)> = own.chain(more).collect();
    format!("{}{}", texts::object_head(language, object.name), columns(&rows))
}

/// `/<command>` of a skill that has verbs.
pub fn of_command(command: &str, skill: &Skill, language: Language, access: AccessLevel) -> String {
    let rows: Vec<(String, String)> = usable(skill, access).map(|verb| row(command, verb)).collect();
    let about = one_line(&skill.description, ABOUT_CHARS);
    format!("{about}\n{}{}", texts::object_head(language, command), columns(&rows))
}

fn row(command: &str, verb: &Verb) -> (String, String) {
    let about = verb.desc.as_deref().map(|about| one_line(about, ABOUT_CHARS)).unwrap_or_default();
    (format!("/{command} {}", verb.name), about)
}

/// The verbs that the skill of an object's name adds to it.
fn of_skill<'a>(verbs: &'a [Skill], object: &str, access: AccessLevel) -> impl Iterator<Item = &'a Verb> {
    let skill = verbs.iter().find(|skill| skill.id == object);
    let known = table::object(object);
    let new = move |verb: &&Verb| known.is_none_or(|object| object.verb(&verb.name).is_none());
    skill.into_iter().flat_map(move |skill| usable(skill, access)).filter(new)
}

fn usable(skill: &Skill, access: AccessLevel) -> impl Iterator<Item = &Verb> {
    skill.verbs.iter().filter(move |verb| verb.requires.is_none_or(|needs| needs <= access))
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
    use super::*;

    #[test]
    fn help_shows_what_the_level_may_use_and_nothing_else() {
        let full = all(Language::En, AccessLevel::Full, &[], &[]);
        assert!(
            full.contains("(info/switch)") && full.contains("(list/desc/enable/disable/delete)"),
            "{full}"
        );
        let workspace = all(Language::En, AccessLevel::Workspace, &[], &[]);
        assert!(workspace.contains("(info)") && workspace.contains("(list/desc/enable/disable)"));
        let readonly = all(Language::En, AccessLevel::ReadOnly, &[], &[]);
        assert!(readonly.contains("(info)") && readonly.contains("(list/desc)"), "{readonly}");
        for object in &OBJECTS {
            let lines = of(object, Language::En, AccessLevel::ReadOnly, &[]);
            for verb in object.verbs {
                let listed = lines.contains(&format!("/{} {}", object.name, verb.name));
                assert_eq!(listed, verb.needs == AccessLevel::ReadOnly, "{lines}");
            }
        }
    }

    #[test]
    fn help_speaks_the_language_of_the_account() {
        let text = all(Language::Zh, AccessLevel::Full, &[], &[]);
        assert!(text.starts_with("可用命令") && text.contains("/session <verb>") && text.contains("会话"));
        let session = of(table::object("session").unwrap(), Language::Zh, AccessLevel::ReadOnly, &[]);
        assert!(session.contains("/session switch <number>") && session.contains("开启新会话"), "{session}");
    }

    #[test]
    fn a_long_unknown_command_is_repeated_in_part() {
        let text = unknown(Language::En, &format!("/{}", "ä".repeat(100)));
        assert!(text.starts_with(&format!("Unknown command: /{}…\n", "ä".repeat(59))), "{text}");
        assert!(unknown(Language::En, "/x").starts_with("Unknown command: /x\n"));
    }
}
