//! Starts a command in the sandbox that this machine has, or says why it does not run.

use super::bwrap::{Inside, arguments};
use super::environment::{self, Variable};
use super::inherited;
use super::landlock::{self, Allowed};
use super::namespace::{self, Control, Ended, Failure, Launch, Life};
use super::network::{Tools, resolv_conf};
use super::view::{Around, View, listening_sockets};
use super::{Backend, NetworkUse, Sandbox, Verdict};
use crate::access::AccessLevel;
use crate::store::runs;
use crate::tool::Context;
use crate::tool::shell_process::Plain;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::net::unix::pipe::Receiver;
use tokio::sync::oneshot;

/// How often a sandbox is built when a place that it covers goes away meanwhile.
const ATTEMPTS: usize = 3;

/// A command that was started, and where its output comes from.
pub struct Begun {
    /// Ends when nothing that holds it is left.
    pub pipe: Receiver,
    /// The command.
    pub started: Started,
}

/// What runs it.
pub enum Started {
    /// A thread with a process namespace.
    Namespaces {
        /// How it ended, once nothing of it is left.
        end: oneshot::Receiver<Result<ExitStatus, Failure>>,
        /// For who wants to end it.
        life: Life,
    },
    /// A child like those of full sessions, held by Landlock; its folder goes with it.
    Landlock(Plain, TempDir),
}

/// Why a command does not run.
#[derive(Debug)]
pub enum Refusal {
    /// There is no sandbox for it; why, and how to mend that.
    None(String),
    /// It could not be started.
    Start(io::Error),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::None(why)
    }
}

/// The network that a command gets.
#[derive(Clone, Debug)]
pub enum CommandNetwork {
    /// The machine's.
    Machine,
    /// Its own: connected by these programs, else nothing but loopback.
    Own(Option<Tools>),
}

/// All that a launch of `bwrap` is made from.
#[derive(Debug)]
pub struct Plan<'a> {
    /// `bwrap`.
    pub program: &'a Path,
    /// The shell of commands.
    pub shell: &'a Path,
    /// The session's.
    pub context: &'a Context,
    /// Every workspace ever used.
    pub workspaces: &'a [PathBuf],
    /// Who commits.
    pub identity: &'a [Variable],
    /// The network.
    pub network: CommandNetwork,
}

impl Plan<'_> {
    /// Looks at the disk as it is now.
    pub fn launch(&self, command: &[&OsStr]) -> Result<Launch, String> {
        let home = &self.context.halo_home;
        let empty = empty_file(home).map_err(|error| format!("{}: {error}", home.display()))?;
        let (own, tools) = match &self.network {
            CommandNetwork::Machine => (false, None),
            CommandNetwork::Own(tools) => (true, tools.clone()),
        };
        let resolv = tools.as_ref().map(|_| resolv_conf(home)).transpose();
        let resolv = resolv.map_err(|error| format!("{}: {error}", home.display()))?;
        let around = Around {
            workspaces: self.workspaces,
            sockets: &listening_sockets(),
            empty: &empty,
            resolv_conf: resolv.as_deref(),
        };
        let view = View::new(self.context, &around)?;
        let variables = environment::variables(self.context, self.identity);
        let (code, shell) = inherited::closing(self.shell)?;
        let as_root = tools.is_some() && !rustix::process::geteuid().is_root();
        let inside =
            Inside { as_root, variables: &variables, own_network: own, closing: (&code, shell), command };
        Ok(Launch {
            program: self.program.to_owned(),
            arguments: arguments(&view, &inside),
            network: tools,
            scoped: !own,
        })
    }
}

/// Starts `shell -c command`. An error means that nothing of it ran.
pub async fn start(shell: &Path, command: &str, context: &Context) -> Result<Begun, Refusal> {
    let sandbox = context.sandbox.settled().await;
    let workspaces = known_workspaces(&sandbox).await?;
    let words: Vec<OsString> = vec![shell.into(), "-c".into(), command.into()];
    let backend = sandbox.verdict().backend.clone();
    match backend {
        Some(Backend::Bwrap(program)) => {
            in_namespaces((program, shell.to_owned()), sandbox, workspaces, words, context.clone())
        }
        Some(Backend::Landlock) if context.access == AccessLevel::ReadOnly => {
            if context.sandbox_network == NetworkUse::Off {
                return Err(Refusal::None(format!(
                    "general.sandbox.network is off, and only bwrap can keep that: {}",
                    sandbox.verdict().without_bwrap.as_deref().unwrap_or_default()
                )));
            }
            under_landlock(workspaces, shell, command, context).await
        }
        _ => Err(Refusal::None(format!(
            "this server has no sandbox for it: {}",
            sandbox.verdict().without_bwrap.as_deref().unwrap_or_default()
        ))),
    }
}

async fn known_workspaces(sandbox: &Sandbox) -> Result<Vec<PathBuf>, String> {
    let Some(db) = &sandbox.runs else { return Ok(Vec::new()) };
    runs::all(db).await.map_err(|error| {
        tracing::error!(%error, "runs.db");
        "what has to be hidden from it is not known: runs.db cannot be read".into()
    })
}

fn network_for(verdict: &Verdict, wanted: NetworkUse) -> CommandNetwork {
    match (wanted, &verdict.network) {
        (NetworkUse::Off, _) => CommandNetwork::Own(None),
        (NetworkUse::On, Ok(tools)) => CommandNetwork::Own(Some(tools.clone())),
        (NetworkUse::On, Err(_)) | (NetworkUse::Host, _) => CommandNetwork::Machine,
    }
}

fn in_namespaces(
    (program, shell): (PathBuf, PathBuf),
    sandbox: Arc<Sandbox>,
    workspaces: Vec<PathBuf>,
    words: Vec<OsString>,
    context: Context,
) -> Result<Begun, Refusal> {
    let (reader, writer) = io::pipe().map_err(Refusal::Start)?;
    let pipe = Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(Refusal::Start)?;
    let (done, end) = oneshot::channel();
    let control = Arc::new(Control::default());
    let own = Arc::clone(&control);
    // A thread for as long as the command lives: when it ends, the kernel ends the command.
    let spawned = std::thread::Builder::new().name("halo-command".into()).spawn(move || {
        let verdict = sandbox.verdict();
        let plan = Plan {
            program: &program,
            shell: &shell,
            context: &context,
            workspaces: &workspaces,
            identity: &verdict.identity,
            network: network_for(verdict, context.sandbox_network),
        };
        let words: Vec<&OsStr> = words.iter().map(OsString::as_os_str).collect();
        let outcome = attempts(&plan, &words, &OwnedFd::from(writer), &own);
        let (outcome, network) = match outcome {
            Ok((status, network)) => (Ok(status), network),
            Err(failure) => (Err(failure), None),
        };
        // Nobody is there any more when the call was given up.
        let _ = done.send(outcome);
        // After the answer, which it would hold up.
        drop(network);
    });
    spawned.map_err(Refusal::Start)?;
    Ok(Begun { pipe, started: Started::Namespaces { end, life: Life::new(control) } })
}

fn attempts(
    plan: &Plan<'_>,
    words: &[&OsStr],
    output: &OwnedFd,
    control: &Control,
) -> Result<Ended, Failure> {
    let mut attempt = 1;
    loop {
        let launch = plan.launch(words).map_err(Failure::Plan)?;
        match namespace::run(&launch, output.try_clone()?, control) {
            Err(Failure::Setup(said)) if attempt < ATTEMPTS => {
                tracing::warn!(attempt, "a sandbox could not be built: {said}");
                attempt += 1;
            }
            other => return other,
        }
    }
}

async fn under_landlock(
    workspaces: Vec<PathBuf>,
    shell: &Path,
    command: &str,
    context: &Context,
) -> Result<Begun, Refusal> {
    let runtime = tokio::runtime::Handle::current();
    let (shell, command, context) = (shell.to_owned(), command.to_owned(), context.clone());
    let (done, begun) = oneshot::channel();
    let work = move || -> Result<Begun, Refusal> {
        let scratch = tempfile::Builder::new().prefix("halo-command-").tempdir().map_err(Refusal::Start)?;
        let allowed = Allowed::list(&context, &workspaces, scratch.path())?;
        let (closing, first) = inherited::closing(&shell)?;
        let first = first.to_owned();
        let code = format!("{closing}exec \"$@\"");
        let words: [&OsStr; 6] =
            ["-c".as_ref(), code.as_ref(), "sh".as_ref(), shell.as_ref(), "-c".as_ref(), command.as_ref()];
        landlock::restrict(&allowed)?;
        let mut variables = environment::variables(&context, &context.sandbox.verdict().identity);
        variables.push(("TMPDIR".into(), scratch.path().into()));
        let _inside = runtime.enter();
        let (plain, pipe) =
            Plain::start(&first, &words, &context.workspace, Some(&variables)).map_err(Refusal::Start)?;
        Ok(Begun { pipe, started: Started::Landlock(plain, scratch) })
    };
    // The thread is held for good, so it starts this one command and ends.
    let spawned = std::thread::Builder::new().name("halo-landlock".into()).spawn(move || {
        let _ = done.send(work());
    });
    spawned.map_err(Refusal::Start)?;
    begun.await.unwrap_or_else(|_| Err(Refusal::None("it failed inside; the server's log says more".into())))
}

/// The empty file that stands in for hidden ones, made on demand. Not `/dev/null`, which cannot be opened there.
fn empty_file(halo_home: &Path) -> io::Result<PathBuf> {
    let path = halo_home.join(".sandbox-empty");
    match path.symlink_metadata() {
        Ok(meta) if meta.is_file() && meta.len() == 0 => return Ok(path),
        Ok(_) => fs::remove_file(&path)?,
        Err(_) => {}
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o444).open(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(path),
        other => other.map(|_| path),
    }
}
