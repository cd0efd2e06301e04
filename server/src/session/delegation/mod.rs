//! The session tools: how an agent with a team hands work to other agents, talks to them and looks at them. Each
//! answers a JSON object: `code` 0 with what was asked for, or `code` 1 with `error`. A tool runs in the task of its
//! caller's run and asks the owners of other sessions, which never wait for runs.

mod look;
mod start;
mod stop;
mod talk;

pub(super) use start::Birth;

use super::ids::SessionId;
use super::workspace::Workspace;
use crate::model::ToolSpec;
use crate::store::sessions::{self, SessionRow};
use crate::tool::args::Args;
use crate::tool::{Context, Output, Tool};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// The tools for the agent of this session.
pub(super) fn tools(workspace: &Workspace, session: &SessionId, agent_id: &str) -> Vec<Arc<dyn Tool>> {
    let caller =
        Caller { workspace: workspace.clone(), session: session.clone(), agent_id: agent_id.to_owned() };
    let caller = Arc::new(caller);
    let tool = |kind| Arc::new(SessionTool { caller: caller.clone(), kind }) as Arc<dyn Tool>;
    Kind::ALL.map(tool).into()
}

/// Who uses the tools.
struct Caller {
    workspace: Workspace,
    session: SessionId,
    agent_id: String,
}

#[derive(Clone, Copy)]
enum Kind {
    StartSession,
    SessionList,
    QuerySession,
    InterruptSession,
    StopSession,
    ArchiveSession,
    GetSessionOutput,
    QueryAgent,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::StartSession,
        Self::SessionList,
        Self::QuerySession,
        Self::InterruptSession,
        Self::StopSession,
        Self::ArchiveSession,
        Self::GetSessionOutput,
        Self::QueryAgent,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::StartSession => "start_session",
            Self::SessionList => "session_list",
            Self::QuerySession => "query_session",
            Self::InterruptSession => "interrupt_session",
            Self::StopSession => "stop_session",
            Self::ArchiveSession => "archive_session",
            Self::GetSessionOutput => "get_session_output",
            Self::QueryAgent => "query_agent",
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::StartSession => {
                "Starts a sub-agent from your team on a task of its own and returns at once. Its report comes to you by \
                 itself as a message when it is done: do not wait or poll for it, end your turn instead. Brief it \
                 fully: it knows nothing of this conversation."
            }
            Self::SessionList => "Lists the sub-agents that you have started, with their status.",
            Self::QuerySession => {
                "Sends a message to a session of your tree. An idle one works on it, also when it was stopped; a busy \
                 one gets it after its current step. The answer comes to you as a message."
            }
            Self::InterruptSession => {
                "Sends a message to a session of your tree and cuts what it is doing right now, with a command that it \
                 runs, so that it turns to the message at once."
            }
            Self::StopSession => {
                "Stops a sub-agent and everything it has started. It sends no report; query_session takes it up again."
            }
            Self::ArchiveSession => {
                "Stops a sub-agent, with everything it has started, and sets it aside for good."
            }
            Self::GetSessionOutput => {
                "Gives the status of a session of your tree and the text of its latest turn, the end of it if it is long."
            }
            Self::QueryAgent => {
                "Describes an agent of your team: what it is for, its model, tools and skills."
            }
        }
    }

    fn parameters(self) -> Value {
        let id = json!({"type": "string", "description": "The session's id, as start_session gave it"});
        let text = |what: &str| json!({"type": "string", "description": what});
        let (properties, required) = match self {
            Self::StartSession => (
                json!({
                    "agent_id": text("An agent of your team"),
                    "message": text("The whole task: goal, context, files, limits, what to report"),
                    "system_prompt_context": text("More for its system prompt, such as rules that hold throughout"),
                    "title": text("A short name for people"),
                    "working_dir": text("The folder that it is to look at first, relative to the workspace"),
                }),
                json!(["agent_id", "message"]),
            ),
            Self::SessionList => (json!({}), json!([])),
            Self::QuerySession => (
                json!({"target_session_id": id, "message": text("What to do or to answer")}),
                json!(["target_session_id", "message"]),
            ),
            Self::InterruptSession => (
                json!({"session_id": id, "message": text("What to do instead")}),
                json!(["session_id", "message"]),
            ),
            Self::StopSession | Self::ArchiveSession | Self::GetSessionOutput => {
                (json!({"session_id": id}), json!(["session_id"]))
            }
            Self::QueryAgent => (json!({"agent_id": text("An agent of your team")}), json!(["agent_id"])),
        };
        json!({"type": "object", "properties": properties, "required": required})
    }
}

struct SessionTool {
    caller: Arc<Caller>,
    kind: Kind,
}

impl Tool for SessionTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.kind.name().into(),
            description: self.kind.description().into(),
            parameters: self.kind.parameters(),
        }
    }

    fn run<'a>(&'a self, input: Map<String, Value>, context: &'a Context) -> BoxFuture<'a, Output> {
        async move {
            let args = Args::new(self.kind.name(), &input);
            let caller = &self.caller;
            let answer = match self.kind {
                Kind::StartSession => caller.start(&args, context).await,
                Kind::SessionList => caller.list().await,
                Kind::QuerySession => caller.query(&args, context).await,
                Kind::InterruptSession => caller.interrupt(&args, context).await,
                Kind::StopSession => caller.stop(&args).await,
                Kind::ArchiveSession => caller.archive(&args).await,
                Kind::GetSessionOutput => caller.output(&args).await,
                Kind::QueryAgent => caller.describe(&args, context).await,
            };
            match answer {
                Ok(mut fields) => {
                    fields["code"] = 0.into();
                    Output::ok(fields.to_string())
                }
                Err(error) => Output::error(json!({"code": 1, "error": error}).to_string()),
            }
        }
        .boxed()
    }
}

impl Caller {
    /// A session of the caller's own tree. What is elsewhere, or archived, is as good as missing.
    async fn target(&self, id: &str) -> Result<(SessionId, SessionRow), String> {
        let missing = || format!("session {id} not found");
        let target: SessionId = id.trim().parse().map_err(|_| missing())?;
        if target.root() != self.session.root() {
            return Err(missing());
        }
        let key = target.to_string();
        let row = self.workspace.read(move |conn| sessions::get(conn, &key)).await;
        let row = row.map_err(|error| error.to_string())?;
        row.filter(|row| row.archived_at.is_none()).map(|row| (target, row)).ok_or_else(missing)
    }

    /// The same, for what would end the caller's own work: neither itself nor an ancestor.
    async fn other(&self, id: &str, what: &str) -> Result<SessionId, String> {
        let (target, _) = self.target(id).await?;
        if target == self.session || self.session.is_below(&target) {
            return Err(format!("you cannot {what} yourself or a session that you work for"));
        }
        Ok(target)
    }
}
