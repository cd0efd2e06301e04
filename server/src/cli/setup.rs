//! `halo setup`: what the first start does, without starting.

use super::server::Prepared;
use super::{Place, existing_folder, first_run, terminal};
use crate::config::Overrides;
use anyhow::Context;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct SetupArgs {
    /// Ask nothing (nothing is asked anyway; for old scripts)
    #[arg(short = 'y', long = "non-interactive", visible_alias = "yes")]
    _yes: bool,
    /// The folder that the first token works in [default: the current folder]
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// Makes the home, the secrets and one token, and shows them; done again, it changes nothing.
pub fn run(place: &Place, args: &SetupArgs) -> anyhow::Result<ExitCode> {
    let workspace = match &args.workspace {
        Some(path) => existing_folder(path)?,
        None => existing_folder(&std::env::current_dir().context("the current folder is gone")?)?,
    };
    let home = place.prepared_home()?;
    let made = first_run::prepare_now(place, &home, Prepared { overrides: Overrides::default(), workspace })?;
    if made {
        terminal::tell("The home is ready; start the server with `halo server`.");
    } else {
        terminal::tell(&format!("{} is set up already; nothing is changed", home.path().display()));
    }
    Ok(ExitCode::SUCCESS)
}
