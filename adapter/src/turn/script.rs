//! A server in memory for the tests of a turn: it plays what each test wrote down and notes each call with the
//! second at which it came. With tokio's paused clock the real waits cost no time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use agent_client_protocol::v1::schema::{ContentBlock, SessionUpdate, StopReason};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Turn, Updates};
use crate::upstream::{Error, Event, Events, Frame, History, Message, Upstream};

/// One step of a stream.
#[derive(Clone)]
pub enum Step {
    Frame(Option<&'static str>, Value),
    Keepalive,
    Wait(u64),
    /// The stream breaks with an error.
    Break,
    /// The stream says nothing more and stays open.
    Hang,
}

/// A frame without a number.
pub fn f(value: Value) -> Step {
    Step::Frame(None, value)
}

/// A frame with a number.
pub fn n(id: &'static str, value: Value) -> Step {
    Step::Frame(Some(id), value)
}

pub fn session(id: &str) -> Value {
    json!({"type": "session", "sessionId": id})
}

pub fn text(text: &str) -> Value {
    json!({"type": "stream", "text": text})
}

pub fn kind(kind: &str) -> Value {
    json!({ "type": kind })
}

/// The answer to a history request.
pub enum Log {
    Rows(Value),
    Running(bool),
    Hang,
    Fail,
}

#[derive(Default)]
struct State {
    chats: VecDeque<Vec<Step>>,
    subs: VecDeque<Vec<Step>>,
    logs: VecDeque<Log>,
    calls: Vec<String>,
    updates: Vec<SessionUpdate>,
}

/// The scripted server, and the editor that collects the updates.
#[derive(Clone)]
pub struct Script {
    state: Arc<Mutex<State>>,
    start: Instant,
    pub cancel: CancellationToken,
}

impl Script {
    pub fn new(chat: Vec<Step>) -> Self {
        let state = State { chats: [chat].into(), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), start: Instant::now(), cancel: CancellationToken::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic under the lock")
    }

    /// The next subscribe plays `steps`; one that is not scripted is refused.
    pub fn sub(self, steps: Vec<Step>) -> Self {
        self.state().subs.push_back(steps);
        self
    }

    /// The next history request answers `log`; the last one is repeated.
    pub fn log(self, log: Log) -> Self {
        self.state().logs.push_back(log);
        self
    }

    /// Cancels after `seconds`.
    pub fn cancel_at(self, seconds: u64) -> Self {
        let cancel = self.cancel.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            cancel.cancel();
        });
        self
    }

    /// Runs the prompt `hi` of session `s1`.
    pub async fn run(&self) -> StopReason {
        let message = Message { text: "hi".into(), images: Vec::new() };
        Turn::new(self.clone(), self.clone(), self.cancel.clone(), "s1".into(), message, 1_000_000_000)
            .run()
            .await
    }

    fn note(&self, call: &str) {
        let at = self.start.elapsed().as_secs();
        self.state().calls.push(format!("{at} {call}"));
    }

    /// The calls in order, each behind its second.
    pub fn calls(&self) -> Vec<String> {
        self.state().calls.clone()
    }

    pub fn count(&self, call: &str) -> usize {
        self.calls().iter().filter(|one| one.split(' ').nth(1) == Some(call)).count()
    }

    pub fn seconds(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    pub fn updates(&self) -> Vec<SessionUpdate> {
        self.state().updates.clone()
    }

    /// All text of the answer.
    pub fn said(&self) -> String {
        self.updates()
            .into_iter()
            .filter_map(|update| match update {
                SessionUpdate::AgentMessageChunk(chunk) => match chunk.content {
                    ContentBlock::Text(text) => Some(text.text),
                    _ => None,
                },
                _ => None,
            })
            .collect()
    }

    fn play(steps: Vec<Step>) -> Events {
        let start = (VecDeque::from(steps), false);
        Box::pin(stream::unfold(start, |(mut steps, opened)| async move {
            if !opened {
                return Some((Ok(Event::Opened { date: None }), (steps, true)));
            }
            loop {
                let event = match steps.pop_front()? {
                    Step::Frame(id, frame) => Ok(Event::Frame {
                        id: id.map(Into::into),
                        frame: serde_json::from_value::<Frame>(frame).expect("a frame"),
                    }),
                    Step::Keepalive => Ok(Event::Keepalive),
                    Step::Wait(seconds) => {
                        tokio::time::sleep(Duration::from_secs(seconds)).await;
                        continue;
                    }
                    Step::Break => {
                        steps.clear();
                        Err(broken())
                    }
                    Step::Hang => std::future::pending().await,
                };
                return Some((event, (steps, true)));
            }
        }))
    }
}

fn broken() -> Error {
    Error::Unreachable { at: "http://h:1".into(), why: "broken".into() }
}

impl Upstream for Script {
    fn chat(&self, session: &str, message: &Message) -> Events {
        self.note(&format!("chat {session} {}", message.text));
        let steps = self.state().chats.pop_front();
        Self::play(steps.expect("one chat"))
    }

    fn subscribe(&self, session: &str, after: Option<&str>) -> Events {
        self.note(&format!("sub {session} {}", after.unwrap_or("-")));
        let steps = self.state().subs.pop_front();
        match steps {
            Some(steps) => Self::play(steps),
            None => Box::pin(stream::once(async { Err(broken()) })),
        }
    }

    async fn history(&self, session: &str, since: Option<i64>) -> Result<History, Error> {
        self.note(&format!("history {session} {}", since.map_or("-".to_owned(), |since| since.to_string())));
        let log = {
            let mut state = self.state();
            let last = state.logs.len() < 2;
            match state.logs.front() {
                None => return Err(broken()),
                Some(Log::Fail) => Err(broken()),
                Some(Log::Hang) => Ok(None),
                Some(Log::Running(running)) => Ok(Some(json!({"messages": [], "running": running}))),
                Some(Log::Rows(rows)) => Ok(Some(json!({"messages": rows, "running": false}))),
            }
            .inspect(|_| {
                if !last {
                    state.logs.pop_front();
                }
            })
        };
        match log? {
            Some(log) => Ok(serde_json::from_value(log).expect("a log")),
            None => std::future::pending().await,
        }
    }

    fn stop(&self, session: &str) {
        self.note(&format!("stop {session}"));
    }
}

impl Updates for Script {
    async fn send(&mut self, update: SessionUpdate) {
        self.state().updates.push(update);
    }
}
