//! A disk of a test's own that can be filled, freed and made read-only: a tmpfs. Mounting takes root; without it
//! the test runs again in a user namespace, where it is root.

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Set in the process that runs the test inside the namespace.
const INSIDE: &str = "HALO_TESTS_MAY_MOUNT";

/// A mounted disk; gone when dropped, with whatever is on it.
#[derive(Debug)]
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// Mounts an empty disk of so many MiB.
    pub fn mount(mebibytes: u32) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("halo-disk-").tempdir()?;
        let options = std::ffi::CString::new(format!("size={mebibytes}m,mode=0755"))?;
        mount("halo-test", folder.path(), "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, &*options)?;
        Ok(Self { folder })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    fn ballast(&self) -> PathBuf {
        self.path().join("ballast")
    }

    /// Takes all the room that is left, to the last page.
    pub fn fill(&self) {
        let mut ballast =
            File::options().append(true).create(true).open(self.ballast()).expect("the ballast");
        let page = [0x78; 4096];
        let error = loop {
            if let Err(error) = ballast.write_all(&page) {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    }

    /// Gives the room back.
    pub fn free(&self) {
        fs::remove_file(self.ballast()).expect("the disk was filled");
    }

    /// Refuses every write from now on. No file may be open for writing.
    pub fn make_read_only(&self) {
        mount_remount(self.path(), MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV, "")
            .expect("the disk can be made read-only");
    }

    /// Takes writes again.
    pub fn make_writable(&self) {
        mount_remount(self.path(), MountFlags::NOSUID | MountFlags::NODEV, "")
            .expect("the disk can be made writable");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Detached: a process that is just ending may still have a file open.
        let _ = unmount(self.path(), UnmountFlags::DETACH);
    }
}

/// Whether this process is to run the test of this name, which mounts disks. Where mounting is not permitted, the
/// test is run in a namespace instead (and must pass there); where that does not work either, it fails in CI, and
/// elsewhere says why it is skipped.
pub fn may_mount(test: &str) -> bool {
    if env::var_os(INSIDE).is_some() || SmallDisk::mount(1).is_ok() {
        return true;
    }
    let unshare = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount"]);
        command
    };
    let probe = unshare().args(["mount", "-t", "tmpfs", "none", "/mnt"]).output();
    let works = probe.is_ok_and(|output| output.status.success());
    if crate::tool_or_skip("mounting a tmpfs", works, "run as root, or allow user namespaces") {
        let exe = env::current_exe().expect("this test has a path");
        let status = unshare().arg(exe).args(["--exact", test, "--nocapture"]).env(INSIDE, "1").status();
        assert!(status.expect("unshare can be run").success(), "{test} failed inside the namespace");
    }
    false
}
