//! Compaction of a session: the gate before every model call, the compaction that somebody asks for, the one after
//! an overflow. The history is rewritten in one transaction or not at all, every start notice is followed by exactly
//! one that tells the outcome, and no turn tries more than twice in a row (sessions contract, section 4).

use super::actor::{Actor, Reply};
use super::gauge::{Gauge, Room, estimate};
use super::run::figures;
use super::{Compaction, SessionError, rows};
use crate::access::AccessLevel;
use crate::agent::compact;
use crate::agent::repair;
use crate::agent::turn::{NoSummary, Outcome, Plan, Spent, Summary};
use crate::model::Message;
use crate::store::StoreError;
use crate::store::sessions::Write;
use crate::text::head_chars;
use std::sync::Arc;
use tokio::sync::oneshot;

const STARTED: &str = "Compacting context…";
const FAILED: &str = "Compaction failed — context unchanged";
const NO_SUMMARY: &str = "Compaction skipped — no summary produced";
const CANCELLED: &str = "Compact cancelled";
/// The outcome that stands in the log after a crash.
pub(super) const CRASHED: &str = FAILED;
/// Characters of a failure's reason in a notice.
const REASON_CHARS: usize = 80;
/// Compactions in a row that do not help, after which a turn ends with an error.
const MAX_TRIES: u32 = 2;
/// Messages that stay when keeping more of them did not help.
const KEEP_LEAST: usize = 1;

/// The compactions of a run.
#[derive(Default)]
pub(super) struct Progress {
    /// What the agent says about the room; none before it is built.
    pub room: Option<Room>,
    /// Set between a start notice and its outcome.
    open: bool,
    /// Messages that the summary asked for will stand for.
    cut: usize,
    /// Automatic compactions since the provider last counted less than the threshold.
    tries: u32,
    /// Compactions since the provider last took the conversation.
    overflows: u32,
    /// The last try did not help, so the next one does without the model.
    without_model: bool,
    /// The conversation has just been compacted and fits, as far as can be told.
    fits: bool,
    /// What somebody asked for, while this run is nothing but a compaction.
    manual: Option<Manual>,
}

/// A compaction that somebody asked for.
pub(super) struct Manual {
    reply: Reply<Compaction>,
    result: Option<Compaction>,
}

impl Manual {
    /// Tells whoever asked.
    pub fn answer(self) {
        let _ = self.reply.send(Ok(self.result.unwrap_or(Compaction::Nothing)));
    }
}

impl Progress {
    /// Whether a start notice waits for its outcome.
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Whether the run is nothing but a compaction that somebody asked for.
    pub fn is_manual(&self) -> bool {
        self.manual.is_some()
    }

    /// The model has answered; `below` tells whether that is less than the threshold.
    pub fn answered(&mut self, below: bool) {
        self.overflows = 0;
        self.fits = false;
        if below {
            self.next_turn();
        }
    }

    /// A turn begins.
    pub fn next_turn(&mut self) {
        (self.tries, self.overflows) = (0, 0);
        (self.without_model, self.fits) = (false, false);
    }
}

impl Actor {
    /// Compacts the history of the idle session, as a run of its own that the ledger does not know: after a crash
    /// there is nothing to go on with.
    pub async fn compact(&mut self, reply: Reply<Compaction>) {
        match self.can_compact().await {
            Ok(Ok(access)) => {
                self.start_run(access, false);
                if let Some(run) = &mut self.run {
                    run.compaction.manual = Some(Manual { reply, result: None });
                }
            }
            Ok(Err(why_not)) => drop(reply.send(Ok(why_not))),
            Err(error) => drop(reply.send(Err(error))),
        }
    }

    /// The level at which to compact, or the answer where there is nothing to try.
    async fn can_compact(&mut self) -> Result<Result<AccessLevel, Compaction>, SessionError> {
        self.take_up_left().await?;
        let Some(row) = &self.row else { return Err(SessionError::NotFound) };
        let access = AccessLevel::from_stored(&row.access_level);
        if self.run.is_some() {
            return Ok(Err(Compaction::Busy));
        }
        self.load_history().await.map_err(|error| self.internal(&error))?;
        let short = compact::cut(&self.messages(), KEEP_LEAST) == 0;
        Ok(if short { Err(Compaction::Nothing) } else { Ok(access) })
    }

    /// What goes before a model call: the images are kept within bounds, the conversation within the window. `None`
    /// when the call may be made.
    pub async fn before_call(&mut self) -> Option<Plan> {
        let run = self.run.as_ref()?;
        let room = run.compaction.room?;
        let checked = match (run.compaction.is_manual(), self.trim_images().await) {
            (_, Err(error)) => Err(error),
            (true, Ok(())) => self.manual_plan(room).await.map(Some),
            (false, Ok(())) => self.gate(room).await,
        };
        checked.unwrap_or_else(|error| {
            self.fail_storage(&error);
            Some(Plan::Yield)
        })
    }

    async fn manual_plan(&mut self, room: Room) -> Result<Plan, StoreError> {
        let manual = self.run.as_ref().and_then(|run| run.compaction.manual.as_ref());
        if manual.is_none_or(|manual| manual.result.is_some()) {
            return Ok(Plan::Yield);
        }
        let messages = self.messages();
        let cut = compact::cut(&messages, room.limits.keep_messages);
        if cut == 0 {
            self.manual_result(Compaction::Nothing);
            return Ok(Plan::Yield);
        }
        self.start(cut, &messages).await
    }

    fn manual_result(&mut self, result: Compaction) {
        if let Some(manual) = self.run.as_mut().and_then(|run| run.compaction.manual.as_mut()) {
            manual.result.get_or_insert(result);
        }
    }

    /// Compacts before a call that would fill the window to the threshold.
    async fn gate(&mut self, room: Room) -> Result<Option<Plan>, StoreError> {
        let used = self.used(room.overhead);
        let (threshold, window) = (room.limits.threshold(), room.limits.window);
        // At most one more round than there are tries.
        for _ in 0..=MAX_TRIES {
            let Some(run) = &mut self.run else { return Ok(Some(Plan::Yield)) };
            let progress = &mut run.compaction;
            if progress.fits || used < threshold {
                return Ok(None);
            }
            let messages: Vec<Arc<Message>> =
                self.history.iter().flatten().map(|(_, message)| message.clone()).collect();
            let keep = if progress.tries == 0 { room.limits.keep_messages } else { KEEP_LEAST };
            let cut = compact::cut(&messages, keep);
            if cut == 0 {
                // Nothing to compact. Whether it fits is the provider's to say.
                return Ok(None);
            }
            if progress.tries >= MAX_TRIES {
                let text = format!(
                    "the conversation takes about {used} of the model's {window} tokens, and compacting it did not \
                     help; start a new session (/new), or give the agent a model with a larger window"
                );
                return Ok(Some(Plan::Fail(text)));
            }
            progress.tries += 1;
            if !progress.without_model {
                return self.start(cut, &messages).await.map(Some);
            }
            let change = self.local_change(cut, room, used);
            let helps = change.cut > 0 && change.after < used && change.after < window;
            self.compact_locally(change, helps, "").await?;
        }
        Ok(None)
    }

    /// Announces a compaction; the plan asks for the summary.
    async fn start(&mut self, cut: usize, messages: &[Arc<Message>]) -> Result<Plan, StoreError> {
        if let Some(run) = &mut self.run {
            run.compaction.cut = cut;
        }
        let mut writes = self.announce();
        writes.extend(self.checkpoint_write());
        self.commit_or_keep(writes).await?;
        Ok(Plan::Compact(compact::request(messages)))
    }

    fn announce(&mut self) -> Vec<Write> {
        let mut writes = self.settle().writes;
        writes.push(self.notification(STARTED));
        if let Some(run) = &mut self.run {
            run.compaction.open = true;
        }
        writes
    }

    /// The notice that tells the outcome.
    fn outcome(&mut self, text: &str) -> Vec<Write> {
        if let Some(run) = &mut self.run {
            run.compaction.open = false;
        }
        let mut writes = vec![self.notification(text)];
        writes.extend(self.checkpoint_write());
        writes
    }

    /// What came of the request for a summary.
    pub async fn summarised(&mut self, summary: Summary, done: oneshot::Sender<()>) {
        match self.take_summary(summary).await {
            Ok(()) => drop(done.send(())),
            Err(error) => self.fail_storage(&error),
        }
    }

    async fn take_summary(&mut self, summary: Summary) -> Result<(), StoreError> {
        let Some(run) = &self.run else { return Ok(()) };
        let progress = &run.compaction;
        let (Some(room), cut, manual) = (progress.room, progress.cut, progress.is_manual()) else {
            return Ok(());
        };
        let used = self.used(room.overhead);
        let spent = self.spent(summary.spent.as_ref());
        let (text, note) = match summary.text {
            Ok(text) => (text, String::new()),
            Err(why) if manual => {
                let (notice, result) = match why {
                    NoSummary::Empty => (NO_SUMMARY, Compaction::NoSummary),
                    NoSummary::Failed(reason) => (FAILED, Compaction::Failed(reason)),
                };
                self.manual_result(result);
                return self.leave(spent, notice).await;
            }
            Err(why) => {
                let reason = match &why {
                    NoSummary::Empty => "no summary produced",
                    NoSummary::Failed(reason) => reason,
                };
                let note = format!(" (local fallback — LLM summary failed: {})", shortened(reason));
                (compact::local_summary(&self.messages()[..cut], &room.limits), note)
            }
        };
        let change = self.change(cut, &text, room, used);
        let fits = change.after < room.limits.window;
        let helps = fits && (manual || change.after < used);
        if change.cut == 0 || !helps {
            let why = if fits {
                "the conversation has changed meanwhile"
            } else {
                "the summary does not fit into the model's window"
            };
            self.manual_result(Compaction::Failed(why.into()));
            self.helped(false);
            return self.leave(spent, FAILED).await;
        }
        let notice = if manual {
            format!("Context compacted: {cut} messages, about {used} → {} tokens", change.after)
        } else {
            format!("Auto-compacted {cut} older messages{note}")
        };
        self.apply(change, spent, &notice).await?;
        self.manual_result(Compaction::Done { messages: cut });
        self.helped(true);
        Ok(())
    }

    fn helped(&mut self, helped: bool) {
        if let Some(run) = &mut self.run {
            (run.compaction.fits, run.compaction.without_model) = (helped, !helped);
        }
    }

    /// The row of what the call for a summary took.
    fn spent(&mut self, spent: Option<&Spent>) -> Vec<Write> {
        let (Some(spent), Some(run)) = (spent, &self.run) else { return Vec::new() };
        let figures =
            figures(&run.turn_id, &run.model_id, &run.thinking_effort, spent.usage, None, spent.e2e_ms);
        let agent = run.agent_name.clone();
        let place = self.place();
        let tokens = self.row.as_ref().map_or(0, |row| row.context_tokens);
        vec![
            Self::log_write(place, rows::usage(place, &agent, &figures)),
            self.count(place.at, tokens, spent.usage.output),
        ]
    }

    /// Ends a compaction that changes nothing.
    async fn leave(&mut self, mut writes: Vec<Write>, notice: &str) -> Result<(), StoreError> {
        writes.extend(self.outcome(notice));
        self.commit_or_keep(writes).await
    }

    /// What a compaction makes of the history; with `cut` 0 where there is nothing to cut.
    fn change(&self, cut: usize, summary: &str, room: Room, used: u64) -> Change {
        let Some(old) = self.history.as_ref().filter(|old| (1..=old.len()).contains(&cut)) else {
            return Change::default();
        };
        let messages = self.messages();
        let summary = Arc::new(compact::summary(cut, summary));
        // The summary takes the place of the newest message that it stands for: what is kept keeps its own.
        let seq = old[cut - 1].0;
        let mut writes = vec![Write::Forget { before: seq }, message_write(seq, &summary)];
        let mut history = vec![(seq, summary)];
        for ((seq, before), after) in old[cut..].iter().zip(compact::tail(&messages[cut..])) {
            if !Arc::ptr_eq(before, &after) {
                writes.push(message_write(*seq, &after));
            }
            history.push((*seq, after));
        }
        let after: Vec<Arc<Message>> = history.iter().map(|(_, message)| message.clone()).collect();
        let (large, small) = (estimate(&messages, room.overhead), estimate(&after, room.overhead));
        // Where the provider counts less than the estimate, it will do so again.
        let scale = (used as f64 / large.max(1) as f64).min(1.0);
        let gauge = Gauge::estimated(&after, room.overhead, scale);
        Change { cut, history, writes, gauge, after: (small as f64 * scale) as u64, shrinks: small < large }
    }

    /// Puts the change on disk and in memory, with the notice that tells of it; nothing is changed when that fails.
    async fn apply(
        &mut self,
        change: Change,
        mut writes: Vec<Write>,
        notice: &str,
    ) -> Result<(), StoreError> {
        let (at, tokens) = (self.now(), change.gauge.tokens());
        writes.extend(change.writes);
        writes.push(Write::Answered { at, context_tokens: tokens, output_tokens: 0 });
        writes.extend(self.outcome(notice));
        if let Err(error) = self.commit(writes).await {
            if let Some(run) = &mut self.run {
                run.compaction.open = true;
            }
            return Err(error);
        }
        self.count(at, tokens, 0);
        self.history = Some(change.history);
        self.gauge = Some(change.gauge);
        Ok(())
    }

    /// What a compaction without the model makes of the history.
    fn local_change(&self, cut: usize, room: Room, used: u64) -> Change {
        let summary = compact::local_summary(&self.messages()[..cut], &room.limits);
        self.change(cut, &summary, room, used)
    }

    /// Compacts at once, without the model. The history stays as it is where that does not help.
    async fn compact_locally(&mut self, change: Change, helps: bool, why: &str) -> Result<(), StoreError> {
        // By itself, so that the text above it and the start stay in the log when the change cannot be stored.
        let announced = self.announce();
        self.commit_or_keep(announced).await?;
        self.helped(helps);
        if helps {
            let notice = format!("Auto-compacted {} older messages{why}", change.cut);
            self.apply(change, Vec::new(), &notice).await
        } else {
            self.leave(Vec::new(), FAILED).await
        }
    }

    /// The provider found the conversation too long: it is compacted without the model, more strictly the second
    /// time, and the call is made again.
    pub async fn overflowed(&mut self, error: &str) -> Plan {
        let room = self.run.as_ref().and_then(|run| run.compaction.room);
        let Some(room) = room else { return Plan::Yield };
        match self.compact_overflow(room).await {
            Ok(true) => Plan::Call(repair::for_request(&self.messages())),
            Ok(false) => {
                let (used, window) = (self.used(room.overhead), room.limits.window);
                Plan::Fail(format!(
                    "{error} — the conversation (about {used} tokens; the model's window is taken to be {window}) \
                     is too long for this model, and compacting it did not help; start a new session (/new)"
                ))
            }
            Err(error) => {
                self.fail_storage(&error);
                Plan::Yield
            }
        }
    }

    async fn compact_overflow(&mut self, room: Room) -> Result<bool, StoreError> {
        loop {
            let Some(run) = &mut self.run else { return Ok(false) };
            let tries = run.compaction.overflows;
            if tries >= MAX_TRIES {
                return Ok(false);
            }
            run.compaction.overflows += 1;
            let keep = if tries == 0 { room.limits.keep_messages } else { KEEP_LEAST };
            let cut = compact::cut(&self.messages(), keep);
            let used = self.used(room.overhead);
            let why = " (without the model: the conversation was too long for it)";
            if cut > 0 {
                let change = self.local_change(cut, room, used);
                // What the provider says goes before the estimate: fewer messages are worth a try, too.
                let helps = change.cut > 0 && (change.shrinks || cut > 1);
                self.compact_locally(change, helps, why).await?;
                if helps {
                    return Ok(true);
                }
            }
        }
    }

    /// A turn ends, and with it a compaction that is under way. Gives its notice, and whom to tell the result.
    pub fn end_compaction(&mut self, outcome: &Outcome) -> (Vec<Write>, Option<Manual>) {
        let Some(run) = &mut self.run else { return (Vec::new(), None) };
        let open = std::mem::take(&mut run.compaction.open);
        let mut manual = run.compaction.manual.take();
        if let Some(manual) = &mut manual {
            manual.result.get_or_insert_with(|| match outcome {
                Outcome::Aborted => Compaction::Cancelled,
                Outcome::Failed { message, .. } => Compaction::Failed(message.clone()),
                Outcome::Done | Outcome::Yielded => Compaction::Nothing,
            });
        }
        let notice = if *outcome == Outcome::Aborted { CANCELLED } else { FAILED };
        (open.then(|| self.notification(notice)).into_iter().collect(), manual)
    }
}

/// A history after a compaction that is not stored yet.
#[derive(Default)]
struct Change {
    /// Messages that the summary stands for.
    cut: usize,
    history: Vec<(i64, Arc<Message>)>,
    writes: Vec<Write>,
    gauge: Gauge,
    /// Tokens of a call with it, by estimate.
    after: u64,
    /// Whether it is smaller, estimate against estimate.
    shrinks: bool,
}

fn message_write(seq: i64, message: &Message) -> Write {
    Write::Message { seq, message: serde_json::to_string(message).unwrap_or_default() }
}

/// A reason as it fits into a notice.
fn shortened(reason: &str) -> String {
    let line = reason.replace(char::is_control, " ");
    match head_chars(&line, REASON_CHARS) {
        cut if cut.len() < line.len() => format!("{cut}…"),
        _ => line,
    }
}
