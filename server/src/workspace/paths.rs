//! The one path guard. A path is opened first (`O_PATH`, links followed), the opened thing is judged by where it
//! really is, and is then read through that same handle: nothing can be swapped between the look and the use,
//! and links that stay where they may lead work. Anything but a regular file or a folder is refused before it
//! could block. What is hidden is [`super::hidden`]'s knowledge; writing is in [`replace`].

mod error;
pub mod found;
pub mod replace;
#[cfg(test)]
mod tests;

pub use error::PathError;

use super::hidden::HiddenSet;
use crate::access::AccessLevel;
use crate::text::on_one_line;
use rustix::fs::{CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// A regular file, open for reading.
#[derive(Debug)]
pub struct OpenedFile {
    /// Never blocks: opened with `O_NONBLOCK`.
    pub file: File,
    /// Where it really is.
    pub real_path: PathBuf,
    /// Of the opened file itself.
    pub metadata: Metadata,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// FIFO, socket or device, with its name.
    Other(&'static str),
}

impl Kind {
    /// Refuses all but a regular file.
    fn must_be_file(self, shown: impl FnOnce() -> String) -> Result<(), PathError> {
        match self {
            Self::File => Ok(()),
            Self::Folder => Err(PathError::Folder(shown())),
            Self::Other(kind) => Err(PathError::NotRegular { path: shown(), kind }),
        }
    }
}

fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Folder,
        FileType::Fifo => Kind::Other("FIFO"),
        FileType::Socket => Kind::Other("socket"),
        FileType::CharacterDevice | FileType::BlockDevice => Kind::Other("device"),
        FileType::Symlink | FileType::Unknown => Kind::Other("link"),
    }
}

/// Whose paths a [`Guard`] judges. All paths absolute.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The workspace.
    pub workspace: &'a Path,
    /// What `~/` means.
    pub user_home: &'a Path,
    /// halo's own home.
    pub halo_home: &'a Path,
    /// The level of the session.
    pub access: AccessLevel,
    /// Hidden besides the fixed list.
    pub hidden_dirs: &'a [PathBuf],
    /// Hidden besides the fixed list.
    pub hidden_files: &'a [PathBuf],
    /// Writable besides the workspace.
    pub writable_dirs: &'a [PathBuf],
}

/// Judges the paths of one session. Cheap enough to be made for each call of a tool; its calls touch the disk
/// and belong on a blocking thread.
#[derive(Debug)]
pub struct Guard {
    workspace: PathBuf,
    user_home: PathBuf,
    access: AccessLevel,
    hidden: HiddenSet,
    /// The workspace and the writable folders, by their real paths.
    writable: Vec<PathBuf>,
}

impl Guard {
    /// A guard by these rules.
    pub fn new(rules: Rules<'_>) -> Self {
        let workspace = rules.workspace.canonicalize().unwrap_or_else(|_| rules.workspace.to_owned());
        let hidden = if rules.access == AccessLevel::Full {
            HiddenSet::default()
        } else {
            let Rules { user_home, halo_home, hidden_dirs, hidden_files, .. } = rules;
            HiddenSet::of(&workspace, user_home, halo_home, hidden_dirs, hidden_files)
        };
        let mut writable = vec![workspace.clone()];
        writable.extend(rules.writable_dirs.iter().filter_map(|dir| dir.canonicalize().ok()));
        Self { workspace, user_home: rules.user_home.to_owned(), access: rules.access, hidden, writable }
    }

    /// A guard for what the server itself writes: inside this workspace, and not where sessions and logs are.
    pub fn inside(workspace: &Path) -> Self {
        let workspace = workspace.canonicalize().unwrap_or_else(|_| workspace.to_owned());
        Self {
            user_home: workspace.clone(),
            access: AccessLevel::Workspace,
            hidden: HiddenSet::runtime_of(&workspace),
            writable: vec![workspace.clone()],
            workspace,
        }
    }

    /// The workspace's real path.
    pub fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// How a path is shown to the model: relative inside the workspace, else absolute; on one line, and lossy where it
    /// is not UTF-8.
    pub fn shown(&self, path: &Path) -> String {
        match path.strip_prefix(&self.workspace) {
            Ok(inside) if inside.as_os_str().is_empty() => ".".into(),
            Ok(inside) => on_one_line(&inside.to_string_lossy()).into_owned(),
            Err(_) => on_one_line(&path.to_string_lossy()).into_owned(),
        }
    }

    /// The absolute path that a model means: relative to the workspace, absolute as is, `~/` in the person's home.
    pub fn resolve(&self, path: &str) -> Result<PathBuf, PathError> {
        if path.contains('\0') {
            return Err(PathError::Nul);
        }
        Ok(match path.strip_prefix('~') {
            Some("") => self.user_home.clone(),
            Some(rest) if rest.starts_with('/') => self.user_home.join(rest.trim_start_matches('/')),
            // `join` takes an absolute path as it is.
            _ => self.workspace.join(path),
        })
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, path: &Path) -> Result<OpenedFile, PathError> {
        self.open_readable(path)?.into_file(self.shown(path))
    }

    /// Opens what a walk from a real path, which follows no links and passes what [`Guard::hides`], has found to be a
    /// regular file: with half the calls of the system that [`Guard::open_file`] needs. It is opened before it is
    /// judged, and judged before it is read.
    pub fn open_walked(&self, path: &Path) -> Result<File, PathError> {
        let fail = |errno| PathError::from_errno(errno, self.shown(path));
        // Another thing may have taken its name since: no link is followed, and nothing blocks.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
        if self.access == AccessLevel::Full {
            let stat = rustix::fs::fstat(&fd).map_err(fail)?;
            kind_of(&stat).must_be_file(|| self.shown(path))?;
            return Ok(File::from(fd));
        }
        let handle = Handle::of(fd).map_err(fail)?;
        // The walk has judged the path by its text. A folder on the way may have become a link since.
        let elsewhere = handle.real.as_os_str() != path.as_os_str();
        if elsewhere && self.hides(&handle.real) || self.hides_file(&handle.stat) {
            return Err(PathError::Hidden(self.shown(path)));
        }
        handle.kind().must_be_file(|| self.shown(path))?;
        Ok(File::from(handle.fd))
    }

    /// The real path of a folder that may be read.
    pub fn open_folder(&self, path: &Path) -> Result<PathBuf, PathError> {
        let handle = self.open_readable(path)?;
        match handle.kind() {
            Kind::Folder => Ok(handle.real),
            _ => Err(PathError::NotFolder(self.shown(path))),
        }
    }

    /// What a path leads to, and where that really is; nothing is opened for reading.
    pub fn look(&self, path: &Path) -> Result<(Kind, PathBuf), PathError> {
        let handle = self.open_readable(path)?;
        Ok((handle.kind(), handle.real))
    }

    /// Whether a real path is hidden from this session.
    pub fn hides(&self, real: &Path) -> bool {
        self.access < AccessLevel::Full && self.hidden.hides_path(real)
    }

    fn hides_file(&self, stat: &Stat) -> bool {
        self.access < AccessLevel::Full && self.hidden.hides_file(stat)
    }

    fn open_readable(&self, path: &Path) -> Result<Handle, PathError> {
        let handle = Handle::open(path).map_err(|errno| PathError::from_errno(errno, self.shown(path)))?;
        if self.hides(&handle.real) || self.hides_file(&handle.stat) {
            return Err(PathError::Hidden(self.shown(path)));
        }
        Ok(handle)
    }
}

/// Opens a file of the folder `root` for a surface that serves only that: everything outside, by text or by
/// link, is [`PathError::Outside`], and what is in `hidden` is [`PathError::Hidden`].
/// The path is relative to `root`, or absolute inside it.
pub fn open_beneath(root: &Path, path: &str, hidden: &HiddenSet) -> Result<OpenedFile, PathError> {
    if path.contains('\0') {
        return Err(PathError::Nul);
    }
    let shown = path.to_owned();
    let real_root = root.canonicalize().map_err(|error| PathError::from_io(&error, shown.clone()))?;
    // From the real root, so that a root that goes through links and back up is no other folder by its text.
    let wanted = real_root.join(path);
    let plain = normalized(&wanted);
    if !plain.starts_with(root) && !plain.starts_with(&real_root) {
        return Err(PathError::Outside { path: shown, workspace: root.to_string_lossy().into_owned() });
    }
    let handle = Handle::open(&wanted).map_err(|errno| PathError::from_errno(errno, shown.clone()))?;
    if !handle.real.starts_with(&real_root) {
        return Err(PathError::Outside { path: shown, workspace: root.to_string_lossy().into_owned() });
    }
    if hidden.hides_path(&handle.real) || hidden.hides_file(&handle.stat) {
        return Err(PathError::Hidden(shown));
    }
    handle.into_file(shown)
}

/// A path without `.` and `..`, by its text alone.
pub fn normalized(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            other => plain.push(other),
        }
    }
    plain
}

/// Something opened with `O_PATH`: it can be judged and reopened, not read.
#[derive(Debug)]
struct Handle {
    fd: OwnedFd,
    real: PathBuf,
    stat: Stat,
}

impl Handle {
    fn open(path: &Path) -> Result<Self, Errno> {
        Self::open_at(CWD, path, OFlags::empty())
    }

    fn open_at(base: impl AsFd, path: &Path, flags: OFlags) -> Result<Self, Errno> {
        Self::of(rustix::fs::openat(base, path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())?)
    }

    fn of(fd: OwnedFd) -> Result<Self, Errno> {
        let link = rustix::fs::readlinkat(CWD, self_fd(&fd), Vec::new())?;
        let real = PathBuf::from(std::ffi::OsString::from_vec(link.into_bytes()));
        // After the path: of what is deleted the path is a lie, and no list of hidden places knows it.
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_nlink == 0 {
            return Err(Errno::NOENT);
        }
        Ok(Self { fd, real, stat })
    }

    fn kind(&self) -> Kind {
        kind_of(&self.stat)
    }

    fn into_file(self, shown: String) -> Result<OpenedFile, PathError> {
        let file = self.reopen(&shown)?;
        let metadata = file.metadata().map_err(|error| PathError::from_io(&error, shown))?;
        Ok(OpenedFile { file, real_path: self.real, metadata })
    }

    fn reopen(&self, shown: &str) -> Result<File, PathError> {
        self.kind().must_be_file(|| shown.to_owned())?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        rustix::fs::open(self_fd(&self.fd), flags, Mode::empty())
            .map(File::from)
            .map_err(|errno| PathError::from_errno(errno, shown.to_owned()))
    }
}

/// The name under which this process reaches what it has opened.
fn self_fd(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}
