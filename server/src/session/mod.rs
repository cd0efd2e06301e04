//! Sessions: the engine under every surface. A surface drives sessions through [`Engine`], [`Workspace`] and
//! [`Handle`] alone: send, stop, subscribe, look. A run never depends on a connection.

mod actor;
mod catalog;
mod compact;
mod create;
mod delegation;
mod engine;
mod finish;
pub mod frames;
mod gauge;
mod handle;
pub mod ids;
mod inflight;
mod mail;
mod media;
mod receive;
mod recover;
mod remove;
mod report;
mod resume;
pub mod rows;
mod run;
mod scope;
mod state;
mod steps;
mod tree;
mod watch;
mod workspace;

pub use catalog::{Agents, Branch};
pub use engine::{Engine, Parts};
pub use handle::Handle;
pub use run::{AgentRequest, AgentSource, DelegationLimits, Member, Unavailable};
pub use workspace::Workspace;

use crate::access::AccessLevel;
use crate::store::StoreError;
use crate::workspace::inbound::Saved;
use bytes::Bytes;
use futures_util::stream::BoxStream;
use ids::EventId;
use serde::{Deserialize, Serialize};

/// Why a workspace cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Relative, missing, or no folder.
    #[error("workspace not found")]
    NotFound,
    /// It cannot be opened as it is; the text names the file, says why and what to do.
    #[error("workspace unusable: {0}")]
    Unusable(String),
    /// No room to open it; the text names the file.
    #[error("{0}")]
    DiskFull(String),
    /// Something of ours failed; logged with the id that the text carries.
    #[error("internal error (id {0})")]
    Internal(String),
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
    /// The agent exists, and its files have a mistake; the text names file, line and column.
    #[error("agent not available: {0}")]
    AgentBroken(String),
    /// A sub-session id that does not exist; these are never created by name.
    #[error("session not found")]
    NotFound,
    /// Another process owns the workspace; the text names it.
    #[error("{0}")]
    NotOwner(String),
    /// Too many messages of other sessions wait already.
    #[error("message queue is full ({waiting}/{limit}); wait for the session, or use interrupt_session")]
    QueueFull {
        /// How many wait.
        waiting: usize,
        /// How many may.
        limit: usize,
    },
    /// It is being stopped, and what other sessions send is no part of what goes on after that.
    #[error("the session is being stopped")]
    Stopping,
    /// It does not come to rest: new messages keep arriving.
    #[error("the session does not come to rest; try again")]
    Busy,
    /// Nothing can be written in the workspace; the text says why.
    #[error("{0}")]
    ReadOnly(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    ShuttingDown,
    /// No room to store it; nothing of it is stored.
    #[error("{}", StoreError::Full)]
    DiskFull,
    /// The store failed; logged with the id that the text carries.
    #[error("internal error (id {0})")]
    Internal(String),
}

/// An image of an inbound message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundImage {
    /// The type that its bytes showed.
    pub mime_type: String,
    /// Base64.
    pub data: String,
}

/// A message from a surface.
#[derive(Debug)]
pub struct Inbound {
    /// The text as the log shows it.
    pub text: String,
    /// Images for the model.
    pub images: Vec<InboundImage>,
    /// Files that the text names. They are kept once the message is on disk.
    pub saved: Saved,
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

/// Sums over the workspaces that are open. Archived sessions are left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Open workspaces.
    pub workspaces: usize,
    /// Sessions with a run in flight.
    pub running: i64,
    /// Sessions that somebody stopped and nobody has written to since.
    pub stopped: i64,
    /// The other sessions.
    pub idle: i64,
    /// Tokens in their contexts.
    pub context_tokens: i64,
    /// Tokens that they had written.
    pub output_tokens: i64,
}

/// What became of a compaction that somebody asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// The model's history is a summary and a short tail now.
    Done {
        /// Messages that the summary stands for.
        messages: usize,
    },
    /// The history is too short: nothing was done and nothing announced.
    Nothing,
    /// The model gave no summary; the history is unchanged.
    NoSummary,
    /// It failed; the history is unchanged. The text says what happened.
    Failed(String),
    /// It was stopped; the history is unchanged.
    Cancelled,
    /// A run is in flight; it compacts by itself when it has to.
    Busy,
}

/// What a session's next model call would hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// Tokens in use: those of the last call, and an estimate of what came since.
    pub used: u64,
    /// Tokens that the model takes.
    pub window: u64,
    /// Tokens at which the history is compacted.
    pub threshold: u64,
    /// The agent's name.
    pub agent: String,
    /// The model's id.
    pub model: String,
    /// The agent's tools, by name.
    pub tools: Vec<String>,
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

/// Logs a failure under a fresh id and gives the error that carries only the id.
fn internal(place: &str, error: &dyn std::fmt::Display) -> SessionError {
    SessionError::Internal(logged(place, error))
}

/// Logs a failure of the store; gives what a client learns of it.
fn store_failed(place: &str, error: &StoreError) -> SessionError {
    if !matches!(error, StoreError::Full) {
        return internal(place, error);
    }
    tracing::error!(place, %error, "something could not be stored");
    SessionError::DiskFull
}

/// Logs a failure; gives the id under which the log has it.
fn logged(place: &str, error: &dyn std::fmt::Display) -> String {
    let id = ids::new_run();
    tracing::error!(id, place, %error, "internal error");
    id
}
