//! Messages in: an idle session starts a run, a busy one queues. Either way the message is on disk, in log and in
//! queue or model history, before anybody hears of it.

use super::actor::{ActiveRun, Actor, Left, QueueEntry};
use super::frames::{Frame, FrameLog};
use super::inflight::Inflight;
use super::rows::{self, ContentBlock, Standing};
use super::run::{self, RunStep, Start, Unavailable};
use super::{Inbound, InboundImage, Sent, SessionError};
use crate::access::AccessLevel;
use crate::agent::profile::DisabledItem;
use crate::clock::iso;
use crate::model::{Block, Message, Role};
use crate::store::sessions::{self, SessionRow, Write};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// What a run has written so far, on its way into the log.
#[derive(Default)]
pub(super) struct Settled {
    pub writes: Vec<Write>,
    /// The blocks and deferred writes that `writes` holds, to be put back if they cannot be stored.
    blocks: Vec<ContentBlock>,
    deferred: Vec<Write>,
}

impl Actor {
    /// Makes the session; nothing happens when it exists.
    pub async fn create(
        &mut self,
        agent_id: Option<String>,
        access: AccessLevel,
        description: Option<String>,
    ) -> Result<(), SessionError> {
        if self.row.is_some() {
            return Ok(());
        }
        let row = self.new_row(agent_id, access, description).await?;
        self.commit(vec![Write::Create(row.clone())]).await.map_err(|error| self.internal(&error))?;
        self.row = Some(row);
        Ok(())
    }

    async fn new_row(
        &mut self,
        agent_id: Option<String>,
        access: AccessLevel,
        description: Option<String>,
    ) -> Result<SessionRow, SessionError> {
        if self.id.is_child() {
            return Err(SessionError::NotFound);
        }
        let disabled =
            self.shared.db.read(sessions::disabled_items).await.map_err(|error| self.internal(&error))?;
        let disabled: Vec<DisabledItem> = disabled
            .into_iter()
            .map(|(item_type, item_id, scope)| DisabledItem { item_type, item_id, scope })
            .collect();
        let (agents, workspace) = (self.shared.agents.clone(), self.shared.path.clone());
        let (agent_id, agent_name) =
            tokio::task::spawn_blocking(move || agents.choose(&workspace, agent_id.as_deref(), &disabled))
                .await
                .map_err(|error| super::internal("choosing an agent", &error))?
                .map_err(|why| match why {
                    Unavailable::No => SessionError::AgentNotAvailable,
                    Unavailable::Broken(text) => SessionError::AgentBroken(text),
                })?;
        let now = self.now();
        Ok(SessionRow {
            id: self.id.to_string(),
            parent_id: None,
            agent_id,
            agent_name,
            description,
            access_level: access.as_str().to_owned(),
            created_at: now,
            updated_at: now,
            stopped_at: None,
            archived_at: None,
            title: None,
            context_tokens: 0,
            total_output_tokens: 0,
        })
    }

    /// Takes a message.
    pub async fn receive(&mut self, message: Inbound) -> Result<Sent, SessionError> {
        if let Some(Left { crashes }) = self.left.take() {
            self.recover(crashes).await;
            if self.left.is_some() {
                return Err(super::internal(
                    &format!("session {}", self.id),
                    &"what was left could not be taken up",
                ));
            }
        }
        let counters = self.next;
        let taken = if self.run.is_some() { self.enqueue(message).await } else { self.open(message).await };
        if taken.is_err() {
            self.next = counters;
        }
        taken
    }

    async fn open(&mut self, message: Inbound) -> Result<Sent, SessionError> {
        self.load_history().await.map_err(|error| self.internal(&error))?;
        let mut writes = Vec::with_capacity(6);
        let mut row = if let Some(row) = self.row.clone() {
            row
        } else {
            let row = self.new_row(message.agent_id, message.access, None).await?;
            writes.push(Write::Create(row.clone()));
            row
        };
        writes.push(self.received(&mut row, &message.text, message.access));
        // A queue that a full disk kept from its turn goes first.
        let (queue, history) = (self.queue.clone(), self.history.as_ref().map_or(0, Vec::len));
        writes.extend(self.drain().into_iter().flat_map(|(moved, _)| moved));
        if self.next.log == 1 {
            let place = self.place();
            writes.push(Self::log_write(place, rows::context(place, &row.agent_name)));
        }
        let place = self.place();
        writes.push(Self::log_write(place, rows::user(place, &message.text)));
        writes.push(Write::RunStarted { at: place.at, crashes: 0 });
        writes.push(self.push_message(user_message(place.at, &message.text, &message.images)).1);
        if let Err(error) = self.commit(writes).await {
            self.history.get_or_insert_default().truncate(history);
            self.queue = queue;
            return Err(self.internal(&error));
        }
        message.saved.keep();
        self.row = Some(row);
        let log = self.start_run(message.access);
        log.push(&Frame::User { text: &message.text });
        Ok(Sent::Started(log.follow(0, self.shared.closing.clone())))
    }

    /// The write for a message that arrived; brings `row` in step with it.
    fn received(&mut self, row: &mut SessionRow, text: &str, access: AccessLevel) -> Write {
        let at = self.now();
        if row.title.is_none() {
            row.title = rows::title(text);
        }
        row.updated_at = at;
        row.stopped_at = None;
        access.as_str().clone_into(&mut row.access_level);
        Write::Received { at, access_level: access.as_str(), title: row.title.clone() }
    }

    /// Starts a run on what the model history holds; its ledger row is on disk.
    pub fn start_run(&mut self, access: AccessLevel) -> std::sync::Arc<FrameLog> {
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
        });
        log
    }

    fn drive(&self, access: AccessLevel) -> (mpsc::Receiver<RunStep>, JoinHandle<()>, CancellationToken) {
        let (sender, steps) = mpsc::channel(run::STEPS);
        let cancel = CancellationToken::new();
        let start = Start {
            workspace: self.shared.path.clone(),
            agent_id: self.row.as_ref().map(|row| row.agent_id.clone()).unwrap_or_default(),
            access,
            agents: self.shared.agents.clone(),
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

    async fn enqueue(&mut self, message: Inbound) -> Result<Sent, SessionError> {
        let Some(mut row) = self.row.clone() else { return Err(SessionError::NotFound) };
        let mut writes = vec![self.received(&mut row, &message.text, message.access)];
        // Nothing of what is settled is lost when the commit fails: it goes back.
        let settled = self.settle();
        writes.extend(settled.writes.iter().cloned());
        let place = self.place();
        writes.push(Self::log_write(place, rows::user(place, &message.text)));
        let seq = self.next.queue;
        self.next.queue += 1;
        let entry =
            QueueEntry { at: place.at, text: message.text, images: message.images, access: message.access };
        writes.push(Write::Enqueue { seq, entry: serde_json::to_string(&entry).unwrap_or_default() });
        if let Err(error) = self.commit(writes).await {
            if let Some(run) = &mut self.run {
                run.inflight.unsettle(settled.blocks);
                run.deferred = settled.deferred;
            }
            return Err(self.internal(&error));
        }
        message.saved.keep();
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

    /// The whole queue as one message for the model, the writes that move it there, and the lowest level among its
    /// senders. `None` when the queue is empty.
    pub fn drain(&mut self) -> Option<(Vec<Write>, AccessLevel)> {
        let entries = std::mem::take(&mut self.queue);
        let up_to = entries.last()?.0;
        let access = entries.iter().map(|(_, entry)| entry.access).min()?;
        let content =
            entries.iter().flat_map(|(_, entry)| user_message(entry.at, &entry.text, &entry.images).content);
        let message = Message { role: Role::User, content: content.collect() };
        let (_, write) = self.push_message(message);
        Some((vec![write, Write::Dequeue { up_to }], access))
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
