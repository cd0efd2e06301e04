//! The web channel, `/api/web/*` (web contract, section 2): chat and subscribe as event streams, history, stop,
//! the two session routes, and files. Each handler has the same shape: [`Caller`] first
//! (checks 1 to 3), then the body, then [`request`] (checks 4 to 6), then one call of the session floor. The
//! accounts behind the tokens are the business of the admin, who comes with a cookie.

pub mod accounts;
pub mod body;
pub mod chat;
pub mod commands;
pub mod file;
pub mod history;
pub mod images;
pub mod pointers;
pub mod request;
pub mod sessions;
pub mod stop;
pub mod subscribe;

use super::AppState;
use super::auth::token::Caller;
use super::error::ApiError;
use crate::session::Workspace;
use crate::session::ids::SessionId;
use axum::Router;
use axum::routing::{get, patch, post};
use std::future::Future;

/// The routes of the channel.
pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/api/web/chat", post(chat::chat))
        .route("/api/web/sessions", get(sessions::list).post(sessions::mint))
        .route("/api/web/stop", post(stop::stop))
        .route("/api/web/history", get(history::history))
        .route("/api/web/subscribe", get(subscribe::subscribe))
        .route("/api/web/file", get(file::file))
        .route("/api/web/accounts", get(accounts::list).post(accounts::create))
        .route("/api/web/accounts/{id}", patch(accounts::change).delete(accounts::remove))
}

/// The session that a request means: the one it names, else the one that the account was moved to, else its most
/// recently updated root.
async fn session_or_latest(
    state: &AppState,
    workspace: &Workspace,
    caller: &Caller,
    named: Option<SessionId>,
) -> Result<Option<SessionId>, ApiError> {
    if named.is_some() {
        return Ok(named);
    }
    // The level may have changed since the account was moved there.
    let moved = state.pointers.get(&caller.account_id, workspace.path()).filter(|id| caller.owns(id));
    if let Some(id) = moved
        && workspace.is_live(&id).await?
    {
        return Ok(Some(id));
    }
    Ok(workspace.latest_root(&caller.session_prefix()).await?)
}

/// Runs a sequence that changes something in a task of its own: a handler is dropped when its client leaves, and
/// must not take half a sequence with it.
pub(super) async fn to_the_end<T: Send + 'static>(
    sequence: impl Future<Output = Result<T, ApiError>> + Send + 'static,
) -> Result<T, ApiError> {
    match tokio::spawn(sequence).await {
        Ok(result) => result,
        Err(error) => Err(ApiError::internal(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::sync::Notify;

    #[tokio::test]
    async fn a_client_that_leaves_does_not_stop_a_sequence_half_way() {
        let (entered, go, finished) =
            (Arc::new(Notify::new()), Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (inside, on, end) = (entered.clone(), go.clone(), finished.clone());
        let handler = tokio::spawn(to_the_end(async move {
            inside.notify_one();
            on.notified().await;
            end.notify_one();
            Ok(())
        }));
        entered.notified().await;
        handler.abort();
        assert!(handler.await.unwrap_err().is_cancelled());
        go.notify_one();
        finished.notified().await;
    }

    #[tokio::test]
    async fn a_sequence_that_panics_is_an_internal_error() {
        let result = to_the_end::<()>(async { panic!("boom") }).await;
        assert!(matches!(result, Err(ApiError::Internal { .. })), "{result:?}");
    }
}
