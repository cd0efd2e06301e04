//! `halo-acp`: an ACP agent on stdin and stdout whose mind is a halo server. It translates and no more: it runs
//! no agent, keeps nothing on disk, adds no permission model of its own. One process is one token, one
//! workspace, one server.

mod agent;
mod args;
mod media;
mod outlet;
mod prompt;
mod replay;
mod settle;
mod stdio;
mod translate;
mod turn;
mod upstream;

use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use agent_client_protocol::Lines;
use futures_util::{SinkExt as _, StreamExt as _, stream};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use args::{Args, LogLevel};
use outlet::Gauge;
use upstream::Server;

/// How long the server may take to say what it is. Nothing waits for it.
const PROBE: Duration = Duration::from_millis(300);
/// How long after the end of stdin the process may live: an editor that does not read holds nobody up.
const AFTER_EOF: Duration = Duration::from_millis(800);

fn main() -> ExitCode {
    let args = match args::from_env() {
        Ok(args) => args,
        Err(code) => return code,
    };
    log_to_stderr(args.log_level);
    // One thread does it all: it waits most of the time, and memory counts.
    let runtime =
        match tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(8).build() {
            Ok(runtime) => runtime,
            Err(error) => {
                error!("no runtime: {error}");
                return ExitCode::FAILURE;
            }
        };
    let code = runtime.block_on(run(&args));
    // A read of stdin may still be blocked in its thread; the process ends without it.
    runtime.shutdown_background();
    code
}

async fn run(args: &Args) -> ExitCode {
    for name in &args.ignored_headers {
        warn!("--header {name} is ignored: the adapter sets it itself");
    }
    let server = match Server::new(args) {
        Ok(server) => server,
        Err(error) => {
            error!("no HTTP client: {error}");
            return ExitCode::FAILURE;
        }
    };
    tokio::spawn(probe(server.clone()));

    let ended = CancellationToken::new();
    let broken = CancellationToken::new();
    let gauge = Arc::new(Gauge::default());
    let incoming = stdio::lines(tokio::io::stdin(), stdio::MAX_LINE).chain({
        let ended = ended.clone();
        stream::poll_fn(move |_| {
            ended.cancel();
            Poll::Ready(None)
        })
    });
    let outgoing = stdio::line_sink(tokio::io::stdout(), {
        let gauge = gauge.clone();
        move || gauge.written()
    })
    .sink_map_err({
        let broken = broken.clone();
        move |error| {
            if stdio::is_closed(&error) {
                broken.cancel();
            }
            error
        }
    });

    tokio::select! {
        served = agent::serve(server, gauge, Lines::new(outgoing, incoming)) => match served {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) if broken.is_cancelled() => ExitCode::SUCCESS,
            Err(error) => {
                error!("the connection to the editor failed: {error}");
                ExitCode::FAILURE
            }
        },
        () = async {
            ended.cancelled().await;
            tokio::time::sleep(AFTER_EOF).await;
        } => ExitCode::SUCCESS,
    }
}

/// Asks once what the server is, for the log: a wrong address is seen before the first prompt.
async fn probe(server: Server) {
    match tokio::time::timeout(PROBE, server.health()).await {
        Ok(Ok(health)) => {
            let version = health.get("version").and_then(|version| version.as_str()).unwrap_or("unknown");
            info!("{} is halo {version}", server.at());
        }
        Ok(Err(error)) => warn!("{error}"),
        Err(_) => info!("{} has not said what it is within {} ms", server.at(), PROBE.as_millis()),
    }
}

fn log_to_stderr(level: LogLevel) {
    let (own, protocol) = match level {
        LogLevel::Error => (LevelFilter::ERROR, LevelFilter::OFF),
        LogLevel::Warn => (LevelFilter::WARN, LevelFilter::OFF),
        LogLevel::Info => (LevelFilter::INFO, LevelFilter::OFF),
        LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::WARN),
        LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::TRACE),
    };
    // HTTP crates stay silent at every level: they would log headers.
    let targets = Targets::new().with_target("halo_acp", own).with_target("agent_client_protocol", protocol);
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .without_time()
        // Else a closed stderr would end the process.
        .log_internal_errors(false);
    tracing_subscriber::registry().with(targets).with(lines).init();
}
