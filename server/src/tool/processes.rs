//! The processes that a shell command has started, found in `/proc`: its session and group, their descendants,
//! and those that have left both but still carry the mark in their environment. Starting and reading is
//! [`super::shell_exec`]'s.

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The environment variable that holds the mark.
pub const MARK: &str = "HALO_SHELL_CALL";
/// How long processes may take to end after SIGTERM, and how long SIGKILL is repeated.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often it is looked whether they have ended.
const LOOK: Duration = Duration::from_millis(20);

/// A mark that no other command of this machine has.
pub fn new_mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{}-{next}-{:016x}", getpid().as_raw_nonzero(), rand::random::<u64>())
}

/// A command and all it has started. Killed when dropped, unless released.
#[derive(Debug)]
pub struct Family {
    leader: Pid,
    mark: String,
    released: bool,
}

impl Family {
    /// The family of the session leader `leader`, started with `mark` in its environment.
    pub fn new(leader: Pid, mark: String) -> Self {
        Self { leader, mark, released: false }
    }

    /// The command has ended by itself: what it left in the background stays.
    pub fn release(mut self) {
        self.released = true;
    }

    /// Ends all of it: SIGTERM, and SIGKILL for what is still there after half a second. Blocks for about a
    /// second at most, and is not cut short when the one who waits for it goes away.
    pub fn stop(mut self) {
        self.signal(Signal::TERM);
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !self.alive().is_empty() {
            sleep(LOOK);
        }
        let end = Instant::now() + PATIENCE;
        // More than once: what is being killed may be starting more.
        while self.signal(Signal::KILL) && Instant::now() < end {
            sleep(LOOK);
        }
        self.released = true;
    }

    /// Signals all of it; whether there was anything.
    fn signal(&self, signal: Signal) -> bool {
        let alive = self.alive();
        if alive.is_empty() {
            return false;
        }
        // The group at once, so that no member sees another die and starts it anew. All may be gone already.
        let _ = kill_process_group(self.leader, signal);
        for process in alive.iter().filter(|process| process.group != self.leader) {
            let _ = kill_process(process.pid, signal);
        }
        true
    }

    /// All that runs. A dead process that nobody has collected does not.
    fn alive(&self) -> Vec<Process> {
        let (mut found, mut others): (Vec<Process>, Vec<Process>) = processes().partition(|process| {
            process.pid == self.leader
                || process.group == self.leader
                || process.session == Some(self.leader)
                || has_mark(process.pid, &self.mark)
        });
        // Descendants, generation by generation.
        loop {
            let pids: HashSet<Pid> = found.iter().map(|process| process.pid).collect();
            let (children, rest): (Vec<_>, Vec<_>) = others
                .into_iter()
                .partition(|process| process.parent.is_some_and(|parent| pids.contains(&parent)));
            if children.is_empty() {
                break;
            }
            found.extend(children);
            others = rest;
        }
        found.retain(|process| !process.dead);
        found
    }
}

impl Drop for Family {
    fn drop(&mut self) {
        // Dropped while running: the call was given up. No time for SIGTERM.
        if !self.released {
            self.signal(Signal::KILL);
        }
    }
}

/// One process as `/proc/<pid>/stat` shows it.
#[derive(Debug)]
struct Process {
    pid: Pid,
    parent: Option<Pid>,
    group: Pid,
    session: Option<Pid>,
    dead: bool,
}

fn processes() -> impl Iterator<Item = Process> {
    let own = getpid();
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
        .filter(move |pid| *pid != own)
        .filter_map(read_process)
}

fn read_process(pid: Pid) -> Option<Process> {
    let stat = std::fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // The name in parentheses may hold anything, parentheses too: the fields begin after the last one.
    let fields = &stat[memchr::memrchr(b')', &stat)? + 1..];
    let mut fields = std::str::from_utf8(fields).ok()?.split_ascii_whitespace();
    let state = fields.next()?;
    let mut pid_field = || fields.next().and_then(|field| field.parse().ok()).map(Pid::from_raw);
    Some(Process {
        pid,
        parent: pid_field()?,
        group: pid_field()??,
        session: pid_field()?,
        dead: matches!(state, "Z" | "X"),
    })
}

fn has_mark(pid: Pid, mark: &str) -> bool {
    // Other people's processes cannot be read, and are not ours to stop.
    let Ok(environment) = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())) else {
        return false;
    };
    environment.split(|byte| *byte == 0).any(|entry| {
        entry
            .strip_prefix(MARK.as_bytes())
            .is_some_and(|rest| rest.strip_prefix(b"=") == Some(mark.as_bytes()))
    })
}
