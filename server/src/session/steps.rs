//! What each step of a turn means: frames for the watchers, rows for the log, messages for the model. A tool call
//! is on disk before the tool runs, its result before the next model call.

use super::actor::Actor;
use super::frames::Frame;
use super::media::Piece;
use super::rows;
use super::run::{RunStep, figures};
use super::state::Cancelled;
use crate::agent::repair;
use crate::agent::turn::{Outcome, Plan, Step, drop_images};
use crate::model::{Block, Completion, Message, Role, StopReason};
use crate::store::StoreError;
use crate::store::sessions::Write;
use crate::text::head_chars;
use crate::tool::Output;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Bytes that the row in flight may gather before it goes into the log: it is put on disk as a whole with every tool
/// call, so a long turn would else cost the square of its length.
const SETTLE_OVER: usize = 256 * 1024;
/// Characters of a tool's answer in a frame (web contract, section 2, frames).
pub(super) const FRAME_RESULT_CHARS: usize = 500;

impl Actor {
    /// Takes a step of the run; `None` when its task is gone without a word.
    pub async fn step(&mut self, step: Option<RunStep>) {
        match step {
            Some(RunStep::Ready { agent_name, model_id, thinking_effort, display_bytes, room }) => {
                let Some(run) = &mut self.run else { return };
                run.agent_name = agent_name;
                run.model_id = model_id;
                run.thinking_effort = thinking_effort;
                run.display_bytes = display_bytes;
                run.compaction.room = Some(room);
            }
            Some(RunStep::Turn(step)) => self.turn_step(step).await,
            Some(RunStep::TurnEnded { outcome, next }) => self.end_turn(outcome, Some(next)).await,
            None => self.end_turn(self.vanished(), None).await,
        }
    }

    /// The outcome of a run whose task ended without saying how: it was ended by force, or it panicked.
    fn vanished(&self) -> Outcome {
        if self.run.as_ref().is_some_and(|run| run.cancelled.is_some()) {
            return Outcome::Aborted;
        }
        let error = super::internal(&format!("session {}", self.id), &"the run's task ended unexpectedly");
        Outcome::Failed { message: error.to_string(), account: false }
    }

    async fn turn_step(&mut self, step: Step) {
        let Some(run) = &mut self.run else { return };
        match step {
            Step::BeginCall { turn_id, plan } => self.begin_call(turn_id, plan).await,
            Step::Text(delta) => {
                for piece in run.inflight.text(&delta) {
                    push_piece(&run.log, &piece);
                }
                self.schedule_checkpoint();
            }
            Step::Thinking(delta) => {
                if let Some(piece) = run.inflight.thinking(&delta) {
                    push_piece(&run.log, &piece);
                }
                run.log.push(&Frame::Thinking { text: &delta });
                self.schedule_checkpoint();
            }
            Step::BeginAgain => run.inflight.begin_again(),
            Step::Completed { completion, ttft_ms, e2e_ms, done } => {
                self.completed(completion, ttft_ms, e2e_ms, done).await;
            }
            Step::ToolStarted { id } => run.inflight.tool_started(&id),
            Step::ToolFinished { id, name, output, for_model, duration_ms, done } => {
                self.tool_finished(&id, &name, &output, for_model, duration_ms, done).await;
            }
            Step::Notice(text) => self.notice(&text).await,
            Step::Compacted { summary, done } => self.summarised(summary, done).await,
            Step::Overflow { error, plan } => drop(plan.send(self.overflowed(&error).await)),
            Step::DropImages { done } => self.drop_images(done).await,
        }
    }

    async fn begin_call(&mut self, turn_id: String, plan: oneshot::Sender<Plan>) {
        let waiting = !self.queue.is_empty();
        let Some(run) = &mut self.run else { return };
        run.results = None;
        if waiting && run.calls > 0 {
            let _ = plan.send(Plan::Yield);
            return;
        }
        run.turn_id.clone_from(&turn_id);
        if let Some(other) = self.before_call().await {
            let _ = plan.send(other);
            return;
        }
        let Some(run) = &mut self.run else { return };
        run.calls += 1;
        run.inflight.begin_call(turn_id);
        let _ = plan.send(Plan::Call(repair::for_request(&self.messages())));
    }

    async fn completed(
        &mut self,
        completion: Completion,
        ttft_ms: Option<u64>,
        e2e_ms: u64,
        done: oneshot::Sender<()>,
    ) {
        let Some(run) = &mut self.run else { return };
        if let Some(piece) = run.inflight.end_text() {
            push_piece(&run.log, &piece);
        }
        let (agent, log) = (run.agent_name.clone(), run.log.clone());
        let figures =
            figures(&run.turn_id, &run.model_id, &run.thinking_effort, completion.usage, ttft_ms, e2e_ms);
        let refused = matches!(completion.stop, StopReason::Refusal { .. });
        let mut writes = Vec::new();
        let mut calls = Vec::new();
        for block in &completion.content {
            let Block::ToolUse { id, name, input } = block else { continue };
            if refused {
                continue;
            }
            if let Some(run) = &mut self.run {
                run.inflight.tool_call(id, name, serde_json::Value::Object(input.clone()).to_string());
            }
            let place = self.place();
            writes.push(Self::log_write(place, rows::tool_call(place, &agent, name, input)));
            calls.push((id.clone(), name.clone(), input.clone()));
        }
        let place = self.place();
        writes.push(Self::log_write(place, rows::usage(place, &agent, &figures)));
        let usage = completion.usage;
        if !refused && !completion.content.is_empty() {
            let message = Message { role: Role::Assistant, content: completion.content };
            writes.push(self.push_message(message).1);
        }
        writes.push(self.answered(place.at, &usage));
        if let Some(run) = &mut self.run {
            run.said.add(run.inflight.said(), calls.is_empty());
            // What the call said is in the history now; an abort has nothing to add.
            run.inflight.begin_call(run.turn_id.clone());
        }
        if calls.is_empty() {
            // The end of the turn follows at once and takes these along: one commit instead of two.
            if let Some(run) = &mut self.run {
                run.deferred = writes;
            }
            let _ = done.send(());
            return;
        }
        writes.extend(self.checkpoint_write());
        if let Err(error) = self.commit_or_keep(writes).await {
            self.fail_storage(&error);
            return;
        }
        for (id, name, input) in &calls {
            log.push(&Frame::ToolCall { tool_name: name, tool_use_id: id, tool_input: input });
        }
        let _ = done.send(());
    }

    async fn tool_finished(
        &mut self,
        id: &str,
        name: &str,
        output: &Output,
        for_model: String,
        duration_ms: Option<u64>,
        done: oneshot::Sender<()>,
    ) {
        let mut writes = self.result_writes(id, name, output, for_model, duration_ms);
        if self.run.as_ref().is_some_and(|run| run.inflight.size() > SETTLE_OVER) {
            writes.extend(self.settle().writes);
        }
        if let Err(error) = self.commit_or_keep(writes).await {
            self.fail_storage(&error);
            return;
        }
        if let Some(run) = &self.run {
            let result = head_chars(&output.text, FRAME_RESULT_CHARS);
            run.log.push(&Frame::ToolResult { tool_name: name, tool_use_id: id, result });
        }
        let _ = done.send(());
    }

    /// The writes for one tool result: its row, its place in the model history, the row in flight. An image stands
    /// right behind the result that shows it: that is how the providers' requests know whose it is.
    pub fn result_writes(
        &mut self,
        id: &str,
        name: &str,
        output: &Output,
        for_model: String,
        duration_ms: Option<u64>,
    ) -> Vec<Write> {
        let result =
            Block::ToolResult { tool_use_id: id.to_owned(), content: for_model, is_error: output.is_error };
        let image = output.image.as_ref();
        let image =
            image.map(|image| Block::Image { mime_type: image.mime_type.into(), data: image.data.clone() });
        let shown_result = std::iter::once(result).chain(image);
        let place = self.place();
        let Some(run) = &mut self.run else { return Vec::new() };
        let shown = rows::display_output(&output.text, output.cut, run.display_bytes.max(FRAME_RESULT_CHARS));
        run.inflight.tool_finished(id, &shown, duration_ms);
        let row = rows::tool_result(place, &run.agent_name, name, &shown, duration_ms.unwrap_or(0));
        let mut writes = vec![Self::log_write(place, row)];
        if let Some(index) = run.results {
            if let Some((seq, message)) = self.history.get_or_insert_default().get_mut(index) {
                Arc::make_mut(message).content.extend(shown_result);
                let message = serde_json::to_string(message).unwrap_or_default();
                writes.push(Write::Message { seq: *seq, message });
            }
        } else {
            let content = shown_result.collect();
            let (index, write) = self.push_message(Message { role: Role::User, content });
            writes.push(write);
            if let Some(run) = &mut self.run {
                run.results = Some(index);
            }
        }
        writes.extend(self.checkpoint_write());
        writes
    }

    /// A row that tells people something, below what the run has written so far.
    async fn notice(&mut self, text: &str) {
        let mut writes = self.settle().writes;
        writes.push(self.notification(text));
        if let Err(error) = self.commit_or_keep(writes).await {
            self.fail_storage(&error);
        }
    }

    async fn drop_images(&mut self, done: oneshot::Sender<()>) {
        let mut writes = Vec::new();
        self.gauge = None;
        for (seq, message) in self.history.get_or_insert_default() {
            if message.content.iter().any(|block| matches!(block, Block::Image { .. })) {
                drop_images(Arc::make_mut(message));
                writes.push(Write::Message {
                    seq: *seq,
                    message: serde_json::to_string(message).unwrap_or_default(),
                });
            }
        }
        match self.commit_or_keep(writes).await {
            Ok(()) => drop(done.send(())),
            Err(error) => self.fail_storage(&error),
        }
    }

    /// Commits a step of the run. What fails is kept and goes before the next write, so that log and history stay
    /// as the memory has them.
    pub async fn commit_or_keep(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        let kept = writes.clone();
        let stored = self.commit(writes).await;
        if stored.is_err() {
            self.pending.extend(kept);
        }
        stored
    }

    /// The run cannot go on: nothing more can be stored.
    pub fn fail_storage(&mut self, error: &StoreError) {
        tracing::error!(session = %self.id, %error, "a step of the run could not be stored; the run ends");
        let Some(run) = &mut self.run else { return };
        run.storage_error.get_or_insert_with(|| format!("the session could not be stored: {error}"));
        self.cancel_run(Cancelled::Storage);
    }
}

/// Shows a piece of the answer to the watchers.
pub(super) fn push_piece(log: &super::frames::FrameLog, piece: &Piece) {
    match piece {
        Piece::Text(text) => log.push(&Frame::Stream { text }),
        Piece::File(path) => {
            let name = path.rsplit('/').next().unwrap_or(path);
            log.push(&Frame::File { path, name, mime_type: crate::mime::of(name) });
        }
    }
}
