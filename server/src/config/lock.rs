//! One server a home: an advisory lock on `global/server.lock`, which the operating system frees when the
//! process ends, however it ends. The file tells others who holds it and where it listens.

use super::home::Home;
use super::problem::os_reason;
use crate::exclusive;
use rustix::fs::{FlockOperation, flock};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Tries to take the lock from a holder that lives.
const TRIES: u32 = 4;

/// The lock, held as long as this lives.
#[derive(Debug)]
pub struct ServerLock(File);

/// What the lock file says about its holder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its process id, where the file says it.
    pub pid: Option<i32>,
    /// The url that it listens on, where the file says it already.
    pub url: Option<String>,
}

/// The lock cannot be taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another server runs on this home.
    #[error(
        "a server already runs on {home}{}; stop it with `halo server stop`, or choose another home with --home",
        match .holder.pid { Some(pid) => format!(" (process {pid})"), None => String::new() }
    )]
    Held {
        /// The home.
        home: String,
        /// Who it is.
        holder: Holder,
    },
    /// The lock file cannot be used.
    #[error("{path}: {reason}")]
    Io {
        /// The lock file.
        path: String,
        /// What the operating system said.
        reason: String,
    },
}

impl ServerLock {
    /// Takes the lock, or says who holds it. Waits about 20 ms for a holder that lives, and up to 2 s for what a dead
    /// one has left behind.
    pub fn take(home: &Home) -> Result<Self, LockError> {
        let io = |error: io::Error| LockError::Io {
            path: home.server_lock().display().to_string(),
            reason: os_reason(&error),
        };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(home.server_lock()).map_err(io)?;
        // `halo server status` holds it for a moment while it looks.
        if !exclusive::take(&file, TRIES, || read_holder(&file).pid).map_err(io)? {
            let holder = read_holder(&file);
            return Err(LockError::Held { home: home.path().display().to_string(), holder });
        }
        let mut lock = Self(file);
        lock.write(None).map_err(io)?;
        Ok(lock)
    }

    /// Tells others where the server listens.
    pub fn announce(&mut self, url: &str) -> io::Result<()> {
        self.write(Some(url))
    }

    fn write(&mut self, url: Option<&str>) -> io::Result<()> {
        let text = format!("{}\n{}\n", std::process::id(), url.unwrap_or_default());
        self.0.rewind()?;
        self.0.write_all(text.as_bytes())?;
        self.0.set_len(text.len() as u64)
    }
}

/// Who runs on this home; `None` when nobody does.
pub fn holder(home: &Home) -> io::Result<Option<Holder>> {
    let file = match File::open(home.server_lock()) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(Some(read_holder(&file))),
        Err(error) => Err(error.into()),
    }
}

fn read_holder(file: &File) -> Holder {
    let mut text = [0; 1024];
    let read = file.read_at(&mut text, 0).unwrap_or_default();
    let text = String::from_utf8_lossy(&text[..read]);
    let mut lines = text.lines();
    let pid = lines.next().and_then(|line| line.trim().parse().ok()).filter(|pid| *pid > 0);
    let url = lines.next().filter(|line| line.starts_with("http://")).map(str::to_owned);
    Holder { pid, url }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Environment;

    fn home() -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::locate(Some(dir.path()), &Environment::default()).unwrap();
        home.prepare().unwrap();
        (dir, home)
    }

    #[test]
    fn a_second_server_is_told_who_holds_the_home() {
        let (_dir, home) = home();
        let mut lock = ServerLock::take(&home).unwrap();
        lock.announce("http://127.0.0.1:9527").unwrap();
        let error = ServerLock::take(&home).unwrap_err();
        assert!(error.to_string().contains(&format!("(process {})", std::process::id())), "{error}");
        let found = holder(&home).unwrap().unwrap();
        assert_eq!(found.url.as_deref(), Some("http://127.0.0.1:9527"));
        assert_eq!(found.pid, Some(std::process::id() as i32));
    }

    #[test]
    fn a_lock_file_that_nobody_holds_is_taken_over() {
        let (_dir, home) = home();
        std::fs::write(home.server_lock(), "4194999\nhttp://old and longer than the new text\n").unwrap();
        assert_eq!(holder(&home).unwrap(), None);
        drop(ServerLock::take(&home).unwrap());
        assert_eq!(holder(&home).unwrap(), None);
        let text = std::fs::read_to_string(home.server_lock()).unwrap();
        assert_eq!(text, format!("{}\n\n", std::process::id()));
    }
}
