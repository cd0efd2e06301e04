//! `@scope <folder>` in a message: the instructions of that folder go to the model with this one message. The marker
//! is taken out of what the model reads; people see the message as it was typed. A folder that cannot be used is
//! dropped with a notice.

use super::workspace::Workspace;
use crate::access::AccessLevel;
use crate::agent::prompt::escaped;

/// What begins a marker.
const MARKER: &str = "@scope";
/// Markers of one message that count.
const MAX_MARKERS: usize = 8;
/// What the model reads about such a block.
const NOTE: &str = "The user points to this folder. These are its instructions and those of the folders above it; they hold \
                    for this message.";

/// What becomes of a message with markers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Scope {
    /// What the model reads, where that is not what was typed.
    pub for_model: Option<String>,
    /// For people: what was not done.
    pub notices: Vec<String>,
}

/// A marker in a text.
#[derive(Debug, PartialEq, Eq)]
struct Marker<'a> {
    folder: &'a str,
    /// The bytes that it takes, with the blanks after it.
    from: usize,
    to: usize,
    /// Whether nothing but blanks stands before it on its line.
    begins_line: bool,
}

impl Scope {
    /// Looks for markers, and for the instructions that they name.
    pub async fn of(workspace: &Workspace, text: &str, access: AccessLevel) -> Self {
        if !text.contains(MARKER) || markers(text).is_empty() {
            return Self::default();
        }
        let (workspace, typed) = (workspace.clone(), text.to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let agents = &workspace.shared().agents;
            resolve(&typed, |folder| agents.instructions(workspace.path(), folder, access))
        });
        looked.await.unwrap_or_default()
    }
}

fn resolve(text: &str, instructions: impl Fn(&str) -> Result<(String, String), String>) -> Scope {
    let mut scope = Scope::default();
    let (mut blocks, mut rest, mut end) = (String::new(), String::new(), 0);
    for Marker { folder, from, to, begins_line } in markers(text) {
        match instructions(folder) {
            Ok((shown, told)) => {
                blocks.push_str("<workspace-instructions dir=\"");
                blocks.push_str(&escaped(&shown));
                blocks.push_str("\" note=\"");
                blocks.push_str(NOTE);
                blocks.push_str("\">\n");
                blocks.push_str(&told);
                blocks.push_str("\n</workspace-instructions>\n\n");
            }
            Err(why) => {
                scope.notices.push(format!("⚠️ {MARKER} {folder}: {why}; the message goes without it"));
                // In the middle of a sentence it may be meant otherwise.
                if !begins_line {
                    continue;
                }
            }
        }
        rest.push_str(&text[end..from]);
        end = to;
    }
    rest.push_str(&text[end..]);
    scope.for_model = Some(format!("{blocks}{}", rest.trim())).filter(|told| told != text);
    scope
}

/// The markers of a text: `@scope` that stands by itself, blanks, and a folder without blanks or in double quotes, all
/// on one line.
fn markers(text: &str) -> Vec<Marker<'_>> {
    let mut found = Vec::new();
    for (from, _) in text.match_indices(MARKER) {
        let before = &text[..from];
        let line = &before[before.rfind('\n').map_or(0, |at| at + 1)..];
        let after = &text[from + MARKER.len()..];
        let folder = after.trim_start_matches([' ', '\t']);
        let alone = before.chars().next_back().is_none_or(char::is_whitespace) && folder.len() < after.len();
        if !alone || found.last().is_some_and(|last: &Marker<'_>| from < last.to) {
            continue;
        }
        let (folder, left) = match folder.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            Some((quoted, left)) if !quoted.contains('\n') => (quoted, left),
            _ => folder.split_at(folder.find(char::is_whitespace).unwrap_or(folder.len())),
        };
        if folder.is_empty() {
            continue;
        }
        let left = left.trim_start_matches([' ', '\t']);
        let left = left.strip_prefix('\n').filter(|_| line.trim().is_empty()).unwrap_or(left);
        let to = text.len() - left.len();
        found.push(Marker { folder, from, to, begins_line: line.trim().is_empty() });
        if found.len() == MAX_MARKERS {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn look(folder: &str) -> Result<(String, String), String> {
        if folder == "nope" {
            Err("no such folder".into())
        } else {
            Ok((folder.into(), format!("of {folder}")))
        }
    }

    fn block(folder: &str) -> String {
        format!(
            "<workspace-instructions dir=\"{folder}\" note=\"{NOTE}\">\nof {folder}\n</workspace-instructions>\n\n"
        )
    }

    #[rstest]
    #[case("@scope src fix it", "src", "fix it")]
    #[case("fix it @scope src", "src", "fix it")]
    #[case("fix @scope src/a now", "src/a", "fix now")]
    #[case("@scope \"my dir\"\nfix it", "my dir", "fix it")]
    #[case("  @scope src\n\nfix", "src", "fix")]
    #[case("@scope src", "src", "")]
    fn the_instructions_go_before_the_message_and_the_marker_goes(
        #[case] text: &str,
        #[case] folder: &str,
        #[case] left: &str,
    ) {
        let scope = resolve(text, look);
        assert_eq!(scope, Scope { for_model: Some(block(folder) + left), notices: vec![] });
    }

    #[test]
    fn several_folders_come_in_their_order() {
        let scope = resolve("@scope a\n@scope b\ngo", look);
        assert_eq!(scope.for_model, Some(block("a") + &block("b") + "go"));
    }

    #[test]
    fn a_bad_folder_is_dropped_with_a_notice() {
        let scope = resolve("@scope nope fix it", look);
        assert_eq!(scope.for_model.as_deref(), Some("fix it"));
        assert_eq!(scope.notices, ["⚠️ @scope nope: no such folder; the message goes without it"]);
        let sentence = resolve("what does @scope nope mean?", look);
        assert_eq!((sentence.for_model, sentence.notices.len()), (None, 1));
    }

    #[rstest]
    #[case("@scope")]
    #[case("@scope \n src")]
    #[case("@scoped x")]
    #[case("me@scope src")]
    #[case("`@scope src`")]
    fn what_is_no_marker_stays(#[case] text: &str) {
        assert_eq!(markers(text), []);
    }
}
