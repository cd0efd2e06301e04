//! Writing: the folder is opened and judged like anything else, the new content goes into a file beside the old
//! one, is synced, and takes its name in one step. A reader sees the old file or the new one, never a part; a
//! failure leaves the old one and nothing else. Links are followed: what they lead to is replaced, they stay.

mod temp;

use super::{Guard, Handle, OpenedFile, PathError, self_fd};
use crate::access::AccessLevel;
use crate::workspace::hidden::decides_about_keys;
use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, OFlags, Stat, Uid};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use temp::Temp;
use tokio_util::sync::CancellationToken;

/// How many links in a row are followed; the kernel's own number.
const MAX_LINKS: usize = 40;
/// How much is written between two looks at the cancel token.
const CHUNK: usize = 1024 * 1024;

/// Held while a target is looked at and renamed over, so that of two edits of one file by this process the later
/// one sees the earlier one.
static RENAME: Mutex<()> = Mutex::new(());

/// A file that was made here. It can be taken back, wherever its folder is by then.
#[derive(Debug)]
pub struct Created {
    parent: OwnedFd,
    name: OsString,
    shown: String,
}

impl Created {
    /// Removes the file.
    pub fn remove(&self) -> Result<(), PathError> {
        rustix::fs::unlinkat(&self.parent, self.name.as_os_str(), AtFlags::empty())
            .map_err(|errno| PathError::from_errno(errno, self.shown.clone()))
    }
}

/// A place that may be written: a judged folder, and a name in it.
#[derive(Debug)]
pub struct WriteTarget {
    parent: OwnedFd,
    name: OsString,
    old: Option<Handle>,
    real_path: PathBuf,
    shown: String,
}

impl Guard {
    /// The place that a path leads to, for writing. Missing folders on the way are made.
    pub fn write_target(&self, path: &Path) -> Result<WriteTarget, PathError> {
        let shown = self.shown(path);
        if self.access == AccessLevel::ReadOnly {
            return Err(PathError::ReadOnly(shown));
        }
        let fail = |errno| PathError::from_errno(errno, shown.clone());
        let mut base: Option<OwnedFd> = None;
        let mut wanted = path.to_owned();
        for _ in 0..MAX_LINKS {
            let (dir, name) = split(&wanted).ok_or_else(|| PathError::Folder(shown.clone()))?;
            let parent = self.open_or_make_folder(base.as_ref(), dir, name, &shown)?;
            match rustix::fs::readlinkat(&parent.fd, name, Vec::new()) {
                Ok(link) => {
                    wanted = PathBuf::from(OsString::from_vec(link.into_bytes()));
                    base = Some(parent.fd);
                    continue;
                }
                // No link: something else, or nothing.
                Err(Errno::INVAL | Errno::NOENT) => {}
                Err(errno) => return Err(fail(errno)),
            }
            let real_path = parent.real.join(name);
            self.judge_write(&real_path, &shown)?;
            let old = match Handle::open_at(&parent.fd, Path::new(name), OFlags::NOFOLLOW) {
                Ok(old) => Some(old),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(fail(errno)),
            };
            if let Some(old) = &old {
                if self.hides_file(&old.stat) {
                    return Err(PathError::Hidden(shown));
                }
                old.kind().must_be_file(|| shown.clone())?;
            }
            return Ok(WriteTarget { name: name.to_owned(), parent: parent.fd, old, real_path, shown });
        }
        Err(fail(Errno::LOOP))
    }

    fn judge_write(&self, real: &Path, shown: &str) -> Result<(), PathError> {
        if self.access == AccessLevel::Full {
            Ok(())
        } else if self.hides(real) {
            Err(PathError::Hidden(shown.to_owned()))
        } else if decides_about_keys(real) {
            Err(PathError::Protected(shown.to_owned()))
        } else if self.writable.iter().any(|dir| real.starts_with(dir)) {
            Ok(())
        } else {
            let workspace = self.workspace.to_string_lossy().into_owned();
            Err(PathError::Outside { path: shown.to_owned(), workspace })
        }
    }

    /// Opens the folder that `name` goes into; where it is missing, walks there and makes one folder at a time,
    /// each in a judged one, and none for a name that may not be written.
    fn open_or_make_folder(
        &self,
        base: Option<&OwnedFd>,
        dir: &Path,
        name: &OsStr,
        shown: &str,
    ) -> Result<Handle, PathError> {
        let fail = |errno| PathError::from_errno(errno, shown.to_owned());
        let base = base.map_or(CWD, AsFd::as_fd);
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        match Handle::open_at(base, dir, OFlags::DIRECTORY) {
            Err(Errno::NOENT) => {}
            found => return found.map_err(fail),
        }
        let start = if dir.is_absolute() { Path::new("/") } else { Path::new(".") };
        let mut current = Handle::open_at(base, start, OFlags::DIRECTORY).map_err(fail)?;
        let mut parts =
            dir.components().filter(|part| !matches!(part, Component::RootDir | Component::CurDir));
        let mut missing = None;
        for part in parts.by_ref() {
            match Handle::open_at(&current.fd, part.as_ref(), OFlags::DIRECTORY) {
                Ok(next) => current = next,
                Err(Errno::NOENT) => {
                    missing = Some(part);
                    break;
                }
                Err(errno) => return Err(fail(errno)),
            }
        }
        let parts: Vec<Component<'_>> = missing.into_iter().chain(parts).collect();
        if parts.contains(&Component::ParentDir) {
            // `missing/../x`: the kernel finds nothing there, and neither do we.
            return Err(fail(Errno::NOENT));
        }
        let end: PathBuf = current.real.iter().chain(parts.iter().map(|part| part.as_os_str())).collect();
        self.judge_write(&end.join(name), shown)?;
        for part in parts {
            let part: &Path = part.as_ref();
            self.judge_write(&current.real.join(part), shown)?;
            match rustix::fs::mkdirat(&current.fd, part, Mode::from_raw_mode(0o777)) {
                Ok(()) => sync_folder(&current.fd).map_err(fail)?,
                // Someone else was faster; a link that leads nowhere fails at the next line.
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(errno)),
            }
            current =
                Handle::open_at(&current.fd, part, OFlags::DIRECTORY | OFlags::NOFOLLOW).map_err(fail)?;
        }
        Ok(current)
    }
}

impl WriteTarget {
    /// Where the file is or will be.
    pub fn real_path(&self) -> &Path {
        &self.real_path
    }

    /// Whether a file is there already.
    pub fn exists(&self) -> bool {
        self.old.is_some()
    }

    /// Opens the file that is there.
    pub fn open_old(&self) -> Result<OpenedFile, PathError> {
        let old = self.old.as_ref().ok_or_else(|| PathError::NotFound(self.shown.clone()))?;
        let file = old.reopen(&self.shown)?;
        let metadata = file.metadata().map_err(|error| PathError::from_io(&error, self.shown.clone()))?;
        Ok(OpenedFile { file, real_path: self.real_path.clone(), metadata })
    }

    /// Puts `content` in the file's place. With `unchanged`, only if the file is still the one that was opened.
    /// Mode bits and, as far as the system lets us, the owner stay; a new file is 0644 less the umask.
    pub fn replace(
        self,
        content: &[u8],
        unchanged: bool,
        cancel: &CancellationToken,
    ) -> Result<(), PathError> {
        self.put(content, self.old.is_some(), unchanged, cancel)
    }

    /// Makes a file that only its owner may read, mode 0600. One that is there already stays as it is, and is the
    /// error [`PathError::Changed`].
    pub fn create_private(self, content: &[u8]) -> Result<Created, PathError> {
        if self.old.is_some() {
            return Err(PathError::Changed(self.shown));
        }
        self.put(content, true, true, &CancellationToken::new())?;
        Ok(Created { parent: self.parent, name: self.name, shown: self.shown })
    }

    fn put(
        &self,
        content: &[u8],
        private: bool,
        unchanged: bool,
        cancel: &CancellationToken,
    ) -> Result<(), PathError> {
        let fail = |errno| PathError::from_errno(errno, self.shown.clone());
        let fail_io = |error: std::io::Error| PathError::from_io(&error, self.shown.clone());
        self.must_be_writable()?;
        let temp = Temp::create(&self.parent, private).map_err(fail)?;
        let mut file = temp.file();
        for chunk in content.chunks(CHUNK) {
            if cancel.is_cancelled() {
                return Err(PathError::Stopped(self.shown.clone()));
            }
            file.write_all(chunk).map_err(fail_io)?;
        }
        if let Some(old) = &self.old {
            let stat = &old.stat;
            // Only root may give files away; for others the file becomes theirs, as with any editor.
            let _ =
                rustix::fs::fchown(file, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)));
            // After the owner: a change of owner clears the set-user-id bit.
            rustix::fs::fchmod(file, Mode::from_raw_mode(stat.st_mode & 0o7777)).map_err(fail)?;
        }
        file.sync_all().map_err(fail_io)?;
        if cancel.is_cancelled() {
            return Err(PathError::Stopped(self.shown.clone()));
        }
        let now;
        {
            let _alone = RENAME.lock().unwrap_or_else(PoisonError::into_inner);
            if unchanged && !self.is_unchanged() {
                return Err(PathError::Changed(self.shown.clone()));
            }
            now = rustix::fs::fstat(temp.file()).map_err(fail)?.st_mtime;
            temp.take_name(&self.name).map_err(fail)?;
        }
        sync_folder(&self.parent).map_err(fail)?;
        temp::sweep(&self.parent, now);
        Ok(())
    }

    /// A file that nobody may write is kept from being replaced as well, which its folder would allow.
    fn must_be_writable(&self) -> Result<(), PathError> {
        let Some(old) = &self.old else { return Ok(()) };
        let mode = old.stat.st_mode & 0o7777;
        let allowed = rustix::fs::accessat(CWD, self_fd(&old.fd), Access::WRITE_OK, AtFlags::EACCESS);
        match allowed {
            // Root may write whatever the mode says, but somebody has meant it.
            Ok(()) if mode & 0o222 == 0 => {}
            Err(Errno::ACCESS | Errno::PERM) => {}
            Ok(()) => return Ok(()),
            Err(errno) => return Err(PathError::from_errno(errno, self.shown.clone())),
        }
        Err(PathError::WriteProtected { path: self.shown.clone(), mode })
    }

    fn is_unchanged(&self) -> bool {
        let now = rustix::fs::statat(&self.parent, self.name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW);
        match (&self.old, now) {
            (Some(old), Ok(now)) => stamp(&old.stat) == stamp(&now),
            (None, Err(Errno::NOENT)) => true,
            _ => false,
        }
    }
}

/// What tells one state of a file from another.
fn stamp(stat: &Stat) -> impl PartialEq + use<> {
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, stat.st_mtime_nsec)
}

/// Folder and name of a path that means a file.
fn split(path: &Path) -> Option<(&Path, &OsStr)> {
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") || bytes == b"." {
        return None;
    }
    Some((path.parent()?, path.file_name()?))
}

/// Puts the names in a folder on disk.
fn sync_folder(folder: &OwnedFd) -> Result<(), Errno> {
    // An `O_PATH` handle cannot be synced; the same folder, opened for reading, can.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(self_fd(folder), flags, Mode::empty()) {
        Ok(open) => rustix::fs::fsync(open),
        // A folder that may be written but not read: its names reach the disk a little later.
        Err(Errno::ACCESS) => Ok(()),
        Err(errno) => Err(errno),
    }
}
