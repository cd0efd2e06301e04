//! Slash commands: a chat message that begins with `/` is for the server, not for the agent. It is answered with the
//! frames `stream`, `switch` where it moves, and `complete`; none of it enters a log, and asking makes no session.
//! One file an object; here is what they share: reading a line, the level that it needs, and the answer.

mod agent;
mod delete;
mod help;
mod line;
mod session;
mod shelf;
mod skill;
mod table;
mod texts;
mod workspace;

use super::request::Target;
use super::{chat, session_or_latest};
use crate::access::AccessLevel;
use crate::agent::profile::DisabledItem;
use crate::config::Home;
use crate::config::aliases::Aliases;
use crate::http::auth::token::Caller;
use crate::http::error::ApiError;
use crate::http::{AppState, sse};
use crate::session::ids::SessionId;
use crate::session::{Agents, Inbound, InboundImage, Sent, Workspace};
use crate::store::accounts::Language;
use crate::text::head_chars;
use crate::workspace::inbound::{Media, Saved};
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use line::Line;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use table::Action;
use tokio::task::JoinHandle;

/// How long an answer may take before its stream begins without it.
const QUICK: Duration = Duration::from_millis(500);
/// How often an open stream shows that it lives.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// What commands read of the home.
#[derive(Debug, Default)]
pub struct HomeFiles {
    aliases: Option<Aliases>,
    /// `global/`.
    global: PathBuf,
    /// `global/agents/`.
    agents: PathBuf,
    /// `global/skills/`.
    skills: PathBuf,
}

impl HomeFiles {
    /// Those of the home.
    pub fn of(home: &Home) -> Self {
        Self {
            aliases: Some(Aliases::of(home)),
            global: home.global(),
            agents: home.agents_dir(),
            skills: home.skills_dir(),
        }
    }
}

/// Whether a message is a command. One that has to begin with `/` all the same gets a space in front.
pub fn is_command(message: &str) -> bool {
    message.starts_with('/')
}

/// A command, by whom, and on what.
pub struct Asked {
    /// What the server has.
    pub state: AppState,
    /// Whose token it is.
    pub caller: Caller,
    /// The workspace, and the session where the request names one.
    pub target: Target,
    /// The agent of a session that this makes.
    pub agent_id: Option<String>,
    /// What came with the command; it goes along where that sends a message.
    pub attached: Attached,
}

/// What comes with a message beside its text.
#[derive(Debug, Default)]
pub struct Attached {
    /// Images for the model.
    pub images: Vec<InboundImage>,
    /// To be saved.
    pub files: Vec<Media>,
}

/// What a command answers.
#[derive(Debug, PartialEq, Eq)]
struct Reply {
    text: String,
    /// The session that the client is in from now on.
    switch: Option<SessionId>,
}

impl Reply {
    fn text(text: String) -> Self {
        Self { text, switch: None }
    }

    fn frames(&self) -> Vec<Bytes> {
        let switch = self.switch.as_ref().map(sse::switch);
        [sse::stream(&self.text)].into_iter().chain(switch).chain([sse::complete()]).collect()
    }
}

impl Asked {
    fn language(&self) -> Language {
        self.caller.language
    }

    /// The level of the sessions that the account talks to.
    fn access(&self) -> AccessLevel {
        self.caller.level.session_level()
    }

    /// The workspace, if it has been used as one.
    async fn existing(&self) -> Result<Option<Workspace>, ApiError> {
        Ok(self.state.engine.existing_workspace(&self.target.workspace).await?)
    }

    /// The workspace, which is made where it is missing.
    async fn workspace(&self) -> Result<Workspace, ApiError> {
        Ok(self.state.engine.workspace(&self.target.workspace).await?)
    }

    /// The session that the command is about; it may not exist where the request names it.
    async fn current(&self) -> Result<Option<(Workspace, SessionId)>, ApiError> {
        let Some(workspace) = self.existing().await? else { return Ok(None) };
        let id =
            session_or_latest(&self.state, &workspace, &self.caller, self.target.session.clone()).await?;
        Ok(id.map(|id| (workspace, id)))
    }

    /// Makes this the session of requests that name none. A client that names its session does without.
    fn move_to(&self, workspace: &Workspace, id: &SessionId) {
        if self.target.session.is_none() {
            self.state.pointers.set(&self.caller.account_id, workspace.path(), id);
        }
    }

    /// What is switched off in the workspace.
    async fn disabled(&self) -> Result<Vec<DisabledItem>, ApiError> {
        match self.existing().await? {
            Some(workspace) => Ok(workspace.disabled().await?),
            None => Ok(Vec::new()),
        }
    }

    /// The agents of the workspace.
    async fn agents(&self) -> Result<Agents, ApiError> {
        let disabled = self.disabled().await?;
        Ok(self.state.engine.agents(&self.target.workspace, disabled).await?)
    }
}

/// What a command comes to.
enum Meant {
    /// An answer.
    Reply(Reply),
    /// A message to the session: the text of a skill.
    Message(String),
}

/// What became of a command.
enum Done {
    Reply(Reply),
    Sent(SessionId, Sent),
}

impl Done {
    fn response(self) -> Response {
        match self {
            Self::Reply(reply) => sse::ended(&reply.frames()),
            Self::Sent(id, sent) => chat::answer(&id, sent),
        }
    }

    fn frames(self) -> BoxStream<'static, Bytes> {
        match self {
            Self::Reply(reply) => stream::iter(reply.frames()).boxed(),
            Self::Sent(id, sent) => chat::frames(&id, sent),
        }
    }
}

/// Does what the message says. It is done to its end even when the client leaves; one that takes long keeps its
/// stream alive meanwhile.
pub async fn answer(asked: Asked, message: String) -> Result<Response, ApiError> {
    let mut task = tokio::spawn(finish(asked, message));
    match tokio::time::timeout(QUICK, &mut task).await {
        Ok(done) => Ok(done.map_err(ApiError::internal)??.response()),
        Err(_) => Ok(later(task)),
    }
}

/// A stream that waits for the reply.
fn later(mut task: JoinHandle<Result<Done, ApiError>>) -> Response {
    sse::response(async_stream::stream! {
        loop {
            let Ok(done) = tokio::time::timeout(KEEPALIVE, &mut task).await else {
                yield Bytes::from_static(b": keepalive\n\n");
                continue;
            };
            match done.map_err(ApiError::internal) {
                Ok(Ok(done)) => {
                    let mut frames = done.frames();
                    while let Some(frame) = frames.next().await {
                        yield frame;
                    }
                }
                Ok(Err(error)) | Err(error) => yield sse::error(&error.to_string()),
            }
            return;
        }
    })
}

async fn finish(asked: Asked, message: String) -> Result<Done, ApiError> {
    let text = match run(&asked, &message).await? {
        Meant::Reply(reply) => return Ok(Done::Reply(reply)),
        Meant::Message(text) => text,
    };
    let access = asked.access();
    let Asked { state, caller, target, agent_id, attached } = asked;
    let message = Inbound { text, images: attached.images, saved: Saved::default(), access, agent_id };
    let (id, sent) = chat::send(state, caller, target, message, attached.files).await?;
    Ok(Done::Sent(id, sent))
}

async fn run(asked: &Asked, message: &str) -> Result<Meant, ApiError> {
    let files = asked.state.files.clone();
    let aliases = tokio::task::spawn_blocking(move || {
        files.aliases.as_ref().map_or_else(Arc::default, Aliases::current)
    });
    let aliases = aliases.await.map_err(ApiError::internal)?;
    let (language, access) = (asked.language(), asked.access());
    let reply = |text| Ok(Meant::Reply(Reply::text(text)));
    let line = Line::read(message, &aliases);
    if line.object == "help" {
        let skills = shelf::commands(asked).await?;
        return reply(help::all(language, access, &skills, &shelf::verbs(asked).await?));
    }
    let Some(object) = table::object(&line.object) else {
        return match shelf::command(asked, &line.object).await? {
            Some(skill) => shelf::run(asked, &skill, &line).await,
            None => reply(help::unknown(language, &line.typed)),
        };
    };
    if line.verb.is_empty() || line.verb == "help" {
        return reply(help::of(object, language, access, &shelf::verbs(asked).await?));
    }
    let command = format!("/{} {}", line.object, line.verb);
    let Some(verb) = object.verb(&line.verb) else {
        // A verb that the program has not may be one of the skill of that name.
        return match shelf::verb(asked, object.name, &line).await? {
            Some(meant) => Ok(meant),
            None => reply(help::unknown(language, &command)),
        };
    };
    if verb.needs > access {
        return reply(texts::refused(language, &command, verb.needs.as_str(), access.as_str()));
    }
    act(asked, verb.action, &line.rest).await.map(Meant::Reply)
}

async fn act(asked: &Asked, action: Action, rest: &str) -> Result<Reply, ApiError> {
    match action {
        Action::SessionNew => session::new(asked).await,
        Action::SessionList => session::list(asked).await,
        Action::SessionInfo => session::info(asked).await,
        Action::SessionSwitch => session::switch(asked, rest).await,
        Action::SessionStop => session::stop(asked).await,
        Action::SessionInterrupt => session::interrupt(asked).await,
        Action::SessionCompact => session::compact(asked).await,
        Action::SessionContext => session::context(asked).await,
        Action::AgentList => agent::list(asked).await,
        Action::AgentSwitch => agent::switch(asked, rest).await,
        Action::AgentDesc => agent::desc(asked, rest).await,
        Action::AgentDelete => agent::delete(asked, rest).await,
        Action::SkillList => skill::list(asked).await,
        Action::SkillDesc => skill::desc(asked, rest).await,
        Action::SkillEnable => skill::turn(asked, rest, true).await,
        Action::SkillDisable => skill::turn(asked, rest, false).await,
        Action::SkillDelete => skill::delete(asked, rest).await,
        Action::WorkspaceInfo => Ok(workspace::info(asked)),
        Action::WorkspaceSwitch => workspace::switch(asked, rest).await,
    }
}

/// The text on one line, without control characters, at most `max` characters long.
fn one_line(text: &str, max: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    if line.chars().count() <= max { line } else { format!("{}…", head_chars(&line, max - 1)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::text_of;

    #[test]
    fn only_what_begins_with_a_slash_is_a_command() {
        assert!(is_command("/help") && is_command("/usr/bin/foo does not work") && is_command("/"));
        assert!(!is_command(" /help") && !is_command("a /help") && !is_command(""));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_takes_long_keeps_its_stream_alive() {
        let task = tokio::spawn(async {
            tokio::time::sleep(KEEPALIVE * 2 + QUICK).await;
            Ok(Done::Reply(Reply { text: "done".into(), switch: Some("s".parse().unwrap()) }))
        });
        let text = text_of(later(task)).await;
        assert_eq!(
            text,
            ": keepalive\n\n: keepalive\n\ndata: {\"type\":\"stream\",\"text\":\"done\"}\n\n\
             data: {\"type\":\"switch\",\"sessionId\":\"s\"}\n\ndata: {\"type\":\"complete\"}\n\n"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_fails_late_says_so_in_its_last_frame() {
        let task = tokio::spawn(async { Err(ApiError::ShuttingDown) });
        let text = text_of(later(task)).await;
        assert_eq!(text, "data: {\"type\":\"error\",\"error\":\"the server is shutting down\"}\n\n");
    }

    #[test]
    fn one_line_is_one_line() {
        assert_eq!(one_line(" a\r\n\tb\u{7} ", 10), "a b");
        assert_eq!(one_line("abcdef", 6), "abcdef");
        assert_eq!(one_line("äbcdefg", 6), "äbcde…");
    }
}
