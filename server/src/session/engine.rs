//! All open workspaces of the server: each folder is opened once, remembered before its first use, and closed at
//! the end.

use super::frames::Budget;
use super::run::AgentSource;
use super::workspace::{Workspace, has_database};
use super::{Census, WorkspaceError, logged};
use crate::clock::Clock;
use crate::store::{Database, StoreError, runs};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the end waits for sessions to put themselves on disk.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(6);

/// What the engine is made of.
pub struct Parts {
    /// `runs.db`: the workspaces ever used.
    pub runs: Database,
    /// Finds and builds agents.
    pub agents: Arc<dyn AgentSource>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// All workspaces that this server has open. Cheap to clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    parts: Parts,
    budget: Arc<Budget>,
    open: Mutex<HashMap<PathBuf, Arc<OnceCell<Workspace>>>>,
    closing: CancellationToken,
    tasks: TaskTracker,
}

impl Engine {
    /// An engine with no workspace open.
    pub fn new(parts: Parts) -> Self {
        Self {
            inner: Arc::new(Inner {
                parts,
                budget: Arc::default(),
                open: Mutex::default(),
                closing: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<OnceCell<Workspace>>>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn agent_source(&self) -> Arc<dyn AgentSource> {
        self.inner.parts.agents.clone()
    }

    /// Opens the folder as a workspace: scaffold, database, runtime lock; interrupted sessions are taken up. The
    /// same folder gives the same workspace.
    pub async fn workspace(&self, path: &Path) -> Result<Workspace, WorkspaceError> {
        self.open_real(real_folder(path).await?).await
    }

    /// The workspace if the folder has a `.halo/` already; creates nothing.
    pub async fn existing_workspace(&self, path: &Path) -> Result<Option<Workspace>, WorkspaceError> {
        let real = real_folder(path).await?;
        let looked = real.clone();
        let exists = tokio::task::spawn_blocking(move || has_database(&looked)).await.unwrap_or(false);
        if exists { self.open_real(real).await.map(Some) } else { Ok(None) }
    }

    async fn open_real(&self, real: PathBuf) -> Result<Workspace, WorkspaceError> {
        if self.inner.closing.is_cancelled() {
            return Err(WorkspaceError::ShuttingDown);
        }
        let cell = self.open().entry(real.clone()).or_default().clone();
        let cell = match cell.get() {
            Some(workspace) if workspace.is_current() => return Ok(workspace.clone()),
            Some(gone) => {
                tracing::warn!(workspace = %real.display(), "the database was removed or replaced; it is opened anew");
                gone.abandon();
                let mut open = self.open();
                if open.get(&real).is_some_and(|listed| Arc::ptr_eq(listed, &cell)) {
                    open.insert(real.clone(), Arc::default());
                }
                open.entry(real.clone()).or_default().clone()
            }
            None => cell,
        };
        // Opening goes on when the caller leaves: it must not stop half way.
        let inner = self.inner.clone();
        let opening = self.inner.tasks.spawn(async move {
            cell.get_or_try_init(|| async {
                let Parts { runs, agents, clock } = &inner.parts;
                runs::remember(runs, &real, clock.now_ms()).await.map_err(|error| match error {
                    StoreError::Full => WorkspaceError::DiskFull(format!("runs.db: {error}")),
                    error => WorkspaceError::Internal(logged("runs.db", &error)),
                })?;
                Workspace::open(
                    real,
                    agents.clone(),
                    clock.clone(),
                    inner.budget.clone(),
                    inner.closing.child_token(),
                    inner.tasks.clone(),
                )
                .await
            })
            .await
            .cloned()
        });
        opening
            .await
            .unwrap_or_else(|error| Err(WorkspaceError::Internal(logged("opening a workspace", &error))))
    }

    /// Counts what the open workspaces hold; opens none. One that cannot be read is logged, and counted as empty.
    pub async fn census(&self) -> Census {
        let open: Vec<Workspace> = self.open().values().filter_map(|cell| cell.get().cloned()).collect();
        let mut census = Census::default();
        for workspace in open.into_iter().filter(Workspace::is_current) {
            census.workspaces += 1;
            let Ok(totals) = workspace.totals().await else { continue };
            census.running += totals.running;
            census.stopped += totals.stopped;
            census.idle += totals.idle;
            census.context_tokens += totals.context_tokens;
            census.output_tokens += totals.output_tokens;
        }
        census
    }

    /// Opens every workspace that has been used and still has a database, so that interrupted sessions go on.
    /// A workspace that cannot be opened is logged and left alone.
    pub async fn recover(&self) {
        let known = match runs::all(&self.inner.parts.runs).await {
            Ok(known) => known,
            Err(error) => {
                tracing::error!(%error, "the list of workspaces cannot be read; interrupted sessions wait");
                return;
            }
        };
        for path in known {
            if let Err(error) = self.existing_workspace(&path).await {
                tracing::warn!(workspace = %path.display(), %error, "a workspace could not be opened");
            }
        }
    }

    /// Streams end, runs stay in the ledger, databases close. Takes at most about 10 s.
    pub async fn shutdown(&self) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        if timeout(SHUTDOWN_GRACE, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!("some sessions did not end in time");
        }
        let workspaces: Vec<Workspace> =
            self.open().drain().filter_map(|(_, cell)| cell.get().cloned()).collect();
        for workspace in workspaces {
            workspace.close().await;
        }
        self.inner.parts.runs.close().await;
    }
}

async fn real_folder(path: &Path) -> Result<PathBuf, WorkspaceError> {
    if !path.is_absolute() {
        return Err(WorkspaceError::NotFound);
    }
    let real = tokio::fs::canonicalize(path).await.map_err(|_| WorkspaceError::NotFound)?;
    let folder = tokio::fs::metadata(&real).await.is_ok_and(|metadata| metadata.is_dir());
    // The path stands in JSON and in databases, so it has to be text.
    if folder && real.to_str().is_some() { Ok(real) } else { Err(WorkspaceError::NotFound) }
}
