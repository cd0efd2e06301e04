//! `halo server`: prepares home, lock, configuration, logs and listener, and hands them to [`crate::app`].
//! It listens first; what a first start has to make is made after that.

use super::first_run::{FirstRun, reachable};
use super::{Place, existing_folder, port_holder, providers, terminal, token};
use crate::app::{self, Startup};
use crate::config::lock::ServerLock;
use crate::config::logging::{self, RotatingFile};
use crate::config::problem::os_reason;
use crate::config::{Effective, Home, Live, Overrides, Severity, aliases};
use crate::store::Database;
use crate::store::schema::Schema;
use anyhow::Context;
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// How long the end waits for threads that are in the middle of something.
const LEAVE_BEHIND_AFTER: Duration = Duration::from_secs(2);

/// How the server runs.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The address to listen on [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// The port to listen on; 0 picks a free one [default: 9527]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16))]
    pub port: Option<u16>,
    /// The folder that the first token works in [default: the current folder]
    #[arg(long, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
    /// How much is logged [default: warn]
    #[arg(long, value_name = "LEVEL", value_parser = crate::config::value::LEVELS)]
    pub log_level: Option<String>,
    /// Leave the terminal; set by `halo server start -d`
    #[arg(long, hide = true)]
    pub detached: bool,
}

/// The last line that a detached server prints, once it is up and a first start is done.
pub const READY: &str = "ready";

/// What the arguments say.
pub struct Prepared {
    /// The values of flags.
    pub overrides: Overrides,
    /// The folder of the first token.
    pub workspace: PathBuf,
}

impl RunArgs {
    /// Reads the arguments; the workspace must exist.
    pub fn prepare(&self) -> anyhow::Result<Prepared> {
        let workspace = match &self.workspace {
            Some(path) => existing_folder(path)?,
            None => existing_folder(&std::env::current_dir().context("the current folder is gone")?)?,
        };
        let overrides = Overrides::default()
            .with("server.host", self.host.clone())
            .with("server.port", self.port.map(|port| port.to_string()))
            .with("general.logging.level", self.log_level.clone());
        Ok(Prepared { overrides, workspace })
    }
}

/// Runs the server until a signal ends it.
pub fn run(place: &Place, args: &RunArgs) -> anyhow::Result<ExitCode> {
    if args.detached {
        // Fails only for a process that leads a session already, which is what is wanted.
        let _ = rustix::process::setsid();
    }
    let Prepared { overrides, workspace } = args.prepare()?;
    let home = place.home()?;
    let tightened = home.prepare()?;
    let lock = ServerLock::take(&home)?;
    let seeded = aliases::seed(&home);
    let first = FirstRun::plan(&home);
    let (live, problems) = Live::load(&home, place.environment.clone(), overrides, first.made())?;
    start_logging(&home, &live.current());
    for warning in tightened {
        tracing::warn!("{warning}");
    }
    for problem in problems.iter().filter(|problem| problem.severity == Severity::Warning) {
        tracing::warn!("{problem}");
    }
    if let Err(error) = seeded {
        tracing::warn!("there are no aliases for commands: {error}");
    }
    raise_file_limit();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let serving = serve(home, lock, live, first, workspace, args.detached);
    to_the_end(runtime.context("cannot start the runtime")?, serving)?;
    terminal::tell("stopped");
    Ok(ExitCode::SUCCESS)
}

/// Runs the future. Then all that must be kept is on disk, so a thread that waits for a disk that never answers is
/// left behind: dropping the runtime would wait with it, and the server could not be ended.
fn to_the_end<T>(runtime: Runtime, future: impl Future<Output = T>) -> T {
    let ended = runtime.block_on(future);
    runtime.shutdown_timeout(LEAVE_BEHIND_AFTER);
    ended
}

/// Shows what the first start has made: to the person, or to the `halo server start -d` that waits for it.
fn show(made: Option<&str>, detached: bool) -> anyhow::Result<()> {
    match made {
        Some(text) if detached => terminal::say(text)?,
        Some(text) => terminal::tell(text),
        None => {}
    }
    if detached { terminal::say(READY) } else { Ok(()) }
}

async fn serve(
    home: Home,
    mut lock: ServerLock,
    live: Live,
    first: FirstRun,
    workspace: PathBuf,
    detached: bool,
) -> anyhow::Result<()> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let listener = bind(&live.current()).await?;
    let address = listener.local_addr().context("the listener has no address")?;
    let url = format!("http://{address}");
    if let Err(error) = lock.announce(&url) {
        tracing::warn!("{}: {}", home.server_lock().display(), os_reason(&error));
    }
    // What is wrong with a database shows before anything is promised; making new ones takes longer than a first
    // start may take to listen.
    let existing = if home.channels_db().exists() || home.runs_db().exists() {
        Some(Databases::open(&home)?)
    } else {
        None
    };
    terminal::say(&format!("listening on {url}"))?;
    let Databases { channels, runs } = match existing {
        Some(databases) => databases,
        None => Databases::open(&home)?,
    };
    tracing::info!("listening on {url}");
    // A server without a model is a server still, so what is wrong with providers holds nothing up.
    let (looking, current) = (home.clone(), live.current());
    tokio::task::spawn_blocking(move || {
        let mut problems = providers::broken_files(&looking);
        problems.extend(providers::unknown_secrets(&looking, current.sections()));
        for problem in problems {
            tracing::warn!("{problem}");
        }
    });
    let shutdown = CancellationToken::new();
    tokio::spawn(signals.follow(live.clone(), shutdown.clone()));
    live.watch(shutdown.clone());
    let finishing = {
        let (home, live, channels) = (home.clone(), live.clone(), channels.clone());
        let (workspace, shutdown) = (workspace.clone(), shutdown.clone());
        tokio::spawn(async move {
            let made = first.finish(home, &live, &channels, workspace, reachable(address)).await;
            let result = made.and_then(|made| show(made.as_deref(), detached));
            if result.is_err() {
                shutdown.cancel();
            }
            result
        })
    };
    let startup = Startup { home, lock, live, listener, channels, runs };
    app::serve(startup, shutdown).await?;
    finishing.await.context("the first start was interrupted")?
}

/// The databases of the home.
struct Databases {
    channels: Database,
    runs: Database,
}

impl Databases {
    fn open(home: &Home) -> anyhow::Result<Self> {
        Ok(Self { channels: token::open(home)?, runs: Database::open(&home.runs_db(), Schema::Runs)? })
    }
}

/// Listens where the configuration says. An address that others can reach needs a password.
async fn bind(config: &Effective) -> anyhow::Result<TcpListener> {
    let (host, port) = (config.host.as_str(), config.port);
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|error| anyhow::anyhow!("host {host}: {}", os_reason(&error)))?
        .collect();
    let address = *addresses.first().with_context(|| format!("host {host}: no address"))?;
    if !config.password.is_set() {
        anyhow::ensure!(
            address.ip().is_loopback(),
            "refused to listen on {host}, which others can reach, without an admin password; set one with \
             `halo password` or HALO_PASSWORD, or listen on 127.0.0.1"
        );
        tracing::warn!(
            "there is no admin password, so nobody can log in as admin; set one with `halo password`"
        );
    }
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            let by = port_holder::find(address).map_or_else(String::new, |holder| format!(" by {holder}"));
            anyhow::anyhow!("port {port} on {} is taken{by}; choose another with --port", address.ip())
        }
        _ => anyhow::anyhow!(
            "cannot listen on {address}: {}; choose others with --host and --port",
            os_reason(&error)
        ),
    })
}

fn start_logging(home: &Home, config: &Effective) {
    let path = home.server_log();
    let file = RotatingFile::open(&path, config.log_max_bytes, config.log_max_files);
    let failure = file.as_ref().err().map(os_reason);
    logging::start(&config.log_level, file.ok());
    if let Some(reason) = failure {
        tracing::warn!("{}: {reason}; logs go to stderr alone", path.display());
    }
}

/// Many streams need many files: takes as many as the system allows.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!("the limit of open files stays as it is: {error}");
    }
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The first Ctrl-C or SIGTERM ends the server gracefully, the second at once; SIGHUP reads the
    /// configuration again.
    async fn follow(mut self, live: Live, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                _ = self.hangup.recv() => {
                    tracing::info!("SIGHUP: the configuration is read again");
                    let live = live.clone();
                    if tokio::task::spawn_blocking(move || live.reload()).await.is_err() {
                        tracing::error!("reading the configuration again has failed");
                    }
                    continue;
                }
            }
            if shutdown.is_cancelled() {
                terminal::tell("ended at once");
                std::process::exit(1);
            }
            tracing::info!("shutting down");
            shutdown.cancel();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_thread_that_waits_for_ever_does_not_hold_the_end_up() {
        let (ended, waiting) = mpsc::channel();
        let (_never, silent) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            let (entered, inside) = tokio::sync::oneshot::channel();
            let serving = async {
                tokio::task::spawn_blocking(move || {
                    entered.send(()).unwrap();
                    let _ = silent.recv();
                });
                inside.await.unwrap();
                "served"
            };
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            ended.send(to_the_end(runtime, serving)).unwrap();
        });
        assert_eq!(waiting.recv_timeout(Duration::from_secs(30)), Ok("served"));
    }
}
