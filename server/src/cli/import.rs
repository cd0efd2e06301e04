//! `halo import`: takes over accounts and sessions of the Node program. Says on stderr how it goes and what is left
//! out, and at the end on stdout what it did. What is left out is no failure: the exit code is 0, and the last line
//! counts it.

use super::{Place, block_on, existing_folder, terminal};
use crate::config::Home;
use crate::import::{self, Options, Report, Watch};
use crate::text::head_chars;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The home of the Node program [default: halo's home]
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// A workspace besides those that its accounts name; may be repeated
    #[arg(long, value_name = "DIR")]
    workspace: Vec<PathBuf>,
    /// Say what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,
}

/// Imports.
pub fn run(place: &Place, args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let from = match &args.from {
        Some(from) => {
            anyhow::ensure!(from.is_dir(), "--from {}: no such folder", from.display());
            Home::locate(Some(from), &place.environment)?
        }
        None => place.home()?,
    };
    let workspaces = args.workspace.iter().map(|path| existing_folder(path)).collect::<Result<_, _>>()?;
    anyhow::ensure!(
        from.path().is_dir(),
        "{}: there is no home to import; name one with --from",
        from.path().display()
    );
    let home = if args.dry_run { place.home()? } else { place.prepared_home()? };
    // Two names of one folder are one home.
    let same = std::fs::canonicalize(home.path()).ok() == std::fs::canonicalize(from.path()).ok();
    let from = if same { home.clone() } else { from };
    let options = Options { home, from, workspaces, dry_run: args.dry_run };
    let report = block_on(async { import::run(&options, &mut Terminal).await })?;
    tell(&report, args.dry_run)?;
    Ok(ExitCode::SUCCESS)
}

/// Says how it goes.
struct Terminal;

impl Watch for Terminal {
    fn skipped(&mut self, what: &str, why: &str) {
        terminal::end_progress();
        terminal::warn(&format!("left out: {what}: {why}"));
    }

    fn progress(&mut self, workspace: &Path, done: usize, of: usize) {
        if done == of {
            terminal::end_progress();
        } else if done.is_multiple_of(20) {
            let name = workspace.file_name().unwrap_or_default().to_string_lossy();
            terminal::progress(&format!("{}: {done} of {of} sessions", head_chars(&name, 40)));
        }
    }
}

fn tell(report: &Report, dry_run: bool) -> anyhow::Result<()> {
    let done = if dry_run { "would be taken over" } else { "taken over" };
    terminal::say(&format!(
        "accounts: {} {done}, {} were here already",
        report.accounts, report.known_accounts
    ))?;
    terminal::say(&format!(
        "sessions: {} {done} from {} workspaces, {} were here already",
        report.sessions, report.workspaces, report.known_sessions
    ))?;
    terminal::say(&format!(
        "rows: {} ({} of them archived); messages for the model: {}",
        report.rows, report.archived_rows, report.messages
    ))?;
    if report.dropped_rows + report.dropped_blocks > 0 {
        terminal::say(&format!(
            "dropped: {} entries of logs that are no rows, {} pieces of model histories that are unknown here",
            report.dropped_rows, report.dropped_blocks
        ))?;
    }
    for path in &report.set_aside {
        let kept = if dry_run { "would be kept as" } else { "is kept as" };
        terminal::say(&format!("the old database {kept} {}", path.display()))?;
    }
    if report.skipped > 0 {
        terminal::say(&format!("left out: {}, each named above", report.skipped))?;
    }
    Ok(())
}
