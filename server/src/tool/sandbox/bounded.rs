//! Small programs that are run to their end within a time limit: `git config`, `ip`, a trial.

use super::programs::pidfd_of;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The most that is kept of what such a program says.
const MAX_OUTPUT: u64 = 64 * 1024;

/// Runs a program with this on its standard input; gives its status and what it printed, errors after the rest. What
/// it prints must fit into a pipe. One that takes longer than `limit` is killed, and an error.
pub fn run(mut command: Command, input: &[u8], limit: Duration) -> io::Result<(ExitStatus, String)> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it says why.
        let _ = stdin.write_all(input);
    }
    let status = wait(&mut child, limit)?;
    let mut text = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_OUTPUT).read_to_end(&mut text)?;
    }
    if let Some(stderr) = child.stderr.take() {
        stderr.take(MAX_OUTPUT).read_to_end(&mut text)?;
    }
    Ok((status, String::from_utf8_lossy(&text).trim().to_owned()))
}

/// Waits for a child at most this long; then kills and collects it, and that is an error.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<ExitStatus> {
    let pidfd = pidfd_of(child)?;
    if !ends_within(&pidfd, limit) {
        child.kill()?;
        child.wait()?;
        return Err(io::Error::new(io::ErrorKind::TimedOut, format!("not done within {limit:?}")));
    }
    child.wait()
}

/// Whether the process behind a pidfd ends within this time.
pub fn ends_within(pidfd: &impl AsFd, limit: Duration) -> bool {
    readable_within(pidfd, limit)
}

/// Whether something can be read, or is at its end, within this time.
pub fn readable_within(fd: &impl AsFd, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return false,
            Err(rustix::io::Errno::INTR) => {}
            // An error is for who reads to see.
            _ => return true,
        }
    }
}
