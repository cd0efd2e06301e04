//! The owner of one session: a task that alone changes it. Commands and the steps of its run come in through
//! bounded channels; it awaits the store and nothing else, so parent and child, tool and session cannot wait for
//! each other. It leaves memory when it has been idle for a while; everything can be rebuilt from disk.

use super::frames::{Budget, FrameLog};
use super::gauge::{Gauge, Look};
use super::ids::{SessionId, row_id};
use super::inflight::Checkpoint;
use super::receive::Arrival;
use super::remove::Removal;
use super::resume::Wish;
use super::rows::Place;
use super::run::{AgentSource, RunStep};
use super::state::{ActiveRun, Cancelled, Left, QueueEntry, Stop};
use super::tree::Stops;
use super::workspace::Workspace;
use super::{Compaction, Feed, From, Sent, SessionError, Snapshot};
use crate::access::AccessLevel;
use crate::clock::Clock;
use crate::model::Message;
use crate::store::sessions::{self, Counters, SessionRow, Write};
use crate::store::{Database, StoreError};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How long the frames of a finished run are held.
const HELD_FOR: Duration = Duration::from_secs(600);
/// How long an actor with nothing to hold stays.
const IDLE_FOR: Duration = Duration::from_secs(60);
/// How often what could not be stored is tried again.
const STORE_AGAIN_EVERY: Duration = Duration::from_secs(2);
/// How often the text of a turn in flight is put on disk.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);
/// How long a stopped run may take to end by itself.
pub(super) const STOP_GRACE: Duration = Duration::from_millis(1700);

/// What a session's owner is asked.
pub(super) enum Command {
    /// Make the session, without a message.
    Create { agent_id: Option<String>, access: AccessLevel, description: Option<String>, reply: Reply<()> },
    /// Take a message.
    Send { message: Box<Arrival>, reply: Reply<Sent> },
    /// Take what other sessions have left.
    Collect,
    /// Stop the run in flight.
    Stop { stop: Stop, reply: oneshot::Sender<bool> },
    /// Set the session aside, or delete it; false while a run is in flight.
    Remove { how: Removal, reply: Reply<bool> },
    /// The turn in flight wishes for one to go on with what it interrupted.
    WishToGoOn { reply: oneshot::Sender<Wish> },
    /// Cut the turn in flight; what waits in the queue is run next.
    Interrupt { reply: oneshot::Sender<bool> },
    /// Follow the session.
    Subscribe { from: From, reply: oneshot::Sender<Option<Feed>> },
    /// Look at the session.
    Snapshot { reply: oneshot::Sender<Option<Snapshot>> },
    /// Compact the history of the idle session.
    Compact { reply: Reply<Compaction> },
    /// Tell how full the context is.
    Look { reply: Reply<Option<Look>> },
    /// Leave memory, unless there is something to do; answered once the session is out of it.
    Rest { reply: oneshot::Sender<()> },
    /// Take up what another life of the server left; with the ledger's count where a run was in flight.
    Recover { crashes: Option<i64> },
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, SessionError>>;

/// What the sessions of one workspace share.
pub(super) struct Shared {
    pub path: PathBuf,
    pub db: Database,
    pub agents: Arc<dyn AgentSource>,
    pub clock: Arc<dyn Clock>,
    pub budget: Arc<Budget>,
    /// Fires when the server shuts down.
    pub closing: CancellationToken,
    /// The stops under way.
    pub stops: Stops,
}

/// Where the memory of a session stood.
pub(super) struct Mark {
    next: Counters,
    queue: Vec<(i64, QueueEntry)>,
    history: Option<usize>,
}

/// The owner of one session.
pub(super) struct Actor {
    pub id: SessionId,
    pub shared: Arc<Shared>,
    /// The way to other sessions.
    pub workspace: Workspace,
    pub row: Option<SessionRow>,
    pub next: Counters,
    /// The model history with each message's place in the store; loaded before the first run.
    pub history: Option<Vec<(i64, Arc<Message>)>>,
    /// How full the context is; made at the first use.
    pub gauge: Option<Gauge>,
    pub queue: Vec<(i64, QueueEntry)>,
    pub run: Option<ActiveRun>,
    /// The last finished run, while its frames are held.
    pub last: Option<(Arc<FrameLog>, Instant)>,
    /// Writes of a finished run that could not be stored; they go before whatever is written next.
    pub pending: Vec<Write>,
    /// Messages that came while a cancelled run was ending: they are no part of what was cancelled, so they wait
    /// for its end, unanswered.
    waiting: Vec<(Box<Arrival>, Reply<Sent>)>,
    /// Whether something that others have left is still to be taken.
    pub mail_waits: bool,
    /// What could not be taken up again for want of the store; it goes before everything else.
    pub left: Option<Left>,
    /// When what could not be stored is tried again.
    store_again_at: Instant,
    /// The latest time given to a row: rows never go back in time.
    pub last_at: i64,
    idle_since: Instant,
}

impl Actor {
    /// Reads what is on disk of the session.
    pub async fn load(id: SessionId, shared: Arc<Shared>, workspace: Workspace) -> Result<Self, StoreError> {
        let key = id.as_str().to_owned();
        let (row, next, queue) = shared
            .db
            .read(move |conn| {
                let row = sessions::get(conn, &key)?;
                Ok((row, sessions::counters(conn, &key)?, sessions::queue(conn, &key)?))
            })
            .await?;
        let queue = queue
            .into_iter()
            .filter_map(|(seq, entry)| match serde_json::from_str(&entry) {
                Ok(entry) => Some((seq, entry)),
                Err(error) => {
                    tracing::error!(session = %id, seq, %error, "a queue entry cannot be read and is skipped");
                    None
                }
            })
            .collect();
        Ok(Self {
            id,
            shared,
            workspace,
            last_at: row.as_ref().map_or(0, |row| row.updated_at),
            row,
            next,
            history: None,
            gauge: None,
            queue,
            run: None,
            last: None,
            pending: Vec::new(),
            waiting: Vec::new(),
            mail_waits: false,
            left: None,
            store_again_at: Instant::now(),
            idle_since: Instant::now(),
        })
    }

    /// Serves commands until `retire` lets it go or the server shuts down. `retire` is asked when the actor has
    /// nothing to do; it gives true when no command can reach this actor any more. Gives whom to tell of the end.
    pub async fn serve(
        mut self,
        commands: &mut mpsc::Receiver<Command>,
        retire: impl Fn(&mut mpsc::Receiver<Command>) -> bool,
    ) -> Option<oneshot::Sender<()>> {
        let closing = self.shared.closing.clone();
        loop {
            let wake = self.next_wake();
            tokio::select! {
                biased;
                () = closing.cancelled() => {
                    self.close().await;
                    return None;
                }
                command = commands.recv() => match command? {
                    Command::Rest { reply } => {
                        if self.has_nothing_to_do() && retire(commands) {
                            return Some(reply);
                        }
                    }
                    command => {
                        self.command(command).await;
                        self.idle_since = Instant::now();
                    }
                },
                // Before the steps: those of a fast model may never leave a gap.
                () = tokio::time::sleep_until(wake) => {
                    self.tick().await;
                    if self.may_retire() && retire(commands) {
                        return None;
                    }
                }
                step = next_step(&mut self.run) => self.step(step).await,
            }
            if self.run.is_none() {
                for (message, reply) in std::mem::take(&mut self.waiting) {
                    let _ = reply.send(self.receive(*message).await);
                }
            }
            if self.mail_waits && self.run.is_none() && !self.must_store() {
                self.collect().await;
            }
        }
    }

    async fn command(&mut self, command: Command) {
        match command {
            Command::Create { agent_id, access, description, reply } => {
                let _ = reply.send(self.create(agent_id, access, description).await);
            }
            Command::Send { message, reply } if self.is_ending() => self.waiting.push((message, reply)),
            Command::Send { message, reply } => {
                let _ = reply.send(self.receive(*message).await);
            }
            Command::Collect => self.collect().await,
            Command::Stop { stop, reply } => self.stop(stop, reply).await,
            Command::Remove { how, reply } => {
                let _ = reply.send(self.remove(how).await);
            }
            Command::WishToGoOn { reply } => drop(reply.send(self.wish_to_go_on())),
            Command::Interrupt { reply } => self.cancel(Cancelled::Interrupt, reply),
            Command::Subscribe { from, reply } => {
                let _ = reply.send(self.subscribe(&from));
            }
            Command::Snapshot { reply } => {
                let _ = reply.send(self.snapshot());
            }
            Command::Compact { reply } => self.compact(reply).await,
            Command::Look { reply } => drop(reply.send(self.look().await)),
            Command::Recover { crashes } => self.recover(crashes).await,
            // Taken by `serve`.
            Command::Rest { .. } => {}
        }
    }

    /// Whether the run in flight was cancelled for good: what comes now is no part of it.
    pub fn is_ending(&self) -> bool {
        let cancelled = self.run.as_ref().and_then(|run| run.cancelled);
        cancelled.is_some_and(|why| why != Cancelled::Interrupt)
    }

    fn next_wake(&self) -> Instant {
        let run = self.run.as_ref();
        let idle = match (run, &self.last) {
            (Some(_), _) => None,
            (None, Some((_, until))) => Some(*until),
            (None, None) => Some(self.idle_since + IDLE_FOR),
        };
        // With something to store there is no retiring, so that is what it wakes for.
        let waits = self.must_store() || self.mail_waits;
        let idle = if run.is_none() && waits { Some(self.store_again_at) } else { idle };
        [run.and_then(|run| run.checkpoint_at), run.and_then(|run| run.force_at), idle]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + IDLE_FOR)
    }

    async fn tick(&mut self) {
        let now = Instant::now();
        if self.last.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.last = None;
        }
        let Some(run) = &mut self.run else {
            if self.store_again_at <= now {
                if self.must_store() {
                    self.store_again().await;
                }
                // What others have left is taken by `serve`.
                self.store_again_at = Instant::now() + STORE_AGAIN_EVERY;
            }
            return;
        };
        if run.checkpoint_at.is_some_and(|at| at <= now) {
            run.checkpoint_at = None;
            self.checkpoint().await;
        }
        if self.run.as_ref().is_some_and(|run| run.force_at.is_some_and(|at| at <= now)) {
            tracing::warn!(session = %self.id, "a cancelled run did not end by itself and is ended by force");
            self.end_by_force().await;
        }
    }

    /// Whether something waits for the store to work again.
    fn must_store(&self) -> bool {
        self.left.is_some() || !self.pending.is_empty()
    }

    async fn store_again(&mut self) {
        if let Some(Left { crashes }) = self.left.take() {
            self.recover(crashes).await;
        } else if let Err(error) = self.commit(Vec::new()).await {
            tracing::debug!(session = %self.id, %error, "the end of a turn can still not be stored");
        }
    }

    fn has_nothing_to_do(&self) -> bool {
        self.run.is_none() && self.waiting.is_empty() && !self.mail_waits && !self.must_store()
    }

    fn may_retire(&self) -> bool {
        self.has_nothing_to_do() && self.last.is_none() && self.idle_since.elapsed() >= IDLE_FOR
    }

    /// Holds the frames of a run that is over.
    pub fn hold(&mut self, log: Arc<FrameLog>) {
        self.last = Some((log, Instant::now() + HELD_FOR));
        self.idle_since = Instant::now();
    }

    /// Now, never earlier than a row before.
    pub fn now(&mut self) -> i64 {
        self.last_at = self.last_at.max(self.shared.clock.now_ms());
        self.last_at
    }

    /// The next place in the log.
    pub fn place(&mut self) -> Place {
        let place = Place { seq: self.next.log, at: self.now() };
        self.next.log += 1;
        place
    }

    /// The write that puts a row at its place.
    pub fn log_write(place: Place, row: String) -> Write {
        debug_assert!(row.contains(&row_id(place.at, place.seq)));
        Write::Log { seq: place.seq, at: place.at, task: false, row }
    }

    /// The same for a row that tells of a sub-session.
    pub fn task_write(place: Place, row: String) -> Write {
        Write::Log { seq: place.seq, at: place.at, task: true, row }
    }

    /// Where memory stands, to be put back when a change cannot be stored.
    pub fn mark(&self) -> Mark {
        Mark { next: self.next, queue: self.queue.clone(), history: self.history.as_ref().map(Vec::len) }
    }

    /// Takes a change of memory back.
    pub fn back_to(&mut self, mark: Mark) {
        (self.next, self.queue) = (mark.next, mark.queue);
        match (&mut self.history, mark.history) {
            (Some(loaded), Some(length)) => loaded.truncate(length),
            _ => self.history = None,
        }
    }

    /// Puts a change on disk. When it fails nothing of it is.
    pub async fn commit(&mut self, writes: Vec<Write>) -> Result<(), StoreError> {
        let id = self.id.as_str().to_owned();
        let mut all = self.pending.clone();
        all.extend(writes);
        let receivers = receivers(&all);
        self.shared.db.write(move |conn| sessions::apply(conn, &id, &all)).await?;
        self.pending.clear();
        for receiver in receivers {
            self.workspace.post(receiver, Command::Collect);
        }
        Ok(())
    }

    /// The row in flight as it goes to disk.
    pub fn checkpoint_write(&mut self) -> Option<Write> {
        let at = self.now();
        let run = self.run.as_ref()?;
        let checkpoint =
            Checkpoint { at, blocks: run.inflight.shown(), compacting: run.compaction.is_open() };
        serde_json::to_string(&checkpoint).ok().map(|row| Write::Inflight(Some(row)))
    }

    async fn checkpoint(&mut self) {
        let Some(write) = self.checkpoint_write() else { return };
        if let Err(error) = self.commit(vec![write]).await {
            tracing::error!(session = %self.id, %error, "the text in flight could not be put on disk");
        }
    }

    /// Text has grown: it goes to disk within a second.
    pub fn schedule_checkpoint(&mut self) {
        if let Some(run) = &mut self.run {
            run.checkpoint_at.get_or_insert_with(|| Instant::now() + CHECKPOINT_EVERY);
        }
    }

    /// The model history, read from disk at the first use.
    pub async fn load_history(&mut self) -> Result<(), StoreError> {
        if self.history.is_some() {
            return Ok(());
        }
        let id = self.id.as_str().to_owned();
        let stored = self.shared.db.read(move |conn| sessions::messages(conn, &id)).await?;
        let mut history = Vec::with_capacity(stored.len());
        for (seq, text) in stored {
            match serde_json::from_str(&text) {
                Ok(message) => history.push((seq, Arc::new(message))),
                Err(error) => {
                    tracing::error!(session = %self.id, seq, %error, "a model message cannot be read and is skipped");
                }
            }
        }
        self.history = Some(history);
        Ok(())
    }

    /// The model history as it is in memory.
    pub fn messages(&self) -> Vec<Arc<Message>> {
        self.history.iter().flatten().map(|(_, message)| message.clone()).collect()
    }

    /// Adds a message to the model history; gives its place there and the write.
    pub fn push_message(&mut self, message: Message) -> (usize, Write) {
        let seq = self.next.message;
        self.next.message += 1;
        let write = Write::Message { seq, message: serde_json::to_string(&message).unwrap_or_default() };
        let history = self.history.get_or_insert_default();
        history.push((seq, Arc::new(message)));
        (history.len() - 1, write)
    }

    /// Logs a failure of the store and gives the error that a client sees.
    pub fn internal(&self, error: &StoreError) -> SessionError {
        super::store_failed(&format!("session {}", self.id), error)
    }
}

/// The sessions that these writes leave something for.
fn receivers(writes: &[Write]) -> Vec<SessionId> {
    let mut receivers: Vec<SessionId> = Vec::new();
    for write in writes {
        let named = match write {
            Write::Post { to, .. } => [Some(to), None],
            Write::Report { parent, root, .. } => [Some(parent), Some(root)],
            _ => continue,
        };
        receivers.extend(named.into_iter().flatten().filter_map(|id| id.parse().ok()));
    }
    receivers.sort();
    receivers.dedup();
    receivers
}

/// The next step of the run in flight; `None` once its task is gone. Waits for ever when there is no run.
async fn next_step(run: &mut Option<ActiveRun>) -> Option<RunStep> {
    match run {
        Some(run) => run.steps.recv().await,
        None => std::future::pending().await,
    }
}
