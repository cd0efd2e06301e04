//! What the owner of a session holds of it: the run in flight, what waits for it, and why it was cancelled.

use super::compact::Progress;
use super::frames::FrameLog;
use super::inflight::Inflight;
use super::report::Said;
use super::resume::Resume;
use super::run::RunStep;
use crate::access::AccessLevel;
use crate::store::sessions::Write;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A message that waits for the run in flight; stored as JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct QueueEntry {
    pub at: i64,
    pub text: String,
    /// What the model reads, where that is not the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub for_model: Option<String>,
    #[serde(default)]
    pub images: Vec<super::InboundImage>,
    pub access: AccessLevel,
    /// The session that sent it; none for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
}

/// What another life of the server left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    /// The ledger's count of crashes, where a run was in flight.
    pub crashes: Option<i64>,
}

/// What a stop means for a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stop {
    /// Whether the parent of a sub-session hears of it.
    pub tell_parent: bool,
    /// A later look of the same stop: what runs by now was sent by people since, and is no part of it.
    pub again: bool,
}

/// Why a run was cancelled; said once, and it sticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancelled {
    /// Somebody cut its turn; the queue is run next.
    Interrupt,
    /// Somebody stopped it.
    Stop,
    /// The server shuts down.
    Shutdown,
    /// Something could not be stored.
    Storage,
}

/// The run in flight.
pub(super) struct ActiveRun {
    pub log: Arc<FrameLog>,
    pub steps: mpsc::Receiver<RunStep>,
    pub task: JoinHandle<()>,
    pub cancel: CancellationToken,
    pub cancelled: Option<Cancelled>,
    /// When a cancelled run is ended by force.
    pub force_at: Option<Instant>,
    pub cancel_replies: Vec<oneshot::Sender<bool>>,
    /// Whether the parent is told when this run is stopped.
    pub tell_parent: bool,
    /// Whether the turn in flight owes the parent an answer.
    pub owes: bool,
    /// The level at which the turn in flight works.
    pub access: AccessLevel,
    /// Whether the turn in flight may be followed by one that goes on with what it interrupted.
    pub resume: Resume,
    /// Whether sub-sessions of its own were at work when the turn began.
    pub children_before: bool,
    /// What the turn in flight has said.
    pub said: Said,
    pub inflight: Inflight,
    /// When the row in flight goes to disk next.
    pub checkpoint_at: Option<Instant>,
    /// What the agent is called, and how much of tools' answers is kept.
    pub agent_name: String,
    pub model_id: String,
    pub thinking_effort: String,
    pub display_bytes: usize,
    /// The id of the model call in flight.
    pub turn_id: String,
    /// Model calls of this turn so far.
    pub calls: u32,
    /// The message that gathers the results of the current batch: its place in the history.
    pub results: Option<usize>,
    /// Writes of a finished last call, which go to disk with the end of the turn.
    pub deferred: Vec<Write>,
    /// What could not be stored.
    pub storage_error: Option<String>,
    /// Its compactions.
    pub compaction: Progress,
}
