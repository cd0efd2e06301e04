//! `halo doctor`: what works here, one line each, and how to mend what does not.

mod sandbox;

use super::providers::{self, Answering};
use super::{Place, port_holder, terminal};
use crate::clock::{Clock, SystemClock, iso};
use crate::config::problem::os_reason;
use crate::config::{Effective, Environment, Home, Live, Overrides, Severity, lock};
use crate::store::Database;
use crate::store::schema::Schema;
use std::net::TcpListener;
use std::path::Path;
use std::process::ExitCode;

const MIB: u64 = 1024 * 1024;
const DAY_MS: i64 = 24 * 60 * 60 * 1000;

enum State {
    Good,
    Note,
    Broken,
}

struct Finding(State, &'static str, String);

fn good(name: &'static str, text: impl Into<String>) -> Finding {
    Finding(State::Good, name, text.into())
}

fn note(name: &'static str, text: impl Into<String>) -> Finding {
    Finding(State::Note, name, text.into())
}

fn broken(name: &'static str, text: impl Into<String>) -> Finding {
    Finding(State::Broken, name, text.into())
}

/// Looks at everything; exit 1 when something is broken.
pub fn run(place: &Place) -> anyhow::Result<ExitCode> {
    let home = place.home()?;
    let mut findings = vec![home_folder(&home)];
    let usable = matches!(findings[0].0, State::Good | State::Note);
    findings.extend(configuration(&home, &place.environment));
    if usable {
        findings.push(database("accounts", &home.channels_db(), Schema::Channels));
        findings.push(database("runs", &home.runs_db(), Schema::Runs));
        findings.push(disk(&home));
    }
    findings.push(clock());
    findings.extend(sandbox::findings(&home, &place.environment));
    let mut failed = false;
    for Finding(state, name, text) in findings {
        let word = match state {
            State::Good => "ok    ",
            State::Note => "note  ",
            State::Broken => "BROKEN",
        };
        failed |= matches!(state, State::Broken);
        terminal::say(&format!("{word}  {name:9}  {}", text.replace('\n', " ")))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn home_folder(home: &Home) -> Finding {
    match home.prepare() {
        Ok(warnings) if warnings.is_empty() => good("home", home.path().display().to_string()),
        Ok(warnings) => note("home", warnings.join("; ")),
        Err(error) => broken("home", error.to_string()),
    }
}

fn configuration(home: &Home, environment: &Environment) -> Vec<Finding> {
    let (live, problems) = match Live::load(home, environment.clone(), Overrides::default(), Vec::new()) {
        Ok(loaded) => loaded,
        Err(unusable) => return vec![broken("config", unusable.to_string())],
    };
    let mut findings: Vec<Finding> = problems
        .iter()
        .filter(|problem| problem.severity == Severity::Warning)
        .map(|problem| note("config", problem.to_string()))
        .collect();
    if findings.is_empty() {
        findings.push(good("config", "no problems; `halo config show` lists what is in force"));
    }
    let config = live.current();
    findings.push(if config.password.is_set() {
        good("password", "an admin password is set")
    } else if home.config_yaml().exists() {
        note("password", "none, so nobody can log in as admin; set one with `halo password`")
    } else {
        good("password", "made at the first start")
    });
    findings.push(port(home, &config.host, config.port));
    findings.extend(models(home, &config, environment));
    findings
}

fn port(home: &Home, host: &str, port: u16) -> Finding {
    if let Ok(Some(holder)) = lock::holder(home) {
        return good(
            "port",
            holder.url.map_or("a server runs".into(), |url| format!("a server runs: {url}")),
        );
    }
    match TcpListener::bind((host, port)) {
        Ok(_) => good("port", format!("{port} on {host} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let address =
                std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).ok().and_then(|mut a| a.next());
            let by = address.and_then(port_holder::find).map_or_else(String::new, |by| format!(" by {by}"));
            broken("port", format!("{port} on {host} is taken{by}; end that, or set server.port or --port"))
        }
        Err(error) => broken(
            "port",
            format!(
                "cannot listen on {host} port {port}: {}; set server.host and server.port",
                os_reason(&error)
            ),
        ),
    }
}

fn models(home: &Home, config: &Effective, environment: &Environment) -> Vec<Finding> {
    let faults = providers::broken_files(home);
    let mut findings: Vec<Finding> = faults.iter().map(|fault| broken("models", fault.to_string())).collect();
    let unknown = providers::unknown_secrets(home, config.sections());
    findings.extend(unknown.iter().map(|problem| note("models", problem.to_string())));
    let mut answering = None;
    match providers::answering(home, config, environment) {
        Answering::Model(choice) => {
            findings.push(good(
                "models",
                format!("{} ({}) answers agents without a `model:` of their own", choice.provider, choice.id),
            ));
            answering = Some(choice);
        }
        Answering::Demo => findings.push(note(
            "models",
            format!(
                "no provider has a key, so the demo model answers; put a key into {}, such as \
                 `anthropic.secrets.api_key`",
                home.settings_yaml().display()
            ),
        )),
        Answering::Broken(why) => findings.push(broken("models", why)),
        Answering::BrokenFile => {}
    }
    let looked =
        super::block_on(async { Ok(providers::aws_credentials(home, config, answering.as_ref()).await) });
    findings.extend(looked.unwrap_or_default().into_iter().map(|(provider, found)| match found {
        Ok(text) => good("aws", format!("{provider}: {text}")),
        Err(why) => broken("aws", format!("{provider}: {why}")),
    }));
    findings
}

/// Opens the database if it exists; makes none.
fn database(name: &'static str, path: &Path, schema: Schema) -> Finding {
    if !path.exists() {
        return good(name, format!("{} is made at the first start", path.display()));
    }
    let opened = super::block_on(async {
        let db = Database::open(path, schema)?;
        db.close().await;
        Ok(())
    });
    match opened {
        Ok(()) => good(name, path.display().to_string()),
        Err(error) => broken(name, format!("{error:#}")),
    }
}

fn disk(home: &Home) -> Finding {
    let free = match rustix::fs::statvfs(home.path()) {
        Ok(stat) => stat.f_bavail.saturating_mul(stat.f_frsize) / MIB,
        Err(error) => {
            return broken("disk", format!("{}: {}", home.path().display(), os_reason(&error.into())));
        }
    };
    match free {
        0..100 => broken("disk", format!("{free} MiB free; make room, or choose another home with --home")),
        100..1024 => note("disk", format!("{free} MiB free; make room soon")),
        _ => good("disk", format!("{free} MiB free")),
    }
}

/// A clock that is before this very program was built is wrong.
fn clock() -> Finding {
    let now = SystemClock.now_ms();
    let built = std::env::current_exe().and_then(std::fs::metadata).and_then(|metadata| metadata.modified());
    let built = built.ok().and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    let built = built.map_or(0, |age| age.as_millis() as i64);
    if now + DAY_MS < built {
        return broken("clock", format!("{} is before this program was made; set the clock", iso(now)));
    }
    good("clock", iso(now))
}
