//! Which workspaces are looked at, and the databases of the home besides the accounts.

use super::Run;
use super::accounts::Accounts;
use super::place::Place;
use crate::store::Database;
use crate::store::node::{Whose, whose};
use crate::store::schema::Schema;
use crate::workspace::scaffold;
use std::path::{Path, PathBuf};

/// The real paths of the workspaces of the accounts, of the old `runs.db`, and those that were named; each once. A
/// folder that was never a workspace is left out; one that is gone is named.
pub fn workspaces(run: &mut Run<'_>, accounts: &Accounts) -> anyhow::Result<Vec<PathBuf>> {
    let mut named: Vec<PathBuf> =
        accounts.all.iter().map(|account| account.workspace_path.clone().into()).collect();
    let runs = Place::of(run.options.from.runs_db(), Schema::Runs)?;
    if let Some(old) = runs.old() {
        match old
            .map_err(|e| e.to_string())
            .and_then(|old| old.running_workspaces().map_err(|e| e.to_string()))
        {
            Ok(paths) => named.extend(paths.into_iter().map(PathBuf::from)),
            Err(why) => run.skip_file(runs.path(), format!("its workspaces cannot be read: {why}")),
        }
    }
    named.extend(run.options.workspaces.iter().cloned());
    let mut real: Vec<PathBuf> = Vec::new();
    let mut missing: Vec<PathBuf> = Vec::new();
    for path in named.into_iter().filter(|path| path.is_absolute()) {
        match std::fs::canonicalize(&path) {
            Ok(path) if scaffold::exists(&path) && !real.contains(&path) => real.push(path),
            Ok(_) => {}
            Err(_) if missing.contains(&path) => {}
            Err(error) => {
                run.skip_file(&path, format!("the workspace cannot be reached: {error}"));
                missing.push(path);
            }
        }
    }
    Ok(real)
}

/// Renames `runs.db` and `a2a.db` of the Node program, where they stand in the place of ours. A start of the server
/// makes new ones.
pub async fn set_aside_global(run: &mut Run<'_>) -> anyhow::Result<()> {
    let global = run.options.home.global();
    let runs = Place::of(run.options.home.runs_db(), Schema::Runs)?;
    if runs.is_old() {
        if !run.options.dry_run {
            runs.clear()?;
            Database::open(&runs.building(), Schema::Runs)?.close().await;
            runs.settle(true)?;
        }
        run.report.set_aside.push(runs.aside());
    }
    set_aside(run, &global.join("a2a.db"))
}

fn set_aside(run: &mut Run<'_>, path: &Path) -> anyhow::Result<()> {
    // What makes a database the Node program's is the same for every schema.
    if matches!(whose(path, Schema::Runs), Ok(Whose::Nodes)) {
        let place = Place::of(path.to_owned(), Schema::Runs)?;
        if !run.options.dry_run {
            place.settle(false)?;
        }
        run.report.set_aside.push(place.aside());
    }
    Ok(())
}
