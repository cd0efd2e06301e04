//! The assistant row that a run is writing: its blocks as they grow, what of it the reader has seen, and how it is
//! settled when a message lands in its middle (sessions reference, section 4.4).

use super::media::{MediaFilter, Piece};
use super::rows::{ContentBlock, ToolCall};
use serde::{Deserialize, Serialize};

/// What is kept on disk of a row in flight.
#[derive(Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// When it was taken.
    pub at: i64,
    /// The blocks so far.
    pub blocks: Vec<ContentBlock>,
    /// Whether a compaction was announced that has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compacting: bool,
}

/// A tool call without an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenCall {
    /// The provider's id of the call.
    pub id: String,
    /// The tool.
    pub name: String,
    /// Whether it had begun.
    pub started: bool,
}

/// The row in flight.
#[derive(Debug, Default)]
pub struct Inflight {
    blocks: Vec<ContentBlock>,
    media: MediaFilter,
    /// The id of the model call in flight.
    turn_id: String,
    /// What the call in flight has said so far, as the model will remember it.
    said: String,
    /// Ids of calls that have begun.
    started: Vec<String>,
    /// Set while a repeated attempt says again what was shown.
    reprise: Option<Reprise>,
}

impl Inflight {
    /// A model call begins.
    pub fn begin_call(&mut self, turn_id: String) {
        self.turn_id = turn_id;
        self.said.clear();
        self.reprise = None;
    }

    /// The attempt failed after it had said something; the next one starts over.
    pub fn begin_again(&mut self) {
        let said = std::mem::take(&mut self.said);
        let expected = self.reprise.take().map_or(said, |unfinished| unfinished.expected);
        self.reprise = (!expected.is_empty()).then_some(Reprise { expected, matched: 0 });
    }

    /// What the call in flight has said so far.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Takes more text; gives what the reader is to see now.
    pub fn text(&mut self, delta: &str) -> Vec<Piece> {
        self.said.push_str(delta);
        let Some(reprise) = &mut self.reprise else { return self.show(delta) };
        match reprise.push(delta) {
            Reprised::Matching => Vec::new(),
            Reprised::Over(rest) => {
                self.reprise = None;
                if rest.is_empty() { Vec::new() } else { self.show(&rest) }
            }
        }
    }

    fn show(&mut self, text: &str) -> Vec<Piece> {
        match self.blocks.last_mut() {
            Some(ContentBlock::Text { text: last, turn_id }) if *turn_id == self.turn_id => {
                last.push_str(text);
            }
            _ => {
                self.blocks.push(ContentBlock::Text { text: text.to_owned(), turn_id: self.turn_id.clone() });
            }
        }
        self.media.push(text)
    }

    /// Takes more reasoning; gives what of the text before it is decided by that.
    pub fn thinking(&mut self, delta: &str) -> Option<Piece> {
        let decided = self.media.finish();
        match self.blocks.last_mut() {
            Some(ContentBlock::Thinking { text, turn_id }) if *turn_id == self.turn_id => {
                text.push_str(delta);
            }
            _ => {
                self.blocks
                    .push(ContentBlock::Thinking { text: delta.to_owned(), turn_id: self.turn_id.clone() });
            }
        }
        decided
    }

    /// The text of the call in flight is over; gives what was held back.
    pub fn end_text(&mut self) -> Option<Piece> {
        self.media.finish()
    }

    /// The model asks for a tool.
    pub fn tool_call(&mut self, id: &str, name: &str, input: String) {
        let tool_call = ToolCall {
            name: name.to_owned(),
            input,
            tool_use_id: id.to_owned(),
            output: None,
            duration_ms: None,
        };
        self.blocks.push(ContentBlock::ToolCall { tool_call, turn_id: self.turn_id.clone() });
    }

    /// A tool begins.
    pub fn tool_started(&mut self, id: &str) {
        self.started.push(id.to_owned());
    }

    /// A tool has answered: the first open call of that id gets the output.
    pub fn tool_finished(&mut self, id: &str, output: &str, duration_ms: Option<u64>) {
        let call = self.blocks.iter_mut().find_map(|block| match block {
            ContentBlock::ToolCall { tool_call, .. }
                if tool_call.tool_use_id == id && tool_call.output.is_none() =>
            {
                Some(tool_call)
            }
            _ => None,
        });
        if let Some(call) = call {
            call.output = Some(output.to_owned());
            call.duration_ms = duration_ms;
        }
    }

    /// The calls that have no output yet, in order.
    pub fn open_calls(&self) -> Vec<OpenCall> {
        self.blocks
            .iter()
            .filter_map(|block| match block {
                ContentBlock::ToolCall { tool_call, .. } if tool_call.output.is_none() => Some(OpenCall {
                    id: tool_call.tool_use_id.clone(),
                    name: tool_call.name.clone(),
                    started: self.started.contains(&tool_call.tool_use_id),
                }),
                _ => None,
            })
            .collect()
    }

    /// The blocks as far as the reader has seen them.
    pub fn shown(&self) -> Vec<ContentBlock> {
        let mut blocks = self.blocks.clone();
        if let Some(ContentBlock::Text { text, .. }) = blocks.last_mut() {
            text.truncate(text.len() - self.media.held().min(text.len()));
            if text.is_empty() {
                blocks.pop();
            }
        }
        blocks
    }

    /// About how many bytes the blocks take.
    pub fn size(&self) -> usize {
        let size = |block: &ContentBlock| match block {
            ContentBlock::Text { text, .. } | ContentBlock::Thinking { text, .. } => text.len(),
            ContentBlock::ToolCall { tool_call, .. } => {
                tool_call.input.len() + tool_call.output.as_ref().map_or(0, String::len)
            }
        };
        self.blocks.iter().map(size).sum()
    }

    /// All blocks; the row starts over.
    pub fn take(&mut self) -> Vec<ContentBlock> {
        std::mem::take(&mut self.blocks)
    }

    /// The blocks before the first open call, as far as the reader has seen them; the rest stays in flight. None
    /// when there is nothing to settle.
    pub fn settle(&mut self) -> Option<Vec<ContentBlock>> {
        let open = |block: &ContentBlock| matches!(block, ContentBlock::ToolCall { tool_call, .. } if tool_call.output.is_none());
        let end = self.blocks.iter().position(open).unwrap_or(self.blocks.len());
        let rest = self.blocks.split_off(end);
        let mut settled = std::mem::replace(&mut self.blocks, rest);
        if self.blocks.is_empty()
            && let Some(ContentBlock::Text { text, turn_id }) = settled.last_mut()
        {
            let held = text.split_off(text.len() - self.media.held().min(text.len()));
            let turn_id = turn_id.clone();
            if text.is_empty() {
                settled.pop();
            }
            if !held.is_empty() {
                self.blocks.push(ContentBlock::Text { text: held, turn_id });
            }
        }
        (!settled.is_empty()).then_some(settled)
    }

    /// Puts settled blocks back: they could not be stored.
    pub fn unsettle(&mut self, mut settled: Vec<ContentBlock>) {
        let mut rest = std::mem::take(&mut self.blocks).into_iter();
        if let Some(first) = rest.next() {
            match (settled.last_mut(), first) {
                (
                    Some(ContentBlock::Text { text, turn_id }),
                    ContentBlock::Text { text: more, turn_id: same },
                ) if *turn_id == same => {
                    text.push_str(&more);
                }
                (_, first) => settled.push(first),
            }
        }
        settled.extend(rest);
        self.blocks = settled;
    }
}

/// Follows a repeated attempt through the text that the reader has seen already.
#[derive(Debug)]
struct Reprise {
    expected: String,
    matched: usize,
}

enum Reprised {
    /// All said again so far.
    Matching,
    /// From here on it is new; the text to show.
    Over(String),
}

impl Reprise {
    fn push(&mut self, delta: &str) -> Reprised {
        let rest = &self.expected[self.matched..];
        if rest.len() > delta.len() && rest.starts_with(delta) {
            self.matched += delta.len();
            return Reprised::Matching;
        }
        match delta.strip_prefix(rest) {
            Some(new) => Reprised::Over(new.to_owned()),
            None => Reprised::Over(format!("\n\n{}{delta}", &self.expected[..self.matched])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn started() -> Inflight {
        let mut row = Inflight::default();
        row.begin_call("t".into());
        row
    }

    fn text(block: &ContentBlock) -> &str {
        match block {
            ContentBlock::Text { text, .. } | ContentBlock::Thinking { text, .. } => text,
            ContentBlock::ToolCall { tool_call, .. } => &tool_call.name,
        }
    }

    #[test]
    fn a_message_in_the_middle_settles_what_stands_before_the_first_open_call() {
        let mut row = started();
        row.text("before");
        row.tool_call("c1", "grep", "{}".into());
        row.tool_call("c2", "glob", "{}".into());
        row.tool_finished("c1", "hit", Some(1));
        let settled = row.settle().unwrap();
        assert_eq!(settled.iter().map(text).collect::<Vec<_>>(), ["before", "grep"]);
        assert_eq!(row.open_calls().len(), 1);
        assert_eq!(row.settle(), None, "nothing is settled twice");
        row.tool_finished("c2", "x", Some(1));
        assert_eq!(row.take().len(), 1);
    }

    #[test]
    fn text_held_back_is_not_shown_yet_and_stays_in_flight() {
        let mut row = started();
        row.text("see\nMED");
        assert_eq!(text(&row.shown()[0]), "see\n");
        let settled = row.settle().unwrap();
        assert_eq!(text(&settled[0]), "see\n");
        row.unsettle(settled);
        assert_eq!(text(&row.settle().unwrap()[0]), "see\n");
        assert_eq!(row.text("IA:/x\n"), vec![Piece::File("/x".into())]);
        assert_eq!(text(&row.take()[0]), "MEDIA:/x\n");
    }

    #[test]
    fn a_repeated_attempt_shows_only_what_is_new() {
        let mut row = started();
        row.text("Hello wo");
        row.begin_again();
        assert_eq!(row.text("Hel"), vec![]);
        assert_eq!(row.text("lo world"), vec![Piece::Text("rld".into())]);
        assert_eq!(row.said(), "Hello world");
        assert_eq!(text(&row.take()[0]), "Hello world");
    }

    #[test]
    fn a_repeated_attempt_that_says_something_else_starts_a_paragraph() {
        let mut row = started();
        row.text("Hello");
        row.begin_again();
        assert_eq!(row.text("Hey"), vec![Piece::Text("\n\nHey".into())]);
        assert_eq!(row.said(), "Hey");
    }

    #[test]
    fn open_calls_tell_whether_they_had_begun() {
        let mut row = started();
        row.tool_call("c1", "shell_exec", "{}".into());
        row.tool_call("c2", "grep", "{}".into());
        row.tool_started("c1");
        let open = row.open_calls();
        assert_eq!(
            open.iter().map(|call| (call.id.as_str(), call.started)).collect::<Vec<_>>(),
            [("c1", true), ("c2", false)]
        );
        row.tool_finished("c1", "x", None);
        row.tool_finished("c2", "x", None);
        assert!(row.open_calls().is_empty());
    }
}
