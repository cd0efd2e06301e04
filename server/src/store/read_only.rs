//! Reading a database on a disk that takes no writes. SQLite needs to write beside a database to share it; where it
//! cannot, the file is read alone, and anew each time, since nothing would tell that somebody changed it elsewhere.

use super::db::{Access, connect};
use super::error::OpenError;
use super::migrate::{APPLICATION_ID, has_content, latest, open_immutable, refuse_newer, sidecar, version};
use refinery::Runner;
use rusqlite::Connection;
use rustix::fs::{Access as Mode, access};
use std::path::Path;

/// Refuses a file that cannot be read as it lies on a disk that takes no writes: it must be ours, and up to date.
pub(super) fn check(path: &Path, runner: &Runner) -> Result<(), OpenError> {
    access(path, Mode::READ_OK).map_err(|error| OpenError::io(path, error))?;
    let failed = |error| OpenError::sqlite(path, error);
    let connection = match connect_to(path) {
        Err(_) if has_content(&sidecar(path, "-wal")) => {
            return Err(OpenError::LogNotRead { path: path.to_owned() });
        }
        connected => connected.map_err(failed)?,
    };
    let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(failed)?;
    if id != APPLICATION_ID {
        return Err(OpenError::NodeProgram { path: path.to_owned() });
    }
    let found = version(&connection).map_err(failed)?;
    refuse_newer(found, path, runner)?;
    if found < latest(runner) {
        let detail = "the file system is read-only".to_owned();
        return Err(OpenError::Migration { path: path.to_owned(), detail });
    }
    Ok(())
}

/// Connects to a file on a disk that takes no writes: with its log where there is one that can be read, else to the
/// file alone.
pub(super) fn connect_to(path: &Path) -> rusqlite::Result<Connection> {
    let with_log = connect(path, Access::Read).and_then(|connection| {
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
        Ok(connection)
    });
    match with_log {
        Ok(connection) => Ok(connection),
        // Without its log the file may be in the middle of a checkpoint.
        Err(error) if has_content(&sidecar(path, "-wal")) => Err(error),
        Err(_) => open_immutable(path),
    }
}
