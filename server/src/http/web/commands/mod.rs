//! Slash commands: a chat message that begins with `/` is for the server, not for the agent. It is answered with the
//! frames `stream`, `switch` where it moves, and `complete`; none of it enters a log, and asking makes no session.
//! One file an object; here is what they share: reading a line, the level that it needs, and the answer.

mod agent;
mod help;
mod session;
mod skill;
mod table;
mod texts;
mod workspace;

use super::request::Target;
use super::session_or_latest;
use crate::access::AccessLevel;
use crate::agent::profile::DisabledItem;
use crate::config::Home;
use crate::config::aliases::{Aliases, Table};
use crate::http::auth::token::Caller;
use crate::http::error::ApiError;
use crate::http::{AppState, sse};
use crate::session::ids::SessionId;
use crate::session::{Agents, Workspace};
use crate::store::accounts::Language;
use crate::text::head_chars;
use axum::response::Response;
use bytes::Bytes;
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
    /// `global/skills/`.
    skills: PathBuf,
}

impl HomeFiles {
    /// Those of the home.
    pub fn of(home: &Home) -> Self {
        Self { aliases: Some(Aliases::of(home)), skills: home.skills_dir() }
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

/// Does what the message says. It is done to its end even when the client leaves; one that takes long keeps its
/// stream alive meanwhile.
pub async fn answer(asked: Asked, message: String) -> Result<Response, ApiError> {
    let mut task = tokio::spawn(run(asked, message));
    match tokio::time::timeout(QUICK, &mut task).await {
        Ok(done) => Ok(sse::ended(&done.map_err(ApiError::internal)??.frames())),
        Err(_) => Ok(later(task)),
    }
}

/// A stream that waits for the reply.
fn later(mut task: JoinHandle<Result<Reply, ApiError>>) -> Response {
    sse::response(async_stream::stream! {
        loop {
            let Ok(done) = tokio::time::timeout(KEEPALIVE, &mut task).await else {
                yield Bytes::from_static(b": keepalive\n\n");
                continue;
            };
            match done.map_err(ApiError::internal) {
                Ok(Ok(reply)) => for frame in reply.frames() {
                    yield frame;
                },
                Ok(Err(error)) | Err(error) => yield sse::error(&error.to_string()),
            }
            return;
        }
    })
}

async fn run(asked: Asked, message: String) -> Result<Reply, ApiError> {
    let files = asked.state.files.clone();
    let aliases = tokio::task::spawn_blocking(move || {
        files.aliases.as_ref().map_or_else(Arc::default, Aliases::current)
    });
    let aliases = aliases.await.map_err(ApiError::internal)?;
    let (language, access) = (asked.language(), asked.access());
    let line = Line::read(&message, &aliases);
    if line.object == "help" {
        return Ok(Reply::text(help::all(language, access)));
    }
    let Some(object) = table::object(&line.object) else {
        return Ok(Reply::text(help::unknown(language, &line.typed)));
    };
    if line.verb.is_empty() || line.verb == "help" {
        return Ok(Reply::text(help::of(object, language, access)));
    }
    let command = format!("/{} {}", line.object, line.verb);
    let Some(verb) = object.verb(&line.verb) else {
        return Ok(Reply::text(help::unknown(language, &command)));
    };
    if verb.needs > access {
        let text = texts::refused(language, &command, verb.needs.as_str(), access.as_str());
        return Ok(Reply::text(text));
    }
    act(&asked, verb.action, &line.rest).await
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
        Action::SkillList => skill::list(asked).await,
        Action::SkillDesc => skill::desc(asked, rest).await,
        Action::SkillEnable => skill::turn(asked, rest, true).await,
        Action::SkillDisable => skill::turn(asked, rest, false).await,
        Action::WorkspaceInfo => Ok(workspace::info(asked)),
        Action::WorkspaceSwitch => workspace::switch(asked, rest).await,
    }
}

/// A command taken apart, aliases filled in. Object and verb are in small letters: phones begin with a large one.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    /// The first word as it was typed.
    typed: String,
    object: String,
    /// May be empty.
    verb: String,
    /// What follows the verb, as typed.
    rest: String,
}

impl Line {
    fn read(message: &str, aliases: &Table) -> Self {
        let message = message.trim_end();
        let (typed, rest) = first_word(message);
        let word = typed.strip_prefix('/').unwrap_or(typed).to_lowercase();
        // An alias may bring its verb with it, and more.
        let expanded = aliases.top(&word).map_or_else(|| word.clone(), str::to_owned);
        let full = format!("{expanded} {rest}");
        let (object, rest) = first_word(&full);
        let (verb, rest) = first_word(rest);
        let verb = verb.to_lowercase();
        Self {
            typed: typed.to_owned(),
            object: object.to_owned(),
            verb: aliases.verb(&verb).map_or(verb.clone(), str::to_owned),
            rest: rest.to_owned(),
        }
    }
}

/// The first word, and what follows the blanks after it.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    match text.split_once(char::is_whitespace) {
        Some((word, rest)) => (word, rest.trim_start()),
        None => (text, ""),
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
    use crate::config::Environment;
    use crate::config::aliases;
    use crate::http::testing::text_of;
    use rstest::rstest;

    fn seeded() -> Arc<Table> {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(folder.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        aliases::seed(&home).unwrap();
        Aliases::of(&home).current()
    }

    #[rstest]
    #[case("/help", "help", "", "")]
    #[case("/session list", "session", "list", "")]
    #[case("/Session  LIST \n", "session", "list", "")]
    #[case("/ss 2", "session", "switch", "2")]
    #[case("/s sw 2", "session", "switch", "2")]
    #[case("/session sw  2", "session", "switch", "2")]
    #[case("/new", "session", "new", "")]
    #[case("/w", "workspace", "", "")]
    #[case("/ws /a  b/C ", "workspace", "switch", "/a  b/C")]
    #[case("/sw 2", "sw", "2", "")]
    #[case("/usr/bin/foo does not work", "usr/bin/foo", "does", "not work")]
    #[case("/", "", "", "")]
    #[case("//help", "/help", "", "")]
    fn a_line_is_taken_apart_with_aliases_in_two_stages(
        #[case] message: &str,
        #[case] object: &str,
        #[case] verb: &str,
        #[case] rest: &str,
    ) {
        let line = Line::read(message, &seeded());
        assert_eq!((&*line.object, &*line.verb, &*line.rest), (object, verb, rest));
    }

    #[test]
    fn an_alias_may_bring_its_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(folder.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        std::fs::write(home.global().join("aliases.yaml"), "top:\n  /go: /agent switch poet\n").unwrap();
        let table = Aliases::of(&home).current();
        for (message, rest) in [("/go", "poet"), ("/go now", "poet now")] {
            let line = Line::read(message, &table);
            assert_eq!((&*line.object, &*line.verb, line.rest.trim_end()), ("agent", "switch", rest));
        }
    }

    #[test]
    fn only_what_begins_with_a_slash_is_a_command() {
        assert!(is_command("/help") && is_command("/usr/bin/foo does not work") && is_command("/"));
        assert!(!is_command(" /help") && !is_command("a /help") && !is_command(""));
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_takes_long_keeps_its_stream_alive() {
        let task = tokio::spawn(async {
            tokio::time::sleep(KEEPALIVE * 2 + QUICK).await;
            Ok(Reply { text: "done".into(), switch: Some("s".parse().unwrap()) })
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
