//! One open workspace: its database, its runtime lock, and the owners of its sessions.

use super::actor::{Actor, Command, Shared};
use super::frames::Budget;
use super::ids::SessionId;
use super::mail::Item;
use super::run::AgentSource;
use super::tree::Stops;
use super::{
    Handle, HistoryQuery, Listed, Rows, SessionError, WorkspaceError, internal, logged, store_failed,
};
use crate::access::AccessLevel;
use crate::clock::Clock;
use crate::store::schema::Schema;
use crate::store::sessions::{self, Unfinished};
use crate::store::{Database, OpenError, StoreError, log, tree};
use crate::workspace::lock::{Lock, LockError, try_lock};
use crate::workspace::scaffold;
use rusqlite::Connection;
use rustix::fs::{Access, access};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Commands that may wait for a session's owner.
const COMMANDS: usize = 64;
/// Rows and bytes of one chunk of history.
const CHUNK_ROWS: u32 = 200;
const CHUNK_BYTES: usize = 256 * 1024;
/// How often it is tried again to run the sessions of a workspace whose store fails.
const OWN_AGAIN_EVERY: Duration = Duration::from_secs(2);
/// A count of crashes for a run that has ended in order.
const NO_CRASH: i64 = -1;
/// How long a session may take to leave memory.
const REST_WITHIN: Duration = Duration::from_secs(5);

/// One open workspace. Cheap to clone.
#[derive(Clone)]
pub struct Workspace {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    /// Held while this process runs the workspace's sessions.
    lock: tokio::sync::Mutex<Option<Lock>>,
    owned: AtomicBool,
    /// Why nothing can be written, where the disk or our rights do not let us.
    read_only: Option<String>,
    /// The database file as it was opened: device and inode.
    file: (u64, u64),
    actors: Mutex<HashMap<String, mpsc::Sender<Command>>>,
    tasks: TaskTracker,
}

/// Whether the folder has a database of ours, without making one.
pub(super) fn has_database(folder: &Path) -> bool {
    database_path(folder).is_file()
}

fn database_path(folder: &Path) -> PathBuf {
    scaffold::folder(folder).join("halo.db")
}

/// Why a workspace with a database can only be read; none where it can be written.
fn why_read_only(folder: &Path) -> Option<String> {
    let (halo, file) = (scaffold::folder(folder), database_path(folder));
    let places = [(halo, Access::WRITE_OK | Access::EXEC_OK), (file, Access::WRITE_OK)];
    places.into_iter().find_map(|(place, wanted)| {
        let why = match access(&place, wanted) {
            Err(Errno::ROFS) => "the file system is read-only",
            Err(Errno::ACCESS | Errno::PERM) => "this user must not write there",
            _ => return None,
        };
        let place = place.display();
        Some(format!("{place}: {why}; the sessions of this workspace can be read, but nothing can run here"))
    })
}

/// Device and inode.
fn identity(file: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(file).map(|found| (found.dev(), found.ino()))
}

impl Workspace {
    /// Opens the folder, whose path is real, and takes up its interrupted sessions.
    pub(super) async fn open(
        path: PathBuf,
        agents: Arc<dyn AgentSource>,
        clock: Arc<dyn Clock>,
        budget: Arc<Budget>,
        closing: CancellationToken,
        tasks: TaskTracker,
    ) -> Result<Self, WorkspaceError> {
        let folder = path.clone();
        let opened = tokio::task::spawn_blocking(move || {
            let path = database_path(&folder);
            let read_only = if has_database(&folder) { why_read_only(&folder) } else { None };
            let db = if read_only.is_some() {
                Database::open_read_only(&path, Schema::Workspace)?
            } else {
                scaffold::make(&folder)
                    .map_err(|source| OpenError::io(&scaffold::folder(&folder), source))?;
                Database::open(&path, Schema::Workspace)?
            };
            let file = identity(&path).map_err(|source| OpenError::io(&path, source))?;
            Ok::<_, OpenError>((db, file, read_only))
        });
        let (db, file, read_only) = opened
            .await
            .map_err(|error| WorkspaceError::Internal(logged("opening a workspace", &error)))?
            .map_err(|error| match error {
                OpenError::Full { .. } => WorkspaceError::DiskFull(error.to_string()),
                other => WorkspaceError::Unusable(other.to_string()),
            })?;
        let shared = Arc::new(Shared { path, db, agents, clock, budget, closing, stops: Stops::default() });
        let workspace = Self {
            inner: Arc::new(Inner {
                shared,
                lock: tokio::sync::Mutex::default(),
                owned: AtomicBool::new(false),
                read_only,
                file,
                actors: Mutex::default(),
                tasks,
            }),
        };
        match workspace.own().await {
            Ok(()) => {}
            Err(SessionError::NotOwner(why) | SessionError::ReadOnly(why)) => {
                tracing::warn!(workspace = %workspace.path().display(), why, "this server only reads the workspace");
            }
            Err(_) => workspace.own_later(),
        }
        Ok(workspace)
    }

    /// Whether the open database is still the one in the folder: somebody may have removed or replaced it, or made
    /// it writable.
    pub(super) fn is_current(&self) -> bool {
        if self.inner.read_only.is_some() && why_read_only(self.path()).is_none() {
            return false;
        }
        identity(&database_path(self.path())).is_ok_and(|file| file == self.inner.file)
    }

    /// Whether this process runs the workspace's sessions.
    pub(super) fn is_owned(&self) -> bool {
        self.inner.owned.load(Ordering::Acquire)
    }

    /// Makes sure that this process runs the workspace's sessions; the error names who does. When another process
    /// has let go, its interrupted sessions are taken up.
    pub(super) async fn own(&self) -> Result<(), SessionError> {
        if self.is_owned() {
            return Ok(());
        }
        if let Some(why) = &self.inner.read_only {
            return Err(SessionError::ReadOnly(why.clone()));
        }
        let mut lock = self.inner.lock.lock().await;
        if self.is_owned() {
            return Ok(());
        }
        let folder = self.path().to_owned();
        let taken = tokio::task::spawn_blocking(move || try_lock(&folder)).await;
        match taken.map_err(|error| internal("taking the runtime lock", &error))? {
            Ok(taken) => *lock = Some(taken),
            Err(held @ LockError::Held { .. }) => return Err(SessionError::NotOwner(held.to_string())),
            Err(LockError::Io { source, .. }) if source.kind() == io::ErrorKind::StorageFull => {
                return Err(store_failed("taking the runtime lock", &StoreError::Full));
            }
            Err(error @ LockError::Io { .. }) => return Err(internal("taking the runtime lock", &error)),
        }
        if let Err(error) = self.recover().await {
            *lock = None;
            return Err(store_failed("taking up what another life left", &error));
        }
        self.inner.owned.store(true, Ordering::Release);
        Ok(())
    }

    /// Sub-sessions of another life are marked as stopped; then every session with something left takes it up. A
    /// root goes on when anything of its tree was running, or was to hear of something.
    async fn recover(&self) -> Result<(), StoreError> {
        let (db, at) = (&self.inner.shared.db, self.inner.shared.clock.now_ms());
        let done = Item::Done.json();
        // One that is not marked would look as if it were at work, and be waited for, for ever.
        db.write(move |conn| tree::stamp_orphans(conn, at, &done)).await?;
        let unfinished = db.read(sessions::unfinished).await?;
        let mut left: BTreeMap<SessionId, Option<i64>> = BTreeMap::new();
        for Unfinished { id, crashes, mail } in unfinished {
            let Ok(id) = id.parse::<SessionId>() else { continue };
            let interrupted = crashes.or(mail.then_some(NO_CRASH));
            if id.is_child() && interrupted.is_some() {
                let root = left.entry(id.root()).or_default();
                *root = (*root).max(interrupted);
            }
            let own = left.entry(id).or_default();
            *own = (*own).max(crashes);
        }
        for (id, crashes) in left {
            let _ = self.mailbox(&id).send(Command::Recover { crashes }).await;
        }
        Ok(())
    }

    /// Tries again and again to run the workspace's sessions: the store did not let it.
    fn own_later(&self) {
        let workspace = self.clone();
        self.inner.tasks.spawn(async move {
            let closing = workspace.inner.shared.closing.clone();
            while closing.run_until_cancelled(tokio::time::sleep(OWN_AGAIN_EVERY)).await.is_some() {
                if !matches!(workspace.own().await, Err(SessionError::DiskFull | SessionError::Internal(_))) {
                    return;
                }
            }
        });
    }

    /// The real path.
    pub fn path(&self) -> &Path {
        &self.inner.shared.path
    }

    pub(super) fn closing(&self) -> bool {
        self.inner.shared.closing.is_cancelled()
    }

    /// The way to a session's owner, which is started where it is not in memory.
    pub(super) fn mailbox(&self, id: &SessionId) -> mpsc::Sender<Command> {
        let mut actors = self.inner.actors.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = actors.get(id.as_str()).filter(|sender| !sender.is_closed()) {
            return sender.clone();
        }
        let (sender, commands) = mpsc::channel(COMMANDS);
        actors.insert(id.to_string(), sender.clone());
        self.inner.tasks.spawn(own(self.clone(), id.clone(), commands));
        sender
    }

    /// Sends a command without waiting for its receiver: an owner must never wait for another one.
    pub(super) fn post(&self, id: SessionId, command: Command) {
        let workspace = self.clone();
        self.inner.tasks.spawn(async move {
            let _ = workspace.mailbox(&id).send(command).await;
        });
    }

    /// The ids below `id` that are in memory.
    pub(super) fn in_memory_below(&self, id: &SessionId) -> Vec<SessionId> {
        let actors = self.inner.actors.lock().unwrap_or_else(PoisonError::into_inner);
        actors
            .keys()
            .filter_map(|key| key.parse().ok())
            .filter(|other: &SessionId| other.is_below(id))
            .collect()
    }

    /// Lets an owner go if nothing waits for it. Under the registry's lock nobody can look it up meanwhile.
    fn retire(&self, id: &SessionId, commands: &mut mpsc::Receiver<Command>) -> bool {
        let mut actors = self.inner.actors.lock().unwrap_or_else(PoisonError::into_inner);
        if !commands.is_empty() {
            return false;
        }
        commands.close();
        actors.remove(id.as_str());
        true
    }

    /// Makes a session that has no message yet; its row is on disk.
    pub async fn create(
        &self,
        id: &SessionId,
        agent_id: Option<String>,
        access: AccessLevel,
        description: Option<String>,
    ) -> Result<(), SessionError> {
        self.own().await?;
        self.session(id).ask(|reply| Command::Create { agent_id, access, description, reply }).await?
    }

    pub(super) async fn read<T, F>(&self, work: F) -> Result<T, SessionError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.inner
            .shared
            .db
            .read(work)
            .await
            .map_err(|error: StoreError| store_failed("reading a workspace", &error))
    }

    /// Whether the session has a row.
    pub async fn exists(&self, id: &SessionId) -> Result<bool, SessionError> {
        let id = id.to_string();
        Ok(self.read(move |conn| sessions::get(conn, &id)).await?.is_some())
    }

    /// The most recently updated root whose id starts with `prefix`, archived ones left out.
    pub async fn latest_root(&self, prefix: &str) -> Result<Option<SessionId>, SessionError> {
        let prefix = prefix.to_owned();
        let id = self.read(move |conn| sessions::latest_root(conn, &prefix)).await?;
        Ok(id.and_then(|id| id.parse().ok()))
    }

    /// Roots whose id starts with `prefix`, newest first, strictly older than `before`; at most `limit`, and
    /// then those that share the last one's millisecond. The flag tells whether there are more.
    pub async fn roots(
        &self,
        prefix: &str,
        before: Option<i64>,
        limit: u32,
    ) -> Result<(Vec<Listed>, bool), SessionError> {
        let prefix = prefix.to_owned();
        let (rows, more) = self.read(move |conn| sessions::roots(conn, &prefix, before, limit)).await?;
        let listed = rows
            .into_iter()
            .map(|row| Listed { session_id: row.id, title: row.title, updated_at: row.updated_at })
            .collect();
        Ok((listed, more))
    }

    /// The rows of a log up to `top`, in short chunks: a slow reader holds no transaction. Archived rows come only
    /// with `before`. The flag tells whether older rows were left out, archived ones included.
    pub async fn history(
        &self,
        id: &SessionId,
        query: HistoryQuery,
        top: i64,
    ) -> Result<(Rows, bool), SessionError> {
        let key = id.to_string();
        let HistoryQuery { since, limit, before } = query;
        let (start, more) = self
            .read(move |conn| {
                // Archived rows are for whoever pages back to them.
                let floor = if before.is_some() { 0 } else { log::archived_to(conn, &key, top)? };
                let (start, more) = match (limit, since) {
                    (Some(limit), _) => log::page_start(conn, &key, top, before, limit)?,
                    (None, Some(since)) => (log::since_start(conn, &key, top, since)?, false),
                    (None, None) => (0, false),
                };
                Ok((start.max(floor), more || floor > 0))
            })
            .await?;
        let end = before.map_or(top, |before| top.min(before - 1));
        let (workspace, key) = (self.clone(), id.to_string());
        let rows = async_stream::stream! {
            let mut after = start;
            loop {
                let key = key.clone();
                let chunk = workspace
                    .read(move |conn| log::forward(conn, &key, after, end, since, CHUNK_ROWS, CHUNK_BYTES))
                    .await;
                match chunk {
                    Ok(chunk) => {
                        let Some((last, _)) = chunk.last() else { return };
                        after = *last;
                        yield Ok(chunk.into_iter().map(|(_, row)| row).collect());
                    }
                    Err(error) => {
                        yield Err(error);
                        return;
                    }
                }
            }
        };
        Ok((Box::pin(rows), more))
    }

    pub(super) async fn totals(&self) -> Result<sessions::Totals, SessionError> {
        self.read(sessions::totals).await
    }

    /// The session's handle.
    pub fn session(&self, id: &SessionId) -> Handle {
        Handle::new(self.clone(), id.clone())
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// Takes the sessions that have nothing to do out of memory; false when somebody uses the workspace, or a
    /// session of it has work left.
    pub(super) async fn rest(&self) -> bool {
        let owners: Vec<mpsc::Sender<Command>> = {
            let actors = self.inner.actors.lock().unwrap_or_else(PoisonError::into_inner);
            actors.values().filter(|sender| !sender.is_closed()).cloned().collect()
        };
        // Two of each owner's task, the caller's and the engine's.
        if Arc::strong_count(&self.inner) > 2 * owners.len() + 2 {
            return false;
        }
        if self.is_owned() && !self.read(sessions::unfinished).await.is_ok_and(|left| left.is_empty()) {
            return false;
        }
        for owner in owners {
            let (reply, rested) = oneshot::channel();
            // An owner that has just left by itself is as good.
            let has_rested = match owner.try_send(Command::Rest { reply }) {
                Ok(()) => timeout(REST_WITHIN, rested).await.is_ok_and(|rested| rested.is_ok()),
                Err(_) => owner.is_closed(),
            };
            if !has_rested {
                return false;
            }
        }
        true
    }

    /// Whether nothing but the caller holds it: no request, no session in memory.
    pub(super) fn is_unused(&self) -> bool {
        Arc::strong_count(&self.inner) == 1
    }

    /// Ends the workspace's sessions and lets the runtime lock go: the database it was opened with is gone.
    pub(super) async fn abandon(&self) {
        self.inner.shared.closing.cancel();
        self.inner.lock.lock().await.take();
    }

    /// Finishes what waits, closes the database and lets the runtime lock go.
    pub(super) async fn close(&self) {
        self.inner.shared.db.close().await;
        self.inner.lock.lock().await.take();
    }
}

/// The task of a session's owner.
async fn own(workspace: Workspace, id: SessionId, mut commands: mpsc::Receiver<Command>) {
    let rested = match Actor::load(id.clone(), workspace.inner.shared.clone(), workspace.clone()).await {
        Ok(actor) => actor.serve(&mut commands, |commands| workspace.retire(&id, commands)).await,
        Err(error) => {
            // Whoever waits gets an error; the next question tries anew.
            internal(&format!("loading session {id}"), &error);
            return;
        }
    };
    // What slipped in while the owner left goes to the next one; at the server's end nobody takes it.
    commands.close();
    while let Some(command) = commands.recv().await {
        if workspace.closing() {
            continue;
        }
        let _ = workspace.mailbox(&id).send(command).await;
    }
    drop(workspace);
    if let Some(rested) = rested {
        let _ = rested.send(());
    }
}

/// Asks a session's owner. An owner that has just left gives the question back, and the next one gets it.
pub(super) async fn ask<T>(
    workspace: &Workspace,
    id: &SessionId,
    question: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, SessionError> {
    /// Owners that may leave under one question.
    const TRIES: u32 = 3;
    let (reply, answer) = oneshot::channel();
    let mut command = question(reply);
    for _ in 0..TRIES {
        if workspace.closing() {
            return Err(SessionError::ShuttingDown);
        }
        match workspace.mailbox(id).send(command).await {
            Ok(()) => {
                return answer.await.map_err(|_| {
                    if workspace.closing() {
                        return SessionError::ShuttingDown;
                    }
                    internal(&format!("session {id}"), &"the session's owner gave no answer")
                });
            }
            Err(refused) => command = refused.0,
        }
    }
    Err(internal(&format!("session {id}"), &"the session's owner could not be started"))
}
