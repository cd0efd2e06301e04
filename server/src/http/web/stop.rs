//! `POST /api/web/stop`: ends the run in flight.

use super::body::Fields;
use super::request::{Overrides, Target};
use super::{session_or_latest, to_the_end};
use crate::http::AppState;
use crate::http::auth::token::{Caller, WithBody};
use crate::http::error::ApiError;
use axum::Json;
use axum::extract::State;
use serde::Serialize;

/// The answer.
#[derive(Debug, Serialize)]
pub struct Stopped {
    stopped: bool,
}

/// Stops; false when nothing runs, when the session is unknown, and when there is none.
pub async fn stop(
    State(state): State<AppState>,
    named: Overrides,
    WithBody(caller, body): WithBody,
) -> Result<Json<Stopped>, ApiError> {
    let fields = Fields::of_body(&body, Overrides::FIELDS).ok_or(ApiError::InvalidBody)?;
    let named = named.then(Overrides::of_fields(&fields)?);
    let target = Target::of(&state.engine, &caller, &named).await?;
    let stopped = to_the_end(stop_it(state, caller, target)).await?;
    Ok(Json(Stopped { stopped }))
}

async fn stop_it(state: AppState, caller: Caller, target: Target) -> Result<bool, ApiError> {
    let Some(workspace) = state.engine.existing_workspace(&target.workspace).await? else { return Ok(false) };
    let Some(id) = session_or_latest(&state, &workspace, &caller, target.session).await? else {
        return Ok(false);
    };
    Ok(workspace.session(&id).stop().await?)
}
