//! The file that new content goes into before it takes the place of the old one. Where the file system can, it has no
//! name while it is written, so that a crash leaves nothing. The name that it needs for the last step is one that a
//! later write into the same folder knows and clears away.

use super::super::self_fd;
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

/// Seconds after which nobody writes a file of such a name any more.
const ABANDONED: i64 = 60 * 60;
/// Entries of a folder that are looked at for abandoned files.
const MAX_LOOKED_AT: usize = 10_000;

/// A file on its way; gone when dropped before it has taken its name.
pub struct Temp<'a> {
    parent: &'a OwnedFd,
    /// The name that it has for now.
    name: String,
    has_name: bool,
    file: File,
}

impl<'a> Temp<'a> {
    /// A new file in this folder.
    pub fn create(parent: &'a OwnedFd, private: bool) -> Result<Self, Errno> {
        let name = format!(".halo-{:016x}.tmp", rand::random::<u64>());
        // What replaces a file gets that file's mode later, and must not be readable by more people until then.
        let mode = Mode::from_raw_mode(if private { 0o600 } else { 0o644 });
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::openat(parent, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => return Ok(Self { parent, name, has_name: false, file: File::from(file) }),
            // The file system knows no files without a name.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(errno) => return Err(errno),
        }
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let file = File::from(rustix::fs::openat(parent, name.as_str(), flags, mode)?);
        Ok(Self { parent, name, has_name: true, file })
    }

    /// To be written.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Takes this name in the folder, from another file where one has it.
    pub fn take_name(mut self, name: &OsStr) -> Result<(), Errno> {
        if !self.has_name {
            // Only a rename can take a name from another file, and only what has a name can be renamed.
            let own = self_fd(&self.file);
            rustix::fs::linkat(CWD, own, self.parent, self.name.as_str(), AtFlags::SYMLINK_FOLLOW)?;
            self.has_name = true;
        }
        rustix::fs::renameat(self.parent, self.name.as_str(), self.parent, name)?;
        self.has_name = false;
        Ok(())
    }
}

impl Drop for Temp<'_> {
    fn drop(&mut self) {
        if self.has_name {
            let _ = rustix::fs::unlinkat(self.parent, self.name.as_str(), AtFlags::empty());
        }
    }
}

/// Removes the files of this kind that a crash has left in the folder. What time it is, in the eyes of the file system,
/// tells the time of a change, `now`, of a new file. What cannot be looked at stays.
pub fn sweep(folder: &OwnedFd, now: i64) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(open) = rustix::fs::open(self_fd(folder), flags, Mode::empty()) else { return };
    let Ok(entries) = Dir::new(open) else { return };
    for entry in entries.take(MAX_LOOKED_AT).flatten() {
        let name = entry.file_name();
        if is_ours(name) && is_abandoned(folder, name, now) {
            let _ = rustix::fs::unlinkat(folder, name, AtFlags::empty());
        }
    }
}

fn is_ours(name: &CStr) -> bool {
    let number = name.to_bytes().strip_prefix(b".halo-").and_then(|rest| rest.strip_suffix(b".tmp"));
    number.is_some_and(|number| {
        number.len() == 16
            && number.iter().all(|digit| digit.is_ascii_digit() || (b'a'..=b'f').contains(digit))
    })
}

fn is_abandoned(folder: impl AsFd, name: &CStr, now: i64) -> bool {
    let Ok(stat) = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    is_file && now.saturating_sub(stat.st_mtime) > ABANDONED
}
