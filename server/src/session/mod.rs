//! Sessions: the engine under every surface. A surface drives sessions through [`Engine`], [`Workspace`] and
//! [`Handle`] alone: send, stop, subscribe, look. A run never depends on a connection.

pub mod ids;

use crate::access::AccessLevel;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use ids::{EventId, SessionId};
use std::path::{Path, PathBuf};

/// All workspaces that this server has open.
#[derive(Clone)]
pub struct Engine;

/// One open workspace.
#[derive(Clone)]
pub struct Workspace;

/// One session; cheap to make, whether or not the session exists.
#[derive(Clone)]
pub struct Handle;

/// Why a workspace cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Relative, missing, or no folder.
    #[error("workspace not found")]
    NotFound,
    /// The database cannot be opened; the text says why and what to do.
    #[error("{0}")]
    Database(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Why a session refuses what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// `agentId` names no agent that exists, is enabled and not internal.
    #[error("agent not available")]
    AgentNotAvailable,
    /// A sub-session id that does not exist; these are never created by name.
    #[error("session not found")]
    NotFound,
    /// Another process owns the workspace; the text names it.
    #[error("{0}")]
    NotOwner(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// The store failed; logged with the id that the text carries.
    #[error("internal error (id {0})")]
    Internal(String),
}

/// An image of an inbound message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundImage {
    /// The type that its bytes showed.
    pub mime_type: String,
    /// Base64.
    pub data: String,
}

/// A message from a surface.
#[derive(Clone, Debug)]
pub struct Inbound {
    /// The text as the log shows it.
    pub text: String,
    /// Images for the model.
    pub images: Vec<InboundImage>,
    /// The sender's level; applied with every message.
    pub access: AccessLevel,
    /// The agent, where this message creates the session.
    pub agent_id: Option<String>,
}

/// What became of a message. Either way it is on disk.
pub enum Sent {
    /// A run began; its frames from the `user` frame on.
    Started(Feed),
    /// The session is busy; the place from which to follow the run in flight.
    Queued(EventId),
}

/// Where a subscription begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// With whatever comes next.
    Now,
    /// After this frame. `None`: the client sent something that is no event id.
    After(Option<EventId>),
    /// With the first frame held of the current run.
    Replay,
}

/// Ready SSE bytes: frames, keepalives, to the terminal frame.
pub struct Feed(pub BoxStream<'static, Bytes>);

/// One consistent look at a session: everything up to `event_id` is in the log up to `top` or in `streaming`.
pub struct Snapshot {
    /// Whether a run is in flight.
    pub running: bool,
    /// The place in the stream that the look stands for; none when no run is held.
    pub event_id: Option<EventId>,
    /// The row in flight as JSON text, marked `streaming: true`.
    pub streaming: Option<String>,
    /// The last row of the log that belongs to the look.
    pub top: i64,
}

/// One entry of a session list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The id.
    pub session_id: String,
    /// Title, else description.
    pub title: Option<String>,
    /// Milliseconds.
    pub updated_at: i64,
}

/// Which rows of a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Rows without `taskId` and with `timestamp >= since`.
    pub since: Option<i64>,
    /// The newest n rows (of those before `before`).
    pub limit: Option<u32>,
    /// Rows before the one with this sequence number.
    pub before: Option<i64>,
}

/// Rows of a log as JSON texts, oldest first, in chunks.
pub type Rows = BoxStream<'static, Result<Vec<String>, SessionError>>;

impl Engine {
    /// Opens the folder as a workspace: scaffold, database, runtime lock. The same folder gives the same workspace.
    pub async fn workspace(&self, _path: &Path) -> Result<Workspace, WorkspaceError> {
        unimplemented!()
    }
    /// The workspace if the folder has a `.halo/` already; creates nothing.
    pub async fn existing_workspace(&self, _path: &Path) -> Result<Option<Workspace>, WorkspaceError> {
        unimplemented!()
    }
    /// Streams end, runs stay in the ledger, databases close. Bounded by 10 s.
    pub async fn shutdown(&self) {
        unimplemented!()
    }
}

impl Workspace {
    /// The real path.
    pub fn path(&self) -> &PathBuf {
        unimplemented!()
    }
    /// Makes a session that has no message yet; its row is on disk.
    pub async fn create(
        &self,
        _id: SessionId,
        _agent_id: Option<String>,
        _access: AccessLevel,
        _description: Option<String>,
    ) -> Result<(), SessionError> {
        unimplemented!()
    }
    /// Whether the session has a row.
    pub async fn exists(&self, _id: &SessionId) -> Result<bool, SessionError> {
        unimplemented!()
    }
    /// The most recently updated root whose id starts with `prefix`, archived ones left out.
    pub async fn latest_root(&self, _prefix: &str) -> Result<Option<SessionId>, SessionError> {
        unimplemented!()
    }
    /// Roots whose id starts with `prefix`, newest first, strictly older than `before`; at most `limit`, and
    /// then those that share the last one's millisecond. The flag tells whether there are more.
    pub async fn roots(
        &self,
        _prefix: &str,
        _before: Option<i64>,
        _limit: u32,
    ) -> Result<(Vec<Listed>, bool), SessionError> {
        unimplemented!()
    }
    /// The rows of a log up to the look's top.
    pub fn history(&self, _id: &SessionId, _query: HistoryQuery, _top: i64) -> Rows {
        unimplemented!()
    }
    /// The session's handle.
    pub fn session(&self, _id: &SessionId) -> Handle {
        unimplemented!()
    }
}

impl Handle {
    /// Stores the message and starts a run or queues it; creates the session where it is missing.
    pub async fn send(&self, _message: Inbound) -> Result<Sent, SessionError> {
        unimplemented!()
    }
    /// Stops the run in flight; false when nothing runs. Answers when the run has ended, or after 2 s.
    pub async fn stop(&self) -> Result<bool, SessionError> {
        unimplemented!()
    }
    /// Follows the session. `None` when it is idle and there is nothing to send.
    pub async fn subscribe(&self, _from: From) -> Result<Option<Feed>, SessionError> {
        unimplemented!()
    }
    /// A look for `/history`; `None` when the session has no row.
    pub async fn snapshot(&self) -> Result<Option<Snapshot>, SessionError> {
        unimplemented!()
    }
}
