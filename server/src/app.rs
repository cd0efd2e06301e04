//! The server as a whole: builds the state and the router, and ends everything in order. The only place that knows
//! every floor.

mod agents;

use crate::clock::{Clock, SystemClock};
use crate::config::lock::ServerLock;
use crate::config::{Home, Live};
use crate::http::web::commands::HomeFiles;
use crate::http::{self, AppState, HttpSettings};
use crate::session::{Engine, Parts};
use crate::store::Database;
use crate::tool::sandbox::Sandbox;
use crate::workspace::hidden::HiddenPlaces;
use std::path::PathBuf;
use std::sync::Arc;
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
    /// The workspaces ever used, open.
    pub runs: Database,
}

/// Serves until `shutdown` fires. The end, in order: no new connections, streams let go, runs left in the ledger,
/// databases closed; within 10 s.
pub async fn serve(startup: Startup, shutdown: CancellationToken) -> anyhow::Result<()> {
    let Startup { home, lock, live, listener, channels, runs } = startup;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (user_home, halo_home) = (user_home(), home.path().to_owned());
    let files = HomeFiles::of(&home);
    let sandbox = Sandbox::new(user_home.clone(), halo_home.clone(), Some(runs.clone()));
    sandbox.begin();
    let agents = Arc::new(agents::Agents::new(home, live.clone(), sandbox.clone(), clock.clone()));
    let engine = Engine::new(Parts { runs, agents, clock: clock.clone() });
    let followed = live.clone();
    let settings = Arc::new(move || {
        let current = followed.current();
        HttpSettings {
            trust_proxy: current.trust_proxy,
            cors_origins: current.cors_origins.clone(),
            hidden: HiddenPlaces {
                user_home: user_home.clone(),
                halo_home: halo_home.clone(),
                dirs: current.hidden_dirs.clone(),
                files: current.hidden_files.clone(),
            },
        }
    });
    let state = AppState::new(engine.clone(), channels.clone(), live, settings, clock)
        .with_files(files)
        .with_sandbox(sandbox);
    let recovering = tokio::spawn({
        let engine = engine.clone();
        async move { engine.recover().await }
    });
    let ending = async {
        shutdown.cancelled().await;
        recovering.abort();
        engine.shutdown().await;
    };
    let (served, ()) =
        tokio::join!(http::serve::serve(listener, http::router(state), shutdown.clone()), ending);
    channels.close().await;
    drop(lock);
    Ok(served)
}

/// What `~/` means; the root where there is none.
pub fn user_home() -> PathBuf {
    std::env::home_dir().unwrap_or_else(|| PathBuf::from("/"))
}
