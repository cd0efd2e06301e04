//! The command line: parsing, one file a command, one clear line for every failure. Exit codes: 0 done,
//! 1 failed, 2 bad usage.

mod acp;
mod background;
mod config;
mod doctor;
mod first_run;
mod import;
mod model;
mod password;
mod port_holder;
mod providers;
mod retired;
mod server;
mod setup;
mod terminal;
mod token;

use crate::config::{Environment, Home};
use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// A self-hosted agent server.
#[derive(Debug, Parser)]
#[command(name = "halo", version, max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    /// halo's home folder [default: HALO_HOME, else ~/.halo]
    #[arg(long, global = true, value_name = "DIR")]
    home: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server
    Server(ServerArgs),
    /// Make and manage tokens
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Set the admin password
    Password(password::PasswordArgs),
    /// Check the configuration, or show what is in force
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// List the model providers, or try one
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Connect an editor: runs halo-acp with the same arguments
    #[command(disable_help_flag = true)]
    Acp(acp::AcpArgs),
    /// Prepare the home without starting the server
    Setup(setup::SetupArgs),
    /// Take over accounts and sessions of the Node program
    Import(import::ImportArgs),
    /// Tell what works here, and how to mend what does not
    Doctor,
    #[command(hide = true, disable_help_flag = true)]
    Agentcore(retired::RetiredArgs),
    #[command(hide = true, disable_help_flag = true)]
    Tui(retired::RetiredArgs),
    #[command(hide = true, disable_help_flag = true)]
    Cli(retired::RetiredArgs),
    #[command(hide = true, disable_help_flag = true)]
    Agents(retired::RetiredArgs),
    #[command(hide = true, disable_help_flag = true)]
    Sessions(retired::RetiredArgs),
    #[command(hide = true, disable_help_flag = true)]
    Upgrade(retired::RetiredArgs),
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
struct ServerArgs {
    #[command(flatten)]
    run: server::RunArgs,
    #[command(subcommand)]
    action: Option<background::ServerAction>,
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            terminal::complain(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    let environment = Environment::of_process();
    let place = Place { flag: cli.home, environment };
    match cli.command {
        Command::Server(ServerArgs { run, action: None }) => server::run(&place, &run),
        Command::Server(ServerArgs { action: Some(action), .. }) => background::run(&place, &action),
        Command::Token(command) => token::run(&place, command),
        Command::Password(args) => password::run(&place, &args),
        Command::Config(command) => config::run(&place, &command),
        Command::Model(command) => model::run(&place, command),
        Command::Acp(args) => acp::run(&args),
        Command::Setup(args) => setup::run(&place, &args),
        Command::Doctor => doctor::run(&place),
        Command::Agentcore(_) => retired::later("agentcore"),
        Command::Import(args) => import::run(&place, &args),
        Command::Tui(_) => retired::gone("tui"),
        Command::Cli(_) => retired::gone("cli"),
        Command::Agents(_) => retired::gone("agents"),
        Command::Sessions(_) => retired::gone("sessions"),
        Command::Upgrade(_) => retired::gone("upgrade"),
    }
}

/// Where a command works.
struct Place {
    flag: Option<PathBuf>,
    environment: Environment,
}

impl Place {
    /// The home, which need not exist.
    fn home(&self) -> anyhow::Result<Home> {
        Ok(Home::locate(self.flag.as_deref(), &self.environment)?)
    }

    /// The home, made and tightened; says what it had to tighten.
    fn prepared_home(&self) -> anyhow::Result<Home> {
        let home = self.home()?;
        for warning in home.prepare()? {
            terminal::warn(&warning);
        }
        Ok(home)
    }
}

/// A folder that a person named: it must exist; the answer is its real path.
fn existing_folder(path: &std::path::Path) -> anyhow::Result<PathBuf> {
    let reason = |error: &std::io::Error| crate::config::problem::os_reason(error);
    let real = std::fs::canonicalize(path)
        .map_err(|error| anyhow::anyhow!("workspace {}: {}", path.display(), reason(&error)))?;
    anyhow::ensure!(real.is_dir(), "workspace {}: not a folder", path.display());
    anyhow::ensure!(real.to_str().is_some(), "workspace {}: its path is not UTF-8", path.display());
    Ok(real)
}

/// Runs a future to its end on a small runtime.
fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start the runtime")?.block_on(future)
}
