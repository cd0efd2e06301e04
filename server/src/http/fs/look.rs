//! Questions about one place: the home, whether something is there, and what it is.

use super::{Named, blocking, names};
use crate::http::AppState;
use crate::http::admin::AdminCookie;
use crate::http::error::ApiError;
use crate::http::web::request::Query;
use crate::workspace::paths::Kind;
use axum::Json;
use axum::extract::State;
use serde::Serialize;
use serde_json::{Value, json};

/// `GET /api/fs/home`.
pub async fn home(State(state): State<AppState>, _: AdminCookie) -> Json<Value> {
    Json(json!({ "home": names::text_of((state.settings)().hidden.user_home.as_os_str()) }))
}

/// Whether something is there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Presence {
    exists: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_directory: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// `GET /api/fs/exists`. A link that leads nowhere does not exist.
pub async fn exists(_: AdminCookie, query: Query) -> Json<Presence> {
    let Some(named) = Named::absolute(&query) else {
        return Json(Presence { exists: false, is_directory: None, reason: Some("absolute path required") });
    };
    let is_directory = tokio::fs::metadata(&named.path).await.ok().map(|metadata| metadata.is_dir());
    Json(Presence { exists: is_directory.is_some(), is_directory, reason: None })
}

/// What is there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Stat {
    path: String,
    real_path: String,
    size: u64,
    modified_at: f64,
    is_directory: bool,
}

/// `GET /api/fs/stat`. Opens nothing for reading, so it tells of everything, and at once.
pub async fn stat(
    State(state): State<AppState>,
    _: AdminCookie,
    query: Query,
) -> Result<Json<Stat>, ApiError> {
    let named = Named::plain(&query)?;
    let places = (state.settings)().hidden;
    blocking(move || {
        let found = named.open(&places.browsed(), "realpath")?;
        Ok(Json(Stat {
            real_path: names::text_of(found.real_path().as_os_str()),
            size: found.size(),
            modified_at: found.modified_ms(),
            is_directory: found.kind() == Kind::Folder,
            path: named.text,
        }))
    })
    .await
}
