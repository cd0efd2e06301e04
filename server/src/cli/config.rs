//! `halo config`: says what is wrong with the files, and which value of each setting counts.

use super::{Place, providers, terminal};
use crate::config::resolve::{Overrides, resolve};
use crate::config::settings::{FileKind, Files, read_file};
use crate::config::{Live, Problem, Severity, aliases};
use clap::{Args, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to do with the configuration.
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Say what is wrong, with line and column; exit 1 on errors
    Check(CheckArgs),
    /// Show the value of every setting and where it comes from
    Show,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// One file instead of the files of the home
    file: Option<PathBuf>,
}

/// Runs one of them.
pub fn run(place: &Place, command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Check(args) => check(place, args),
        ConfigCommand::Show => show(place),
    }
}

fn check(place: &Place, args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let mut problems: Vec<Problem> = Vec::new();
    let mut checked = Vec::new();
    if let Some(path) = &args.file {
        let content = read_file(path, FileKind::of(path), &place.environment);
        anyhow::ensure!(content.exists, "{}: no such file", path.display());
        problems.extend(content.problems);
        checked.push(path.display().to_string());
    } else {
        let home = place.home()?;
        let files = Files::read(&home, &place.environment);
        problems.extend(files.problems().cloned());
        if let Err(unusable) = resolve(&files, &place.environment, &Overrides::default()) {
            problems.extend(unusable.0);
        }
        problems.extend(aliases::check(&home));
        problems.extend(providers::broken_files(&home));
        problems.extend(providers::unknown_secrets(&home, &files.settings.sections));
        for content in [&files.config, &files.settings] {
            let path = content.path.display();
            checked.push(if content.exists {
                path.to_string()
            } else {
                format!("{path} (missing: defaults count)")
            });
        }
    }
    for problem in &problems {
        let name = match problem.severity {
            Severity::Note => terminal::coloured("36", "note:"),
            Severity::Warning => terminal::coloured("33", "warning:"),
            Severity::Error => terminal::coloured("31", "error:"),
        };
        terminal::tell(&format!("{name} {problem}"));
    }
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    if errors > 0 {
        return Ok(ExitCode::FAILURE);
    }
    for name in checked {
        terminal::say(&format!("ok: {name}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(place: &Place) -> anyhow::Result<ExitCode> {
    let home = place.home()?;
    let (live, problems) = Live::load(&home, place.environment.clone(), Overrides::default(), Vec::new())?;
    for problem in problems.iter().filter(|problem| problem.severity == Severity::Warning) {
        terminal::warn(&problem.to_string());
    }
    let effective = live.current();
    terminal::say(&format!("home = {}", home.path().display()))?;
    for (setting, resolved) in effective.rows() {
        terminal::say(&format!("{} = {}  ({})", setting.key, resolved.value, resolved.origin))?;
    }
    for (id, key, value) in effective.sections().param_values() {
        terminal::say(&format!("{id}.params.{key} = {value}  ({})", home.settings_yaml().display()))?;
    }
    for (id, key) in effective.sections().secret_names() {
        terminal::say(&format!("{id}.secrets.{key} = (set)  ({})", home.settings_yaml().display()))?;
    }

    Ok(ExitCode::SUCCESS)
}
