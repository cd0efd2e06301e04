//! A turn: model calls and tool calls until the model stops. It tells its session every step and asks it for the
//! conversation before each call; it stores nothing itself and knows nothing of frames, logs or queues. Cancelling
//! ends it soon, with nothing left running.

use super::Agent;
use super::loops::Loops;
use super::retry::{Patience, Retry};
use crate::model::{Block, Completion, ErrorKind, Event, Message, ModelError, Request, StopReason, Usage};
use crate::tool::Output;
use futures_util::StreamExt;
use serde_json::{Map, Value};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// What people read when the output limit cut an answer.
const TRUNCATED: &str = "Response truncated: output token limit reached.";
/// What the model reads about calls in an answer that the output limit cut.
const CUT_BY_LIMIT: &str = "Not run: the answer reached the output token limit, so this call may be incomplete. \
     Split the work into smaller calls.";
/// What stands for an image that the provider rejected.
const REJECTED: &str = "[an image stood here; the model provider rejected it]";
/// What stands for an image where the model takes none.
const BLIND: &str = "[an image was sent here, but this model takes no images; tell the user]";
/// How long a cancelled tool may take to end before its turn goes on without it.
const TOOL_GRACE: Duration = Duration::from_millis(1500);

/// What the session says before a model call.
#[derive(Debug)]
pub enum Plan {
    /// Call with this conversation.
    Call(Vec<Arc<Message>>),
    /// Ask for a summary with this conversation, tell [`Step::Compacted`], and ask again.
    Compact(Vec<Arc<Message>>),
    /// A message waits: end the turn here.
    Yield,
    /// The conversation does not fit; the text says what to do.
    Fail(String),
}

/// One step of a turn, told to its session. Steps with a `done` must be on disk before the turn goes on; a dropped
/// `done` ends the turn.
#[derive(Debug)]
pub enum Step {
    /// A model call is about to begin.
    BeginCall {
        /// The call's id.
        turn_id: String,
        /// The conversation, or not.
        plan: oneshot::Sender<Plan>,
    },
    /// More text.
    Text(String),
    /// More reasoning.
    Thinking(String),
    /// The attempt failed and will be made again; what it said is said anew.
    BeginAgain,
    /// The call is complete.
    Completed {
        /// The whole answer, its tool calls with ids that are new to the conversation.
        completion: Completion,
        /// Milliseconds to the first content.
        ttft_ms: Option<u64>,
        /// Milliseconds in all.
        e2e_ms: u64,
        /// Answered once the calls are stored.
        done: oneshot::Sender<()>,
    },
    /// A tool begins.
    ToolStarted {
        /// The id of the call.
        id: String,
    },
    /// A tool has answered, or was refused.
    ToolFinished {
        /// The id of the call.
        id: String,
        /// The tool.
        name: String,
        /// The answer; as long as the tool made it.
        output: Output,
        /// The answer as the model gets it.
        for_model: String,
        /// Milliseconds; none when it never ran.
        duration_ms: Option<u64>,
        /// Answered once it is stored.
        done: oneshot::Sender<()>,
    },
    /// Something that people should see in the log.
    Notice(String),
    /// A summary that was asked for.
    Compacted {
        /// The summary.
        summary: Summary,
        /// Answered once that is stored.
        done: oneshot::Sender<()>,
    },
    /// The provider found the conversation too long.
    Overflow {
        /// What it said.
        error: String,
        /// The conversation after a compaction, or not.
        plan: oneshot::Sender<Plan>,
    },
    /// Replace every image of the conversation by text: the provider rejects one.
    DropImages {
        /// Answered once that is stored.
        done: oneshot::Sender<()>,
    },
}

/// What came of a request for a summary.
#[derive(Debug)]
pub struct Summary {
    /// The summary; never blank.
    pub text: Result<String, NoSummary>,
    /// What the call took, where it was answered.
    pub spent: Option<Spent>,
}

/// Why there is no summary.
#[derive(Debug)]
pub enum NoSummary {
    /// The model gave no text.
    Empty,
    /// The call failed: what the provider said.
    Failed(String),
}

/// What a call took.
#[derive(Debug)]
pub struct Spent {
    /// Tokens.
    pub usage: Usage,
    /// Milliseconds in all.
    pub e2e_ms: u64,
}

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The model stopped.
    Done,
    /// A message waits.
    Yielded,
    /// Cancelled.
    Aborted,
    /// It cannot go on.
    Failed {
        /// What the provider said and what to do.
        message: String,
        /// Whether key, balance or permission is the reason.
        account: bool,
    },
}

/// Runs one turn to its end.
pub async fn run<S: From<Step>>(
    agent: &Agent,
    steps: &mpsc::Sender<S>,
    cancel: &CancellationToken,
) -> Outcome {
    match (Turn { agent, steps, cancel, loops: Loops::default() }).run().await {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

pub(super) struct Turn<'a, S> {
    pub(super) agent: &'a Agent,
    steps: &'a mpsc::Sender<S>,
    cancel: &'a CancellationToken,
    loops: Loops,
}

/// A completion and how long it took.
struct Timed {
    completion: Completion,
    ttft_ms: Option<u64>,
    e2e_ms: u64,
}

impl<S: From<Step>> Turn<'_, S> {
    async fn run(&self) -> Result<Outcome, Outcome> {
        let mut patience = Patience::new(self.agent.max_tries);
        loop {
            let turn_id = Uuid::new_v4().to_string();
            let plan = self.ask(|plan| Step::BeginCall { turn_id, plan }).await?;
            let messages = match plan {
                Plan::Call(messages) => messages,
                Plan::Compact(messages) => {
                    let summary = self.summarise(messages).await?;
                    self.ask(|done| Step::Compacted { summary, done }).await?;
                    continue;
                }
                Plan::Yield => return Ok(Outcome::Yielded),
                Plan::Fail(message) => return Err(Outcome::Failed { message, account: false }),
            };
            let used: HashSet<String> =
                messages.iter().flat_map(|message| call_ids(&message.content)).map(str::to_owned).collect();
            let Timed { mut completion, ttft_ms, e2e_ms } = self.call(messages, &mut patience).await?;
            rename_repeated_calls(&mut completion, used);
            let next = Next::after(&completion);
            self.ask(|done| Step::Completed { completion, ttft_ms, e2e_ms, done }).await?;
            if let Some(outcome) = self.act(next).await? {
                return Ok(outcome);
            }
        }
    }

    /// Tells the session a step; waits for its place in the channel, not for the session.
    async fn tell(&self, step: Step) -> Result<(), Outcome> {
        self.until_cancelled(self.steps.send(step.into())).await?.map_err(|_| Outcome::Aborted)
    }

    /// Tells the session a step and waits for its answer.
    async fn ask<T>(&self, step: impl FnOnce(oneshot::Sender<T>) -> Step) -> Result<T, Outcome> {
        let (sender, answer) = oneshot::channel();
        self.tell(step(sender)).await?;
        self.until_cancelled(answer).await?.map_err(|_| Outcome::Aborted)
    }

    pub(super) async fn until_cancelled<F: Future>(&self, work: F) -> Result<F::Output, Outcome> {
        self.cancel.run_until_cancelled(work).await.ok_or(Outcome::Aborted)
    }

    /// One model call, tried again as its errors allow.
    async fn call(&self, messages: Vec<Arc<Message>>, patience: &mut Patience) -> Result<Timed, Outcome> {
        let mut messages = self.as_seen(messages);
        loop {
            let error = match self.attempt(messages.clone()).await? {
                Ok(timed) => {
                    patience.reset();
                    return Ok(timed);
                }
                Err(error) => error,
            };
            match patience.after(&error) {
                Retry::GiveUp if error.kind == ErrorKind::ContextOverflow => {
                    match self.ask(|plan| Step::Overflow { error: error.message, plan }).await? {
                        Plan::Call(shorter) => messages = self.as_seen(shorter),
                        Plan::Fail(message) => return Err(Outcome::Failed { message, account: false }),
                        Plan::Compact(_) | Plan::Yield => return Err(Outcome::Aborted),
                    }
                    patience.reset();
                }
                Retry::GiveUp => return Err(failed(&error)),
                Retry::WithoutImages => {
                    self.ask(|done| Step::DropImages { done }).await?;
                    messages = Self::without_rejected_images(&messages);
                }
                Retry::After(wait) => {
                    tracing::warn!(error = %error, wait_ms = wait.as_millis() as u64, "a model call failed and is tried again");
                    if let Some(notice) = retry_notice(&error, wait) {
                        self.tell(Step::Notice(notice)).await?;
                    }
                    self.until_cancelled(tokio::time::sleep(wait)).await?;
                }
            }
            self.tell(Step::BeginAgain).await?;
        }
    }

    /// The conversation as the model takes it: without images where it sees none.
    pub(super) fn as_seen(&self, messages: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        if self.agent.model.takes_images() {
            return messages;
        }
        // Only for this call: the history keeps them for a model that sees.
        messages.iter().map(|message| without_images(message, BLIND)).collect()
    }

    pub(super) fn without_rejected_images(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
        messages.iter().map(|message| without_images(message, REJECTED)).collect()
    }

    pub(super) fn request(&self, messages: Vec<Arc<Message>>) -> Request {
        Request { system: self.agent.system.clone(), messages, tools: self.agent.specs.clone() }
    }

    /// What a stream counts as that ends without its last event.
    pub(super) fn ended_without_answer() -> ModelError {
        ModelError {
            kind: ErrorKind::EmptyResponse,
            status: None,
            message: "the model's stream ended without an answer".into(),
            retry_after: None,
            fault: None,
        }
    }

    async fn attempt(&self, messages: Vec<Arc<Message>>) -> Result<Result<Timed, ModelError>, Outcome> {
        let began = Instant::now();
        let millis = || began.elapsed().as_millis() as u64;
        let mut ttft_ms = None;
        let mut events = self.agent.model.call(self.request(messages));
        while let Some(event) = self.until_cancelled(events.next()).await? {
            match event {
                Ok(Event::Text(text)) => {
                    ttft_ms.get_or_insert_with(millis);
                    self.tell(Step::Text(text)).await?;
                }
                Ok(Event::Thinking(text)) => {
                    ttft_ms.get_or_insert_with(millis);
                    self.tell(Step::Thinking(text)).await?;
                }
                Ok(Event::Activity) => {}
                Ok(Event::Done(completion)) => {
                    return Ok(Ok(Timed { completion, ttft_ms, e2e_ms: millis() }));
                }
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Err(Self::ended_without_answer()))
    }

    /// Does what the completion asks for. `None`: call the model again.
    async fn act(&self, next: Next) -> Result<Option<Outcome>, Outcome> {
        match next {
            Next::Stop { notice } => {
                if let Some(notice) = notice {
                    self.tell(Step::Notice(format!("⚠️ [{}] {notice}", self.agent.name))).await?;
                }
                Ok(Some(Outcome::Done))
            }
            Next::Refuse(calls) => {
                for call in calls {
                    self.answer(call, Output::error(CUT_BY_LIMIT), None).await?;
                }
                let notice = format!("⚠️ [{}] {TRUNCATED}", self.agent.name);
                self.tell(Step::Notice(notice)).await?;
                Ok(Some(Outcome::Done))
            }
            Next::Run(calls) => {
                for call in calls {
                    self.run_tool(call).await?;
                }
                Ok(None)
            }
        }
    }

    async fn run_tool(&self, call: Call) -> Result<(), Outcome> {
        if let Some(why) = &call.malformed {
            let text = format!(
                "The arguments were not a JSON object ({why}), so the tool did not run. Send complete JSON arguments."
            );
            return self.answer(call, Output::error(text), None).await;
        }
        let Some(tool) = self.agent.tools.iter().find(|tool| tool.spec().name == call.name) else {
            let names: Vec<&str> = self.agent.specs.iter().map(|spec| spec.name.as_str()).collect();
            let text =
                format!("There is no tool named {:?} here. Available: {}.", call.name, names.join(", "));
            return self.answer(call, Output::error(text), None).await;
        };
        self.tell(Step::ToolStarted { id: call.id.clone() }).await?;
        let began = Instant::now();
        let context = self.agent.tool_context(self.cancel.clone());
        let mut work = tool.run(call.input.clone(), &context);
        let mut output = tokio::select! {
            output = &mut work => output,
            () = self.cancel.cancelled() => {
                // The tool ends what it started; its answer no longer counts.
                let _ = tokio::time::timeout(TOOL_GRACE, work).await;
                return Err(Outcome::Aborted);
            }
        };
        output.cut = tool.cut();
        self.answer(call, output, Some(began.elapsed().as_millis() as u64)).await
    }

    async fn answer(&self, call: Call, output: Output, duration_ms: Option<u64>) -> Result<(), Outcome> {
        let mut for_model = output.for_model(self.agent.render_chars);
        let Call { id, name, input, .. } = call;
        if let Some(warning) = self.loops.note(&name, &input, &output) {
            for_model.push_str("\n\n");
            for_model.push_str(&warning);
        }
        self.ask(|done| Step::ToolFinished { id, name, output, for_model, duration_ms, done }).await
    }
}

/// A call that the model asks for.
struct Call {
    id: String,
    name: String,
    input: Map<String, Value>,
    malformed: Option<String>,
}

/// What follows a completion.
enum Next {
    /// Nothing; perhaps with a word to people.
    Stop { notice: Option<String> },
    /// The output limit cut the answer: its calls get an error instead of running.
    Refuse(Vec<Call>),
    /// Its calls, one after another.
    Run(Vec<Call>),
}

impl Next {
    fn after(completion: &Completion) -> Self {
        let malformed: HashMap<&str, &str> =
            completion.malformed.iter().map(|(id, why)| (id.as_str(), why.as_str())).collect();
        let calls: Vec<Call> = completion
            .content
            .iter()
            .filter_map(|block| match block {
                Block::ToolUse { id, name, input } => Some(Call {
                    id: id.clone(),
                    name: name.clone(),
                    input: input.clone(),
                    malformed: malformed.get(id.as_str()).map(|why| (*why).to_owned()),
                }),
                _ => None,
            })
            .collect();
        match &completion.stop {
            StopReason::Refusal { explanation } => Self::Stop {
                notice: Some(format!(
                    "Model declined to respond: {explanation}. A new session (/new) may help."
                )),
            },
            StopReason::MaxTokens if !calls.is_empty() => Self::Refuse(calls),
            StopReason::MaxTokens => Self::Stop { notice: Some(TRUNCATED.to_owned()) },
            _ if !calls.is_empty() => Self::Run(calls),
            _ => Self::Stop { notice: None },
        }
    }
}

fn call_ids(content: &[Block]) -> impl Iterator<Item = &str> {
    content
        .iter()
        .filter_map(|block| if let Block::ToolUse { id, .. } = block { Some(id.as_str()) } else { None })
}

/// Some providers count their calls from one in every answer: an id that the conversation has already gets a new
/// one, so that results, frames and clients never mix two calls up.
fn rename_repeated_calls(completion: &mut Completion, mut used: HashSet<String>) {
    for block in &mut completion.content {
        let Block::ToolUse { id, .. } = block else { continue };
        if used.insert(id.clone()) {
            continue;
        }
        let fresh = format!("call_{}", Uuid::new_v4().simple());
        for (malformed, _) in &mut completion.malformed {
            if malformed == id {
                malformed.clone_from(&fresh);
            }
        }
        *id = fresh;
    }
}

fn without_images(message: &Arc<Message>, note: &str) -> Arc<Message> {
    let mut message = message.clone();
    if message.content.iter().any(|block| matches!(block, Block::Image { .. })) {
        replace_images(Arc::make_mut(&mut message), note);
    }
    message
}

/// Replaces every image of the message by a line of text that says that the provider rejected it.
pub fn drop_images(message: &mut Message) {
    replace_images(message, REJECTED);
}

fn replace_images(message: &mut Message, note: &str) {
    for block in &mut message.content {
        if matches!(block, Block::Image { .. }) {
            *block = Block::Text { text: note.to_owned() };
        }
    }
}

fn failed(error: &ModelError) -> Outcome {
    let mend = match error.kind {
        ErrorKind::Account => " — check the provider's key and balance in settings.yaml",
        _ => "",
    };
    Outcome::Failed { message: format!("{}{mend}", error.message), account: error.kind == ErrorKind::Account }
}

fn retry_notice(error: &ModelError, wait: Duration) -> Option<String> {
    let seconds = wait.as_secs_f32().ceil();
    match error.kind {
        ErrorKind::Throttle => Some(format!("Rate limited, retrying in {seconds}s...")),
        ErrorKind::Server | ErrorKind::Network => {
            Some(format!("{}; retrying in {seconds}s...", error.message))
        }
        _ => None,
    }
}
