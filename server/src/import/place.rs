//! Where one of our databases belongs, and what stands there: the old one under its own name, or as `*.node` where
//! an import has renamed it. Puts a finished database of ours into place so that whenever this is cut off, the old
//! one is whole as `*.node` before ours has its name, and no log of the old one is ever beside ours.

use crate::store::OpenError;
use crate::store::node::{self, NodeDatabase, Whose};
use crate::store::schema::Schema;
use anyhow::{Context, bail};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SIDECARS: [&str; 3] = ["-shm", "-wal", "-journal"];

/// The place of one database.
#[derive(Clone, Debug)]
pub struct Place {
    path: PathBuf,
    /// Whose is what stands there; none when it is no database, or a broken one.
    whose: Option<Whose>,
    /// What is wrong with it.
    broken: Option<String>,
}

impl Place {
    /// Looks at the place. Fails when an old database stands there and another one is set aside already.
    pub fn of(path: PathBuf, schema: Schema) -> anyhow::Result<Self> {
        let (whose, broken) = match node::whose(&path, schema) {
            Ok(whose) => (Some(whose), None),
            Err(error @ (OpenError::NotADatabase { .. } | OpenError::Damaged { .. })) => {
                (None, Some(error.to_string()))
            }
            Err(error) => return Err(error.into()),
        };
        let place = Self { path, whose, broken };
        if place.is_old() && place.aside().exists() && !place.is_linked()? {
            bail!(
                "{} and {} are both databases of the Node program; move the one that does not count away",
                place.path.display(),
                place.aside().display()
            );
        }
        Ok(place)
    }

    /// The database itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the old one is kept.
    pub fn aside(&self) -> PathBuf {
        with(&self.path, ".node")
    }

    /// Where ours is built.
    pub fn building(&self) -> PathBuf {
        with(&self.path, ".import")
    }

    /// Whether a database of ours stands there.
    pub fn is_ours(&self) -> bool {
        self.whose == Some(Whose::Ours)
    }

    /// Whether something stands there that is not ours, a broken file included.
    pub fn is_old(&self) -> bool {
        matches!(self.whose, Some(Whose::Nodes) | None)
    }

    /// Why what stands there cannot be read.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// The old database, to be read from a copy; none where there never was one.
    pub fn old(&self) -> Option<Result<NodeDatabase, OpenError>> {
        // Once it has that name, it has it with its log.
        let file = if self.aside().exists() { self.aside() } else { self.path.clone() };
        let there = file != self.path || self.whose == Some(Whose::Nodes);
        there.then(|| NodeDatabase::copy_of(&file))
    }

    /// Whether a log stands there that would become that of whatever database is put into the place.
    pub fn has_log(&self) -> bool {
        let filled = |suffix| fs::metadata(with(&self.path, suffix)).is_ok_and(|found| found.len() > 0);
        filled("-wal") || filled("-journal")
    }

    /// Removes what an import that was cut off has left.
    pub fn clear(&self) -> anyhow::Result<()> {
        let file = self.building();
        for name in SIDECARS.map(|suffix| with(&file, suffix)).iter().chain([&file]) {
            remove(name).with_context(|| name.display().to_string())?;
        }
        Ok(())
    }

    /// Renames an old database to `*.node` and gives its name to ours, if one was built. Answers the new name of the
    /// old one where it was renamed.
    pub fn settle(&self, built: bool) -> anyhow::Result<Option<PathBuf>> {
        self.try_settle(built).with_context(|| format!("{}: cannot be put into place", self.path.display()))
    }

    fn try_settle(&self, built: bool) -> io::Result<Option<PathBuf>> {
        let (path, aside, old) = (&self.path, self.aside(), self.is_old());
        if old {
            if !self.is_linked()? {
                for suffix in SIDECARS {
                    let (from, to) = (with(path, suffix), with(&aside, suffix));
                    remove(&to)?;
                    if from.exists() {
                        link(&from, &to)?;
                    }
                }
                link(path, &aside)?;
                sync_folder(path)?;
            }
            for suffix in SIDECARS {
                remove(&with(path, suffix))?;
            }
        }
        if built {
            // What was copied, and not changed since, nobody has written to the disk yet.
            File::open(self.building())?.sync_all()?;
            fs::rename(self.building(), path)?;
        } else if old {
            remove(path)?;
        }
        sync_folder(path)?;
        Ok(old.then_some(aside))
    }

    /// Whether the old database has both names, as an import that was cut off leaves it.
    fn is_linked(&self) -> io::Result<bool> {
        let identity = |file: &Path| match fs::metadata(file) {
            Ok(found) => Ok(Some((found.dev(), found.ino()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        let aside = identity(&self.aside())?;
        Ok(aside.is_some() && aside == identity(&self.path)?)
    }
}

/// A second name; where the file system has none, a new one instead.
fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::hard_link(from, to).or_else(|_| fs::rename(from, to))
}

fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn sync_folder(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn with(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Database;

    /// A folder with an old database whose rows are all in its log, as a killed process leaves it.
    fn old() -> (tempfile::TempDir, PathBuf) {
        let elsewhere = tempfile::tempdir().unwrap();
        let live = elsewhere.path().join("live.db");
        let connection = rusqlite::Connection::open(&live).unwrap();
        let make = "PRAGMA journal_mode = WAL; CREATE TABLE running_sessions (workspace TEXT);
                    INSERT INTO running_sessions VALUES ('/w')";
        connection.execute_batch(make).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("runs.db");
        for suffix in ["", "-wal"] {
            fs::copy(with(&live, suffix), with(&path, suffix)).unwrap();
        }
        (folder, path)
    }

    fn look(path: &Path) -> Place {
        Place::of(path.to_owned(), Schema::Runs).unwrap()
    }

    fn rows(place: &Place) -> Vec<String> {
        place.old().unwrap().unwrap().running_workspaces().unwrap()
    }

    #[test]
    fn an_old_database_is_renamed_with_its_log_and_keeps_its_bytes() {
        let (_folder, path) = old();
        let before = (fs::read(&path).unwrap(), fs::read(with(&path, "-wal")).unwrap());
        let place = look(&path);
        assert_eq!(rows(&place), ["/w"]);
        fs::write(place.building(), "ours").unwrap();
        assert_eq!(place.settle(true).unwrap(), Some(with(&path, ".node")));
        assert_eq!(fs::read(&path).unwrap(), b"ours");
        assert!(!with(&path, "-wal").exists() && !place.building().exists());
        let after = (fs::read(with(&path, ".node")).unwrap(), fs::read(with(&path, ".node-wal")).unwrap());
        assert_eq!(after, before);
    }

    #[test]
    fn a_rename_that_was_cut_off_anywhere_is_taken_up_with_all_rows() {
        for step in 0..4 {
            let (_folder, path) = old();
            let aside = with(&path, ".node");
            if step >= 1 {
                fs::hard_link(with(&path, "-wal"), with(&aside, "-wal")).unwrap();
            }
            if step >= 2 {
                fs::hard_link(&path, &aside).unwrap();
            }
            if step >= 3 {
                fs::remove_file(with(&path, "-wal")).unwrap();
            }
            let refused = Database::open(&path, Schema::Runs).unwrap_err();
            assert!(matches!(refused, OpenError::NodeProgram { .. }), "step {step}: {refused}");
            let place = look(&path);
            assert!(place.is_old(), "step {step}");
            assert_eq!(rows(&place), ["/w"], "step {step}");
            fs::write(place.building(), "ours").unwrap();
            place.settle(true).unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"ours");
            assert!(!with(&path, "-wal").exists());
            let copy = NodeDatabase::copy_of(&aside).unwrap();
            assert_eq!(copy.running_workspaces().unwrap(), ["/w"], "step {step}");
        }
    }

    #[test]
    fn a_second_old_database_does_not_replace_the_first() {
        let (_folder, path) = old();
        fs::write(with(&path, ".node"), "the first").unwrap();
        let error = Place::of(path.clone(), Schema::Runs).unwrap_err().to_string();
        assert!(error.contains("both databases of the Node program"), "{error}");
        assert_eq!(fs::read(with(&path, ".node")).unwrap(), b"the first");
    }
}
