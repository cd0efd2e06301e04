//! Makes a model history acceptable to the strictest provider: every tool call has exactly one result right after
//! it; blank blocks, orphan results and empty messages go; roles alternate, the user first (sessions contract,
//! section 2, repair). Pure and idempotent.

use crate::model::{Block, Message, Role};
use std::sync::Arc;

/// The result of a call of which it is not known how far it came.
pub const INTERRUPTED_RESULT: &str = "[tool execution interrupted: there is no result. It may or may not have taken effect. \
     Do not retry it automatically; look first.]";
/// The result of a call that never began.
pub const NOT_RUN_RESULT: &str =
    "[not run: the turn was interrupted before this call began. It is safe to issue it again.]";

/// The history as it may be sent. Messages that need no change are shared, not copied.
pub fn for_request(history: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut out: Vec<Arc<Message>> = Vec::with_capacity(history.len());
    let mut open: Vec<String> = Vec::new();
    for message in history {
        let cleaned = clean(message, &open);
        if message.role == Role::User {
            let answered = |id: &String| results(&cleaned).any(|result| result == id);
            open.retain(|id| !answered(id));
            // Results of the same calls may come in a later message still; only an assistant message closes them.
            if !cleaned.content.is_empty() {
                append(&mut out, cleaned);
            }
            continue;
        }
        if cleaned.content.is_empty() {
            continue;
        }
        close(&mut out, &mut open);
        open = calls(&cleaned).map(str::to_owned).collect();
        if out.is_empty() {
            // A conversation begins with the user.
            open.clear();
            continue;
        }
        append(&mut out, cleaned);
    }
    close(&mut out, &mut open);
    out
}

/// Gives the calls that nobody answered a result, where results belong: first in the message after the calls.
fn close(out: &mut Vec<Arc<Message>>, open: &mut Vec<String>) {
    if open.is_empty() {
        return;
    }
    let missing = open.drain(..).map(|id| Block::ToolResult {
        tool_use_id: id,
        content: INTERRUPTED_RESULT.to_owned(),
        is_error: true,
    });
    match out.last_mut() {
        Some(last) if last.role == Role::User => {
            let message = Arc::make_mut(last);
            let at = results_part(&message.content);
            message.content.splice(at..at, missing);
        }
        _ => out.push(Arc::new(Message { role: Role::User, content: missing.collect() })),
    }
}

/// Adds a message; two of one role in a row become one, results first.
fn append(out: &mut Vec<Arc<Message>>, message: Arc<Message>) {
    match out.last_mut() {
        Some(last) if last.role == message.role => {
            let last = Arc::make_mut(last);
            last.content.extend(message.content.iter().cloned());
            if last.role == Role::User {
                results_first(&mut last.content);
            }
        }
        _ => out.push(message),
    }
}

/// The message without blank blocks, repeated call ids, and results that answer none of the open calls (or answer
/// one twice).
fn clean(message: &Arc<Message>, open: &[String]) -> Arc<Message> {
    // Most messages of a long history are text alone, and each is looked at before every call.
    if !message.content.is_empty()
        && message.content.iter().all(|block| matches!(block, Block::Text { text } if !is_blank(text)))
    {
        return message.clone();
    }
    let mut seen: Vec<&str> = Vec::new();
    // What a result shows goes with it.
    let mut after_dropped_result = false;
    let keep: Vec<bool> = message
        .content
        .iter()
        .map(|block| match block {
            Block::Text { text } => {
                after_dropped_result = false;
                !is_blank(text)
            }
            Block::Thinking { text, signature } => {
                message.role == Role::Assistant && (!text.is_empty() || signature.is_some())
            }
            Block::RedactedThinking { .. } => message.role == Role::Assistant,
            Block::Image { data, .. } => {
                message.role == Role::User && !data.is_empty() && !after_dropped_result
            }
            Block::ToolUse { id, .. } => message.role == Role::Assistant && once(&mut seen, id),
            Block::ToolResult { tool_use_id: id, .. } => {
                let kept = message.role == Role::User && open.contains(id) && once(&mut seen, id);
                after_dropped_result = !kept;
                kept
            }
        })
        .collect();
    let thinking_only = message.role == Role::Assistant
        && message.content.iter().zip(&keep).all(|(block, keep)| {
            !keep || matches!(block, Block::Thinking { .. } | Block::RedactedThinking { .. })
        });
    if thinking_only {
        return Arc::new(Message { role: message.role, content: Vec::new() });
    }
    let ordered = message.role == Role::Assistant
        || !message.content[results_part(&message.content)..].iter().any(is_result);
    if keep.iter().all(|keep| *keep) && ordered {
        return message.clone();
    }
    let mut content: Vec<Block> =
        message.content.iter().zip(keep).filter(|(_, keep)| *keep).map(|(block, _)| block.clone()).collect();
    if message.role == Role::User {
        results_first(&mut content);
    }
    Arc::new(Message { role: message.role, content })
}

fn is_result(block: &Block) -> bool {
    matches!(block, Block::ToolResult { .. })
}

/// How many blocks at the beginning are results and the images right behind each.
fn results_part(content: &[Block]) -> usize {
    let belongs = |block: &&Block| is_result(block) || matches!(block, Block::Image { .. });
    if content.first().is_some_and(is_result) { content.iter().take_while(belongs).count() } else { 0 }
}

/// Results before all else, each with the images right behind it.
fn results_first(content: &mut Vec<Block>) {
    let mut first = Vec::with_capacity(content.len());
    let mut rest = Vec::new();
    let mut shown_by_result = false;
    for block in content.drain(..) {
        shown_by_result = is_result(&block) || (shown_by_result && matches!(block, Block::Image { .. }));
        if shown_by_result { first.push(block) } else { rest.push(block) }
    }
    first.append(&mut rest);
    *content = first;
}

fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

fn once<'a>(seen: &mut Vec<&'a str>, id: &'a str) -> bool {
    let new = !seen.contains(&id);
    seen.push(id);
    new
}

fn calls(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(|block| match block {
        Block::ToolUse { id, .. } => Some(id.as_str()),
        _ => None,
    })
}

fn results(message: &Message) -> impl Iterator<Item = &str> {
    message.content.iter().filter_map(|block| match block {
        Block::ToolResult { tool_use_id, .. } => Some(tool_use_id.as_str()),
        _ => None,
    })
}

/// Whether the strictest provider would take it: the rule that [`for_request`] establishes.
#[cfg(test)]
pub fn is_acceptable(history: &[Arc<Message>]) -> bool {
    let mut expected = Role::User;
    let mut open: Vec<&str> = Vec::new();
    for message in history {
        if message.role != expected || message.content.is_empty() {
            return false;
        }
        let mut answered: Vec<&str> = results(message).collect();
        answered.sort_unstable();
        open.sort_unstable();
        let rest = &message.content[results_part(&message.content)..];
        if answered != open || rest.iter().any(is_result) {
            return false;
        }
        open = calls(message).collect();
        expected = if expected == Role::User { Role::Assistant } else { Role::User };
    }
    open.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Map;

    fn block() -> impl Strategy<Value = Block> {
        let id = prop_oneof![Just("a"), Just("b"), Just("c")];
        prop_oneof![
            prop_oneof![Just(""), Just(" "), Just("text")].prop_map(|text| Block::Text { text: text.into() }),
            Just(Block::Thinking { text: "hm".into(), signature: None }),
            Just(Block::Image { mime_type: "image/png".into(), data: "AAAA".into() }),
            id.clone().prop_map(|id| Block::ToolUse {
                id: id.into(),
                name: "grep".into(),
                input: Map::new()
            }),
            id.prop_map(|id| Block::ToolResult {
                tool_use_id: id.into(),
                content: "x".into(),
                is_error: false
            }),
        ]
    }

    fn history() -> impl Strategy<Value = Vec<Arc<Message>>> {
        let message = (any::<bool>(), prop::collection::vec(block(), 0..5)).prop_map(|(user, content)| {
            Arc::new(Message { role: if user { Role::User } else { Role::Assistant }, content })
        });
        prop::collection::vec(message, 0..8)
    }

    proptest! {
        #[test]
        fn whatever_was_stored_becomes_acceptable(history in history()) {
            prop_assert!(is_acceptable(&for_request(&history)));
        }

        #[test]
        fn repair_changes_nothing_the_second_time(history in history()) {
            let once = for_request(&history);
            prop_assert_eq!(for_request(&once), once);
        }
    }

    fn user(content: Vec<Block>) -> Arc<Message> {
        Arc::new(Message { role: Role::User, content })
    }

    fn text(text: &str) -> Block {
        Block::Text { text: text.into() }
    }

    fn call(id: &str) -> Block {
        Block::ToolUse { id: id.into(), name: "grep".into(), input: Map::new() }
    }

    #[test]
    fn a_sound_history_is_shared_not_copied() {
        let history = vec![
            user(vec![text("hi")]),
            Arc::new(Message { role: Role::Assistant, content: vec![text("ok")] }),
            user(vec![text("more")]),
        ];
        let sent = for_request(&history);
        assert!(history.iter().zip(&sent).all(|(ours, theirs)| Arc::ptr_eq(ours, theirs)));
    }

    #[test]
    fn an_image_stays_behind_the_result_that_shows_it_and_goes_with_it() {
        let result =
            |id: &str| Block::ToolResult { tool_use_id: id.into(), content: id.into(), is_error: false };
        let image = |data: &str| Block::Image { mime_type: "image/png".into(), data: data.into() };
        let shown =
            |id: &str| Arc::new(Message { role: Role::Assistant, content: vec![call(id), call("b")] });
        let history = vec![
            user(vec![text("look")]),
            shown("a"),
            user(vec![result("a"), image("of a"), result("b"), image("of b"), image("more of b")]),
            user(vec![text("and mine"), image("mine")]),
        ];
        let sent = for_request(&history);
        let expected = vec![
            result("a"),
            image("of a"),
            result("b"),
            image("of b"),
            image("more of b"),
            text("and mine"),
            image("mine"),
        ];
        assert_eq!(sent[2].content, expected);
        // A result that answers nothing takes its images along.
        let history =
            vec![user(vec![text("x")]), shown("a"), user(vec![result("c"), image("of c"), result("a")])];
        let sent = for_request(&history);
        assert_eq!(sent[2].content.len(), 2);
        assert!(sent[2].content.iter().all(is_result));
    }

    #[test]
    fn a_call_without_a_result_gets_one_that_warns_against_repeating_it() {
        let history = vec![
            user(vec![text("go")]),
            Arc::new(Message { role: Role::Assistant, content: vec![call("a"), call("b")] }),
            user(vec![Block::ToolResult {
                tool_use_id: "a".into(),
                content: "done".into(),
                is_error: false,
            }]),
            user(vec![text("and now?")]),
        ];
        let sent = for_request(&history);
        assert_eq!(sent.len(), 3);
        assert!(
            matches!(&sent[2].content[0], Block::ToolResult { tool_use_id, content, .. } if tool_use_id == "a" && content == "done")
        );
        assert!(
            matches!(&sent[2].content[1], Block::ToolResult { tool_use_id, is_error: true, .. } if tool_use_id == "b")
        );
        assert_eq!(sent[2].content[2], text("and now?"));
    }
}
