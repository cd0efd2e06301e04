//! Taking over accounts and sessions of the Node program. Its files are read, never changed; its databases that
//! stand where ours belong are renamed to `*.node`, and ours are built beside them and moved into place when they
//! are complete. So an import that was cut off leaves a database of either program, and can be repeated: what was
//! taken over once is not taken over again. What cannot be read is named and left out; the rest goes on.

mod accounts;
mod archive;
mod builder;
mod history;
mod locks;
mod place;
mod plan;
mod rows;
mod session;
mod session_file;
mod workspace;

use crate::config::Home;
use std::path::{Path, PathBuf};

/// What to import, and to where.
#[derive(Clone, Debug)]
pub struct Options {
    /// The home of this program.
    pub home: Home,
    /// The home of the Node program; as a rule the same folder.
    pub from: Home,
    /// Workspaces besides those that the accounts name.
    pub workspaces: Vec<PathBuf>,
    /// Only count and check; write nothing.
    pub dry_run: bool,
}

/// Hears how the import goes.
pub trait Watch {
    /// Something is left out; `what` names it.
    fn skipped(&mut self, what: &str, why: &str);
    /// So many sessions of a workspace are done.
    fn progress(&mut self, workspace: &Path, done: usize, of: usize);
}

/// What an import did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Accounts taken over.
    pub accounts: usize,
    /// Accounts that were taken over before.
    pub known_accounts: usize,
    /// Workspaces with something to take over.
    pub workspaces: usize,
    /// Sessions taken over.
    pub sessions: usize,
    /// Sessions that were taken over before.
    pub known_sessions: usize,
    /// Rows of their logs.
    pub rows: usize,
    /// Those of them that are archived.
    pub archived_rows: usize,
    /// Messages of their model histories.
    pub messages: usize,
    /// Entries of logs that were no rows.
    pub dropped_rows: usize,
    /// Pieces of model histories that this program has no word for.
    pub dropped_blocks: usize,
    /// What was named and left out.
    pub skipped: usize,
    /// Old databases that were renamed.
    pub set_aside: Vec<PathBuf>,
}

/// One import under way.
struct Run<'a> {
    options: &'a Options,
    report: Report,
    watch: &'a mut dyn Watch,
}

impl Run<'_> {
    fn skip(&mut self, what: impl AsRef<str>, why: impl AsRef<str>) {
        self.report.skipped += 1;
        self.watch.skipped(what.as_ref(), why.as_ref());
    }

    fn skip_file(&mut self, path: &Path, why: impl AsRef<str>) {
        self.skip(path.display().to_string(), why);
    }
}

/// Imports. Fails before it changes anything while a server runs on one of the homes or another process has one of
/// the workspaces; later only when something cannot be written. Needs a tokio runtime; reads files on its thread.
pub async fn run(options: &Options, watch: &mut dyn Watch) -> anyhow::Result<Report> {
    let mut run = Run { options, report: Report::default(), watch };
    let homes = locks::homes(options)?;
    let accounts = accounts::read(&mut run)?;
    let workspaces = plan::workspaces(&mut run, &accounts)?;
    let workspaces = locks::workspaces(&mut run, workspaces)?;
    for (workspace, _lock) in &workspaces {
        workspace::import(&mut run, workspace).await?;
    }
    plan::set_aside_global(&mut run).await?;
    // The accounts last: until they are here a server does not start on a home that is half taken over.
    accounts::import(&mut run, accounts).await?;
    drop((workspaces, homes));
    Ok(run.report)
}
