//! What can go wrong with a database. Opening fails with a text for the person at the terminal: the file, what
//! is wrong, what to do. Reading and writing fail with a [`StoreError`], which no surface shows to a client.

use rusqlite::ErrorCode;
use rusqlite::ffi;
use std::io;
use std::path::{Path, PathBuf};

/// Why a file cannot be opened as a database of ours. None of them changes the file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It has tables, but not ours.
    #[error("{}: made by the Node program: run halo import", .path.display())]
    NodeProgram {
        /// The file.
        path: PathBuf,
    },
    /// Its schema is newer than what this program knows.
    #[error(
        "{}: made by a newer halo (schema {found}, this one knows up to {known}): use that halo, or move the file away",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema version of the file.
        found: i32,
        /// The newest schema version of this program.
        known: i32,
    },
    /// It is no SQLite file.
    #[error("{}: not a SQLite database: move the file away, a new one is made in its place", .path.display())]
    NotADatabase {
        /// The file.
        path: PathBuf,
    },
    /// SQLite finds it damaged.
    #[error("{}: the database is damaged: put a backup in its place, or move the file away", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// Another process held it locked for longer than we wait.
    #[error("{}: locked by another program: stop that program, then try again", .path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// No room.
    #[error("{}: the disk is full: free some space, then try again", .path.display())]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The file or its folder cannot be made, read or written.
    #[error("{}: {source}: this user must be able to read and write the file and its folder", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It lies where nothing can be written, and its log cannot be read without writing.
    #[error(
        "{}: the file system is read-only, and the log of a server that ended early is not folded in yet: open it \
         once where it can be written", .path.display()
    )]
    LogNotRead {
        /// The file.
        path: PathBuf,
    },
    /// Its schema could not be brought up to date; the file is as it was.
    #[error("{}: the schema cannot be brought up to date, nothing was changed: {detail}", .path.display())]
    Migration {
        /// The file.
        path: PathBuf,
        /// What the migration said.
        detail: String,
    },
    /// Anything else that SQLite says.
    #[error("{}: {source}", .path.display())]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl OpenError {
    /// What the system said of the file, or of its folder.
    pub fn io(path: &Path, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.to_owned(), source.into());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full { path },
            _ => Self::Io { path, source },
        }
    }

    pub(super) fn sqlite(path: &Path, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match kind(&source) {
            Kind::Full => Self::Full { path },
            Kind::Busy => Self::Locked { path },
            Kind::Other => match source.sqlite_error_code() {
                Some(ErrorCode::NotADatabase) => Self::NotADatabase { path },
                Some(ErrorCode::DatabaseCorrupt) => Self::Damaged { path },
                Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly | ErrorCode::CannotOpen) => {
                    Self::Io { path, source: io::Error::other(source.to_string()) }
                }
                _ => Self::Sqlite { path, source },
            },
        }
    }

    pub(super) fn migration(path: &Path, error: &refinery::Error) -> Self {
        use std::error::Error as _;
        let cause = error.source().and_then(|cause| cause.downcast_ref::<rusqlite::Error>());
        let path = path.to_owned();
        match cause.map(kind) {
            Some(Kind::Full) => Self::Full { path },
            Some(Kind::Busy) => Self::Locked { path },
            _ => Self::Migration { path, detail: error.to_string() },
        }
    }
}

/// Why a read or a write failed. Nothing of a failed write is on disk.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// No room.
    #[error("the disk is full: free some space, then try again")]
    Full,
    /// The database is closed, or closing.
    #[error("the database is closed")]
    Closed,
    /// Another process kept the lock for longer than we wait, or all readers stayed busy.
    #[error("the database is locked by another program")]
    Busy,
    /// It was opened for reading alone.
    #[error("the database is read-only")]
    ReadOnly,
    /// The closure panicked; the panic itself is on stderr.
    #[error("a database operation panicked")]
    Panicked,
    /// Anything else that SQLite says.
    #[error("{0}")]
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match kind(&error) {
            Kind::Full => Self::Full,
            Kind::Busy => Self::Busy,
            Kind::Other => Self::Sqlite(error),
        }
    }
}

enum Kind {
    Full,
    Busy,
    Other,
}

fn kind(error: &rusqlite::Error) -> Kind {
    let rusqlite::Error::SqliteFailure(code, _) = error else { return Kind::Other };
    match code.code {
        ErrorCode::DiskFull => Kind::Full,
        // What a full disk looks like when only the shared-memory file had no room.
        _ if code.extended_code == ffi::SQLITE_IOERR_SHMSIZE => Kind::Full,
        ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed => Kind::Busy,
        _ => Kind::Other,
    }
}
