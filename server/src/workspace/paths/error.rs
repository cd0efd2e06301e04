//! Why a path was refused, in words that a model can act on.

use rustix::io::Errno;
use std::io;

/// Why a path was refused. The paths in it are those that were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// Nothing is there, or a link leads nowhere.
    #[error("{0}: no such file or folder")]
    NotFound(String),
    /// A file is wanted.
    #[error("{0}: is a folder, not a file")]
    Folder(String),
    /// A folder is wanted, or a file stands where a folder should.
    #[error("{0}: is not a folder")]
    NotFolder(String),
    /// FIFO, socket or device.
    #[error("{path}: is a {kind}, not a regular file; it is not opened")]
    NotRegular {
        /// The path.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// On the hidden list.
    #[error("{0}: path is not accessible to sessions without full access")]
    Hidden(String),
    /// An agent's files or the workspace's settings.
    #[error(
        "{0}: agents and settings are changed only with full access, since they decide where keys are sent"
    )]
    Protected(String),
    /// Not where this session may go.
    #[error("{path}: is outside {workspace}; sessions without full access write only inside it")]
    Outside {
        /// The path.
        path: String,
        /// The workspace.
        workspace: String,
    },
    /// The session writes nothing.
    #[error("{0}: this session is read-only; ask the user for a session with workspace or full access")]
    ReadOnly(String),
    /// The operating system refuses.
    #[error("{0}: permission denied by the operating system")]
    Denied(String),
    /// The mode bits of the file let nobody, or not this user, write it.
    #[error(
        "{path}: is write-protected (mode {mode:04o}) and is left as it is; if it is meant to change, make it \
         writable first (chmod u+w)"
    )]
    WriteProtected {
        /// The path.
        path: String,
        /// The mode bits.
        mode: u32,
    },
    /// A NUL in the path.
    #[error("the path holds a NUL character, which no file name can")]
    Nul,
    /// The file is another one than a moment ago.
    #[error("{0}: was changed by someone else meanwhile and is left as it is; read it again")]
    Changed(String),
    /// Stopped before anything was changed.
    #[error("stopped; {0} is left as it was")]
    Stopped(String),
    /// Nothing can be there: the path is too long, or its links go in a circle.
    #[error("{path}: {reason}")]
    Nowhere {
        /// The path.
        path: String,
        /// Why.
        reason: &'static str,
    },
    /// Anything else that the operating system says.
    #[error("{path}: {reason}")]
    Io {
        /// The path.
        path: String,
        /// The system's words.
        reason: String,
    },
}

impl PathError {
    pub(super) fn from_errno(errno: Errno, path: String) -> Self {
        match errno {
            Errno::NOENT => Self::NotFound(path),
            Errno::NOTDIR => Self::NotFolder(path),
            Errno::ISDIR => Self::Folder(path),
            Errno::ACCESS | Errno::PERM => Self::Denied(path),
            // What opening a socket or a device without a driver says.
            Errno::NXIO | Errno::NODEV => Self::NotRegular { path, kind: "device" },
            Errno::LOOP => Self::Nowhere { path, reason: "the links in it go in a circle" },
            Errno::NAMETOOLONG => Self::Nowhere { path, reason: "the path is too long" },
            Errno::NOSPC | Errno::DQUOT => Self::Io { path, reason: "the disk is full".into() },
            Errno::ROFS => Self::Io { path, reason: "the file system is read-only".into() },
            other => Self::Io { path, reason: io::Error::from(other).to_string() },
        }
    }

    pub(super) fn from_io(error: &io::Error, path: String) -> Self {
        match Errno::from_io_error(error) {
            Some(errno) => Self::from_errno(errno, path),
            None => Self::Io { path, reason: error.to_string() },
        }
    }
}
