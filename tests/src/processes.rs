//! Looks at processes through `/proc`: what works below a folder, how much memory one holds.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;

/// The ids of the processes whose current folder is `folder` or below it.
pub fn working_in(folder: &Path) -> Vec<i32> {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    all()
        .filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&folder)))
        .collect()
}

/// The ids of those of them whose command line contains `part`.
pub fn running_in(folder: &Path, part: &str) -> Vec<i32> {
    let runs = |pid: &i32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(part)
    };
    working_in(folder).into_iter().filter(runs).collect()
}

/// Kills every process that works below `folder`; only what a test started does.
pub fn kill_all_in(folder: &Path) {
    for pid in working_in(folder) {
        if let Some(pid) = Pid::from_raw(pid) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The memory of a process that is in RAM, in KiB.
pub fn resident_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmRSS:")
}

/// The most memory that a process has ever had in RAM, in KiB.
pub fn peak_kib(pid: u32) -> u64 {
    memory_kib(pid, "VmHWM:")
}

fn memory_kib(pid: u32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect(what);
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn all() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}
