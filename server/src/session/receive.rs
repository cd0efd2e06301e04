//! Messages in: an idle session starts a run, a busy one queues. Either way the message is on disk, in log and in
//! queue or model history, before anybody hears of it.

use super::actor::Actor;
use super::compact::Progress;
use super::delegation::Birth;
use super::frames::{Frame, FrameLog};
use super::inflight::Inflight;
use super::mail::{self, Item};
use super::report::{Said, Siblings};
use super::resume::Resume;
use super::rows::{self, ContentBlock, Standing};
use super::run::{self, RunStep, Start};
use super::scope::Scope;
use super::state::{ActiveRun, Cancelled, Left, QueueEntry};
use super::{Inbound, InboundImage, Sent, SessionError};
use crate::access::AccessLevel;
use crate::clock::iso;
use crate::model::{Block, Message, Role};
use crate::store::sessions::{SessionRow, Write};
use crate::text::head_chars;
use crate::workspace::inbound::Saved;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Characters of a sub-session's task that its root's log shows.
const PREVIEW_CHARS: usize = 200;

/// A message on its way into a session.
pub(super) struct Arrival {
    pub text: String,
    pub images: Vec<InboundImage>,
    pub saved: Saved,
    /// What its `@scope` markers make of it.
    pub scope: Scope,
    /// The sender's level.
    pub access: AccessLevel,
    /// The agent, where this makes a root.
    pub agent_id: Option<String>,
    /// The session that sends it; none for people.
    pub source: Option<String>,
    /// Whether the turn in flight is cut for it.
    pub hard: bool,
    /// What a sub-session is made of, where this makes one.
    pub birth: Option<Birth>,
}

impl std::convert::From<Inbound> for Arrival {
    fn from(message: Inbound) -> Self {
        let Inbound { text, images, saved, access, agent_id } = message;
        let scope = Scope::default();
        Self { text, images, saved, scope, access, agent_id, source: None, hard: false, birth: None }
    }
}

/// What a run has written so far, on its way into the log.
#[derive(Default)]
pub(super) struct Settled {
    pub writes: Vec<Write>,
    /// The blocks and deferred writes that `writes` holds, to be put back if they cannot be stored.
    blocks: Vec<ContentBlock>,
    deferred: Vec<Write>,
}

/// The queue on its way to the model.
pub(super) struct Drained {
    pub writes: Vec<Write>,
    /// The lowest level among the senders.
    pub access: AccessLevel,
    /// Whether the parent is among them.
    pub owes: bool,
}

impl Actor {
    /// What another life left goes before whatever is asked.
    pub async fn take_up_left(&mut self) -> Result<(), SessionError> {
        if let Some(Left { crashes }) = self.left.take() {
            self.recover(crashes).await;
            if self.left.is_some() {
                return Err(super::internal(
                    &format!("session {}", self.id),
                    &"what was left could not be taken up",
                ));
            }
        }
        Ok(())
    }

    /// Takes a message.
    pub async fn receive(&mut self, message: Arrival) -> Result<Sent, SessionError> {
        self.take_up_left().await?;
        if message.source.is_some() && self.shared.stops.reach(&self.id) {
            return Err(SessionError::Stopping);
        }
        let hard = message.hard;
        let mark = self.mark();
        let taken = if self.run.is_some() { self.enqueue(message).await } else { self.open(message).await };
        if taken.is_err() {
            self.back_to(mark);
        } else if hard && matches!(taken, Ok(Sent::Queued(_))) {
            self.cancel_run(Cancelled::Interrupt);
        }
        taken
    }

    async fn open(&mut self, message: Arrival) -> Result<Sent, SessionError> {
        self.load_history().await.map_err(|error| self.internal(&error))?;
        let mut writes = Vec::with_capacity(6);
        let mut row = match (self.row.clone(), &message.birth) {
            (Some(row), _) => row,
            (None, Some(birth)) => {
                let now = self.now();
                let row = birth.row(&self.id, now);
                writes.push(Write::Create(row.clone()));
                row
            }
            (None, None) => {
                let row = self.new_row(message.agent_id.clone(), message.access, None).await?;
                writes.push(Write::Create(row.clone()));
                row
            }
        };
        let (received, access) = self.received(&mut row, &message);
        writes.push(received);
        // A queue that a full disk kept from its turn goes first.
        let mut owes = message.source.as_deref() == row.parent_id.as_deref() && message.source.is_some();
        if let Some(drained) = self.drain(None) {
            writes.extend(drained.writes);
            owes |= drained.owes;
        }
        if self.next.log == 1 {
            let place = self.place();
            writes.push(Self::log_write(place, rows::context(place, &row.agent_name)));
        }
        let text = shown(&message);
        let place = self.place();
        writes.push(Self::log_write(place, rows::user(place, &text)));
        for notice in &message.scope.notices {
            let place = self.place();
            writes.push(Self::log_write(place, rows::notification(place, &row.agent_name, notice)));
        }
        writes.push(Write::RunStarted { at: place.at, crashes: 0 });
        let for_model = message.scope.for_model.as_deref().unwrap_or(&text);
        writes.push(self.push_message(user_message(place.at, for_model, &message.images)).1);
        if let Some(birth) = &message.birth {
            let item = Item::Started {
                agent_name: row.agent_name.clone(),
                preview: head_chars(&message.text, PREVIEW_CHARS).to_owned(),
            };
            writes.push(Write::Post { to: birth.root.clone(), item: item.json() });
        }
        self.commit(writes).await.map_err(|error| self.internal(&error))?;
        message.saved.keep();
        self.row = Some(row);
        let log = self.start_run(access, owes);
        self.look_at_children().await;
        log.push(&Frame::User { text: &text });
        Ok(Sent::Started(log.follow(0, self.shared.closing.clone())))
    }

    /// The write for a message that arrived, and the level at which it is worked on; brings `row` in step with it.
    /// A sub-session keeps the level it was made with, and nobody gets more out of it than is theirs.
    fn received(&mut self, row: &mut SessionRow, message: &Arrival) -> (Write, AccessLevel) {
        let at = self.now();
        let stored = AccessLevel::from_stored(&row.access_level);
        let (access, kept) = match (&message.source, self.id.is_child()) {
            (Some(_), _) | (None, true) => (message.access.min(stored), stored),
            (None, false) => (message.access, message.access),
        };
        if row.title.is_none() {
            row.title = rows::title(&message.text);
        }
        row.updated_at = at;
        row.stopped_at = None;
        row.archived_at = None;
        kept.as_str().clone_into(&mut row.access_level);
        (Write::Received { at, access_level: kept.as_str(), title: row.title.clone() }, access)
    }

    /// Starts a run on what the model history holds; its ledger row is on disk.
    pub fn start_run(&mut self, access: AccessLevel, owes: bool) -> std::sync::Arc<FrameLog> {
        let log = FrameLog::new(&self.shared.budget);
        let (steps, task, cancel) = self.drive(access);
        let agent_name = self.row.as_ref().map(|row| row.agent_name.clone()).unwrap_or_default();
        self.run = Some(ActiveRun {
            log: log.clone(),
            steps,
            task,
            cancel,
            cancelled: None,
            force_at: None,
            cancel_replies: Vec::new(),
            tell_parent: true,
            owes,
            access,
            resume: Resume::default(),
            children_before: false,
            said: Said::default(),
            inflight: Inflight::default(),
            checkpoint_at: None,
            agent_name,
            model_id: String::new(),
            thinking_effort: String::new(),
            display_bytes: 0,
            turn_id: String::new(),
            calls: 0,
            results: None,
            deferred: Vec::new(),
            storage_error: None,
            compaction: Progress::default(),
        });
        log
    }

    fn drive(&self, access: AccessLevel) -> (mpsc::Receiver<RunStep>, JoinHandle<()>, CancellationToken) {
        let (sender, steps) = mpsc::channel(run::STEPS);
        let cancel = CancellationToken::new();
        let row = self.row.as_ref();
        let start = Start {
            workspace: self.workspace.clone(),
            session: self.id.clone(),
            agent_id: row.map(|row| row.agent_id.clone()).unwrap_or_default(),
            working_dir: row.and_then(|row| row.working_dir.clone()),
            prompt_context: row.and_then(|row| row.prompt_context.clone()),
            access,
            cancel: cancel.clone(),
        };
        (steps, tokio::spawn(run::drive(start, sender)), cancel)
    }

    /// Goes on with the run in a new task: the old one is gone.
    pub fn drive_again(&mut self, access: AccessLevel) {
        let (steps, task, cancel) = self.drive(access);
        if let Some(run) = &mut self.run {
            (run.steps, run.task, run.cancel) = (steps, task, cancel);
        }
    }

    async fn enqueue(&mut self, message: Arrival) -> Result<Sent, SessionError> {
        let Some(mut row) = self.row.clone() else { return Err(SessionError::NotFound) };
        if message.source.is_some() && !message.hard {
            let limit = self.shared.agents.delegation().max_queue;
            let waiting = self.queue.iter().filter(|(_, entry)| entry.source.is_some()).count();
            if waiting >= limit {
                return Err(SessionError::QueueFull { waiting, limit });
            }
        }
        let (received, access) = self.received(&mut row, &message);
        let mut writes = vec![received];
        // Nothing of what is settled is lost when the commit fails: it goes back.
        let settled = self.settle();
        writes.extend(settled.writes.iter().cloned());
        let text = shown(&message);
        let place = self.place();
        writes.push(Self::log_write(place, rows::user(place, &text)));
        writes.extend(message.scope.notices.iter().map(|notice| self.notification(notice)));
        let seq = self.next.queue;
        self.next.queue += 1;
        let Arrival { images, saved, source, scope, .. } = message;
        let entry = QueueEntry { at: place.at, text, for_model: scope.for_model, images, access, source };
        writes.push(Write::Enqueue { seq, entry: serde_json::to_string(&entry).unwrap_or_default() });
        if let Err(error) = self.commit(writes).await {
            self.unsettle(settled);
            return Err(self.internal(&error));
        }
        saved.keep();
        self.row = Some(row);
        let Some(run) = &self.run else { return Err(SessionError::NotFound) };
        run.log.push(&Frame::User { text: &entry.text });
        self.queue.push((seq, entry));
        Ok(Sent::Queued(run.log.last()))
    }

    /// What the run has written so far goes into the log, so that the next row stands below it; what it still writes
    /// comes after that row.
    pub fn settle(&mut self) -> Settled {
        let Some(run) = &mut self.run else { return Settled::default() };
        let agent = run.agent_name.clone();
        let deferred = std::mem::take(&mut run.deferred);
        let blocks = run.inflight.settle().unwrap_or_default();
        let mut writes = deferred.clone();
        if !blocks.is_empty() {
            let place = self.place();
            writes.push(Self::log_write(place, rows::assistant(place, &agent, &blocks, Standing::Done)));
            writes.extend(self.checkpoint_write());
        }
        Settled { writes, blocks, deferred }
    }

    /// Puts back what was settled: it could not be stored.
    pub fn unsettle(&mut self, settled: Settled) {
        if let Some(run) = &mut self.run {
            run.inflight.unsettle(settled.blocks);
            run.deferred = settled.deferred;
        }
    }

    /// The whole queue as one message for the model, with a word about the sub-sessions where one of them is in it.
    /// `None` when the queue is empty.
    pub fn drain(&mut self, siblings: Option<Siblings>) -> Option<Drained> {
        let entries = std::mem::take(&mut self.queue);
        let up_to = entries.last()?.0;
        let access = entries.iter().map(|(_, entry)| entry.access).min()?;
        let parent = self.id.parent();
        let owes = entries.iter().any(|(_, entry)| {
            parent.as_ref().is_some_and(|parent| entry.source.as_deref() == Some(parent.as_str()))
        });
        let mut content: Vec<Block> = entries
            .iter()
            .flat_map(|(_, entry)| {
                let text = entry.for_model.as_deref().unwrap_or(&entry.text);
                user_message(entry.at, text, &entry.images).content
            })
            .collect();
        let mut writes = Vec::new();
        if let Some(Siblings { told, shown }) = siblings {
            content.push(Block::Text { text: told });
            writes.push(self.notification(&shown));
        }
        let (_, write) = self.push_message(Message { role: Role::User, content });
        writes.push(write);
        writes.push(Write::Dequeue { up_to });
        Some(Drained { writes, access, owes })
    }
}

/// The message as the log shows it and the model reads it.
fn shown(message: &Arrival) -> String {
    match &message.source {
        Some(sender) => mail::from_session(sender, &message.text),
        None => message.text.clone(),
    }
}

/// A user's message as the model gets it: the arrival stamp, the text, the images.
pub(super) fn user_message(at: i64, text: &str, images: &[InboundImage]) -> Message {
    let mut content = vec![Block::Text { text: format!("[{}] {text}", iso(at)) }];
    content.extend(
        images
            .iter()
            .map(|image| Block::Image { mime_type: image.mime_type.clone(), data: image.data.clone() }),
    );
    Message { role: Role::User, content }
}
