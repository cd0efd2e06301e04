//! What an absolute path leads to anywhere on this machine, for a surface that may look everywhere but at the
//! hidden places: opened first, judged by where it really is, then read through that same handle.

use super::{Handle, Kind, OpenedFile, PathError, normalized, self_fd};
use crate::workspace::hidden::HiddenSet;
use rustix::fs::{Dir, FileType, Mode, OFlags};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Something that is there and not hidden.
#[derive(Debug)]
pub struct Found {
    handle: Handle,
    shown: String,
}

impl Found {
    /// Opens what is there (links are followed). Nothing can block here, whatever it is.
    pub fn open(path: &Path, hidden: &HiddenSet) -> Result<Self, PathError> {
        let shown = path.to_string_lossy().into_owned();
        if path.as_os_str().as_bytes().contains(&0) {
            return Err(PathError::Nul);
        }
        // By its text first: what the system itself keeps from us must not tell more than what is missing.
        if hidden.hides_path(&normalized(path)) {
            return Err(PathError::Hidden(shown));
        }
        let handle = Handle::open(path).map_err(|errno| PathError::from_errno(errno, shown.clone()))?;
        if hidden.hides_path(&handle.real) || hidden.hides_file(&handle.stat) {
            return Err(PathError::Hidden(shown));
        }
        Ok(Self { handle, shown })
    }

    /// What it is.
    pub fn kind(&self) -> Kind {
        self.handle.kind()
    }

    /// Where it really is.
    pub fn real_path(&self) -> &Path {
        &self.handle.real
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.handle.stat.st_size.unsigned_abs()
    }

    /// When it was changed last: milliseconds since the epoch, with their fraction.
    pub fn modified_ms(&self) -> f64 {
        let stat = &self.handle.stat;
        stat.st_mtime as f64 * 1000.0 + stat.st_mtime_nsec as f64 / 1_000_000.0
    }

    /// Opens the regular file for reading.
    pub fn into_file(self) -> Result<OpenedFile, PathError> {
        self.handle.into_file(self.shown)
    }

    /// Opens the folder for listing.
    pub fn into_folder(self) -> Result<Folder, PathError> {
        let Self { handle, shown } = self;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd: OwnedFd = rustix::fs::open(self_fd(&handle.fd), flags, Mode::empty())
            .map_err(|errno| PathError::from_errno(errno, shown.clone()))?;
        let entries = Dir::new(fd).map_err(|errno| PathError::from_errno(errno, shown.clone()))?;
        Ok(Folder { handle, entries, shown })
    }
}

/// An open folder. Its entries come in the order of the disk.
#[derive(Debug)]
pub struct Folder {
    handle: Handle,
    entries: Dir,
    shown: String,
}

impl Folder {
    /// The next name and, for all but links, what it is.
    pub fn next_entry(&mut self) -> Option<Result<(OsString, Option<Kind>), PathError>> {
        loop {
            let entry = match self.entries.read()? {
                Ok(entry) => entry,
                Err(errno) => return Some(Err(PathError::from_errno(errno, self.shown.clone()))),
            };
            let name = entry.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            let kind = match entry.file_type() {
                FileType::RegularFile => Some(Kind::File),
                FileType::Directory => Some(Kind::Folder),
                FileType::Symlink | FileType::Unknown => None,
                _ => Some(Kind::Other("special file")),
            };
            return Some(Ok((OsString::from_vec(name.to_vec()), kind)));
        }
    }

    /// Whether entries may be hidden by their names.
    pub fn may_hide(&self, hidden: &HiddenSet) -> bool {
        hidden.may_hide_in(&self.handle.real)
    }

    /// Whether an entry that is no link is hidden by its name.
    pub fn hides_name(&self, name: &OsStr, hidden: &HiddenSet) -> bool {
        hidden.hides_path(&self.handle.real.join(name))
    }

    /// What the entry leads to and its size in bytes. `None` when it is hidden, gone, or leads nowhere.
    pub fn look(&self, name: &OsStr, hidden: &HiddenSet) -> Option<(Kind, u64)> {
        let found = Handle::open_at(&self.handle.fd, Path::new(name), OFlags::empty()).ok()?;
        let is_hidden = hidden.hides_path(&found.real) || hidden.hides_file(&found.stat);
        (!is_hidden).then(|| (found.kind(), found.stat.st_size.unsigned_abs()))
    }
}
