//! The server as a whole: builds the state and the router. The only place that knows every floor.

use crate::config::lock::ServerLock;
use crate::config::{Home, Live};
use crate::store::Database;
use axum::routing::get;
use axum::{Json, Router};
use std::path::PathBuf;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// All that a server needs to run.
pub struct Startup {
    /// The home, prepared.
    pub home: Home,
    /// Held until the server ends.
    pub lock: ServerLock,
    /// The configuration; its files are followed already.
    pub live: Live,
    /// Bound and listening.
    pub listener: TcpListener,
    /// The accounts, open.
    pub channels: Database,
    /// The folder of `--workspace`: absolute, real.
    pub workspace: PathBuf,
}

/// Serves until `shutdown` fires, then ends gracefully.
pub async fn serve(startup: Startup, shutdown: CancellationToken) -> anyhow::Result<()> {
    let health = get(|| async { Json(serde_json::json!({"status": "ok"})) });
    let router = Router::new().route("/api/health", health);
    axum::serve(startup.listener, router).with_graceful_shutdown(shutdown.cancelled_owned()).await?;
    startup.channels.close().await;
    Ok(())
}
