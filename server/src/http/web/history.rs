//! `GET /api/web/history`: the log of a session as JSON, written as it is read, so that a long one is never in
//! memory as a whole. A log that fails half-way breaks the connection: JSON that looks whole would lie.

use super::request::{Overrides, Query, Target, digits};
use super::session_or_latest;
use crate::http::AppState;
use crate::http::auth::token::Caller;
use crate::http::error::ApiError;
use crate::session::ids::{SessionId, row_seq};
use crate::session::{HistoryQuery, Rows, SessionError, Snapshot};
use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use serde_json::json;

/// The most rows of one page.
const MAX_LIMIT: i64 = 1000;
/// An answer up to this many bytes is sent whole, with its length; also, a failure that early gets its status.
const WHOLE_UP_TO: usize = 16 * 1024;

/// The log, or a page of it.
pub async fn history(
    State(state): State<AppState>,
    caller: Caller,
    named: Overrides,
    query: Query,
) -> Result<Response, ApiError> {
    let target = Target::of(&state.engine, &caller, &named).await?;
    let wanted = wanted(&query)?;
    let explicit = target.session.is_some();
    let missing = || if explicit { Err(ApiError::SessionNotFound) } else { Ok(no_session()) };
    let Some(workspace) = state.engine.existing_workspace(&target.workspace).await? else { return missing() };
    let Some(id) = session_or_latest(&state, &workspace, &caller, target.session).await? else {
        return missing();
    };
    let Some(look) = workspace.session(&id).snapshot().await? else { return missing() };
    let (top, paged) = (look.top, wanted.limit.is_some() || wanted.before.is_some());
    let (rows, has_more) = workspace.history(&id, wanted, top).await?;
    let look = if wanted.before.is_some() { Snapshot { streaming: None, ..look } } else { look };
    answer(document(&id, look, rows, paged.then_some(has_more))).await
}

/// What the query asks for.
fn wanted(query: &Query) -> Result<HistoryQuery, ApiError> {
    let since = query.get("since").map(|text| digits(text).ok_or(ApiError::InvalidSince)).transpose()?;
    let limit = query
        .get("limit")
        .map(|text| digits(text).filter(|n| (1..=MAX_LIMIT).contains(n)).ok_or(ApiError::InvalidLimit))
        .transpose()?;
    let before = query.get("before").map(|id| row_seq(id).ok_or(ApiError::InvalidBefore)).transpose()?;
    Ok(HistoryQuery { since, limit: limit.map(|n| n as u32), before })
}

fn no_session() -> Response {
    Json(json!({ "messages": [], "sessionId": null, "running": false })).into_response()
}

/// The pieces of the document; `has_more` stands in a page.
fn document(
    id: &SessionId,
    look: Snapshot,
    mut rows: Rows,
    has_more: Option<bool>,
) -> impl Stream<Item = Result<Bytes, SessionError>> + Send + use<> {
    let head = format!("{{\"sessionId\":{},\"messages\":[", json!(id.as_str()));
    async_stream::try_stream! {
        let mut piece = head;
        let mut separator = "";
        while let Some(chunk) = rows.next().await {
            for row in chunk? {
                piece.push_str(separator);
                piece.push_str(&row);
                separator = ",";
            }
            yield Bytes::from(std::mem::take(&mut piece));
        }
        if let Some(row) = look.streaming {
            piece.push_str(separator);
            piece.push_str(&row);
        }
        piece.push_str("],\"running\":");
        piece.push_str(if look.running { "true" } else { "false" });
        if let Some(at) = look.event_id {
            // Letters, digits and a dot: nothing to escape.
            piece.push_str(",\"eventId\":\"");
            piece.push_str(&at.to_string());
            piece.push('"');
        }
        if let Some(more) = has_more {
            piece.push_str(if more { ",\"hasMore\":true" } else { ",\"hasMore\":false" });
        }
        piece.push('}');
        yield Bytes::from(piece);
    }
}

async fn answer(
    document: impl Stream<Item = Result<Bytes, SessionError>> + Send + 'static,
) -> Result<Response, ApiError> {
    let mut document = Box::pin(document);
    let mut start = BytesMut::new();
    let body = loop {
        match document.next().await {
            None => break Body::from(start.freeze()),
            Some(piece) => start.extend_from_slice(&piece?),
        }
        if start.len() > WHOLE_UP_TO {
            break Body::from_stream(stream::iter([Ok(start.freeze())]).chain(document));
        }
    };
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::text_of;
    use crate::session::ids::{EventId, row_id};
    use axum::http::Request;
    use futures_util::FutureExt;
    use rstest::rstest;
    use serde_json::Value;

    fn id() -> SessionId {
        "web_a_1".parse().unwrap()
    }

    fn row(seq: i64, content: &str) -> String {
        json!({ "id": row_id(1000 + seq, seq), "content": content }).to_string()
    }

    fn rows(chunks: Vec<Result<Vec<String>, SessionError>>) -> Rows {
        stream::iter(chunks).boxed()
    }

    fn idle() -> Snapshot {
        Snapshot { running: false, event_id: None, streaming: None, top: 9 }
    }

    fn failure() -> SessionError {
        SessionError::Internal("abc".into())
    }

    async fn json_of(document: impl Stream<Item = Result<Bytes, SessionError>> + Send + 'static) -> Value {
        serde_json::from_str(&text_of(answer(document).await.unwrap()).await).unwrap()
    }

    #[tokio::test]
    async fn an_idle_session_is_its_rows_in_order() {
        let chunks = rows(vec![Ok(vec![row(1, "a"), row(2, "b")]), Ok(vec![]), Ok(vec![row(3, "c")])]);
        let history = json_of(document(&id(), idle(), chunks, None)).await;
        let contents: Vec<_> =
            history["messages"].as_array().unwrap().iter().map(|m| &m["content"]).collect();
        assert_eq!(contents, ["a", "b", "c"]);
        assert_eq!(history["running"], false);
        let keys: Vec<_> = history.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["sessionId", "messages", "running"]);
    }

    #[rstest]
    #[case(vec![])]
    #[case(vec![Ok(vec![])])]
    #[tokio::test]
    async fn an_empty_log_is_an_empty_list(#[case] chunks: Vec<Result<Vec<String>, SessionError>>) {
        let history = json_of(document(&id(), idle(), rows(chunks), None)).await;
        assert_eq!(history, json!({ "sessionId": "web_a_1", "messages": [], "running": false }));
    }

    #[rstest]
    #[case(vec![])]
    #[case(vec![Ok(vec![row(1, "a")])])]
    #[tokio::test]
    async fn the_row_in_flight_comes_last_with_its_place_in_the_stream(
        #[case] chunks: Vec<Result<Vec<String>, SessionError>>,
    ) {
        let look = Snapshot {
            running: true,
            event_id: Some(EventId { run: "r".into(), seq: 4 }),
            streaming: Some(r#"{"content":"so far","streaming":true}"#.into()),
            top: 9,
        };
        let history = json_of(document(&id(), look, rows(chunks), None)).await;
        let last = history["messages"].as_array().unwrap().last().unwrap();
        assert_eq!(*last, json!({ "content": "so far", "streaming": true }));
        assert_eq!(history["running"], true);
        assert_eq!(history["eventId"], "r.4");
    }

    #[tokio::test]
    async fn only_a_page_tells_whether_rows_come_before_it() {
        for (has_more, shown) in [(Some(true), json!(true)), (Some(false), json!(false)), (None, json!(null))]
        {
            let page = rows(vec![Ok(vec![row(5, "a")])]);
            assert_eq!(json_of(document(&id(), idle(), page, has_more)).await["hasMore"], shown);
        }
    }

    #[tokio::test]
    async fn a_failure_at_the_start_has_its_status() {
        let chunks = rows(vec![Ok(vec![row(1, "a")]), Err(failure())]);
        let refused = answer(document(&id(), idle(), chunks, None)).await.unwrap_err();
        assert_eq!(refused, ApiError::Internal { id: "abc".into() });
    }

    #[tokio::test]
    async fn a_failure_half_way_breaks_the_answer_off() {
        let long = "x".repeat(WHOLE_UP_TO);
        let chunks = rows(vec![Ok(vec![row(1, &long)]), Ok(vec![row(2, &long)]), Err(failure())]);
        let response = answer(document(&id(), idle(), chunks, None)).await.unwrap();
        let mut pieces = response.into_body().into_data_stream();
        assert!(pieces.next().await.unwrap().is_ok());
        assert!(pieces.next().await.unwrap().is_ok());
        assert!(pieces.next().await.unwrap().is_err());
    }

    #[test]
    fn a_long_log_is_sent_before_it_is_read_to_the_end() {
        let long = "x".repeat(WHOLE_UP_TO);
        let chunks = stream::iter([Ok(vec![row(1, &long)])]).chain(stream::pending()).boxed();
        let response = answer(document(&id(), idle(), chunks, None)).now_or_never().unwrap().unwrap();
        let mut pieces = response.into_body().into_data_stream();
        assert!(pieces.next().now_or_never().unwrap().unwrap().unwrap().len() > WHOLE_UP_TO);
        assert!(pieces.next().now_or_never().is_none());
    }

    #[rstest]
    #[case("/", Ok(HistoryQuery::default()))]
    #[case("/?since=&limit=&before=", Ok(HistoryQuery::default()))]
    #[case("/?since=17", Ok(HistoryQuery { since: Some(17), limit: None, before: None }))]
    #[case("/?limit=1000&before=m_x_a", Ok(HistoryQuery { since: None, limit: Some(1000), before: Some(10) }))]
    #[case("/?since=abc", Err(ApiError::InvalidSince))]
    #[case("/?since=-1", Err(ApiError::InvalidSince))]
    #[case("/?since=1e3", Err(ApiError::InvalidSince))]
    #[case("/?limit=0", Err(ApiError::InvalidLimit))]
    #[case("/?limit=1001", Err(ApiError::InvalidLimit))]
    #[case("/?before=17", Err(ApiError::InvalidBefore))]
    fn a_query_is_read_or_refused_by_name(
        #[case] uri: &str,
        #[case] expected: Result<HistoryQuery, ApiError>,
    ) {
        let parts = Request::get(uri).body(()).unwrap().into_parts().0;
        assert_eq!(wanted(&Query::of(&parts)), expected);
    }
}
