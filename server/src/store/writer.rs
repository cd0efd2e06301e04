//! The writer: one thread with the only connection that writes. It takes all closures that wait, runs them in
//! one transaction with a savepoint each, commits once, and then answers them all (group commit). It never
//! waits for a batch to fill: what gathers while one commit runs is the next batch.

use super::error::StoreError;
use rusqlite::Connection;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;
use tokio::sync::{Semaphore, oneshot, watch};

/// Closures that may wait; further callers wait for room.
const WAITING: usize = 1024;

/// Closures in one transaction.
const BATCH: usize = 256;

/// How often a lock of another process is waited for; each time as long as the connection's busy timeout.
const TRIES: u32 = 3;

/// How long the writer has nothing to do before it looks at the log.
const IDLE: Duration = Duration::from_secs(1);

/// Log pages that are worth a checkpoint.
const PAGES: i64 = 1000;

/// What waits for the writer.
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
    room: Semaphore,
    finished: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Box<dyn Job>>,
    closed: bool,
}

enum Next {
    Batch(Vec<Box<dyn Job>>),
    Idle,
    Closed,
}

impl Queue {
    pub(super) fn new() -> Self {
        Self {
            state: Mutex::default(),
            wake: Condvar::new(),
            room: Semaphore::new(WAITING),
            finished: watch::Sender::new(false),
        }
    }

    /// Queues `work` and waits for its answer.
    pub(super) async fn run<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        self.room.acquire().await.map_err(|_| StoreError::Closed)?.forget();
        self.push(Box::new(Pending { work, result: None, reply }))?;
        answer.await.map_err(|_| StoreError::Closed)?
    }

    fn push(&self, job: Box<dyn Job>) -> Result<(), StoreError> {
        let mut state = self.state();
        if state.closed {
            return Err(StoreError::Closed);
        }
        state.jobs.push_back(job);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    /// Refuses what is new; the writer finishes what waits.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.room.close();
        self.wake.notify_one();
    }

    /// Waits until the writer has closed the file.
    pub(super) async fn finished(&self) {
        // The sender lives as long as this queue, so there is no error to see.
        let _ = self.finished.subscribe().wait_for(|finished| *finished).await;
    }

    fn next(&self, idle: Option<Duration>) -> Next {
        let mut state = self.state();
        loop {
            if !state.jobs.is_empty() {
                let count = state.jobs.len().min(BATCH);
                let batch: Vec<_> = state.jobs.drain(..count).collect();
                self.room.add_permits(count);
                return Next::Batch(batch);
            }
            if state.closed {
                return Next::Closed;
            }
            state = match idle {
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(idle) => {
                    let (state, waited) =
                        self.wake.wait_timeout(state, idle).unwrap_or_else(PoisonError::into_inner);
                    if waited.timed_out() && state.jobs.is_empty() && !state.closed {
                        return Next::Idle;
                    }
                    state
                }
            };
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the thread. It ends when the queue is closed and empty.
pub(super) fn spawn(connection: Connection, queue: Arc<Queue>) -> io::Result<()> {
    thread::Builder::new().name("halo-db".into()).spawn(move || {
        let finish = Finish(queue);
        serve(connection, &finish.0);
    })?;
    Ok(())
}

/// Whatever ends the thread: nobody waits for ever.
struct Finish(Arc<Queue>);

impl Drop for Finish {
    fn drop(&mut self) {
        self.0.close();
        self.0.state().jobs.clear();
        self.0.finished.send_replace(true);
    }
}

/// Works until the queue is closed and empty; then folds the log into the file and closes it.
fn serve(connection: Connection, queue: &Queue) {
    let mut dirty = false;
    loop {
        match queue.next(dirty.then_some(IDLE)) {
            Next::Batch(jobs) => {
                commit(&connection, jobs);
                dirty = true;
            }
            Next::Idle => {
                if let Err(error) = checkpoint_if_due(&connection) {
                    tracing::warn!(%error, "checkpoint failed; it is tried again after the next write");
                }
                dirty = false;
            }
            Next::Closed => break,
        }
    }
    if let Err(error) = checkpoint(&connection, "TRUNCATE") {
        tracing::warn!(%error, "last checkpoint failed; the log is folded in at the next start");
    }
    if let Err((_, error)) = connection.close() {
        tracing::warn!(%error, "the database did not close cleanly");
    }
}

/// A closure with its caller.
trait Job: Send {
    /// Runs the closure and keeps its result.
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError>;
    /// Tells the caller: the kept result, or the error.
    fn answer(self: Box<Self>, verdict: Result<(), StoreError>);
}

struct Pending<T, F> {
    work: F,
    result: Option<T>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T, F> Job for Pending<T, F>
where
    T: Send,
    F: Fn(&Connection) -> rusqlite::Result<T> + Send,
{
    fn run(&mut self, connection: &Connection) -> Result<(), StoreError> {
        self.result = None;
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.work)(connection)));
        self.result = Some(outcome.map_err(|_| StoreError::Panicked)??);
        Ok(())
    }

    fn answer(self: Box<Self>, verdict: Result<(), StoreError>) {
        let Self { result, reply, .. } = *self;
        // Nobody there any more: the write stands all the same.
        let _ = reply.send(verdict.and_then(|()| result.ok_or(StoreError::Closed)));
    }
}

fn commit(connection: &Connection, mut jobs: Vec<Box<dyn Job>>) {
    if jobs.len() > 1 {
        match together(connection, &mut jobs) {
            Ok(verdicts) => {
                return jobs.into_iter().zip(verdicts).for_each(|(job, verdict)| job.answer(verdict));
            }
            Err(StoreError::Busy) => {
                return jobs.into_iter().for_each(|job| job.answer(Err(StoreError::Busy)));
            }
            // The transaction is gone with the work of all: who is to blame shows when each runs alone.
            Err(error) => tracing::debug!(%error, "a batch broke; its writes run one by one"),
        }
    }
    let mut locked = false;
    for mut job in jobs {
        // Who found the lock taken has waited long enough for the rest, too.
        let verdict = if locked { Err(StoreError::Busy) } else { alone(connection, job.as_mut()) };
        locked = matches!(verdict, Err(StoreError::Busy));
        job.answer(verdict);
    }
}

/// Runs all in one transaction. `Err`: nothing is committed, and nobody has been told anything.
fn together(
    connection: &Connection,
    jobs: &mut [Box<dyn Job>],
) -> Result<Vec<Result<(), StoreError>>, StoreError> {
    let transaction = Transaction::begin(connection)?;
    let mut verdicts = Vec::with_capacity(jobs.len());
    for job in jobs {
        execute(connection, "SAVEPOINT job")?;
        let verdict = job.run(connection);
        if connection.is_autocommit() {
            return Err(verdict.err().unwrap_or(StoreError::Closed));
        }
        if verdict.is_err() {
            execute(connection, "ROLLBACK TO job")?;
        }
        execute(connection, "RELEASE job")?;
        verdicts.push(verdict);
    }
    transaction.commit()?;
    Ok(verdicts)
}

fn alone(connection: &Connection, job: &mut dyn Job) -> Result<(), StoreError> {
    let transaction = Transaction::begin(connection)?;
    job.run(connection)?;
    transaction.commit()
}

/// An open transaction; rolled back when dropped.
struct Transaction<'a>(&'a Connection);

impl<'a> Transaction<'a> {
    fn begin(connection: &'a Connection) -> Result<Self, StoreError> {
        let mut tries = 1;
        loop {
            match execute(connection, "BEGIN IMMEDIATE") {
                Err(StoreError::Busy) if tries < TRIES => tries += 1,
                outcome => return outcome.map(|()| Self(connection)),
            }
        }
    }

    fn commit(self) -> Result<(), StoreError> {
        execute(self.0, "COMMIT")
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        // SQLite may have ended it by itself, and a commit that succeeded has.
        if !self.0.is_autocommit()
            && let Err(error) = execute(self.0, "ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
    }
}

fn execute(connection: &Connection, sql: &str) -> Result<(), StoreError> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

/// Folds a long log into the file, as far as readers allow.
fn checkpoint_if_due(connection: &Connection) -> rusqlite::Result<()> {
    let (in_log, folded) = checkpoint(connection, "NOOP")?;
    if in_log - folded > PAGES {
        checkpoint(connection, "PASSIVE")?;
    }
    Ok(())
}

/// Pages in the log, and how many of them are in the file.
fn checkpoint(connection: &Connection, mode: &str) -> rusqlite::Result<(i64, i64)> {
    connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| Ok((row.get(1)?, row.get(2)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::params;
    use std::sync::mpsc;

    fn memory() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE t (x INTEGER PRIMARY KEY, big BLOB) STRICT").unwrap();
        connection
    }

    fn job<T, F>(work: F) -> (Box<dyn Job>, oneshot::Receiver<Result<T, StoreError>>)
    where
        T: Send + 'static,
        F: Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        (Box::new(Pending { work, result: None, reply }), answer)
    }

    fn insert(x: i64) -> impl Fn(&Connection) -> rusqlite::Result<i64> {
        move |db| db.execute("INSERT INTO t (x) VALUES (?1)", [x]).map(|_| x)
    }

    fn stored(db: &Connection) -> Vec<i64> {
        let mut all = db.prepare("SELECT x FROM t ORDER BY x").unwrap();
        all.query_map([], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn an_error_and_a_panic_in_a_batch_undo_only_their_own_closures() {
        let db = memory();
        let (first, mut first_says) = job(insert(1));
        let (fails, mut fails_says) = job(|db| {
            insert(2)(db)?;
            insert(1)(db)
        });
        let (panics, mut panics_says) = job(|db| -> rusqlite::Result<()> {
            insert(3)(db)?;
            panic!("on purpose")
        });
        let (last, mut last_says) = job(insert(4));
        commit(&db, vec![first, fails, panics, last]);
        assert_eq!(first_says.try_recv().unwrap().unwrap(), 1);
        assert!(matches!(fails_says.try_recv().unwrap(), Err(StoreError::Sqlite(_))));
        assert!(matches!(panics_says.try_recv().unwrap(), Err(StoreError::Panicked)));
        assert_eq!(last_says.try_recv().unwrap().unwrap(), 4);
        assert_eq!(stored(&db), [1, 4]);
    }

    #[test]
    fn a_closure_that_fills_the_database_fails_alone() {
        let db = memory();
        db.execute_batch("PRAGMA max_page_count = 20").unwrap();
        let (first, mut first_says) = job(insert(1));
        let (big, mut big_says) =
            job(|db| db.execute("INSERT INTO t VALUES (2, ?1)", params![vec![7u8; 1_000_000]]));
        let (last, mut last_says) = job(insert(3));
        commit(&db, vec![first, big, last]);
        assert_eq!(first_says.try_recv().unwrap().unwrap(), 1);
        assert!(matches!(big_says.try_recv().unwrap(), Err(StoreError::Full)));
        assert_eq!(last_says.try_recv().unwrap().unwrap(), 3);
        assert_eq!(stored(&db), [1, 3]);
    }

    #[test]
    fn when_a_closure_ends_the_transaction_of_a_batch_the_others_run_again() {
        let db = memory();
        let (first, mut first_says) = job(insert(1));
        // What SQLite does by itself on some errors.
        let (breaks, mut breaks_says) = job(|db| -> rusqlite::Result<()> {
            db.execute_batch("ROLLBACK")?;
            Err(rusqlite::Error::InvalidQuery)
        });
        let (last, mut last_says) = job(insert(3));
        commit(&db, vec![first, breaks, last]);
        assert_eq!(first_says.try_recv().unwrap().unwrap(), 1);
        assert!(breaks_says.try_recv().unwrap().is_err());
        assert_eq!(last_says.try_recv().unwrap().unwrap(), 3);
        assert_eq!(stored(&db), [1, 3]);
    }

    #[test]
    fn a_failed_commit_is_told_to_whom_it_concerns_and_to_nobody_as_success() {
        let db = memory();
        db.execute_batch(
            "PRAGMA foreign_keys = ON;
             CREATE TABLE child (x INTEGER REFERENCES t(x) DEFERRABLE INITIALLY DEFERRED) STRICT",
        )
        .unwrap();
        let (orphan, mut orphan_says) = job(|db| db.execute("INSERT INTO child VALUES (99)", []));
        let (good, mut good_says) = job(insert(1));
        commit(&db, vec![orphan, good]);
        assert!(matches!(orphan_says.try_recv().unwrap(), Err(StoreError::Sqlite(_))));
        assert_eq!(good_says.try_recv().unwrap().unwrap(), 1);
        assert_eq!(stored(&db), [1]);
        assert_eq!(db.query_row("SELECT count(*) FROM child", [], |row| row.get::<_, i64>(0)).unwrap(), 0);
    }

    #[test]
    fn what_gathers_while_the_writer_works_is_committed_together() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("t.db");
        let db = Connection::open(&file).unwrap();
        db.execute_batch(
            "PRAGMA journal_mode = WAL; CREATE TABLE t (x INTEGER PRIMARY KEY, big BLOB) STRICT",
        )
        .unwrap();
        let queue = Arc::new(Queue::new());
        spawn(db, Arc::clone(&queue)).unwrap();

        let (busy, is_busy) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let may_go = Mutex::new(may_go);
        queue
            .push(
                job(move |_| {
                    busy.send(()).unwrap();
                    may_go.lock().unwrap().recv().unwrap();
                    Ok(())
                })
                .0,
            )
            .unwrap();
        is_busy.recv().unwrap();
        for x in 0..100 {
            queue.push(job(insert(x)).0).unwrap();
        }
        let (look, says) = job(move |mine| {
            let theirs = Connection::open(&file)?;
            Ok((stored(mine).len(), stored(&theirs).len()))
        });
        queue.push(look).unwrap();
        go.send(()).unwrap();
        assert_eq!(says.blocking_recv().unwrap().unwrap(), (100, 0));

        queue.close();
        assert!(matches!(queue.push(job(insert(1)).0), Err(StoreError::Closed)));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(queue.finished());
    }

    #[test]
    fn a_long_log_is_folded_into_the_file_when_the_writer_is_idle_and_a_short_one_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let db = Connection::open(folder.path().join("t.db")).unwrap();
        db.execute_batch(
            "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; CREATE TABLE t (x BLOB) STRICT",
        )
        .unwrap();
        checkpoint_if_due(&db).unwrap();
        let (in_log, folded) = checkpoint(&db, "NOOP").unwrap();
        assert!(in_log > 0 && folded == 0);
        db.execute("INSERT INTO t VALUES (zeroblob(5000000))", []).unwrap();
        checkpoint_if_due(&db).unwrap();
        let (in_log, folded) = checkpoint(&db, "NOOP").unwrap();
        assert!(in_log > PAGES && folded == in_log);
    }
}
