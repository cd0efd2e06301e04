//! One command in namespaces of its own, from its start to the end of all that it started. A thread belongs to it for
//! that long: the kernel ends `bwrap`, and with it the whole process namespace, when the thread that started it ends,
//! so nothing survives the server either.

use super::bounded::{ends_within, readable_within};
use super::bwrap::FILTER_FD;
use super::network::{Network, Tools};
use super::programs::{pid_of, pidfd_of};
use super::syscalls;
use crate::tool::processes::{Family, new_mark};
use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long `bwrap` may take to build the sandbox.
const SETUP: Duration = Duration::from_secs(10);
/// How long the kernel may take to clear a process namespace whose first process has ended.
const CLEARED: Duration = Duration::from_secs(1);
/// The most that is kept of what `bwrap` says.
const MAX_SAID: usize = 4096;
/// Said by the sandbox when it stands.
const READY: &[u8] = b"ready\n";

/// What to start.
#[derive(Debug)]
pub struct Launch {
    /// `bwrap`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Set when the arguments ask for a network namespace that is to be connected.
    pub network: Option<Tools>,
    /// Keep abstract sockets of the machine out of reach; for commands on the machine's own network.
    pub scoped: bool,
}

/// Why a command did not run, or is lost.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// `bwrap` could not be started.
    #[error("{0}")]
    Start(#[from] io::Error),
    /// The sandbox did not come up. What `bwrap` says is not for the model.
    #[error("the sandbox could not be built")]
    Setup(String),
    /// What the command is to see could not be settled.
    #[error("{0}")]
    Plan(String),
    /// The network did not come up.
    #[error("{0}")]
    Network(String),
    /// Stopped before it began.
    #[error("stopped before it began")]
    Stopped,
}

/// The processes of a running command, for who wants to end it.
#[derive(Debug, Default)]
pub struct Control(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// No start any more.
    ended: bool,
    /// `bwrap` outside.
    outer: Option<OwnedFd>,
    /// The first process inside, by its id outside.
    inner: Option<(Pid, OwnedFd)>,
}

impl Control {
    /// Ends all of it at once.
    pub fn kill(&self) {
        let mut held = self.lock();
        held.ended = true;
        if let Some(outer) = &held.outer {
            // It may have ended by itself.
            let _ = pidfd_send_signal(outer, Signal::KILL);
        }
    }

    /// Ends all of it: SIGTERM, and SIGKILL for what is still there after half a second. Blocks for that long.
    pub fn stop(&self) {
        let family = {
            let held = self.lock();
            let inner = held.inner.as_ref().filter(|(_, handle)| !ends_within(handle, Duration::ZERO));
            inner.map(|(pid, _)| Family::new(*pid, new_mark()))
        };
        if let Some(family) = family {
            family.stop();
        }
        self.kill();
    }

    /// The attempt is over; what of it is left is ended.
    fn let_go(&self) {
        let mut held = self.lock();
        if let Some(outer) = held.outer.take() {
            let _ = pidfd_send_signal(outer, Signal::KILL);
        }
        held.inner = None;
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the processes, or ends them when that was asked for meanwhile.
    fn hold(&self, outer: OwnedFd) -> Result<(), Failure> {
        let mut held = self.lock();
        if held.ended {
            let _ = pidfd_send_signal(&outer, Signal::KILL);
            return Err(Failure::Stopped);
        }
        held.outer = Some(outer);
        Ok(())
    }
}

/// A command that has ended, and the network that it had.
pub type Ended = (ExitStatus, Option<Network>);

/// Runs it to its end, with its output into `output`. Blocks. When it returns nothing of it is left but the network.
pub fn run(launch: &Launch, output: OwnedFd, control: &Control) -> Result<Ended, Failure> {
    if launch.scoped {
        super::landlock::scope_abstract_sockets();
    }
    let mut started = Started::new(launch, output)?;
    let outcome = control.hold(pidfd_of(&started.child)?).and_then(|()| started.supervise(launch, control));
    if outcome.is_err() {
        control.let_go();
    }
    let status = started.child.wait()?;
    let inner = control.lock().inner.take();
    if let Some((_, inner)) = inner {
        ends_within(&inner, CLEARED);
    }
    outcome.map(|network| (status, network))
}

/// Ends the command when it is dropped.
#[derive(Debug)]
pub struct Life(Arc<Control>);

impl Life {
    /// Of the command that this controls.
    pub fn new(control: Arc<Control>) -> Self {
        Self(control)
    }

    /// See [`Control::stop`].
    pub fn stop(self) {
        self.0.stop();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.0.kill();
    }
}

struct Started {
    child: Child,
    /// The command begins when `go` is written here.
    go: io::PipeWriter,
    /// `bwrap` and the prologue; never the command.
    said: PipeReader,
}

impl Started {
    fn new(launch: &Launch, output: OwnedFd) -> io::Result<Self> {
        let (go_reader, go) = io::pipe()?;
        let (said, said_writer) = io::pipe()?;
        let filter = syscalls::filter(syscalls::Beside::Namespaces).map_err(io::Error::other)?;
        let (filter_reader, mut filter_writer) = io::pipe()?;
        // Smaller than what a pipe holds.
        filter_writer.write_all(&syscalls::bytes(&filter))?;
        drop(filter_writer);
        let mut command = Command::new(&launch.program);
        command
            .args(&launch.arguments)
            .env_clear()
            .process_group(0)
            .stdin(Stdio::from(go_reader))
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(said_writer))
            .fd_mappings(vec![FdMapping { parent_fd: filter_reader.into(), child_fd: FILTER_FD }])
            .map_err(io::Error::other)?;
        let child = command.spawn()?;
        Ok(Self { child, go, said })
    }

    /// From the start to the end of the command; gives the network, which must outlive it.
    fn supervise(&mut self, launch: &Launch, control: &Control) -> Result<Option<Network>, Failure> {
        self.await_ready(control)?;
        let inside = inner_process(pid_of(&self.child)?)
            .ok_or_else(|| Failure::Setup("the process inside was not found".into()))?;
        let handle = pidfd_open(inside, PidfdFlags::empty()).map_err(io::Error::from)?;
        control.lock().inner = Some((inside, handle));
        let network = match &launch.network {
            Some(tools) => Some(Network::open(tools, inside).map_err(Failure::Network)?),
            None => None,
        };
        self.go.write_all(b"go\n").map_err(|_| Failure::Stopped)?;
        let pidfd = pidfd_of(&self.child)?;
        while !ends_within(&pidfd, Duration::from_secs(3600)) {}
        Ok(network)
    }

    fn await_ready(&mut self, control: &Control) -> Result<(), Failure> {
        let mut said = Vec::new();
        let mut buffer = [0; 512];
        while !said.ends_with(READY) {
            let size = if readable_within(&self.said, SETUP) { self.said.read(&mut buffer)? } else { 0 };
            said.extend_from_slice(&buffer[..size]);
            if size == 0 || said.len() > MAX_SAID {
                if control.lock().ended {
                    return Err(Failure::Stopped);
                }
                return Err(Failure::Setup(String::from_utf8_lossy(&said).trim().to_owned()));
            }
        }
        Ok(())
    }
}

/// The one child of `bwrap`: the first process of the namespace.
fn inner_process(outer: Pid) -> Option<Pid> {
    let outer = outer.as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{outer}/task/{outer}/children")).ok()?;
    children.split_ascii_whitespace().next()?.parse().ok().and_then(Pid::from_raw)
}

/// Somewhere for the output of a trial.
pub fn nowhere() -> io::Result<OwnedFd> {
    Ok(File::options().write(true).open("/dev/null")?.into())
}
