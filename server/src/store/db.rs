//! One SQLite file.
use super::schema::Schema;
use rusqlite::Connection;
use std::path::Path;

/// Open failure.
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct OpenError;

/// Store failure.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Disk full.
    #[error("the disk is full")]
    Full,
    /// The database is closed.
    #[error("closed")]
    Closed,
    /// Other.
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

/// One SQLite file.
#[derive(Clone, Debug)]
pub struct Database;

impl Database {
    /// Opens, makes or migrates the file.
    pub fn open(_path: &Path, _schema: Schema) -> Result<Self, OpenError> {
        unimplemented!()
    }
    /// Runs `work` in a transaction of the writer; the answer comes after the commit.
    pub async fn write<T, F>(&self, _work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        unimplemented!()
    }
    /// Runs `work` on a read-only connection.
    pub async fn read<T, F>(&self, _work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        unimplemented!()
    }
    /// Finishes what waits, checkpoints and closes.
    pub async fn close(&self) {
        unimplemented!()
    }
}
