//! The ACP methods: which there are, what they take, what they answer, and whose turn it is in each session.
//! Handlers run on the connection's one loop and only decide; everything that waits is spawned.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, AuthenticateResponse, Implementation, InitializeResponse, ListSessionsResponse,
    LoadSessionResponse, NewSessionResponse, PromptCapabilities, PromptResponse, SessionCapabilities,
    SessionInfo, SessionListCapabilities,
};
use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent as AgentRole, Client, ConnectTo, Error, Handled, UntypedMessage};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::format_description;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::args::is_absolute;
use crate::outlet::{Gauge, Outlet};
use crate::turn::{Turn, Updates as _};
use crate::upstream::history::{SessionPage, SessionRow};
use crate::upstream::{self, Server, Upstream as _};
use crate::{prompt, replay};

/// How long requests that are under way may take to be answered after the editor closed stdin.
const AFTER_EOF: Duration = Duration::from_millis(500);

/// Serves one editor until its input ends (`Ok`) or the connection fails. `gauge` counts the lines that
/// `transport` has yet to write.
pub async fn serve(
    server: Server,
    gauge: Arc<Gauge>,
    transport: impl ConnectTo<AgentRole> + 'static,
) -> Result<(), Error> {
    let agent = Agent { server: server.clone(), gauge, sessions: Arc::default(), calls: TaskTracker::new() };
    let calls = agent.calls.clone();
    AgentRole
        .v1()
        .name("halo-acp")
        .on_receive_dispatch(
            async move |dispatch: Dispatch, editor: ConnectionTo<Client>| agent.dispatch(dispatch, &editor),
            agent_client_protocol::on_receive_dispatch!(),
        )
        .on_close(async move |_editor| {
            // A script that pipes its requests in gets its answers, and a cancel just before the end is still
            // passed on; else the turns are left to the server.
            tokio::task::yield_now().await;
            calls.close();
            let under_way = async { tokio::join!(calls.wait(), server.stopped()) };
            let _ = tokio::time::timeout(AFTER_EOF, under_way).await;
            Ok(())
        })
        .connect_to(transport)
        .await
}

/// The sessions that were made or loaded here, each with the cancel of its running turn.
type Sessions = Arc<Mutex<HashMap<String, Option<CancellationToken>>>>;

struct Agent {
    server: Server,
    gauge: Arc<Gauge>,
    sessions: Sessions,
    /// The short requests under way.
    calls: TaskTracker,
}

#[derive(Deserialize)]
struct NewParams {
    cwd: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LoadParams {
    session_id: String,
    cwd: Option<String>,
}

#[derive(Default, Deserialize)]
struct ListParams {
    cwd: Option<String>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptParams {
    session_id: String,
    prompt: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelParams {
    session_id: String,
}

impl Agent {
    /// Decides about one message. What is not taken is refused (requests) or ignored (notifications) by the
    /// protocol crate.
    fn dispatch(
        &self,
        dispatch: Dispatch,
        editor: &ConnectionTo<Client>,
    ) -> Result<Handled<Dispatch>, Error> {
        match dispatch {
            Dispatch::Request(message, responder) => self.request(message, responder, editor),
            Dispatch::Notification(message) if message.method() == "session/cancel" => {
                match params::<CancelParams>(&message) {
                    Ok(params) => self.cancel(&params.session_id),
                    Err(error) => warn!("ignored a session/cancel without a session: {error}"),
                }
                Ok(Handled::Yes)
            }
            other => Ok(Handled::No { message: other, retry: false }),
        }
    }

    fn request(
        &self,
        message: UntypedMessage,
        responder: Responder,
        editor: &ConnectionTo<Client>,
    ) -> Result<Handled<Dispatch>, Error> {
        let refused = match message.method() {
            "initialize" => responder.cast().respond(initialized()).map(|()| None)?,
            "authenticate" => responder.cast().respond(AuthenticateResponse::default()).map(|()| None)?,
            "session/new" => match params::<NewParams>(&message) {
                Ok(params) => {
                    self.new_session(params.cwd.as_deref(), responder.cast(), editor).map(|()| None)?
                }
                Err(error) => Some((responder, error)),
            },
            "session/load" => match params::<LoadParams>(&message) {
                Ok(params) => self.load(params, responder.cast(), editor).map(|()| None)?,
                Err(error) => Some((responder, error)),
            },
            "session/list" => match params::<Option<ListParams>>(&message).and_then(checked) {
                Ok(params) => self.list(params, responder.cast(), editor).map(|()| None)?,
                Err(error) => Some((responder, error)),
            },
            "session/prompt" => {
                match params::<PromptParams>(&message).and_then(|params| self.begin(params)) {
                    Ok(begun) => self.prompt(begun, responder.cast(), editor).map(|()| None)?,
                    Err(error) => Some((responder, error)),
                }
            }
            "session/cancel" => match params::<CancelParams>(&message) {
                Ok(params) => {
                    self.cancel(&params.session_id);
                    responder.respond(Value::Null).map(|()| None)?
                }
                Err(error) => Some((responder, error)),
            },
            _ => {
                let message = Dispatch::Request(message, responder);
                return Ok(Handled::No { message, retry: false });
            }
        };
        if let Some((responder, error)) = refused {
            responder.respond_with_error(error)?;
        }
        Ok(Handled::Yes)
    }

    fn new_session(
        &self,
        cwd: Option<&str>,
        responder: Responder<NewSessionResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        warn_of_relative(cwd);
        let (server, sessions) = (self.server.clone(), self.sessions.clone());
        editor.spawn(self.calls.track_future(async move {
            let made = server.new_session().await.map_err(|error| told(&error)).map(|id| {
                lock(&sessions).entry(id.clone()).or_default();
                NewSessionResponse::new(id)
            });
            answered(&responder.respond_with_result(made));
            Ok(())
        }))
    }

    fn load(
        &self,
        params: LoadParams,
        responder: Responder<LoadSessionResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        warn_of_relative(params.cwd.as_deref());
        let id = params.session_id;
        let (server, sessions) = (self.server.clone(), self.sessions.clone());
        let mut outlet = Outlet::new(editor.clone(), id.clone().into(), self.gauge.clone());
        editor.spawn(self.calls.track_future(async move {
            let loaded = match server.history(&id, None).await {
                Ok(log) => {
                    for update in replay::updates(&log.messages) {
                        outlet.send(update).await;
                    }
                    lock(&sessions).entry(id).or_default();
                    Ok(LoadSessionResponse::new())
                }
                Err(error) if is_unknown_session(&error) => Err(unknown_session(&id)),
                Err(error) => Err(told(&error)),
            };
            answered(&responder.respond_with_result(loaded));
            Ok(())
        }))
    }

    fn list(
        &self,
        params: ListParams,
        responder: Responder<ListSessionsResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let server = self.server.clone();
        editor.spawn(self.calls.track_future(async move {
            let listed = match server.sessions(params.cursor.as_deref()).await {
                Ok(page) => Ok(listed(page, params.cwd.as_deref())),
                Err(error) if is_unknown_route(&error) => Err(Error::method_not_found().data("session/list")),
                Err(error) => Err(told(&error)),
            };
            answered(&responder.respond_with_result(listed));
            Ok(())
        }))
    }

    /// Takes the session's slot for a prompt, or says why not.
    fn begin(&self, params: PromptParams) -> Result<Begun, Error> {
        let composed = prompt::compose(params.prompt).map_err(|what| Error::invalid_params().data(what))?;
        let mut sessions = lock(&self.sessions);
        let slot = sessions.get_mut(&params.session_id).ok_or_else(|| unknown_session(&params.session_id))?;
        if slot.is_some() {
            return Err(Error::new(-32600, "a prompt is already running in this session"));
        }
        for kind in &composed.dropped {
            warn!("dropped a content block of type {kind:?}: it cannot be sent to the server");
        }
        if composed.is_empty() {
            return Err(Error::new(-32602, "the prompt has nothing that can be sent"));
        }
        let cancel = CancellationToken::new();
        *slot = Some(cancel.clone());
        Ok(Begun { session: params.session_id, message: composed.message, cancel })
    }

    fn prompt(
        &self,
        begun: Begun,
        responder: Responder<PromptResponse>,
        editor: &ConnectionTo<Client>,
    ) -> Result<(), Error> {
        let Begun { session, message, cancel } = begun;
        let sessions = self.sessions.clone();
        let outlet = Outlet::new(editor.clone(), session.clone().into(), self.gauge.clone());
        let turn = Turn::new(self.server.clone(), outlet, cancel, session.clone(), message, now());
        editor.spawn(async move {
            let reason = turn.run().await;
            debug!(session, ?reason, "the turn ended");
            // Free before the answer: the editor may send its next prompt as soon as it reads it.
            lock(&sessions).insert(session, None);
            answered(&responder.respond(PromptResponse::new(reason)));
            Ok(())
        })
    }

    fn cancel(&self, session: &str) {
        if let Some(Some(turn)) = lock(&self.sessions).get(session) {
            turn.cancel();
        } else {
            debug!(session, "nothing runs that could be cancelled");
        }
    }
}

/// A prompt that holds its session's slot.
struct Begun {
    session: String,
    message: upstream::Message,
    cancel: CancellationToken,
}

fn initialized() -> InitializeResponse {
    InitializeResponse::new(ProtocolVersion::V1)
        .agent_capabilities(
            AgentCapabilities::new()
                .load_session(true)
                .prompt_capabilities(
                    PromptCapabilities::new().image(true).audio(false).embedded_context(true),
                )
                .session_capabilities(SessionCapabilities::new().list(SessionListCapabilities::new())),
        )
        .agent_info(Implementation::new("halo", env!("CARGO_PKG_VERSION")).title("Halo".to_owned()))
}

/// The parameters of a request. What does not fit is named without repeating it: it may be large.
fn params<T: DeserializeOwned>(message: &UntypedMessage) -> Result<T, Error> {
    T::deserialize(message.params()).map_err(|error| Error::invalid_params().data(error.to_string()))
}

/// A cursor is plain digits; an empty one means the first page.
fn checked(params: Option<ListParams>) -> Result<ListParams, Error> {
    let mut params = params.unwrap_or_default();
    params.cursor = params.cursor.filter(|cursor| !cursor.is_empty());
    match &params.cursor {
        Some(cursor) if !cursor.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(Error::invalid_params().data("cursor: digits only, as nextCursor gave them"))
        }
        _ => Ok(params),
    }
}

fn listed(page: SessionPage, cwd: Option<&str>) -> ListSessionsResponse {
    let bare = |path: &str| path.trim_end_matches('/').to_owned();
    if cwd.is_some_and(|cwd| bare(cwd) != bare(&page.workspace)) {
        return ListSessionsResponse::new(Vec::new());
    }
    let entry = |row: SessionRow| {
        SessionInfo::new(row.session_id, page.workspace.clone())
            .title(row.title.filter(|title| !title.is_empty()))
            .updated_at(iso(row.updated_at))
    };
    ListSessionsResponse::new(page.sessions.into_iter().map(entry).collect())
        .next_cursor(page.next_cursor.map(|cursor| cursor.to_string()))
}

/// Milliseconds since 1970 as ISO 8601; `None` outside the calendar.
fn iso(ms: i64) -> Option<String> {
    let moment = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()?;
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    moment.format(format).ok()
}

/// Our time in milliseconds since 1970.
fn now() -> i64 {
    (OffsetDateTime::now_utc().unix_timestamp_nanos() / 1_000_000) as i64
}

fn warn_of_relative(cwd: Option<&str>) {
    if let Some(cwd) = cwd.filter(|cwd| !is_absolute(cwd)) {
        warn!("the working directory {cwd:?} is not absolute; it is not used anyway, --workspace is");
    }
}

fn is_unknown_session(error: &upstream::Error) -> bool {
    error.status() == Some(400) || (error.status() == Some(404) && !error.said().starts_with("workspace"))
}

/// Servers before the session list answered its address like any unknown one: with 404 or 405, with the page
/// that was not built (503), or by asking for the admin's cookie.
fn is_unknown_route(error: &upstream::Error) -> bool {
    match error.status() {
        Some(404 | 405 | 501) => !error.said().starts_with("workspace"),
        Some(503) => error.said().is_empty(),
        Some(401) => error.said() == "Unauthorized",
        _ => false,
    }
}

fn unknown_session(id: &str) -> Error {
    Error::new(-32602, "session not found: create it with session/new or load it with session/load")
        .data(json!({ "sessionId": id }))
}

/// What went wrong upstream, in the message that editors show.
fn told(error: &upstream::Error) -> Error {
    Error::new(-32603, error.to_string())
}

/// A response that finds no connection is no failure of ours, and must not end the others.
fn answered(sent: &Result<(), Error>) {
    if let Err(error) = sent {
        debug!("an answer found no connection: {error}");
    }
}

fn lock(sessions: &Sessions) -> MutexGuard<'_, HashMap<String, Option<CancellationToken>>> {
    sessions.lock().unwrap_or_else(PoisonError::into_inner)
}
