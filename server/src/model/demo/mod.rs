//! Runtime `demo`: a model inside the binary, without network and key. It runs tools on plain orders (see
//! [`orders`]), shows what they answered, and tells how to set up a real model. Streams word by word, so that
//! everything between here and a watcher's screen can be tried and tested.

mod orders;

use super::{
    Block, Completion, Event, Message, Model, ModelError, Request, Role, SUMMARY_REQUEST, StopReason, Usage,
};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use orders::{HELP, Order};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// The pause after each word, unless the model's id says otherwise.
const DELAY: Duration = Duration::from_millis(15);

/// The id of the demo that makes no pauses.
pub const INSTANT: &str = "demo-instant";

/// How much of a tool's answer is shown.
const SHOWN_LINES: usize = 12;
const SHOWN_CHARS: usize = 1200;

/// How many words pass between two chances for other tasks, when no pause gives them one.
const WORDS_PER_TURN: usize = 64;

/// The demo model.
#[derive(Clone, Debug)]
pub struct Demo {
    id: String,
    delay: Duration,
}

impl Demo {
    /// A demo of this id: [`INSTANT`] makes no pauses, every other one is 15 ms a word.
    pub fn new(id: String) -> Self {
        let delay = if id == INSTANT { Duration::ZERO } else { DELAY };
        Self { id, delay }
    }

    /// The same with another pause after each word.
    #[must_use]
    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }
}

impl Model for Demo {
    fn call(&self, request: Request) -> BoxStream<'static, Result<Event, ModelError>> {
        let answer = Answer::to(&request);
        let delay = self.delay;
        Box::pin(async_stream::stream! {
            for (count, word) in answer.text.split_inclusive(char::is_whitespace).enumerate() {
                yield Ok(Event::Text(word.to_owned()));
                if !delay.is_zero() {
                    tokio::time::sleep(delay).await;
                } else if count % WORDS_PER_TURN == WORDS_PER_TURN - 1 {
                    tokio::task::yield_now().await;
                }
            }
            yield Ok(Event::Done(answer.completion(&request)));
        })
        .boxed()
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn takes_images(&self) -> bool {
        false
    }
}

struct Answer {
    text: String,
    calls: Vec<Block>,
}

impl Answer {
    fn to(request: &Request) -> Self {
        let mut paragraphs = Vec::new();
        let mut calls = Vec::new();
        let (before, last) = match request.messages.split_last() {
            Some((last, before)) if last.role == Role::User => (before, last.content.as_slice()),
            _ => (&request.messages[..], &[][..]),
        };
        paragraphs.extend(last.iter().filter_map(|block| report(block, before)));
        let texts = last.iter().filter_map(|block| match block {
            Block::Text { text } => Some(text.as_str()),
            _ => None,
        });
        let mut said: Vec<&str> = Vec::new();
        for text in texts {
            match heard(text) {
                // What a sub-agent reports is no order.
                Some(report) if !is_sub_agent(&request.messages) => {
                    paragraphs.push(format!("A sub-agent reports:\n\n{report}"));
                }
                Some(task) => said.extend(task.lines()),
                None if text.starts_with("[System @ ") => {}
                None => said.extend(text.lines().map(without_stamp)),
            }
        }
        if said.contains(&SUMMARY_REQUEST) {
            return Self { text: summary(&request.messages), calls };
        }
        for line in &said {
            match Order::parse(line) {
                Some(Order::Say(text)) => paragraphs.push(text),
                Some(Order::Tool { tool, input }) if request.tools.iter().any(|spec| spec.name == tool) => {
                    let id = format!("call_{}", Uuid::new_v4().simple());
                    calls.push(Block::ToolUse { id, name: tool.to_owned(), input });
                }
                Some(Order::Tool { tool, .. }) => paragraphs.push(format!(
                    "I cannot do `{}`: the tool `{tool}` is not among the tools of this agent.",
                    crate::text::head_chars(line, 80)
                )),
                Some(Order::Malformed(usage)) => paragraphs.push(format!("That order reads: `{usage}`.")),
                None => {}
            }
        }
        if paragraphs.is_empty() && calls.is_empty() {
            paragraphs.push(introduction(&said));
        }
        Self { text: paragraphs.join("\n\n"), calls }
    }

    fn completion(self, request: &Request) -> Completion {
        let stop = if self.calls.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let output = self.text.split_whitespace().count() as u64 + 10 * self.calls.len() as u64;
        let text = Some(self.text).filter(|text| !text.is_empty()).map(|text| Block::Text { text });
        Completion {
            content: text.into_iter().chain(self.calls).collect(),
            malformed: Vec::new(),
            stop,
            usage: Usage { input: estimate(request), output, ..Usage::default() },
        }
    }
}

/// The text of a message that another session has sent.
fn heard(text: &str) -> Option<&str> {
    without_stamp(text).strip_prefix("(from: session ")?.split_once('\n').map(|(_, text)| text)
}

/// Whether the conversation began with a task of another session.
fn is_sub_agent(messages: &[Arc<Message>]) -> bool {
    let first = messages.first().and_then(|message| message.content.first());
    matches!(first, Some(Block::Text { text }) if heard(text).is_some())
}

/// What a tool answered, with its first lines.
fn report(block: &Block, before: &[Arc<Message>]) -> Option<String> {
    let Block::ToolResult { tool_use_id, content, is_error } = block else { return None };
    let asked = before.iter().rev().flat_map(|message| &message.content).find_map(|block| match block {
        Block::ToolUse { id, name, .. } if id == tool_use_id => Some(name.as_str()),
        _ => None,
    });
    let verb = if *is_error { "failed" } else { "answered" };
    let mut text = format!("`{}` {verb}:\n\n", asked.unwrap_or("the tool"));
    let lines: Vec<&str> = content.lines().collect();
    let shown = lines[..lines.len().min(SHOWN_LINES)].join("\n");
    let cut = crate::text::head_chars(&shown, SHOWN_CHARS);
    text.push_str(cut);
    if cut.len() < shown.len() {
        text.push('…');
    }
    if lines.len() > SHOWN_LINES {
        let _ = write!(text, "\n[{} more lines]", lines.len() - SHOWN_LINES);
    }
    Some(text)
}

fn introduction(said: &[&str]) -> String {
    let echo = said.iter().copied().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let echo = match crate::text::head_chars(echo.trim(), 200) {
        "" => Cow::Borrowed("You said nothing that I can read."),
        text => Cow::Owned(format!("You said: {text}")),
    };
    format!(
        "{echo}\n\nI am the demo model of halo: I understand no language, but I run tools on plain orders, one a \
         line:\n\n{HELP}\n\nFor a real model, put a key into `secrets/settings.yaml` in halo's home, for example \
         `anthropic.secrets.api_key` or `openai.secrets.api_key`, and ask again. The providers that halo knows \
         are there without further files; others are added as `global/models/<id>.yaml`."
    )
}

/// A summary as far as the demo can make one: how much was said, and how it began and ended. No line of it reads as
/// an order.
fn summary(messages: &[Arc<Message>]) -> String {
    let said: Vec<&str> = messages
        .iter()
        .filter(|message| message.role == Role::User)
        .flat_map(|message| &message.content)
        .filter_map(|block| if let Block::Text { text } = block { text.lines().next() } else { None })
        .map(without_stamp)
        .filter(|line| *line != SUMMARY_REQUEST)
        .collect();
    let shown = |line: Option<&&str>| crate::text::head_chars(line.unwrap_or(&"-"), 80).to_owned();
    format!(
        "Summary by the demo model, which understands no language: {} messages so far. First said: \"{}\". Last \
         said: \"{}\".",
        messages.len(),
        shown(said.first()),
        shown(said.last())
    )
}

/// A line without the `[<time>] ` that stands before what a person said.
fn without_stamp(line: &str) -> &str {
    let Some((stamp, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("] ")) else {
        return line;
    };
    let looks_like_time = stamp.len() >= 16
        && stamp.starts_with(|c: char| c.is_ascii_digit())
        && stamp.contains('T')
        && stamp.chars().all(|c| c.is_ascii_digit() || "-:.TZ+".contains(c));
    if looks_like_time { rest } else { line }
}

/// Tokens of a request, roughly: four bytes each.
fn estimate(request: &Request) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| &message.content);
    let bytes: usize = blocks
        .map(|block| match block {
            Block::Text { text } | Block::Thinking { text, .. } => text.len(),
            Block::ToolResult { content, .. } => content.len(),
            _ => 40,
        })
        .sum();
    (request.system.len() + bytes) as u64 / 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ToolSpec;
    use serde_json::{Value, json};

    fn request(messages: Vec<Message>) -> Request {
        let tools = ["file_read", "file_list", "grep", "file_write", "file_edit"];
        let spec =
            |name: &str| ToolSpec { name: name.into(), description: String::new(), parameters: json!({}) };
        Request {
            system: "".into(),
            messages: messages.into_iter().map(Arc::new).collect(),
            tools: tools.into_iter().map(spec).collect(),
        }
    }

    fn user(text: &str) -> Message {
        Message { role: Role::User, content: vec![Block::Text { text: text.into() }] }
    }

    async fn ask(messages: Vec<Message>) -> (Vec<String>, Completion) {
        let mut stream = Demo::new(INSTANT.into()).call(request(messages));
        let mut words = Vec::new();
        while let Some(event) = stream.next().await {
            match event.unwrap() {
                Event::Text(word) => words.push(word),
                Event::Done(completion) => {
                    assert!(stream.next().await.is_none());
                    return (words, completion);
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("no end");
    }

    #[tokio::test]
    async fn what_it_is_told_to_say_streams_word_by_word_and_exactly() {
        let (words, completion) = ask(vec![user("[2026-12-01T18:06:13.010Z] say one  two\tthree ")]).await;
        assert_eq!(words, ["one ", " ", "two\t", "three "]);
        assert_eq!(completion.content, [Block::Text { text: "one  two\tthree ".into() }]);
        assert_eq!(completion.stop, StopReason::EndTurn);
    }

    #[tokio::test]
    async fn it_works_on_the_task_of_another_session_and_only_shows_what_one_reports() {
        let task = user("[2026-12-01T18:06:13.010Z] (from: session s)\nread a.txt");
        let (_, completion) = ask(vec![task]).await;
        assert_eq!(completion.stop, StopReason::ToolUse);
        let mut report = user("[2026-12-01T18:06:14.010Z] (from: session s>c)\nread a.txt\ndone");
        report
            .content
            .push(Block::Text { text: "[System @ 2026-12-01T18:06:14.010Z] None is running.".into() });
        let said = Message { role: Role::Assistant, content: vec![Block::Text { text: "x".into() }] };
        let (words, completion) = ask(vec![user("hello"), said, report]).await;
        assert_eq!(words.concat(), "A sub-agent reports:\n\nread a.txt\ndone");
        assert_eq!(completion.stop, StopReason::EndTurn);
    }

    #[tokio::test]
    async fn it_counts() {
        let (words, _) = ask(vec![user("count 500")]).await;
        assert_eq!(words.len(), 500);
        assert_eq!(words.concat(), (1..=500).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
    }

    #[tokio::test]
    async fn each_order_is_one_call_and_ids_are_unique() {
        let (words, completion) =
            ask(vec![user("[2026-12-01T18:06:13.010Z] read a.txt\nplease\nread a.txt")]).await;
        assert_eq!(words.len(), 0);
        assert_eq!(completion.stop, StopReason::ToolUse);
        let [Block::ToolUse { id, name, input }, Block::ToolUse { id: other, .. }] = &completion.content[..]
        else {
            panic!("{completion:?}")
        };
        assert_eq!((name.as_str(), Value::from(input.clone())), ("file_read", json!({"path": "a.txt"})));
        assert_ne!(id, other);
    }

    #[tokio::test]
    async fn a_tool_that_the_agent_lacks_is_not_asked_for() {
        let (words, completion) = ask(vec![user("run ls")]).await;
        assert!(words.concat().contains("`shell_exec` is not among the tools"));
        assert_eq!(completion.stop, StopReason::EndTurn);
    }

    #[tokio::test]
    async fn it_shows_the_first_lines_of_what_a_tool_answered() {
        let call =
            Block::ToolUse { id: "c1".into(), name: "file_read".into(), input: serde_json::Map::new() };
        let content = (1..=20).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        let result = Block::ToolResult { tool_use_id: "c1".into(), content, is_error: false };
        let history = vec![
            user("read x"),
            Message { role: Role::Assistant, content: vec![call] },
            Message { role: Role::User, content: vec![result] },
        ];
        let (words, completion) = ask(history).await;
        let text = words.concat();
        assert!(
            text.starts_with("`file_read` answered:\n\nline 1\n")
                && text.ends_with("line 12\n[8 more lines]")
        );
        assert_eq!(completion.stop, StopReason::EndTurn);
    }

    #[tokio::test]
    async fn otherwise_it_says_what_it_is_and_how_to_get_a_real_model() {
        let (words, _) = ask(vec![user("[2026-12-01T18:06:13.010Z] Hello there")]).await;
        let text = words.concat();
        for part in [
            "You said: Hello there",
            "demo model",
            "edit <path>: <old> -> <new>",
            "anthropic.secrets.api_key",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[tokio::test]
    async fn asked_for_a_summary_it_sums_up_and_runs_no_order() {
        let request = format!("{SUMMARY_REQUEST}\n\nWrite it.");
        let last = Message {
            role: Role::User,
            content: [user("[2026-12-01T18:06:13.010Z] read a.txt"), user(&request)]
                .into_iter()
                .flat_map(|message| message.content)
                .collect(),
        };
        let said = Message { role: Role::Assistant, content: vec![Block::Text { text: "hello".into() }] };
        let (words, completion) = ask(vec![user("say hello"), said, last]).await;
        let text = words.concat();
        assert!(
            text.contains("3 messages") && text.contains("\"say hello\"") && text.contains("\"read a.txt\"")
        );
        assert_eq!(completion.stop, StopReason::EndTurn);
        let (words, completion) = ask(vec![user(&text)]).await;
        assert!(words.concat().contains("You said") && completion.stop == StopReason::EndTurn);
    }

    #[tokio::test(start_paused = true)]
    async fn each_word_takes_its_pause() {
        let begin = tokio::time::Instant::now();
        let demo = Demo::new("demo".into()).with_delay(Duration::from_millis(7));
        demo.call(request(vec![user("count 10")])).collect::<Vec<_>>().await;
        assert_eq!(begin.elapsed(), Duration::from_millis(70));
    }
}
