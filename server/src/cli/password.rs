//! `halo password`: sets the admin password. A running server takes the new one up at once.

use super::{Place, terminal};
use crate::config::home::Home;
use crate::config::{edit, password};
use anyhow::Context;
use clap::Args;
use secrecy::{ExposeSecret, SecretString};
use std::io::Read;
use std::process::ExitCode;

/// The longest password that is read, in bytes.
const MAX_BYTES: u64 = 1024;

#[derive(Debug, Args)]
pub struct PasswordArgs {
    /// Read the password from stdin: one line
    #[arg(long)]
    stdin: bool,
}

/// Asks (or reads), checks the rules, stores the hash.
pub fn run(place: &Place, args: &PasswordArgs) -> anyhow::Result<ExitCode> {
    let home = place.prepared_home()?;
    let new = if args.stdin {
        from_stdin()?
    } else {
        anyhow::ensure!(
            terminal::can_ask(),
            "stdin is no terminal, so nothing can be asked; pass the password with `halo password --stdin`"
        );
        ask_twice()?
    };
    store(&home, &new)?;
    terminal::tell("the admin password is set");
    if place.environment.get("HALO_PASSWORD").is_some() {
        terminal::warn("HALO_PASSWORD is set here, and where the server sees it, it counts before this one");
    }
    Ok(ExitCode::SUCCESS)
}

/// Stores the hash of a password that keeps the rules.
pub fn store(home: &Home, new: &SecretString) -> anyhow::Result<()> {
    if let Some(rule) = password::broken_rule(new.expose_secret()) {
        anyhow::bail!(rule);
    }
    let hash = password::hash(new.expose_secret())?;
    edit::set(&home.config_yaml(), "server", "password", &hash)?;
    Ok(())
}

/// Asks for a new password twice, unseen.
fn ask_twice() -> anyhow::Result<SecretString> {
    let ask = |prompt: &str| -> anyhow::Result<SecretString> {
        Ok(rpassword::prompt_password(prompt).context("cannot read from the terminal")?.into())
    };
    let first = ask("New admin password: ")?;
    if let Some(rule) = password::broken_rule(first.expose_secret()) {
        anyhow::bail!(rule);
    }
    let second = ask("Once more: ")?;
    anyhow::ensure!(
        first.expose_secret() == second.expose_secret(),
        "the two passwords differ; nothing is changed"
    );
    Ok(first)
}

fn from_stdin() -> anyhow::Result<SecretString> {
    let mut text = String::new();
    std::io::stdin()
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .context("cannot read the password from stdin")?;
    anyhow::ensure!(text.len() as u64 <= MAX_BYTES, "the password is longer than {MAX_BYTES} bytes");
    let line = text.strip_suffix('\n').map_or(text.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    anyhow::ensure!(!line.contains('\n'), "stdin holds more than one line; the password is one line");
    Ok(line.into())
}
