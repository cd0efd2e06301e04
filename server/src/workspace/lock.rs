//! The runtime lock: two servers with different homes may share a workspace, but only one owns its runs. The
//! lock ends with the process, however it ends. Works on one machine.

use super::scaffold;
use crate::exclusive;
use rustix::fs::{FlockOperation, OFlags, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The lock of one workspace; released when dropped.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

/// Why the lock was not given.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("the workspace is in use by another server{}", .pid.map(|pid| format!(" (process {pid})")).unwrap_or_default())]
    Held {
        /// Who, as far as the file tells.
        pid: Option<u32>,
    },
    /// The lock file cannot be made or written.
    #[error("{}: {source}", .path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Takes `<workspace>/.halo/runtime.lock`, at once or not at all; only what a dead process has left
/// behind is waited for, up to 2 s. Blocks. `.halo/` must exist. The file keeps our pid for
/// people and other programs; what counts is the lock on it.
pub fn try_lock(workspace: &Path) -> Result<Lock, LockError> {
    let path = scaffold::folder(workspace).join("runtime.lock");
    let failed = |source| LockError::Io { path: path.clone(), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        // A FIFO in its place must not make us wait.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(&path)
        .map_err(failed)?;
    let holder = || {
        let mut text = [0; 32];
        // Unreadable or just being written: then it is somebody without a name.
        let read = file.read_at(&mut text, 0).unwrap_or_default();
        std::str::from_utf8(&text[..read]).ok()?.trim().parse::<i32>().ok()
    };
    if !exclusive::take(&file, 1, holder).map_err(failed)? {
        return Err(LockError::Held { pid: holder().and_then(|pid| pid.try_into().ok()) });
    }
    file.set_len(0).and_then(|()| write!(&file, "{}", std::process::id())).map_err(failed)?;
    Ok(Lock { file })
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Emptied, not removed: a removed file could be locked by one and made anew by another. And unlocked by
        // name: a child that is just being started may still share the descriptor.
        let _ = self.file.set_len(0);
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn one_owner_at_a_time_and_the_other_learns_who_it_is() {
        let workspace = tempfile::tempdir().unwrap();
        scaffold::make(workspace.path()).unwrap();
        let file = workspace.path().join(".halo/runtime.lock");
        let lock = try_lock(workspace.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), std::process::id().to_string());
        let refused = try_lock(workspace.path()).unwrap_err();
        assert!(matches!(refused, LockError::Held { pid: Some(pid) } if pid == std::process::id()));
        assert_eq!(
            refused.to_string(),
            format!("the workspace is in use by another server (process {})", std::process::id())
        );
        drop(lock);
        assert_eq!(fs::read_to_string(&file).unwrap(), "");
        try_lock(workspace.path()).unwrap();
    }

    #[test]
    fn what_a_dead_process_left_does_not_count() {
        let workspace = tempfile::tempdir().unwrap();
        scaffold::make(workspace.path()).unwrap();
        let file = workspace.path().join(".halo/runtime.lock");
        fs::write(&file, "123456789 and more").unwrap();
        let _lock = try_lock(workspace.path()).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), std::process::id().to_string());
    }

    #[test]
    fn without_a_halo_folder_there_is_no_lock_and_none_is_made() {
        let workspace = tempfile::tempdir().unwrap();
        assert!(matches!(try_lock(workspace.path()), Err(LockError::Io { .. })));
        assert!(!scaffold::exists(workspace.path()));
    }
}
