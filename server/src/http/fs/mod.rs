//! The file browser of the machine, `/api/fs/*` (web contract, section 3), for the admin. Folders may be picked
//! everywhere; files are looked at, listed and read everywhere but at the hidden places, which answer like what is
//! missing. What is opened is judged where it really is and read through the same handle. Names that are not UTF-8
//! go out and come back as [`names`] writes them.

mod browse;
mod look;
mod names;
mod raw;
mod resolve;

#[cfg(test)]
mod tests;

use super::AppState;
use super::admin::error::AdminError;
use super::error::ApiError;
use super::web::request::Query;
use crate::workspace::hidden::HiddenSet;
use crate::workspace::paths::PathError;
use crate::workspace::paths::found::Found;
use axum::Router;
use axum::routing::{get, post};
use std::path::{Component, PathBuf};

/// The routes of the file browser.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/api/fs/home", get(look::home))
        .route("/api/fs/exists", get(look::exists))
        .route("/api/fs/stat", get(look::stat))
        .route("/api/fs/browse", get(browse::browse))
        .route("/api/fs/raw", get(raw::raw))
        .route("/api/fs/workspace/resolve", post(resolve::resolve))
}

/// A path that a client named.
#[derive(Clone, Debug)]
struct Named {
    /// As it was sent, for the errors.
    text: String,
    /// What it stands for.
    path: PathBuf,
}

impl Named {
    /// The `path` of the query, where it is absolute.
    fn absolute(query: &Query) -> Option<Self> {
        let text = query.get("path")?.to_owned();
        let path = names::path_of(&text);
        path.is_absolute().then_some(Self { text, path })
    }

    /// The `path` of the query, which must be absolute and go straight down.
    fn plain(query: &Query) -> Result<Self, AdminError> {
        Self::absolute(query)
            .filter(|named| named.path.components().all(|part| part != Component::ParentDir))
            .ok_or(AdminError::PlainPathRequired)
    }

    /// Opens it. `call` names what is tried in the words that clients know.
    fn open(&self, hidden: &HiddenSet, call: &'static str) -> Result<Found, ApiError> {
        Found::open(&self.path, hidden).map_err(|error| self.refusal(error, call))
    }

    /// The answer for a path that cannot be used.
    fn refusal(&self, error: PathError, call: &'static str) -> ApiError {
        let path = self.text.clone();
        match error {
            PathError::NotFound(_)
            | PathError::NotFolder(_)
            | PathError::Hidden(_)
            | PathError::Nul
            | PathError::Nowhere { .. } => AdminError::NoEntry { call, path }.into(),
            PathError::Denied(_) => AdminError::Denied { call, path }.into(),
            PathError::Folder(_) => AdminError::NotFile.into(),
            PathError::NotRegular { .. } => ApiError::NotRegularFile,
            other => ApiError::internal(other),
        }
    }
}

/// Runs work that touches the disk where it may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.map_err(ApiError::internal)?
}
