//! `POST /api/web/chat`: a message to a session, answered with the events of the run that it starts; or a command to
//! the server, which [`commands`] answers.

use super::body::Fields;
use super::commands::{self, Asked, Attached};
use super::request::{Overrides, Target};
use super::{images, session_or_latest, to_the_end};
use crate::http::AppState;
use crate::http::auth::token::{Caller, WithBody};
use crate::http::error::ApiError;
use crate::http::sse;
use crate::session::ids::SessionId;
use crate::session::{Inbound, InboundImage, Sent};
use crate::workspace::inbound::{self, Media, Saved};
use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use serde_json::value::RawValue;

/// Larger bodies are taken apart on a thread that may block.
const PARSE_INLINE: usize = 256 * 1024;

/// Sends the message; the session is made where there is none yet.
pub async fn chat(
    State(state): State<AppState>,
    named: Overrides,
    WithBody(caller, body): WithBody,
) -> Result<Response, ApiError> {
    let said = parse(body).await?;
    let named = named.then(said.named);
    let target = match Target::of(&state.engine, &caller, &named).await {
        Ok(target) => target,
        Err(refused) => return in_stream(refused),
    };
    let stream = state.streams.register(&caller);
    if commands::is_command(&said.text) {
        let attached = Attached { images: said.images, files: said.files };
        let asked = Asked { state, caller, target, agent_id: named.agent_id, attached };
        let answered = commands::answer(asked, said.text).await;
        return answered.map(|answer| stream.over(answer)).or_else(in_stream);
    }
    let message = Inbound {
        text: said.text,
        images: said.images,
        saved: Saved::default(),
        access: caller.level.session_level(),
        agent_id: named.agent_id,
    };
    match to_the_end(send(state, caller, target, message, said.files)).await {
        Ok((id, sent)) => Ok(stream.over(answer(&id, sent))),
        Err(refused) => in_stream(refused),
    }
}

/// Sends the message; `files` are saved first.
pub(super) async fn send(
    state: AppState,
    caller: Caller,
    target: Target,
    mut message: Inbound,
    files: Vec<Media>,
) -> Result<(SessionId, Sent), ApiError> {
    let workspace = state.engine.workspace(&target.workspace).await?;
    let id = session_or_latest(&state, &workspace, &caller, target.session)
        .await?
        .unwrap_or_else(|| SessionId::new_web(&caller.account_id, state.clock.now_ms()));
    if !files.is_empty() {
        let (folder, account_id) = (workspace.path().to_owned(), caller.account_id);
        let now = state.clock.now_ms();
        let saving =
            tokio::task::spawn_blocking(move || inbound::save(&folder, "web", &account_id, &files, now));
        let (saved, lines) = saving.await.map_err(ApiError::internal)?.map_err(|error| {
            tracing::error!("an upload could not be saved: {error}");
            ApiError::UploadNotSaved(error.to_string())
        })?;
        message.text = with_lines(&message.text, &lines);
        message.saved = saved;
    }
    let sent = workspace.session(&id).send(message).await?;
    Ok((id, sent))
}

/// The text, a blank line, and the lines about what was saved.
fn with_lines(text: &str, lines: &[String]) -> String {
    let lines = lines.join("\n");
    if text.trim().is_empty() { lines } else { format!("{text}\n\n{lines}") }
}

/// The answer to a message.
pub(super) fn answer(id: &SessionId, sent: Sent) -> Response {
    sse::response(frames(id, sent))
}

/// The frames of the answer.
pub(super) fn frames(id: &SessionId, sent: Sent) -> BoxStream<'static, Bytes> {
    let first = stream::iter([sse::session(id)]);
    match sent {
        Sent::Started(feed) => first.chain(feed.0).boxed(),
        Sent::Queued(at) => first.chain(stream::iter([sse::queued(&at)])).boxed(),
    }
}

/// Three refusals come inside a stream on this route, because its clients look for them there.
fn in_stream(refused: ApiError) -> Result<Response, ApiError> {
    match refused {
        ApiError::WorkspaceOverride
        | ApiError::WorkspaceNotFound
        | ApiError::AgentNotAvailable
        | ApiError::AgentBroken(_) => Ok(sse::ended(&[sse::error(&refused.to_string())])),
        other => Err(other),
    }
}

/// A chat's body.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    text: String,
    images: Vec<InboundImage>,
    /// To be saved.
    files: Vec<Media>,
    named: Overrides,
}

async fn parse(body: Bytes) -> Result<Said, ApiError> {
    if body.len() <= PARSE_INLINE {
        return parse_now(&body);
    }
    tokio::task::spawn_blocking(move || parse_now(&body)).await.map_err(ApiError::internal)?
}

fn parse_now(body: &[u8]) -> Result<Said, ApiError> {
    let names = &["message", "images", "workspace", "sessionId", "agentId"];
    let fields = Fields::of_body(body, names).ok_or(ApiError::MessageRequired)?;
    let text = fields.text("message")?.unwrap_or_default();
    let images: Vec<&RawValue> = fields.get("images", "an array")?.unwrap_or_default();
    let (images, files) = images::read(&images)?;
    let named = Overrides::of_fields(&fields)?;
    if text.trim().is_empty() && images.is_empty() && files.is_empty() {
        return Err(ApiError::MessageRequired);
    }
    Ok(Said { text, images, files, named })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::{frames, text_of};
    use crate::session::Feed;
    use crate::session::ids::EventId;
    use axum::http::StatusCode;
    use rstest::rstest;
    use serde_json::json;

    fn id() -> SessionId {
        "web_a_1".parse().unwrap()
    }

    #[rstest]
    #[case("", "message or images required")]
    #[case("{bad", "message or images required")]
    #[case("[\"message\"]", "message or images required")]
    #[case("{}", "message or images required")]
    #[case(r#"{"message": ""}"#, "message or images required")]
    #[case(r#"{"message": " \n"}"#, "message or images required")]
    #[case(r#"{"images": []}"#, "message or images required")]
    #[case(r#"{"message": 5}"#, "message must be a string")]
    #[case(r#"{"message": "m", "images": "x"}"#, "images must be an array")]
    #[case(r#"{"message": "m", "sessionId": 5}"#, "sessionId must be a string")]
    #[case(r#"{"message": "m", "workspace": {}}"#, "workspace must be a string")]
    #[case(r#"{"message": "m", "agentId": true}"#, "agentId must be a string")]
    fn a_bad_body_is_refused_with_the_reason(#[case] body: &str, #[case] reason: &str) {
        let refused = parse_now(body.as_bytes()).unwrap_err();
        assert_eq!(refused.to_string(), reason);
        assert_eq!(refused.code_and_status().1, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn a_good_body_is_taken_as_it_is() {
        let said = parse_now(r#"{"message": " hällo\n", "sessionId": "s", "other": 1}"#.as_bytes()).unwrap();
        assert_eq!(said.text, " hällo\n");
        assert_eq!(said.named.session_id.as_deref(), Some("s"));
    }

    #[test]
    fn the_lines_about_files_stand_below_the_text() {
        let lines = ["[a]".to_owned(), "[b]".to_owned()];
        assert_eq!(with_lines("hear", &lines), "hear\n\n[a]\n[b]");
        assert_eq!(with_lines(" ", &lines[..1]), "[a]");
    }

    #[tokio::test]
    async fn the_session_frame_comes_before_the_frames_of_the_run() {
        let feed = Feed(stream::iter([Bytes::from("id: r.1\ndata: {\"type\":\"user\"}\n\n")]).boxed());
        let response = answer(&id(), Sent::Started(feed));
        let headers = response.headers();
        assert_eq!(headers["content-type"], "text/event-stream");
        assert_eq!(headers["cache-control"], "no-cache, no-transform");
        assert_eq!(headers["x-accel-buffering"], "no");
        let text = text_of(response).await;
        assert_eq!(
            text,
            "data: {\"type\":\"session\",\"sessionId\":\"web_a_1\"}\n\nid: r.1\ndata: {\"type\":\"user\"}\n\n"
        );
    }

    #[tokio::test]
    async fn a_queued_message_is_answered_session_queued_and_the_end() {
        let at = EventId { run: "r".into(), seq: 3 };
        let text = text_of(answer(&id(), Sent::Queued(at))).await;
        assert_eq!(
            frames(&text),
            [json!({ "type": "session", "sessionId": "web_a_1" }), json!({ "type": "queued" })]
        );
        assert!(text.contains("id: r.3\n"));
    }

    #[rstest]
    #[case(ApiError::WorkspaceOverride)]
    #[case(ApiError::WorkspaceNotFound)]
    #[case(ApiError::AgentNotAvailable)]
    #[tokio::test]
    async fn some_refusals_come_as_an_error_frame(#[case] refused: ApiError) {
        let response = in_stream(refused.clone()).unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let text = text_of(response).await;
        assert_eq!(frames(&text), [json!({ "type": "error", "error": refused.to_string() })]);
    }

    #[test]
    fn the_others_come_before_any_stream() {
        for refused in [ApiError::InvalidSessionId, ApiError::NotOwned, ApiError::SessionNotFound] {
            assert_eq!(in_stream(refused.clone()).unwrap_err(), refused);
        }
    }
}
