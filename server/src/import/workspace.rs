//! One workspace: which sessions its old database and its session files tell of, and the database of ours that is
//! built from them.

use super::Run;
use super::builder::Builder;
use super::place::Place;
use super::session::{self, Job};
use crate::store::Database;
use crate::store::imported::Item;
use crate::store::node::{NodeDisabled, NodeSession, known_sessions};
use crate::store::schema::Schema;
use crate::workspace::scaffold;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders below `sessions/` that are looked into.
const MAX_DEPTH: usize = 4;
/// The agent of a file that is in no agent's folder.
const DEFAULT_AGENT: &str = "default";

/// Takes over the sessions of a workspace, where it has any of the Node program.
pub async fn import(run: &mut Run<'_>, workspace: &Path) -> anyhow::Result<()> {
    let halo = scaffold::folder(workspace);
    let place = match Place::of(halo.join("halo.db"), Schema::Workspace) {
        Ok(place) => place,
        Err(why) => {
            run.skip_file(workspace, format!("{why:#}"));
            return Ok(());
        }
    };
    let (rows, disabled) = old_rows(run, &place);
    let files = Files::of(&halo.join("sessions"));
    if !place.is_old() && rows.is_empty() && files.is_empty() {
        return Ok(());
    }
    run.report.workspaces += 1;
    let (mut known, mut taken) = (HashSet::new(), HashSet::new());
    if place.is_ours() {
        if !run.options.dry_run {
            // So that all of it is in the file.
            Database::open(place.path(), Schema::Workspace)?.close().await;
        }
        known = known_sessions(place.path())?;
    }
    let jobs = plan(run, rows, files, &known);
    let count = jobs.len();
    let before = run.report.sessions;
    if place.is_ours() && count == 0 {
        return Ok(());
    }
    if !place.is_old() && place.has_log() && !run.options.dry_run {
        run.skip_file(
            workspace,
            "there is a log beside its database that belongs to none, or to another program",
        );
        return Ok(());
    }
    let mut builder = Builder::begin(&place, run.options.dry_run)?;
    if !place.is_ours() {
        for (kind, id, scope, at) in disabled {
            builder.add(Item::Disabled(kind, id, scope, at)).await?;
        }
    }
    for (done, job) in jobs.into_iter().enumerate() {
        run.watch.progress(workspace, done, count);
        session::import(run, &mut builder, job, &known, &mut taken).await?;
    }
    run.watch.progress(workspace, count, count);
    if place.is_ours() && run.report.sessions == before {
        return builder.abandon(&place).await;
    }
    run.report.set_aside.extend(builder.finish(&place).await?);
    Ok(())
}

/// The rows of the old database. Where they cannot be read, that is named, and the files alone count.
fn old_rows(run: &mut Run<'_>, place: &Place) -> (Vec<NodeSession>, Vec<NodeDisabled>) {
    if let Some(why) = place.broken() {
        run.skip("sessions", why);
    }
    let Some(old) = place.old() else { return (Vec::new(), Vec::new()) };
    let read = old.map_err(|error| error.to_string()).and_then(|old| {
        let read = old.sessions().and_then(|rows| Ok((rows, old.disabled_items()?)));
        read.map_err(|error| error.to_string())
    });
    read.unwrap_or_else(|why| {
        run.skip_file(place.path(), format!("its sessions cannot be read: {why}"));
        (Vec::new(), Vec::new())
    })
}

/// What there is to do: a job for each row that is not here yet, and for each file that no row claims.
fn plan(run: &mut Run<'_>, rows: Vec<NodeSession>, mut files: Files, known: &HashSet<String>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for row in rows {
        let file = files.claim(&row);
        if known.contains(&row.id) {
            run.report.known_sessions += 1;
            continue;
        }
        if file.is_none() && row.exchange_count > 0 {
            run.skip(format!("the log of session {}", row.id.escape_debug()), "its file is missing");
        }
        let agent_id = row.agent_id.clone();
        jobs.push(Job { row: Some(row), file, agent_id });
    }
    jobs.extend(files.rest());
    jobs
}

/// The session files of a workspace, by folder and by name.
struct Files {
    root: PathBuf,
    unclaimed: HashSet<PathBuf>,
    by_name: HashMap<String, Vec<PathBuf>>,
}

impl Files {
    fn of(root: &Path) -> Self {
        let mut files = Self { root: root.to_owned(), unclaimed: HashSet::new(), by_name: HashMap::new() };
        files.look_into(root, 0);
        files
    }

    fn look_into(&mut self, folder: &Path, depth: usize) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if kind.as_ref().is_ok_and(fs::FileType::is_dir) && depth < MAX_DEPTH {
                self.look_into(&path, depth + 1);
            }
            let Some(name) =
                entry.file_name().to_str().and_then(|name| name.strip_suffix(".json")).map(str::to_owned)
            else {
                continue;
            };
            if kind.is_ok_and(|kind| kind.is_file()) {
                self.unclaimed.insert(path.clone());
                self.by_name.entry(name).or_default().push(path);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.unclaimed.is_empty()
    }

    /// The file of a session: in its agent's folder, else the only one of its name.
    fn claim(&mut self, row: &NodeSession) -> Option<PathBuf> {
        let leaf = row.id.rsplit('>').next().unwrap_or_default();
        let expected = self.root.join(&row.agent_id).join(format!("{leaf}.json"));
        let file = if self.unclaimed.contains(&expected) {
            expected
        } else {
            match self.by_name.get(leaf)?.as_slice() {
                [only] if self.unclaimed.contains(only) => only.clone(),
                _ => return None,
            }
        };
        self.unclaimed.remove(&file);
        Some(file)
    }

    /// A job for every file that is left, in the order of their paths.
    fn rest(self) -> Vec<Job> {
        let mut files: Vec<PathBuf> = self.unclaimed.into_iter().collect();
        files.sort();
        let agent_of = |file: &Path| {
            let inside = file.strip_prefix(&self.root).ok()?;
            let first = inside.components().next()?.as_os_str().to_str()?.to_owned();
            (inside.components().count() > 1).then_some(first)
        };
        let job = |file: PathBuf| {
            let agent_id = agent_of(&file).unwrap_or_else(|| DEFAULT_AGENT.to_owned());
            Job { row: None, file: Some(file), agent_id }
        };
        files.into_iter().map(job).collect()
    }
}
