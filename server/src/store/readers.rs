//! The readers: at most two read-only connections, opened when first needed, used from tokio's blocking
//! threads. Every closure gets one read transaction, so that it sees one state of the database.

use super::db::{Access, connect};
use super::error::StoreError;
use super::read_only;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// More than two make the writer slower and reads no faster.
const READERS: u32 = 2;

/// How long a read waits for its turn.
const WAIT: Duration = Duration::from_secs(30);

pub(super) struct Readers {
    pool: Arc<Pool>,
    turns: Arc<Semaphore>,
}

struct Pool {
    path: PathBuf,
    /// Whether the disk takes no writes, not even those that reading a log takes.
    read_only_disk: bool,
    idle: Mutex<Vec<Connection>>,
    /// The one that tells whether the database has changed: only the same connection can tell.
    watcher: Mutex<Option<Connection>>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self::on(path, false)
    }

    pub(super) fn on_read_only_disk(path: &Path) -> Self {
        Self::on(path, true)
    }

    fn on(path: &Path, read_only_disk: bool) -> Self {
        let pool =
            Pool { path: path.to_owned(), read_only_disk, idle: Mutex::default(), watcher: Mutex::default() };
        Self { pool: Arc::new(pool), turns: Arc::new(Semaphore::new(READERS as usize)) }
    }

    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.in_turn(move |pool| pool.read(work)).await
    }

    /// Another number whenever any other connection, of whatever process, has changed the database since.
    pub(super) async fn version(&self) -> Result<i64, StoreError> {
        self.in_turn(Pool::version).await
    }

    async fn in_turn<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Pool) -> Result<T, StoreError> + Send + 'static,
    {
        let turn = timeout(WAIT, Arc::clone(&self.turns).acquire_owned())
            .await
            .map_err(|_| StoreError::Busy)?
            .map_err(|_| StoreError::Closed)?;
        let pool = Arc::clone(&self.pool);
        // The turn goes with the work: a reader that nobody waits for any more still counts.
        let read = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work(&pool)
        });
        match read.await {
            Ok(outcome) => outcome,
            Err(error) if error.is_panic() => Err(StoreError::Panicked),
            Err(_) => Err(StoreError::Closed),
        }
    }

    /// Waits for the reads that run, refuses later ones, and closes the connections.
    pub(super) async fn close(&self) {
        // A read that hangs for so long only costs the last checkpoint.
        let all = timeout(WAIT, self.turns.acquire_many(READERS)).await;
        self.turns.close();
        drop(all);
        self.pool.idle().clear();
        self.pool.watcher().take();
    }
}

impl Pool {
    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        let waiting = self.idle().pop();
        let connection = match waiting {
            Some(connection) => connection,
            None if self.read_only_disk => read_only::connect_to(&self.path)?,
            None => connect(&self.path, Access::Read)?,
        };
        connection.prepare_cached("BEGIN")?.execute([])?;
        // After a panic the connection is not put back: it closes while the stack unwinds.
        let outcome = work(&connection);
        let ended = connection.prepare_cached("ROLLBACK").and_then(|mut end| end.execute([]));
        // Without a log and locks nothing tells that somebody changed the file elsewhere: each read looks anew.
        if ended.is_ok() && !self.read_only_disk {
            self.idle().push(connection);
        }
        Ok(outcome?)
    }

    fn version(&self) -> Result<i64, StoreError> {
        let mut watcher = self.watcher();
        let connection = match watcher.take() {
            Some(connection) => connection,
            None => connect(&self.path, Access::Read)?,
        };
        let version = connection.query_row("PRAGMA data_version", [], |row| row.get(0))?;
        *watcher = Some(connection);
        Ok(version)
    }

    fn watcher(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.watcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Connection>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
