//! `GET /api/web/file`: a file of the workspace, opened beneath it. Looking makes nothing: a folder that was never
//! used as a workspace stays as it is.

use super::request::{self, Overrides, Query};
use crate::http::AppState;
use crate::http::auth::token::Caller;
use crate::http::content;
use crate::http::error::ApiError;
use crate::workspace::paths::{PathError, open_beneath};
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::Response;
use std::path::Path;

/// Sends the file, or what of it the client asks for.
pub async fn file(
    State(state): State<AppState>,
    caller: Caller,
    named: Overrides,
    query: Query,
    method: Method,
    asked: HeaderMap,
) -> Result<Response, ApiError> {
    let folder = request::workspace(&caller, &named).await?;
    let path = query.get("path").ok_or(ApiError::PathRequired)?.to_owned();
    let name = Path::new(&path).file_name().map(|name| name.to_string_lossy().into_owned());
    let (places, access) = ((state.settings)().hidden, caller.level.session_level());
    let opened = tokio::task::spawn_blocking(move || {
        match open_beneath(&folder, &path, &places.served(&folder, access)) {
            Err(PathError::NotFound(_)) if !folder.is_dir() => Err(ApiError::WorkspaceNotFound),
            opened => opened.map_err(refusal),
        }
    });
    let opened = opened.await.map_err(ApiError::internal)??;
    content::answer(opened, &name.unwrap_or_default(), &method, &asked)
}

fn refusal(error: PathError) -> ApiError {
    match error {
        PathError::NotFound(_) | PathError::NotFolder(_) | PathError::Nowhere { .. } | PathError::Nul => {
            ApiError::FileNotFound
        }
        PathError::Outside { .. } => ApiError::PathTraversal,
        PathError::Hidden(_) | PathError::Protected(_) | PathError::ReadOnly(_) | PathError::Denied(_) => {
            ApiError::PathNotAccessible
        }
        PathError::Folder(_) => ApiError::CannotServeDirectory,
        PathError::NotRegular { .. } => ApiError::NotRegularFile,
        PathError::Changed(_)
        | PathError::WriteProtected { .. }
        | PathError::Stopped(_)
        | PathError::Io { .. } => ApiError::internal(error),
    }
}
