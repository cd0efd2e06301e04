//! One session as a surface sees it.

use super::actor::Command;
use super::ids::SessionId;
use super::receive::Arrival;
use super::scope::Scope;
use super::workspace::{Workspace, ask};
use super::{Compaction, ContextInfo, Feed, From, Inbound, Sent, SessionError, Snapshot};
use crate::store::{log, sessions};
use tokio::sync::oneshot;

/// One session; cheap to make, whether or not the session exists.
#[derive(Clone)]
pub struct Handle {
    pub(super) workspace: Workspace,
    pub(super) id: SessionId,
}

impl Handle {
    pub(super) fn new(workspace: Workspace, id: SessionId) -> Self {
        Self { workspace, id }
    }

    pub(super) async fn ask<T>(
        &self,
        question: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> Result<T, SessionError> {
        ask(&self.workspace, &self.id, question).await
    }

    /// Stores the message and starts a run or queues it; creates the session where it is missing. Once called, the
    /// message may be stored even if the caller stops waiting.
    pub async fn send(&self, message: Inbound) -> Result<Sent, SessionError> {
        let scope = Scope::of(&self.workspace, &message.text, message.access).await;
        self.deliver(Arrival { scope, ..message.into() }).await
    }

    pub(super) async fn deliver(&self, message: Arrival) -> Result<Sent, SessionError> {
        self.workspace.own().await?;
        let message = Box::new(message);
        self.ask(|reply| Command::Send { message, reply }).await?
    }

    /// Cuts the turn in flight at once, with the tool that it runs; what waits in the queue is run next, and what
    /// the turn started goes on. False when nothing runs. Answers when the turn has ended, within about 2 s.
    pub async fn interrupt(&self) -> Result<bool, SessionError> {
        if !self.workspace.is_owned() {
            return Ok(false);
        }
        self.ask(|reply| Command::Interrupt { reply }).await
    }

    /// Follows the session. `None` when it is idle and there is nothing to send.
    pub async fn subscribe(&self, from: From) -> Result<Option<Feed>, SessionError> {
        if !self.workspace.is_owned() {
            return Ok(None);
        }
        self.ask(|reply| Command::Subscribe { from, reply }).await
    }

    /// Compacts the model's history of an idle session; answers when that is over, and [`Self::stop`] ends it.
    /// `NotFound` when the session has no row.
    pub async fn compact(&self) -> Result<Compaction, SessionError> {
        self.workspace.own().await?;
        self.ask(|reply| Command::Compact { reply }).await?
    }

    /// How full the model's context is; `None` when the session has no row. The agent is built for this, so a
    /// mistake in its files is `AgentBroken`.
    pub async fn context(&self) -> Result<Option<ContextInfo>, SessionError> {
        super::gauge::context(&self.workspace, &self.id).await
    }

    /// A look for `/history`; `None` when the session has no row.
    pub async fn snapshot(&self) -> Result<Option<Snapshot>, SessionError> {
        if self.workspace.is_owned() {
            return self.ask(|reply| Command::Snapshot { reply }).await;
        }
        // Another process changes this session: only the disk knows.
        let id = self.id.to_string();
        let read = self.workspace.shared().db.read(move |conn| {
            let row = sessions::get(conn, &id)?;
            row.map(|_| log::top(conn, &id)).transpose()
        });
        let top = read.await.map_err(|error| super::internal(&format!("session {}", self.id), &error))?;
        Ok(top.map(|top| Snapshot { running: false, event_id: None, streaming: None, top }))
    }
}
