//! `GET /api/health`: open to everyone, touches nothing but the clock. In the first moments of a server it waits until
//! it is known what shell commands run in.

use super::AppState;
use axum::Json;
use axum::extract::State;
use serde::Serialize;

/// The answer.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    status: &'static str,
    /// Milliseconds since the Unix epoch.
    timestamp: i64,
    /// Seconds since the server started.
    uptime: f64,
    engine: &'static str,
    version: &'static str,
    /// Of the build, where it was told.
    git_sha: Option<&'static str>,
    /// The kind of sandbox that shell commands run in below full access: `bwrap`, `landlock` or none.
    sandbox: Option<&'static str>,
}

/// Says that the server answers, and what it is.
pub async fn health(State(state): State<AppState>) -> Json<Health> {
    let sandbox = match &state.sandbox {
        Some(sandbox) => sandbox.settled().await.name(),
        None => None,
    };
    Json(Health {
        status: "ok",
        timestamp: state.clock.now_ms(),
        uptime: state.uptime(),
        engine: "rust",
        version: env!("CARGO_PKG_VERSION"),
        git_sha: option_env!("HALO_GIT_SHA"),
        sandbox,
    })
}
