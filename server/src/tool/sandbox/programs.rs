//! Finding programs of the system, and holding on to processes without mixing them up.

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Child;

/// Where programs for administrators are, which the path of a service may leave out.
const ADMIN: [&str; 2] = ["/usr/sbin", "/sbin"];

/// A program on this process's `PATH`, by its absolute path.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).collect();
    search(name, dirs)
}

/// The same, also where programs for administrators are.
pub fn find_admin(name: &str) -> Option<PathBuf> {
    find(name).or_else(|| search(name, ADMIN.map(PathBuf::from)))
}

fn search(name: &str, dirs: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    dirs.into_iter().filter(|dir| dir.is_absolute()).map(|dir| dir.join(name)).find(|file| {
        file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    })
}

/// A handle of a child that has not been waited for: signals through it never meet another process.
pub fn pidfd_of(child: &Child) -> io::Result<OwnedFd> {
    Ok(pidfd_open(pid_of(child)?, PidfdFlags::empty())?)
}

/// A child's process id.
pub fn pid_of(child: &Child) -> io::Result<Pid> {
    Pid::from_raw(child.id().cast_signed()).ok_or_else(|| io::Error::other("a child without an id"))
}
