//! Makes a file ours, or refuses it. A file is looked at without any lock or sidecar before it is opened, so
//! that what is not ours stays as it is, byte for byte. New files get halo's application id and all migrations;
//! older ones are migrated in one transaction after a backup copy beside them (`<file>.bak-v<schema>`).

use super::db::{Access, BUSY, connect};
use super::error::OpenError;
use refinery::Runner;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use rustix::fs::{Access as Mode, FlockOperation};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// "halo", in the header of every file of ours.
pub(super) const APPLICATION_ID: i32 = 0x6861_6c6f;

/// What a look at the file tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Look {
    /// There is none, or an empty one.
    New,
    /// Ours, and up to date.
    Current,
    /// Ours, but older or cut off half-way.
    Unsettled,
}

/// Makes, migrates or refuses the file. Afterwards it exists and is ours, readable by its owner alone.
pub(super) fn prepare(path: &Path, runner: &Runner) -> Result<(), OpenError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(|error| OpenError::io(path, error))?;
    if look(path, runner)? != Look::Current {
        // Two programs may start at the same moment: one makes the file, the other finds it made.
        let _alone = lock_folder(path, folder)?;
        match look(path, runner)? {
            Look::Current => {}
            Look::New => {
                create(path, runner)?;
                sync_folder(path, folder)?;
            }
            Look::Unsettled => {
                settle(path, runner)?;
                sync_folder(path, folder)?;
            }
        }
    }
    tighten(path)
}

/// Refuses an open database whose schema is newer than what `runner` knows.
pub(super) fn check(connection: &Connection, path: &Path, runner: &Runner) -> Result<(), OpenError> {
    let found = version(connection).map_err(|error| OpenError::sqlite(path, error))?;
    refuse_newer(found, path, runner)
}

pub(super) fn refuse_newer(found: i32, path: &Path, runner: &Runner) -> Result<(), OpenError> {
    let known = latest(runner);
    if found > known {
        return Err(OpenError::Newer { path: path.to_owned(), found, known });
    }
    Ok(())
}

pub(super) fn latest(runner: &Runner) -> i32 {
    runner.get_migrations().iter().map(refinery::Migration::version).max().unwrap_or(0)
}

/// The schema version of a database of ours; 0 before the first migration.
pub(super) fn version(connection: &Connection) -> rusqlite::Result<i32> {
    let migrated: bool = connection.query_row(
        "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'refinery_schema_history')",
        [],
        |row| row.get(0),
    )?;
    if !migrated {
        return Ok(0);
    }
    connection
        .query_row("SELECT coalesce(max(version), 0) FROM refinery_schema_history", [], |row| row.get(0))
}

/// Looks at the file as it lies on the disk: without its log, without locks, without making sidecars.
pub(super) fn look(path: &Path, runner: &Runner) -> Result<Look, OpenError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::New),
        Err(error) => return Err(OpenError::io(path, error)),
        Ok(meta) if !meta.is_file() => return Err(OpenError::NotADatabase { path: path.to_owned() }),
        Ok(meta) => {
            // Asked here, since SQLite would only say that it cannot open the file. Not by opening it: closing
            // any descriptor of a database drops the locks that this process holds on it.
            rustix::fs::access(path, Mode::READ_OK | Mode::WRITE_OK)
                .map_err(|error| OpenError::io(path, error))?;
            // An import that was cut off has given the old database its second name, which must not share what we
            // would write; it has to come to its end first.
            let aside = fs::metadata(sidecar(path, ".node"));
            if aside.is_ok_and(|aside| (aside.dev(), aside.ino()) == (meta.dev(), meta.ino())) {
                return Err(OpenError::NodeProgram { path: path.to_owned() });
            }
            if meta.len() == 0 {
                return Ok(Look::New);
            }
        }
    }
    let failed = |error| OpenError::sqlite(path, error);
    let connection = open_immutable(path).map_err(failed)?;
    let id: i32 = connection.query_row("PRAGMA application_id", [], |row| row.get(0)).map_err(failed)?;
    if id != APPLICATION_ID {
        // A file of ours carries its id before it has a log. So a log beside a file without the id is another
        // program's, and may hold all of its tables.
        if id != 0 || has_content(&sidecar(path, "-wal")) {
            return Err(OpenError::NodeProgram { path: path.to_owned() });
        }
        let tables: i64 = connection
            .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
            .map_err(failed)?;
        if tables > 0 {
            return Err(OpenError::NodeProgram { path: path.to_owned() });
        }
        return Ok(Look::New);
    }
    if has_content(&sidecar(path, "-journal")) {
        return Ok(Look::Unsettled);
    }
    match version(&connection) {
        Ok(found) => {
            refuse_newer(found, path, runner)?;
            Ok(if found == latest(runner) { Look::Current } else { Look::Unsettled })
        }
        // A checkpoint may be half-way, or was cut off: the proper way of opening sees one state.
        Err(_) => Ok(Look::Unsettled),
    }
}

pub(super) fn open_immutable(path: &Path) -> rusqlite::Result<Connection> {
    let mut uri = b"file:".to_vec();
    for &byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => uri.push(byte),
            _ => uri.extend_from_slice(format!("%{byte:02x}").as_bytes()),
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    let uri = PathBuf::from(std::ffi::OsStr::from_bytes(&uri).to_owned());
    let flags =
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    // After a checkpoint that was cut off the header may name more pages than the file has; the log has them.
    // This lets SQLite read the header all the same; nothing can be written through this connection.
    connection.execute_batch("PRAGMA writable_schema = ON")?;
    Ok(connection)
}

/// Makes a database of ours out of nothing. The id goes in before there is a log, see [`look`]; when this is cut
/// off anywhere, the next start finds the file new or unsettled and goes on.
fn create(path: &Path, runner: &Runner) -> Result<(), OpenError> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(OpenError::io(path, error)),
    }
    let failed = |error| OpenError::sqlite(path, error);
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
    .map_err(failed)?;
    connection.busy_timeout(BUSY).map_err(failed)?;
    connection
        .execute_batch(&format!(
            "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL; PRAGMA application_id = {APPLICATION_ID}"
        ))
        .map_err(failed)?;
    migrate(&mut connection, path, runner)
}

/// Opens a database of ours properly, and migrates it where it is older.
fn settle(path: &Path, runner: &Runner) -> Result<(), OpenError> {
    let failed = |error| OpenError::sqlite(path, error);
    let mut connection = connect(path, Access::Write).map_err(failed)?;
    let found = version(&connection).map_err(failed)?;
    refuse_newer(found, path, runner)?;
    if found == latest(runner) {
        return Ok(());
    }
    if found > 0 {
        backup(&connection, path, found)?;
    }
    migrate(&mut connection, path, runner)?;
    // The new version must be seen by whoever looks at the file alone.
    connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).map_err(failed)
}

fn migrate(connection: &mut Connection, path: &Path, runner: &Runner) -> Result<(), OpenError> {
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
    runner.run(connection).map_err(|error| OpenError::migration(path, &error))?;
    Ok(())
}

/// Copies the database as it is, log included, to `<file>.bak-v<found>`. A half-made copy never has that name.
fn backup(connection: &Connection, path: &Path, found: i32) -> Result<(), OpenError> {
    let failed = |error: io::Error| OpenError::io(path, error);
    let target = sidecar(path, &format!(".bak-v{found}"));
    let partial = sidecar(path, &format!(".bak-v{found}.tmp"));
    // Empty and with our mode: SQLite fills it, and would make it readable for all.
    let name = partial.to_str().ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?;
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial);
    let file = file.map_err(failed)?;
    connection
        .execute("VACUUM INTO ?1", [name])
        .map_err(|error| OpenError::sqlite(path, error))
        .and_then(|_| file.sync_all().and_then(|()| fs::rename(&partial, &target)).map_err(failed))
        .inspect_err(|_| drop(fs::remove_file(&partial)))?;
    tracing::info!(backup = %target.display(), "the database is migrated; a copy of it as it was stays beside it");
    Ok(())
}

/// Takes the folder's lock, which ends with the returned file. Where the file system has no such locks nothing
/// is taken; SQLite's own locks still keep the data whole.
fn lock_folder(path: &Path, folder: &Path) -> Result<File, OpenError> {
    let file = File::open(folder).map_err(|error| OpenError::io(path, error))?;
    let start = Instant::now();
    while let Err(rustix::io::Errno::WOULDBLOCK) =
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
    {
        if start.elapsed() > BUSY {
            return Err(OpenError::Locked { path: path.to_owned() });
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(file)
}

/// A new name is on the disk only after its folder is.
fn sync_folder(path: &Path, folder: &Path) -> Result<(), OpenError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| OpenError::io(path, error))
}

/// Takes the rights of group and others away, from the sidecars too.
fn tighten(path: &Path) -> Result<(), OpenError> {
    for file in [path.to_owned(), sidecar(path, "-wal"), sidecar(path, "-shm")] {
        let Ok(meta) = fs::metadata(&file) else { continue };
        if meta.permissions().mode() & 0o077 != 0 {
            tracing::warn!(file = %file.display(), "was open to other users; now only its owner may read it");
            fs::set_permissions(&file, Permissions::from_mode(0o600))
                .map_err(|error| OpenError::io(path, error))?;
        }
    }
    Ok(())
}

pub(super) fn sidecar(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

pub(super) fn has_content(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| meta.len() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use refinery::Migration;
    use std::collections::BTreeMap;

    fn runner(versions: i32) -> Runner {
        let first = Migration::unapplied("V1__first", "CREATE TABLE t (x INTEGER PRIMARY KEY) STRICT;");
        let second = Migration::unapplied("V2__second", "ALTER TABLE t ADD COLUMN y TEXT;");
        let all = [first.unwrap(), second.unwrap()];
        Runner::new(&all[..versions as usize]).set_grouped(true)
    }

    /// Every file of the folder with its bytes.
    fn bytes(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        files.map(|file| (file.clone(), fs::read(file).unwrap())).collect()
    }

    fn refusal(folder: &Path, file: &Path, runner: &Runner) -> OpenError {
        let before = bytes(folder);
        let error = prepare(file, runner).unwrap_err();
        assert_eq!(bytes(folder), before, "a refused file must stay as it was");
        error
    }

    /// A file with tables of another program, a part of them only in its log, as a killed process leaves it.
    fn foreign(file: &Path, before_log: &str, in_log: &str) {
        let elsewhere = tempfile::tempdir().unwrap();
        let live = elsewhere.path().join("live.db");
        let connection = Connection::open(&live).unwrap();
        connection.execute_batch(&format!("{before_log}; PRAGMA journal_mode = WAL; {in_log}")).unwrap();
        fs::copy(&live, file).unwrap();
        fs::copy(sidecar(&live, "-wal"), sidecar(file, "-wal")).unwrap();
    }

    #[test]
    fn a_database_of_the_node_program_is_named_and_left_byte_for_byte() {
        for (before_log, in_log) in [
            ("CREATE TABLE agent_sessions (id TEXT)", "INSERT INTO agent_sessions VALUES ('x')"),
            ("SELECT 1", "CREATE TABLE agent_sessions (id TEXT)"),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("odd %?#name.db");
            foreign(&file, before_log, in_log);
            let error = refusal(folder.path(), &file, &runner(1));
            assert!(matches!(error, OpenError::NodeProgram { .. }));
            assert_eq!(
                error.to_string(),
                format!("{}: made by the Node program: run halo import", file.display())
            );
        }
    }

    #[test]
    fn what_is_no_database_is_refused_and_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        fs::write(&file, "this is no database, but long enough to be looked at").unwrap();
        assert!(matches!(refusal(folder.path(), &file, &runner(1)), OpenError::NotADatabase { .. }));
        let inside = folder.path().join("folder.db");
        fs::create_dir(&inside).unwrap();
        assert!(matches!(prepare(&inside, &runner(1)), Err(OpenError::NotADatabase { .. })));
    }

    #[test]
    fn a_newer_database_is_refused_and_left_and_the_text_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        prepare(&file, &runner(2)).unwrap();
        let text = refusal(folder.path(), &file, &runner(1)).to_string();
        assert!(text.ends_with(
            "made by a newer halo (schema 2, this one knows up to 1): use that halo, or move the file away"
        ));
    }

    #[test]
    fn a_newer_version_that_only_the_log_tells_is_refused_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        prepare(&file, &runner(1)).unwrap();
        let mut newer = connect(&file, Access::Write).unwrap();
        runner(2).run(&mut newer).unwrap();
        assert_eq!(look(&file, &runner(1)).unwrap(), Look::Current);
        assert!(matches!(check(&newer, &file, &runner(1)), Err(OpenError::Newer { found: 2, known: 1, .. })));
    }

    #[test]
    fn an_older_database_is_migrated_after_a_backup_that_holds_its_log_too() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        prepare(&file, &runner(1)).unwrap();
        let live = connect(&file, Access::Write).unwrap();
        live.execute("INSERT INTO t VALUES (7)", []).unwrap();
        prepare(&file, &runner(2)).unwrap();
        let (x, y): (i64, Option<String>) =
            live.query_row("SELECT x, y FROM t", [], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        assert_eq!((x, y), (7, None));

        let copy = sidecar(&file, ".bak-v1");
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!sidecar(&file, ".bak-v1.tmp").exists());
        let old = Connection::open(copy).unwrap();
        assert_eq!(version(&old).unwrap(), 1);
        assert_eq!(old.query_row("SELECT x FROM t", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        prepare(&file, &runner(1)).unwrap();
        let mut all = runner(2).get_migrations().clone();
        all.push(Migration::unapplied("V3__broken", "ALTER TABLE missing ADD COLUMN z TEXT;").unwrap());
        let error = prepare(&file, &Runner::new(&all).set_grouped(true)).unwrap_err();
        assert!(matches!(error, OpenError::Migration { .. }), "{error}");
        assert!(error.to_string().contains("nothing was changed"));
        prepare(&file, &runner(1)).unwrap();
    }

    #[test]
    fn a_first_start_that_was_cut_off_is_finished_by_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.db");
        fs::write(&file, "").unwrap();
        prepare(&file, &runner(1)).unwrap();

        let file = folder.path().join("y.db");
        Connection::open(&file)
            .unwrap()
            .execute_batch(&format!("PRAGMA application_id = {APPLICATION_ID}"))
            .unwrap();
        prepare(&file, &runner(2)).unwrap();
        assert_eq!(look(&file, &runner(2)).unwrap(), Look::Current);
        assert!(!sidecar(&file, ".bak-v0").exists());
    }

    #[test]
    fn a_checkpoint_that_was_cut_off_is_no_damage() {
        let folder = tempfile::tempdir().unwrap();
        let (file, live) = (folder.path().join("x.db"), folder.path().join("live.db"));
        prepare(&live, &runner(1)).unwrap();
        let connection = connect(&live, Access::Write).unwrap();
        connection
            .execute_batch("CREATE TABLE big (x BLOB); INSERT INTO big VALUES (zeroblob(200000))")
            .unwrap();
        let mut half = fs::read(&live).unwrap();
        fs::copy(sidecar(&live, "-wal"), sidecar(&file, "-wal")).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        half[..4096].copy_from_slice(&fs::read(&live).unwrap()[..4096]);
        fs::write(&file, half).unwrap();

        prepare(&file, &runner(1)).unwrap();
        let opened = connect(&file, Access::Write).unwrap();
        let size: i64 = opened.query_row("SELECT length(x) FROM big", [], |row| row.get(0)).unwrap();
        assert_eq!(size, 200_000);
    }

    #[test]
    fn programs_that_start_at_once_all_find_a_good_database() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new/x.db");
        std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| prepare(&file, &runner(2)))).collect();
            for start in starts {
                start.join().unwrap().unwrap();
            }
        });
    }

    #[test]
    fn files_and_folders_are_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secrets/channels/x.db");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        prepare(&file, &runner(1)).unwrap();
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        prepare(&file, &runner(1)).unwrap();
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn a_file_that_cannot_be_reached_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("plain"), "").unwrap();
        let file = folder.path().join("plain/x.db");
        let error = prepare(&file, &runner(1)).unwrap_err();
        assert!(matches!(error, OpenError::Io { .. }), "{error}");
        assert!(error.to_string().starts_with(&file.display().to_string()));

        let file = folder.path().join("x.db");
        prepare(&file, &runner(1)).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o000)).unwrap();
        // Modes do not bind root.
        if !rustix::process::geteuid().is_root() {
            let text = prepare(&file, &runner(1)).unwrap_err().to_string();
            assert!(text.contains("ermission denied") && text.contains("must be able to read"), "{text}");
        }
    }
}
