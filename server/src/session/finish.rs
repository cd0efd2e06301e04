//! The end of turns and runs: on disk, idle, then the terminal frame; stop, which reaches everything; and the
//! server's own end, which leaves the run in the ledger (sessions contract, sections 2 and 6).

use super::actor::{Actor, STOP_GRACE};
use super::frames::Frame;
use super::report::{Said, Siblings};
use super::resume::Resume;
use super::rows::{self, INTERRUPTED, Standing};
use super::state::{Cancelled, Stop};
use super::steps::push_piece;
use crate::access::AccessLevel;
use crate::agent::repair;
use crate::agent::turn::Outcome;
use crate::model::{Block, Message, Role};
use crate::store::sessions::Write;
use crate::tool::Output;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// What the model reads at the end of an answer that was cut.
pub(super) const CUT_MARKER: &str = "\n\n[reply interrupted by the user here]";
/// How long the server's end waits for a run to stop its tools.
const CLOSE_GRACE: Duration = Duration::from_secs(3);

impl Actor {
    /// Stops the run in flight. A sub-session that waits for its own is marked as stopped; then there is no run.
    pub async fn stop(&mut self, stop: Stop, reply: oneshot::Sender<bool>) {
        let Stop { tell_parent, again } = stop;
        // What sub-sessions have said by now is a part of what is stopped: it must not start a run after the stop.
        self.collect().await;
        if let Some(run) = &mut self.run {
            if again {
                let _ = reply.send(false);
                return;
            }
            run.tell_parent &= tell_parent;
            self.cancel(Cancelled::Stop, reply);
            return;
        }
        if let Err(error) = self.stamp(tell_parent).await {
            tracing::error!(session = %self.id, %error, "a sub-session could not be marked as stopped");
        }
        let _ = reply.send(false);
    }

    /// Cancels the turn in flight; answers when it has ended. False at once when nothing runs.
    pub fn cancel(&mut self, why: Cancelled, reply: oneshot::Sender<bool>) {
        let Some(run) = &mut self.run else {
            let _ = reply.send(false);
            return;
        };
        run.cancel_replies.push(reply);
        self.cancel_run(why);
    }

    /// Cancels the run; the first reason sticks, except that an interrupt yields to any other.
    pub fn cancel_run(&mut self, why: Cancelled) {
        let Some(run) = &mut self.run else { return };
        match run.cancelled {
            None => {
                run.cancelled = Some(why);
                run.force_at = Some(Instant::now() + STOP_GRACE);
                run.cancel.cancel();
            }
            Some(Cancelled::Interrupt) => run.cancelled = Some(why),
            Some(_) => {}
        }
    }

    /// Ends a cancelled run that does not end by itself.
    pub async fn end_by_force(&mut self) {
        if let Some(run) = &mut self.run {
            run.force_at = None;
            run.task.abort();
        }
        self.end_turn(Outcome::Aborted, None).await;
    }

    /// A turn has ended: what it wrote goes into log and history, then the queue's turn comes or the run ends.
    /// `next` starts another turn; without it the run's task is gone.
    pub async fn end_turn(&mut self, outcome: Outcome, next: Option<oneshot::Sender<AccessLevel>>) {
        let Some(run) = &mut self.run else { return };
        if let Some(piece) = run.inflight.end_text() {
            push_piece(&run.log, &piece);
        }
        if outcome == Outcome::Aborted {
            run.said.add(run.inflight.said(), false);
        }
        let stopped = run.cancelled == Some(Cancelled::Stop);
        // A turn that was itself begun by an interruption and is not followed by one to go on leaves that to the next.
        let cut = outcome == Outcome::Yielded
            || run.cancelled == Some(Cancelled::Interrupt)
            || run.resume != Resume::Nothing;
        let storage_error = run.storage_error.take();
        let resumes = storage_error.is_none() && self.goes_on_with_its_work(&outcome);
        let goes_on = (resumes || !self.queue.is_empty()) && !stopped && storage_error.is_none();
        let siblings = if goes_on { self.siblings_or_none().await } else { None };
        let outcome = storage_error.map_or(outcome, |message| Outcome::Failed { message, account: false });
        let (notice, manual) = self.end_compaction(&outcome);
        // A compaction that somebody asked for tells them how it went; its run is no failure.
        let outcome = if manual.is_some() { Outcome::Done } else { outcome };

        let mut writes = self.run.as_mut().map(|run| std::mem::take(&mut run.deferred)).unwrap_or_default();
        writes.extend(self.cut_calls());
        writes.extend(self.cut_text(&outcome));
        writes.extend(self.finished_row());
        writes.extend(notice);
        writes.push(Write::Inflight(None));
        if goes_on && let Outcome::Failed { message, .. } = &outcome {
            writes.push(self.notification(&format!("[error] {message}")));
        }
        if manual.is_none() {
            writes.extend(self.report_writes(&outcome, goes_on));
        }
        if resumes {
            writes.extend(self.queue_going_on());
        }
        // Stop keeps what waits: it goes into the history, and nothing is run for it.
        let drained = (goes_on || stopped).then(|| self.drain(siblings)).flatten();
        let turn = drained.as_ref().map(|drained| (drained.access, drained.owes));
        writes.extend(drained.into_iter().flat_map(|drained| drained.writes));
        if !goes_on {
            writes.push(Write::RunEnded);
        } else if manual.is_some() {
            // What was no turn becomes one.
            writes.push(Write::RunStarted { at: self.now(), crashes: 0 });
        }
        // A stop that ended a mere compaction looks again, and then marks a sub-session that waits for its own.
        if stopped && manual.is_none() {
            let at = self.now();
            writes.push(Write::Stopped { at });
        }
        match (self.commit_or_keep(writes).await, turn) {
            (Ok(()), Some((access, owes))) if goes_on => {
                if resumes {
                    self.show_going_on();
                }
                let resume = if cut && !resumes { Resume::Possible } else { Resume::Nothing };
                self.next_turn((access, owes, resume), next);
                self.look_at_children().await;
            }
            (Ok(()), _) => self.end_run(&outcome),
            (Err(error), _) => {
                tracing::error!(session = %self.id, %error, "the end of a turn could not be stored; it is tried again before the next one");
                let message = format!("the end of this turn could not be stored: {error}");
                let failed = Outcome::Failed { message, account: false };
                if goes_on {
                    // The turn that was to follow is not run, so nothing else tells the parent.
                    let report = self.report_writes(&failed, false);
                    self.pending.extend(report);
                }
                self.pending.push(Write::RunEnded);
                self.end_run(&failed);
            }
        }
        if let Some(manual) = manual {
            manual.answer();
        }
    }

    /// A look at the sub-sessions that cannot be had is no reason to end a run.
    pub async fn siblings_or_none(&self) -> Option<Siblings> {
        self.sibling_status().await.unwrap_or_else(|error| {
            tracing::warn!(session = %self.id, %error, "the sub-sessions could not be looked at");
            None
        })
    }

    fn next_turn(
        &mut self,
        (access, owes, resume): (AccessLevel, bool, Resume),
        next: Option<oneshot::Sender<AccessLevel>>,
    ) {
        let Some(run) = &mut self.run else { return };
        (run.access, run.resume) = (access, resume);
        run.calls = 0;
        run.results = None;
        run.owes = owes;
        run.said = Said::default();
        run.compaction.next_turn();
        // A task that was cut does not go on: its token has fired.
        let next = next.filter(|_| run.cancelled.is_none());
        run.cancelled = None;
        run.force_at = None;
        for reply in run.cancel_replies.drain(..) {
            let _ = reply.send(true);
        }
        if let Some(Err(_)) | None = next.map(|next| next.send(access)) {
            self.drive_again(access);
        }
    }

    /// Idle first, then the terminal frame.
    fn end_run(&mut self, outcome: &Outcome) {
        let Some(run) = self.run.take() else { return };
        // A compaction that somebody asked for has no frames of its own: those of the run before it stay.
        if run.log.last().seq > 0 || self.last.is_none() {
            self.hold(run.log.clone());
        }
        match outcome {
            Outcome::Failed { message, .. } => run.log.push(&Frame::Error { error: message }),
            Outcome::Done | Outcome::Yielded | Outcome::Aborted => run.log.push(&Frame::Complete),
        }
        for reply in run.cancel_replies {
            let _ = reply.send(true);
        }
        // Few sub-agents are spoken to again, and there may be hundreds: their history is read anew when they are.
        if self.id.is_child() && self.pending.is_empty() {
            self.history = None;
            self.gauge = None;
        }
    }

    /// The write of a notice in the log.
    pub fn notification(&mut self, text: &str) -> Write {
        let place = self.place();
        let agent = match (&self.run, &self.row) {
            (Some(run), _) => run.agent_name.as_str(),
            (None, Some(row)) => row.agent_name.as_str(),
            (None, None) => "",
        };
        Self::log_write(place, rows::notification(place, agent, text))
    }

    /// Calls without a result get one: for people that they were interrupted, for the model whether they had begun.
    fn cut_calls(&mut self) -> Vec<Write> {
        let Some(run) = &self.run else { return Vec::new() };
        let log = run.log.clone();
        let mut writes = Vec::new();
        for call in run.inflight.open_calls() {
            let (shown, content) = if call.started {
                (INTERRUPTED, repair::INTERRUPTED_RESULT)
            } else {
                (rows::NOT_RUN, repair::NOT_RUN_RESULT)
            };
            let output = Output::error(shown);
            writes.extend(self.result_writes(&call.id, &call.name, &output, content.to_owned(), None));
            log.push(&Frame::ToolResult { tool_name: &call.name, tool_use_id: &call.id, result: shown });
        }
        writes
    }

    /// An answer that was cut stays in the history as far as it came.
    fn cut_text(&mut self, outcome: &Outcome) -> Option<Write> {
        let said = self.run.as_ref()?.inflight.said();
        if *outcome != Outcome::Aborted || said.trim().is_empty() {
            return None;
        }
        let text = format!("{said}{CUT_MARKER}");
        Some(self.push_message(Message { role: Role::Assistant, content: vec![Block::Text { text }] }).1)
    }

    /// The assistant row, written to its end.
    fn finished_row(&mut self) -> Option<Write> {
        let run = self.run.as_mut()?;
        run.checkpoint_at = None;
        let blocks = run.inflight.take();
        if blocks.is_empty() {
            return None;
        }
        let place = self.place();
        let agent = &self.run.as_ref()?.agent_name;
        Some(Self::log_write(place, rows::assistant(place, agent, &blocks, Standing::Done)))
    }

    /// The server ends: the tools are stopped, the run stays in the ledger with its text so far, and this end does
    /// not count as a crash. A run that somebody has stopped ends for good.
    pub async fn close(&mut self) {
        self.cancel_run(Cancelled::Shutdown);
        let Some(run) = &mut self.run else {
            if !self.pending.is_empty()
                && let Err(error) = self.commit(Vec::new()).await
            {
                tracing::error!(session = %self.id, %error, "the end of the last turn could not be stored; it is lost");
            }
            return;
        };
        let patient = async { while run.steps.recv().await.is_some() {} };
        if tokio::time::timeout(CLOSE_GRACE, patient).await.is_err() {
            run.task.abort();
        }
        if run.cancelled == Some(Cancelled::Stop) {
            self.end_turn(Outcome::Aborted, None).await;
            return;
        }
        let mut writes = std::mem::take(&mut run.deferred);
        let (notice, manual) = self.end_compaction(&Outcome::Aborted);
        writes.extend(notice);
        if manual.is_some() {
            writes.push(Write::Inflight(None));
        } else {
            writes.extend(self.checkpoint_write());
            writes.push(Write::RunStarted { at: self.now(), crashes: -1 });
        }
        if let Err(error) = self.commit(writes).await {
            tracing::error!(session = %self.id, %error, "the run in flight could not be stored at the server's end");
        }
        self.run = None;
    }
}
