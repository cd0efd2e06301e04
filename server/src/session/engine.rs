//! All open workspaces of the server: each folder is opened once and remembered before its first use. Of those that
//! nobody uses and that have nothing to do, the least recently used are closed when there are too many; all are at
//! the end.

use super::frames::Budget;
use super::run::AgentSource;
use super::workspace::{Workspace, has_database};
use super::{Census, WorkspaceError, logged};
use crate::clock::Clock;
use crate::store::{Database, StoreError, runs};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long the end waits for sessions to put themselves on disk.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(6);
/// How many workspaces stay open. More are open only while each of them has something to do.
const MAX_OPEN: usize = 64;
/// How long until those are looked at again that were in use while too many were open.
const TRIM_AGAIN: Duration = Duration::from_secs(5);

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
    folders: Mutex<Folders>,
    /// Held by whoever closes workspaces that are too many.
    trimming: tokio::sync::Mutex<()>,
    /// Whether a task waits to close what is too many and in use now.
    trims_later: AtomicBool,
    closing: CancellationToken,
    tasks: TaskTracker,
}

/// The folders that are open, or being opened or closed.
#[derive(Default)]
struct Folders {
    by_path: HashMap<PathBuf, Folder>,
    /// Counts uses.
    uses: u64,
}

/// The way to one workspace.
#[derive(Default)]
struct Door {
    /// Held while the workspace is opened or closed, so that neither overtakes the other.
    gate: tokio::sync::Mutex<()>,
    open: Mutex<Option<Workspace>>,
}

impl Door {
    fn open(&self) -> MutexGuard<'_, Option<Workspace>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The workspace, where it is open and its database still in its place.
    fn workspace(&self) -> Option<Workspace> {
        let open = self.open().clone();
        open.filter(Workspace::is_current)
    }

    /// Closes the workspace if nobody uses it and it has nothing to do; false when it stays open.
    async fn close_unused(&self) -> bool {
        // Whoever is at the gate wants it open.
        let Ok(_gate) = self.gate.try_lock() else { return false };
        let Some(workspace) = self.open().clone() else { return true };
        if !workspace.rest().await {
            return false;
        }
        drop(workspace);
        // Under this lock nobody can begin to use it.
        let unused = self.open().take_if(|workspace| workspace.is_unused());
        let Some(workspace) = unused else { return false };
        workspace.close().await;
        true
    }
}

struct Folder {
    door: Arc<Door>,
    /// The number of the last use.
    used: u64,
}

impl Engine {
    /// An engine with no workspace open.
    pub fn new(parts: Parts) -> Self {
        Self {
            inner: Arc::new(Inner {
                parts,
                budget: Arc::default(),
                folders: Mutex::default(),
                trimming: tokio::sync::Mutex::default(),
                trims_later: AtomicBool::default(),
                closing: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    fn folders(&self) -> MutexGuard<'_, Folders> {
        self.inner.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn agent_source(&self) -> Arc<dyn AgentSource> {
        self.inner.parts.agents.clone()
    }

    /// Opens the folder as a workspace: scaffold, database, runtime lock; interrupted sessions are taken up. The
    /// same folder gives the same workspace, as long as somebody uses it.
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
        let door = self.door(&real);
        if let Some(workspace) = door.workspace() {
            return Ok(workspace);
        }
        // Opening goes on when the caller leaves: it must not stop half way.
        let engine = self.clone();
        let opening = self.inner.tasks.spawn(async move {
            let opened = engine.open_behind(&door, &real).await;
            drop(door);
            if opened.is_err() {
                engine.sweep();
            } else {
                engine.trim_soon();
            }
            opened
        });
        opening
            .await
            .unwrap_or_else(|error| Err(WorkspaceError::Internal(logged("opening a workspace", &error))))
    }

    /// The folder's door; this counts as a use.
    fn door(&self, real: &Path) -> Arc<Door> {
        let mut folders = self.folders();
        folders.uses += 1;
        let used = folders.uses;
        if let Some(folder) = folders.by_path.get_mut(real) {
            folder.used = used;
            return folder.door.clone();
        }
        let door = Arc::<Door>::default();
        folders.by_path.insert(real.to_owned(), Folder { door: door.clone(), used });
        door
    }

    async fn open_behind(&self, door: &Door, real: &Path) -> Result<Workspace, WorkspaceError> {
        let _gate = door.gate.lock().await;
        if let Some(workspace) = door.workspace() {
            return Ok(workspace);
        }
        let gone = door.open().take();
        if let Some(gone) = gone {
            tracing::warn!(workspace = %real.display(), "the database was removed, replaced or made writable; it is opened anew");
            gone.abandon().await;
        }
        let Parts { runs, agents, clock } = &self.inner.parts;
        runs::remember(runs, real, clock.now_ms()).await.map_err(|error| match error {
            StoreError::Full => WorkspaceError::DiskFull(format!("runs.db: {error}")),
            error => WorkspaceError::Internal(logged("runs.db", &error)),
        })?;
        let workspace = Workspace::open(
            real.to_owned(),
            agents.clone(),
            clock.clone(),
            self.inner.budget.clone(),
            self.inner.closing.child_token(),
            self.inner.tasks.clone(),
        )
        .await?;
        *door.open() = Some(workspace.clone());
        Ok(workspace)
    }

    /// Drops the entries of folders where nothing is open and nobody stands at the door.
    fn sweep(&self) {
        // Under this lock nobody new can come to a door.
        self.folders()
            .by_path
            .retain(|_, folder| Arc::strong_count(&folder.door) > 1 || folder.door.open().is_some());
    }

    fn are_too_many(&self) -> bool {
        self.folders().by_path.values().filter(|folder| folder.door.open().is_some()).count() > MAX_OPEN
    }

    /// Trims, and again later for as long as too many are in use: what they were used for ends without a word here.
    fn trim_soon(&self) {
        if !self.are_too_many() {
            return;
        }
        let engine = self.clone();
        self.inner.tasks.spawn(async move {
            loop {
                engine.trim().await;
                if !engine.are_too_many() || engine.inner.trims_later.swap(true, Ordering::AcqRel) {
                    return;
                }
                let ended = engine.inner.closing.run_until_cancelled(sleep(TRIM_AGAIN)).await.is_none();
                // Before the next look, so that whoever comes after it waits on its own.
                engine.inner.trims_later.store(false, Ordering::Release);
                if ended {
                    return;
                }
            }
        });
    }

    /// Closes the least recently used workspaces that nobody uses and that have nothing to do, until no more than
    /// [`MAX_OPEN`] are left.
    async fn trim(&self) {
        let _alone = self.inner.trimming.lock().await;
        if !self.are_too_many() {
            return;
        }
        let mut candidates: Vec<(u64, PathBuf, Arc<Door>)> = self
            .folders()
            .by_path
            .iter()
            .map(|(path, folder)| (folder.used, path.clone(), folder.door.clone()))
            .collect();
        candidates.sort_unstable_by_key(|(used, ..)| *used);
        for (_, path, door) in candidates {
            if !self.are_too_many() || self.inner.closing.is_cancelled() {
                break;
            }
            if door.close_unused().await {
                tracing::debug!(workspace = %path.display(), "closed: it was not used for the longest time");
            }
        }
        self.sweep();
    }

    fn doors(&self) -> Vec<Arc<Door>> {
        self.folders().by_path.values().map(|folder| folder.door.clone()).collect()
    }

    /// Counts what the open workspaces hold; opens none. One that cannot be read is logged, and counted as empty.
    pub async fn census(&self) -> Census {
        let mut census = Census::default();
        for door in self.doors() {
            let Some(workspace) = door.workspace() else { continue };
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
            // No faster than workspaces without work are closed again.
            self.trim().await;
        }
    }

    /// Streams end, runs stay in the ledger, databases close. Takes at most about 10 s.
    pub async fn shutdown(&self) {
        self.inner.closing.cancel();
        self.inner.tasks.close();
        if timeout(SHUTDOWN_GRACE, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!("some sessions did not end in time");
        }
        for door in self.doors() {
            let open = door.open().take();
            if let Some(workspace) = open {
                workspace.close().await;
            }
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
