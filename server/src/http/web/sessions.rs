//! `POST /api/web/sessions` makes a session, `GET /api/web/sessions` lists the token's own.

use super::body::Fields;
use super::request::{self, Overrides, Query, digits};
use super::to_the_end;
use crate::http::AppState;
use crate::http::auth::token::{Caller, WithBody};
use crate::http::error::ApiError;
use crate::session::Listed;
use crate::session::ids::SessionId;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use std::path::Path;

/// How many sessions a page has, before it is extended over rows of one millisecond.
const PAGE: u32 = 50;

/// A session that was just made.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Minted {
    session_id: String,
}

/// Makes a session that has no message yet. Its row is on disk before the answer leaves.
pub async fn mint(
    State(state): State<AppState>,
    named: Overrides,
    WithBody(caller, body): WithBody,
) -> Result<Json<Minted>, ApiError> {
    let names = &["workspace", "agentId"];
    let fields = Fields::of_body(&body, names).ok_or(ApiError::InvalidBody)?;
    let named = named.then(Overrides::of_fields(&fields)?);
    let folder = request::workspace(&caller, &named).await?;
    let id = to_the_end(async move {
        let workspace = state.engine.workspace(&folder).await?;
        let id = SessionId::new_web(&caller.account_id, state.clock.now_ms());
        workspace.create(&id, named.agent_id, caller.level.session_level(), None).await?;
        Ok(id)
    })
    .await?;
    Ok(Json(Minted { session_id: id.to_string() }))
}

/// One page of sessions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    workspace: String,
    sessions: Vec<Row>,
    next_cursor: Option<i64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    session_id: String,
    title: Option<String>,
    updated_at: i64,
}

/// The token's own roots, newest first; the same for a `full` token.
pub async fn list(
    State(state): State<AppState>,
    caller: Caller,
    named: Overrides,
    query: Query,
) -> Result<Json<Page>, ApiError> {
    let folder = request::workspace(&caller, &named).await?;
    let cursor = cursor(&query)?;
    let Some(workspace) = state.engine.existing_workspace(&folder).await? else {
        // Never used: nothing to list, and nothing is made by looking.
        let folder = tokio::fs::canonicalize(&folder).await.map_err(|_| ApiError::WorkspaceNotFound)?;
        return Ok(Json(page(&folder, Vec::new(), false)));
    };
    let (rows, more) = workspace.roots(&caller.session_prefix(), cursor, PAGE).await?;
    Ok(Json(page(workspace.path(), rows, more)))
}

fn cursor(query: &Query) -> Result<Option<i64>, ApiError> {
    query.get("cursor").map(|text| digits(text).ok_or(ApiError::InvalidCursor)).transpose()
}

fn page(workspace: &Path, rows: Vec<Listed>, more: bool) -> Page {
    let next_cursor = rows.last().filter(|_| more).map(|last| last.updated_at);
    let sessions = rows
        .into_iter()
        .map(|row| Row { session_id: row.session_id, title: row.title, updated_at: row.updated_at })
        .collect();
    Page { workspace: workspace.to_string_lossy().into_owned(), sessions, next_cursor }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use rstest::rstest;
    use serde_json::json;

    fn listed(id: &str, title: Option<&str>, updated_at: i64) -> Listed {
        Listed { session_id: id.into(), title: title.map(Into::into), updated_at }
    }

    #[test]
    fn a_page_names_the_next_one_only_when_there_is_more() {
        let rows = || vec![listed("web_a_2", Some("hi"), 20), listed("web_a_1", None, 10)];
        let last = serde_json::to_value(page(Path::new("/ws"), rows(), false)).unwrap();
        assert_eq!(
            last,
            json!({
                "workspace": "/ws",
                "sessions": [
                    { "sessionId": "web_a_2", "title": "hi", "updatedAt": 20 },
                    { "sessionId": "web_a_1", "title": null, "updatedAt": 10 },
                ],
                "nextCursor": null,
            })
        );
        assert_eq!(page(Path::new("/ws"), rows(), true).next_cursor, Some(10));
        assert_eq!(page(Path::new("/ws"), Vec::new(), false).next_cursor, None);
    }

    #[rstest]
    #[case("/", Ok(None))]
    #[case("/?cursor=", Ok(None))]
    #[case("/?cursor=1700", Ok(Some(1700)))]
    #[case("/?cursor=abc", Err(ApiError::InvalidCursor))]
    #[case("/?cursor=0x10", Err(ApiError::InvalidCursor))]
    #[case("/?cursor=-1", Err(ApiError::InvalidCursor))]
    #[case("/?cursor=1.5", Err(ApiError::InvalidCursor))]
    fn a_cursor_is_digits_or_nothing(#[case] uri: &str, #[case] expected: Result<Option<i64>, ApiError>) {
        let parts = Request::get(uri).body(()).unwrap().into_parts().0;
        assert_eq!(cursor(&Query::of(&parts)), expected);
    }
}
