//! One SQLite file as the rest of the program sees it: closures go in, answers come out after they are on
//! disk. The writer and the readers do the work; this file only ties them together.

use super::error::{OpenError, StoreError};
use super::migrate;
use super::read_only;
use super::readers::Readers;
use super::schema::Schema;
use super::writer::{self, Queue};
use rusqlite::{Connection, OpenFlags};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long SQLite itself waits for a lock that another process holds.
pub(super) const BUSY: Duration = Duration::from_secs(5);

/// Statements that a connection keeps prepared.
const STATEMENTS: usize = 64;

/// One SQLite file. Clones share it. When the last one is dropped, what waits is still written, and then the
/// file is closed; [`Database::close`] does the same and waits for it.
#[derive(Clone)]
pub struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    /// None where the file is only read.
    queue: Option<Arc<Queue>>,
    readers: Readers,
}

impl Database {
    /// Opens the file, makes it (and its folder) where it is missing, and migrates it where it is older.
    /// Blocks: some milliseconds as a rule, up to a few seconds when another process holds the file.
    pub fn open(path: &Path, schema: Schema) -> Result<Self, OpenError> {
        let runner = schema.runner();
        migrate::prepare(path, &runner)?;
        let connection = connect(path, Access::Write).map_err(|error| OpenError::sqlite(path, error))?;
        // Once more with the write-ahead log in view: a newer halo may have been cut off before its checkpoint.
        migrate::check(&connection, path, &runner)?;
        let queue = Arc::new(Queue::new());
        writer::spawn(connection, Arc::clone(&queue)).map_err(|error| OpenError::io(path, error))?;
        let (path, queue, readers) = (path.to_owned(), Some(queue), Readers::new(path));
        Ok(Self { inner: Arc::new(Inner { path, queue, readers }) })
    }

    /// Opens a file that exists and is up to date, on a disk where nothing can be written. Every write fails.
    pub fn open_read_only(path: &Path, schema: Schema) -> Result<Self, OpenError> {
        read_only::check(path, &schema.runner())?;
        let (path, readers) = (path.to_owned(), Readers::on_read_only_disk(path));
        Ok(Self { inner: Arc::new(Inner { path, queue: None, readers }) })
    }

    /// Runs `work` in a transaction of the writer, together with whatever else waits; the answer comes after
    /// the commit is on disk. An error or a panic undoes this closure alone.
    ///
    /// `work` must touch nothing but the connection, and must not end the transaction: when a full disk breaks
    /// a batch, its closures run again one by one (hence `Fn`). Once queued it runs, even when this future is
    /// dropped; it is queued at the first poll, except while more than 1,024 closures wait.
    pub async fn write<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        match &self.inner.queue {
            Some(queue) => queue.run(work).await,
            None => Err(StoreError::ReadOnly),
        }
    }

    /// Runs `work` on a read-only connection, with one consistent view of all that was committed before it
    /// began. Needs a tokio runtime. Keep it short: two run at a time, and the log cannot be folded into the
    /// file while one does.
    pub async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        self.inner.readers.run(work).await
    }

    /// A number that is another one whenever the database has been changed since, by this process or another.
    /// Cheap enough to be asked every second.
    pub async fn version(&self) -> Result<i64, StoreError> {
        self.inner.readers.version().await
    }

    /// Refuses what is new, finishes what waits, folds the log into the file and closes it. May be called more
    /// than once.
    pub async fn close(&self) {
        self.inner.readers.close().await;
        if let Some(queue) = &self.inner.queue {
            queue.close();
            queue.finished().await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Database").field(&self.inner.path).finish()
    }
}

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A connection with the settings that all of ours have. The file must exist.
pub(super) fn connect(path: &Path, access: Access) -> rusqlite::Result<Connection> {
    let mode = match access {
        Access::Read => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Access::Write => OpenFlags::SQLITE_OPEN_READ_WRITE,
    };
    let connection = Connection::open_with_flags(path, mode | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    // First of all: the pragmas below may meet a lock themselves.
    connection.busy_timeout(BUSY)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    match access {
        Access::Read => connection.execute_batch("PRAGMA query_only = ON; PRAGMA cache_size = -512;")?,
        // A log of up to 16 MiB between checkpoints; the writer folds it back when it has nothing else to do.
        Access::Write => {
            switch_to_wal(&connection)?;
            connection.execute_batch(
                "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -2048;
                 PRAGMA wal_autocheckpoint = 4000; PRAGMA journal_size_limit = 16777216;",
            )?;
        }
    }
    Ok(connection)
}

/// Turns the write-ahead log on. Two programs that do so at the same moment lock each other out, and SQLite then
/// says "busy" at once instead of waiting: so this waits.
fn switch_to_wal(connection: &Connection) -> rusqlite::Result<()> {
    let start = std::time::Instant::now();
    loop {
        match connection.execute_batch("PRAGMA journal_mode = WAL") {
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == rusqlite::ErrorCode::DatabaseBusy && start.elapsed() < BUSY =>
            {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tempfile::TempDir;

    fn open() -> (TempDir, PathBuf, Database) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runs.db");
        let db = Database::open(&file, Schema::Runs).unwrap();
        (folder, file, db)
    }

    fn add(path: String) -> impl Fn(&Connection) -> rusqlite::Result<usize> + Send + 'static {
        move |db| db.execute("INSERT INTO workspaces VALUES (?1, 0, 0)", [&path])
    }

    fn count(db: &Connection) -> rusqlite::Result<i64> {
        db.query_row("SELECT count(*) FROM workspaces", [], |row| row.get(0))
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn everything_answered_is_there_for_the_next_reader_and_after_a_restart() {
        let (_folder, file, db) = open();
        let writers = (0..20).map(|writer| {
            let db = db.clone();
            tokio::spawn(async move {
                for turn in 0..25 {
                    let path = format!("{writer}/{turn}");
                    db.write(add(path.clone())).await.unwrap();
                    let seen: bool = db
                        .read(move |db| {
                            db.query_row(
                                "SELECT EXISTS (SELECT 1 FROM workspaces WHERE path = ?1)",
                                [path],
                                |row| row.get(0),
                            )
                        })
                        .await
                        .unwrap();
                    assert!(seen);
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        db.close().await;
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no log is left");
        let db = Database::open(&file, Schema::Runs).unwrap();
        assert_eq!(db.read(count).await.unwrap(), 500);
        db.close().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn two_programs_that_write_the_same_file_see_no_lock() {
        let (_folder, file, db) = open();
        let other = Database::open(&file, Schema::Runs).unwrap();
        let writers = (0..20).map(|writer| {
            let db = if writer % 2 == 0 { db.clone() } else { other.clone() };
            tokio::spawn(async move {
                for turn in 0..10 {
                    db.write(add(format!("{writer}/{turn}"))).await.unwrap();
                }
            })
        });
        for writer in writers.collect::<Vec<_>>() {
            writer.await.unwrap();
        }
        assert_eq!(db.read(count).await.unwrap(), 200);
        other.close().await;
        db.close().await;
    }

    #[tokio::test]
    async fn the_version_changes_with_every_change_of_any_program_and_with_nothing_else() {
        let (_folder, file, db) = open();
        let first = db.version().await.unwrap();
        db.read(count).await.unwrap();
        assert_eq!(db.version().await.unwrap(), first);
        db.write(add("/mine".into())).await.unwrap();
        let second = db.version().await.unwrap();
        assert_ne!(second, first);
        Connection::open(&file).unwrap().execute("INSERT INTO workspaces VALUES ('/t', 0, 0)", []).unwrap();
        assert_ne!(db.version().await.unwrap(), second);
        db.close().await;
        assert!(matches!(db.version().await, Err(StoreError::Closed)));
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "no log is left");
    }

    #[tokio::test]
    async fn a_lock_of_another_program_is_waited_for() {
        let (_folder, file, db) = open();
        let theirs = Connection::open(&file).unwrap();
        theirs.execute_batch("BEGIN IMMEDIATE; INSERT INTO workspaces VALUES ('/theirs', 0, 0)").unwrap();
        let mine = tokio::spawn({
            let db = db.clone();
            async move { db.write(add("/mine".into())).await }
        });
        // Readers are not held up, and the write is not answered before it is done.
        assert_eq!(db.read(count).await.unwrap(), 0);
        assert!(!mine.is_finished());
        theirs.execute_batch("COMMIT").unwrap();
        mine.await.unwrap().unwrap();
        assert_eq!(db.read(count).await.unwrap(), 2);
        db.close().await;
    }

    #[tokio::test]
    async fn a_closure_that_panics_leaves_the_database_working() {
        let (_folder, _file, db) = open();
        let write = db.write(|_| -> rusqlite::Result<()> { panic!("on purpose") });
        assert!(matches!(write.await, Err(StoreError::Panicked)));
        for _ in 0..3 {
            let read = db.read(|_| -> rusqlite::Result<()> { panic!("on purpose") });
            assert!(matches!(read.await, Err(StoreError::Panicked)));
        }
        db.write(add("/a".into())).await.unwrap();
        assert_eq!(db.read(count).await.unwrap(), 1);
        db.close().await;
    }

    #[tokio::test]
    async fn a_reader_cannot_write() {
        let (_folder, _file, db) = open();
        assert!(db.read(add("/a".into())).await.is_err());
        assert_eq!(db.read(count).await.unwrap(), 0);
        db.close().await;
    }

    #[tokio::test]
    async fn a_reader_sees_one_state_all_along() {
        let (_folder, _file, db) = open();
        let (looked, has_looked) = tokio::sync::oneshot::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let reader = tokio::spawn({
            let db = db.clone();
            async move {
                db.read(move |db| {
                    let before = count(db)?;
                    looked.send(()).unwrap();
                    may_go.recv().unwrap();
                    Ok((before, count(db)?))
                })
                .await
            }
        });
        has_looked.await.unwrap();
        db.write(add("/a".into())).await.unwrap();
        go.send(()).unwrap();
        assert_eq!(reader.await.unwrap().unwrap(), (0, 0));
        db.close().await;
    }

    #[tokio::test]
    async fn closing_finishes_what_waits_and_refuses_what_comes_later() {
        let (_folder, file, db) = open();
        let mut waiting: Vec<_> = (0..50).map(|n| Box::pin(db.write(add(format!("/{n}"))))).collect();
        let theirs = Connection::open(&file).unwrap();
        theirs.execute_batch("BEGIN IMMEDIATE").unwrap();
        for write in &mut waiting {
            assert!(futures_util::poll!(write).is_pending());
        }
        theirs.execute_batch("COMMIT").unwrap();
        drop(theirs);
        db.close().await;
        for write in waiting {
            write.await.unwrap();
        }
        assert!(matches!(db.write(add("/late".into())).await, Err(StoreError::Closed)));
        assert!(matches!(db.read(count).await, Err(StoreError::Closed)));
        db.close().await;
        assert_eq!(count(&Connection::open(file).unwrap()).unwrap(), 50);
    }

    #[tokio::test]
    async fn a_write_whose_caller_has_left_is_done_all_the_same() {
        let (_folder, _file, db) = open();
        let (busy, is_busy) = tokio::sync::oneshot::channel();
        let busy = std::sync::Mutex::new(Some(busy));
        let (go, may_go) = mpsc::channel::<()>();
        let may_go = std::sync::Mutex::new(may_go);
        let first = tokio::spawn({
            let db = db.clone();
            async move {
                db.write(move |_| {
                    busy.lock().unwrap().take().unwrap().send(()).unwrap();
                    may_go.lock().unwrap().recv().unwrap();
                    Ok(())
                })
                .await
            }
        });
        is_busy.await.unwrap();
        let mut left = Box::pin(db.write(add("/left".into())));
        assert!(futures_util::poll!(&mut left).is_pending());
        drop(left);
        go.send(()).unwrap();
        first.await.unwrap().unwrap();
        // The writer works in order, so this answer comes after the one that nobody waits for.
        db.write(|_| Ok(())).await.unwrap();
        assert_eq!(db.read(count).await.unwrap(), 1);
        db.close().await;
    }

    #[tokio::test]
    async fn the_files_settings_are_ours() {
        let (_folder, _file, db) = open();
        let pragma = |name: &'static str| {
            db.write(move |db| db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)))
        };
        assert_eq!(pragma("synchronous").await.unwrap(), 2);
        assert_eq!(pragma("foreign_keys").await.unwrap(), 1);
        assert_eq!(pragma("application_id").await.unwrap(), 0x6861_6c6f);
        let mode: String =
            db.read(|db| db.query_row("PRAGMA journal_mode", [], |row| row.get(0))).await.unwrap();
        assert_eq!(mode, "wal");
        db.close().await;
    }

    #[tokio::test]
    async fn every_schema_can_be_made_and_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        for schema in [Schema::Channels, Schema::Runs, Schema::Workspace] {
            for _ in 0..2 {
                let db = Database::open(&folder.path().join(format!("{schema:?}.db")), schema).unwrap();
                db.close().await;
            }
        }
    }
}
