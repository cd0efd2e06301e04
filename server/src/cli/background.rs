//! `halo server start`, `stop`, `status`: the server in the background, found through its lock.

use super::server::{self, Prepared, READY, RunArgs};
use super::{Place, terminal};
use crate::config::Home;
use crate::config::lock::{self, Holder};
use crate::config::problem::os_reason;
use anyhow::Context;
use clap::{Args, Subcommand};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a server may take to listen, and to stop.
const START_PATIENCE: Duration = Duration::from_secs(15);
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// How much a server may print until it is ready.
const MAX_GREETING_BYTES: u64 = 64 * 1024;

/// What to do with a server in the background.
#[derive(Debug, Subcommand)]
pub enum ServerAction {
    /// Start the server, in the foreground or with -d in the background
    Start(StartArgs),
    /// Stop the server of this home
    Stop(StopArgs),
    /// Tell whether a server runs on this home; exit 1 when none does
    Status,
}

#[derive(Debug, Args)]
pub struct StartArgs {
    /// Run in the background
    #[arg(short = 'd', long = "detach")]
    detach: bool,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Args)]
pub struct StopArgs {
    /// Kill it when it does not end by itself
    #[arg(long)]
    force: bool,
}

/// Runs one of them.
pub fn run(place: &Place, action: &ServerAction) -> anyhow::Result<ExitCode> {
    match action {
        ServerAction::Start(args) if args.detach => start(place, &args.run),
        ServerAction::Start(args) => server::run(place, &args.run),
        ServerAction::Stop(args) => stop(&place.home()?, args.force),
        ServerAction::Status => status(&place.home()?),
    }
}

fn holder(home: &Home) -> anyhow::Result<Option<Holder>> {
    lock::holder(home)
        .map_err(|error| anyhow::anyhow!("{}: {}", home.server_lock().display(), os_reason(&error)))
}

fn status(home: &Home) -> anyhow::Result<ExitCode> {
    let Some(Holder { pid, url }) = holder(home)? else {
        terminal::say(&format!("not running ({})", home.path().display()))?;
        return Ok(ExitCode::FAILURE);
    };
    let pid = pid.map_or_else(String::new, |pid| format!(" as process {pid}"));
    let url = url.map_or_else(String::new, |url| format!(", {url}"));
    terminal::say(&format!("running{pid}{url}"))?;
    Ok(ExitCode::SUCCESS)
}

fn stop(home: &Home, force: bool) -> anyhow::Result<ExitCode> {
    let Some(Holder { pid, .. }) = holder(home)? else {
        terminal::tell(&format!("no server runs on {}", home.path().display()));
        return Ok(ExitCode::SUCCESS);
    };
    let pid =
        pid.and_then(Pid::from_raw).context("the lock does not say which process runs; end it by hand")?;
    let number = pid.as_raw_nonzero();
    for signal in [Signal::TERM, Signal::KILL] {
        kill_process(pid, signal)
            .map_err(|error| anyhow::anyhow!("cannot stop process {number}: {}", os_reason(&error.into())))?;
        let until = Instant::now() + STOP_PATIENCE;
        while Instant::now() < until {
            if holder(home)?.is_none() {
                terminal::tell(&format!("stopped process {number}"));
                return Ok(ExitCode::SUCCESS);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        if !force {
            break;
        }
    }
    anyhow::bail!(
        "process {number} has not ended within {STOP_PATIENCE:?}; `halo server stop --force` kills it"
    )
}

/// Starts the server as a process of its own, and waits until it is ready. What a first start has to show comes
/// through its stdout and is shown here, since that process has no terminal; so a server that cannot listen makes
/// nothing and shows nothing.
fn start(place: &Place, args: &RunArgs) -> anyhow::Result<ExitCode> {
    let home = place.prepared_home()?;
    if let Some(Holder { pid, .. }) = holder(&home)? {
        let pid = pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        anyhow::bail!(
            "a server already runs on {}{pid}; stop it with `halo server stop`",
            home.path().display()
        );
    }
    let Prepared { workspace, .. } = args.prepare()?;
    std::fs::create_dir_all(home.logs_dir()).context("cannot make the folder of logs")?;
    let path = home.logs_dir().join("server.out");
    let log = OpenOptions::new().create(true).append(true).read(true).mode(0o600).open(&path);
    let log = log.map_err(|error| anyhow::anyhow!("{}: {}", path.display(), os_reason(&error)))?;
    let begin = log.metadata().map_or(0, |metadata| metadata.len());

    let program = std::env::current_exe().context("cannot find this program")?;
    let mut command = Command::new(program);
    command.arg("server").arg("--detached").arg("--home").arg(home.path()).arg("--workspace").arg(workspace);
    let port = args.port.map(|port| port.to_string());
    for (flag, value) in [("--host", &args.host), ("--port", &port), ("--log-level", &args.log_level)] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    let stderr = log.try_clone().context("cannot share the log")?;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr);
    let mut child = command.spawn().context("cannot start the server")?;
    let Some((line, made)) = greeting(&mut child) else {
        // It has failed, or hangs; either way it must not stay.
        let _ = child.kill();
        let _ = child.wait();
        anyhow::bail!(
            "{}",
            last_line(log, begin)
                .unwrap_or_else(|| format!("the server did not start; see {}", path.display()))
        );
    };
    terminal::say(&line)?;
    if !made.is_empty() {
        terminal::tell(&made);
    }
    terminal::tell(&format!(
        "running in the background as process {}; stop it with `halo server stop`",
        child.id()
    ));
    Ok(ExitCode::SUCCESS)
}

/// What the server prints until it is ready: the line with its address, and what a first start has to show. None
/// when it ends before, or takes too long.
fn greeting(child: &mut Child) -> Option<(String, String)> {
    let stdout = child.stdout.take()?;
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = Vec::new();
        for line in BufReader::new(stdout.take(MAX_GREETING_BYTES)).lines().map_while(Result::ok) {
            if line == READY {
                let address = if lines.is_empty() { line } else { lines.remove(0) };
                // The receiver may have given up.
                let _ = send.send((address, lines.join("\n")));
                return;
            }
            lines.push(line);
        }
    });
    receive.recv_timeout(START_PATIENCE).ok()
}

/// The last line that the server has written to its log since `begin`, without the word in front.
fn last_line(mut log: File, begin: u64) -> Option<String> {
    log.seek(SeekFrom::Start(begin)).ok()?;
    let mut text = Vec::new();
    log.take(64 * 1024).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.strip_prefix("error: ").unwrap_or(line).to_owned())
}
