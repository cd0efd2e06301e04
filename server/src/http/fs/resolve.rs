//! `POST /api/fs/workspace/resolve`: makes a folder a workspace, and says under which id.

use super::{Named, blocking, names};
use crate::http::admin::AdminCookie;
use crate::http::admin::error::AdminError;
use crate::http::error::ApiError;
use crate::http::web::body::{Fields, JsonBody};
use crate::workspace::scaffold;
use axum::Json;
use serde_json::{Value, json};
use std::io;

/// The id is the folder's real path. A relative path starts where the server was started.
pub async fn resolve(_: AdminCookie, JsonBody(body): JsonBody) -> Result<Json<Value>, ApiError> {
    let fields = Fields::of_body(&body, &["path"]).ok_or(ApiError::InvalidBody)?;
    let text = fields.text("path")?.filter(|path| !path.is_empty()).ok_or(ApiError::PathRequired)?;
    let named = Named { path: names::path_of(&text), text };
    blocking(move || {
        let real = named.path.canonicalize().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => denied(&named, "realpath"),
            _ => AdminError::PathNotFound.into(),
        })?;
        if real.parent().is_none() {
            return Err(AdminError::RootWorkspace.into());
        }
        if !real.is_dir() {
            return Err(AdminError::NotDirectory.into());
        }
        scaffold::make(&real).map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied => denied(&named, "mkdir"),
            _ => ApiError::WorkspaceUnusable(format!("{}: {error}", scaffold::folder(&real).display())),
        })?;
        let id = names::text_of(real.as_os_str());
        Ok(Json(json!({ "id": id, "path": id })))
    })
    .await
}

fn denied(named: &Named, call: &'static str) -> ApiError {
    AdminError::Denied { call, path: named.text.clone() }.into()
}
