//! `GET /api/web/subscribe`: follows a session, from now or from a place in a run.

use super::request::{Overrides, Query, Target};
use super::session_or_latest;
use crate::http::AppState;
use crate::http::auth::token::Caller;
use crate::http::error::ApiError;
use crate::http::sse;
use crate::session::ids::SessionId;
use crate::session::{Feed, From};
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use futures_util::{StreamExt, stream};

/// Follows; an idle session is answered with `complete`, and so is one that does not exist.
pub async fn subscribe(
    State(state): State<AppState>,
    caller: Caller,
    named: Overrides,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let target = Target::of(&state.engine, &caller, &named).await?;
    let Some(workspace) = state.engine.existing_workspace(&target.workspace).await? else {
        return Ok(target.session.map_or_else(no_session, |id| answer(&id, None)));
    };
    let Some(id) = session_or_latest(&state, &workspace, &caller, target.session).await? else {
        return Ok(no_session());
    };
    let stream = state.streams.register(&caller);
    let feed = workspace.session(&id).subscribe(from(&headers, &query)).await?;
    Ok(stream.over(answer(&id, feed)))
}

/// Where to begin. The header goes before the query, since a browser that reconnects by itself repeats the old
/// query and sends the newer place in the header.
fn from(headers: &HeaderMap, query: &Query) -> From {
    let header = headers.get("last-event-id").filter(|value| !value.is_empty());
    if let Some(value) = header {
        return From::After(value.to_str().ok().and_then(|text| text.parse().ok()));
    }
    if let Some(text) = query.get("after") {
        return From::After(text.parse().ok());
    }
    if query.get("replay") == Some("1") { From::Replay } else { From::Now }
}

fn answer(id: &SessionId, feed: Option<Feed>) -> Response {
    match feed {
        Some(feed) => sse::response(stream::iter([sse::session(id)]).chain(feed.0)),
        None => sse::ended(&[sse::session(id), sse::complete()]),
    }
}

fn no_session() -> Response {
    sse::ended(&[sse::error("No active session")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::{frames, text_of};
    use crate::session::ids::EventId;
    use axum::http::{HeaderValue, Request};
    use rstest::rstest;
    use serde_json::json;

    fn place(run: &str, seq: u64) -> From {
        From::After(Some(EventId { run: run.into(), seq }))
    }

    #[rstest]
    #[case("/", None, From::Now)]
    #[case("/?after=", Some(""), From::Now)]
    #[case("/?replay=1", None, From::Replay)]
    #[case("/?replay=0", None, From::Now)]
    #[case("/?after=r.7", None, place("r", 7))]
    #[case("/?after=r.7&replay=1", None, place("r", 7))]
    #[case("/?after=r.7", Some("s.9"), place("s", 9))]
    #[case("/?after=junk", None, From::After(None))]
    #[case("/?after=r.7", Some("junk"), From::After(None))]
    #[case("/", Some("r.99999999999999999999999"), From::After(None))]
    fn the_place_to_begin_is_the_newest_that_the_client_told(
        #[case] uri: &str,
        #[case] header: Option<&str>,
        #[case] expected: From,
    ) {
        let parts = Request::get(uri).body(()).unwrap().into_parts().0;
        let mut headers = HeaderMap::new();
        if let Some(value) = header {
            headers.insert("last-event-id", HeaderValue::from_str(value).unwrap());
        }
        assert_eq!(from(&headers, &Query::of(&parts)), expected);
    }

    #[tokio::test]
    async fn an_idle_session_is_answered_session_complete_and_the_end() {
        let text = text_of(answer(&"web_a_1".parse().unwrap(), None)).await;
        assert_eq!(
            frames(&text),
            [json!({ "type": "session", "sessionId": "web_a_1" }), json!({ "type": "complete" })]
        );
    }

    #[tokio::test]
    async fn without_any_session_there_is_one_error_frame() {
        let text = text_of(no_session()).await;
        assert_eq!(frames(&text), [json!({ "type": "error", "error": "No active session" })]);
    }
}
