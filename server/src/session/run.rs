//! A run: an opening turn, then drained turns until the queue is empty. The task here only drives the agent; what
//! a step means for log, history, queue and frames is the session's to say.

use super::delegation;
use super::gauge::Room;
use super::ids::SessionId;
use super::resume::ContinueTask;
use super::rows::CallFigures;
use super::workspace::Workspace;
use crate::access::AccessLevel;
use crate::agent::Agent;
use crate::agent::names::Names;
use crate::agent::profile::{DisabledItem, Visible};
use crate::agent::turn::{self, Outcome, Step};
use crate::tool::Tool;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// Steps that may wait for the session.
pub(super) const STEPS: usize = 256;

/// Why an agent cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// It does not exist, is disabled or internal.
    No,
    /// Its files have a mistake: the file, the place and what is wrong.
    Broken(String),
}

/// Finds agents and builds them, as the files say at that moment. The methods read small files and may block.
pub trait AgentSource: Send + Sync {
    /// The agent that a new session is bound to: the one asked for, else the workspace's entry agent; none of those
    /// that are switched off. Gives id and display name.
    fn choose(
        &self,
        workspace: &Path,
        wanted: Option<&str>,
        disabled: &[DisabledItem],
    ) -> Result<(String, String), Unavailable>;

    /// The agents that a client may name, and the broken ones; none of those that are switched off.
    fn visible(&self, workspace: &Path, disabled: &[DisabledItem]) -> Visible;

    /// An agent that is ready to work. The error is for people: what is wrong, in which file, and what to do.
    fn build(&self, request: AgentRequest<'_>) -> Result<Agent, String>;

    /// The agents that this one may delegate to, itself among them where its team names it: those that exist and are
    /// neither internal nor switched off. Tools and skills are those that a session of this level would have.
    fn team(
        &self,
        workspace: &Path,
        agent_id: &str,
        access: AccessLevel,
        disabled: &[DisabledItem],
    ) -> Result<Vec<Member>, String>;

    /// What placeholders stand for in the texts of an agent of this name, for a session of this level.
    fn names(&self, workspace: &Path, agent_name: &str, _: AccessLevel) -> Names {
        Names { workspace: workspace.to_owned(), agent_name: agent_name.to_owned(), ..Names::default() }
    }

    /// The instructions of a folder that a message names, and of those above it: the folder relative to the
    /// workspace, and the text. The error says why there are none for a session of this level.
    fn instructions(
        &self,
        workspace: &Path,
        folder: &str,
        access: AccessLevel,
    ) -> Result<(String, String), String>;

    /// The limits of delegation in force.
    fn delegation(&self) -> DelegationLimits {
        DelegationLimits::default()
    }
}

/// What an agent is built for.
pub struct AgentRequest<'a> {
    /// The workspace's real path.
    pub workspace: &'a Path,
    /// The agent.
    pub agent_id: &'a str,
    /// The session's level.
    pub access: AccessLevel,
    /// Whether the session is a root.
    pub is_root: bool,
    /// The folder that a sub-session was pointed to, relative to the workspace.
    pub working_dir: Option<&'a str>,
    /// What a sub-session was told beside its message.
    pub prompt_context: Option<&'a str>,
    /// The agents and skills that are switched off.
    pub disabled: &'a [DisabledItem],
    /// The tools that every agent gets.
    pub always: Vec<Arc<dyn Tool>>,
    /// The session tools, for an agent with a team.
    pub delegation: Vec<Arc<dyn Tool>>,
}

/// An agent as those see it who may delegate to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its id.
    pub id: String,
    /// Its display name.
    pub name: String,
    /// What it is for.
    pub description: String,
    /// Its model, where its profile names one.
    pub model: Option<String>,
    /// The tools that it would have.
    pub tools: Vec<String>,
    /// Its skills.
    pub skills: Vec<String>,
}

/// The limits of delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegationLimits {
    /// Messages of agents that may wait for one session (`general.session.max_queue_size`).
    pub max_queue: usize,
    /// Sessions on the way from a root to the deepest (`general.session.max_nesting_depth`).
    pub max_depth: usize,
    /// Characters of a report (`general.limits.auto_report_chars`).
    pub report_chars: usize,
}

impl Default for DelegationLimits {
    fn default() -> Self {
        Self { max_queue: 256, max_depth: 16, report_chars: 8192 }
    }
}

/// What a run tells its session.
#[derive(Debug)]
pub(super) enum RunStep {
    /// The agent is built.
    Ready { agent_name: String, model_id: String, thinking_effort: String, display_bytes: usize, room: Room },
    /// A step of the turn.
    Turn(Step),
    /// A turn has ended; the answer tells whether another one follows, and at which level.
    TurnEnded { outcome: Outcome, next: oneshot::Sender<AccessLevel> },
}

/// What a run needs to begin.
pub(super) struct Start {
    pub workspace: Workspace,
    pub session: SessionId,
    pub agent_id: String,
    pub working_dir: Option<String>,
    pub prompt_context: Option<String>,
    pub access: AccessLevel,
    pub cancel: CancellationToken,
}

/// Drives a run to its end.
pub(super) async fn drive(start: Start, steps: mpsc::Sender<RunStep>) {
    let mut access = start.access;
    let mut built: Option<Agent> = None;
    loop {
        if built.as_ref().is_none_or(|agent| agent.context.access != access) {
            built = match build(&start, access).await {
                Ok(agent) => Some(agent),
                Err(message) => {
                    match end_turn(Outcome::Failed { message, account: false }, &steps).await {
                        Some(next) => access = next,
                        None => return,
                    }
                    continue;
                }
            };
        }
        let Some(agent) = &built else { return };
        let ready = RunStep::Ready {
            agent_name: agent.name.clone(),
            model_id: agent.model.id().to_owned(),
            thinking_effort: agent.model.thinking_effort().unwrap_or("off").to_owned(),
            display_bytes: agent.display_bytes,
            room: Room { limits: agent.compaction, overhead: agent.overhead() },
        };
        if steps.send(ready).await.is_err() {
            return;
        }
        let outcome = turn::run(agent, &steps, &start.cancel).await;
        match end_turn(outcome, &steps).await {
            Some(next) => access = next,
            None => return,
        }
    }
}

pub(super) async fn build(start: &Start, access: AccessLevel) -> Result<Agent, String> {
    let disabled = start
        .workspace
        .shared()
        .disabled_items()
        .await
        .map_err(|error| super::internal(&format!("session {}", start.session), &error).to_string())?;
    let Start { workspace, session, agent_id, working_dir, prompt_context, .. } = start;
    let delegation = delegation::tools(workspace, session, agent_id);
    let always = vec![ContinueTask::of(workspace, session)];
    let (workspace, agent_id) = (workspace.clone(), agent_id.clone());
    let (working_dir, prompt_context) = (working_dir.clone(), prompt_context.clone());
    let is_root = !session.is_child();
    tokio::task::spawn_blocking(move || {
        workspace.shared().agents.build(AgentRequest {
            workspace: workspace.path(),
            agent_id: &agent_id,
            access,
            is_root,
            working_dir: working_dir.as_deref(),
            prompt_context: prompt_context.as_deref(),
            disabled: &disabled,
            always,
            delegation,
        })
    })
    .await
    .unwrap_or_else(|_| Err("the agent could not be built (internal error, see the server's log)".into()))
}

async fn end_turn(outcome: Outcome, steps: &mpsc::Sender<RunStep>) -> Option<AccessLevel> {
    let (next, answer) = oneshot::channel();
    steps.send(RunStep::TurnEnded { outcome, next }).await.ok()?;
    answer.await.ok()
}

impl From<Step> for RunStep {
    fn from(step: Step) -> Self {
        Self::Turn(step)
    }
}

/// The figures of a call, from what the run and the step know.
pub(super) fn figures(
    turn_id: &str,
    model_id: &str,
    thinking_effort: &str,
    usage: crate::model::Usage,
    ttft_ms: Option<u64>,
    e2e_ms: u64,
) -> CallFigures {
    CallFigures {
        turn_id: turn_id.to_owned(),
        model_id: model_id.to_owned(),
        usage,
        ttft_ms,
        e2e_ms,
        thinking_effort: thinking_effort.to_owned(),
    }
}
