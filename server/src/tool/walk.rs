//! One way to walk a tree for `file_list`, `grep` and `glob`: in the order of names, without following links to
//! folders (so that no circle is entered), past the folders that nobody searches, and without hidden paths.

use crate::workspace::paths::{Guard, Kind};
use ignore::{DirEntry, WalkBuilder};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Folders that a listing does not enter or show.
const LIST_SKIP: [&str; 2] = ["node_modules", ".git"];
/// Folders that a search does not enter.
const SEARCH_SKIP: [&str; 4] = ["node_modules", ".git", ".next", "dist"];
/// Folders directly below `.halo` that a search does not enter.
const HALO_SKIP: [&str; 6] = ["sessions", "logs", "evo", "tmp", "assets", "canvas"];
/// How long a search may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);

/// What is left out of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A listing of one folder.
    List,
    /// A listing of a folder and all below it.
    ListTree,
    /// A search.
    Search,
}

/// Something found on a walk.
#[derive(Debug)]
pub struct Found {
    /// Below the real path of the root.
    pub path: PathBuf,
    /// Where links lead; `None` for a link that leads nowhere.
    pub kind: Option<Kind>,
}

/// Why a walk ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The session was stopped.
    Stopped,
    /// The time limit.
    Time,
}

/// Walks below the real path `root`, which is itself left out, until `visit` says false. Gives the number of
/// places that could not be read.
pub fn walk(
    root: &Path,
    purpose: Purpose,
    guard: &Arc<Guard>,
    cancel: &CancellationToken,
    mut visit: impl FnMut(Found) -> bool,
) -> Result<usize, Halt> {
    let filter_guard = Arc::clone(guard);
    let walk = WalkBuilder::new(root)
        .standard_filters(false)
        .follow_links(false)
        .max_depth((purpose == Purpose::List).then_some(1))
        .sort_by_file_name(OsStr::cmp)
        .filter_entry(move |entry| {
            entry.depth() == 0 || !is_skipped(entry, purpose) && !filter_guard.hides(entry.path())
        })
        .build();
    let start = Instant::now();
    let mut unreadable = 0;
    for entry in walk {
        if cancel.is_cancelled() {
            return Err(Halt::Stopped);
        }
        if start.elapsed() > TIME_LIMIT {
            return Err(Halt::Time);
        }
        let Ok(entry) = entry else {
            unreadable += 1;
            continue;
        };
        if entry.depth() == 0 {
            continue;
        }
        let kind = match entry.file_type() {
            Some(kind) if kind.is_dir() => Some(Kind::Folder),
            Some(kind) if kind.is_file() => Some(Kind::File),
            Some(kind) if kind.is_symlink() => match guard.look(entry.path()) {
                Ok((kind, _)) => Some(kind),
                Err(crate::workspace::paths::PathError::Hidden(_)) => continue,
                Err(_) => None,
            },
            _ => Some(Kind::Other("device")),
        };
        if !visit(Found { path: entry.into_path(), kind }) {
            break;
        }
    }
    Ok(unreadable)
}

fn is_skipped(entry: &DirEntry, purpose: Purpose) -> bool {
    if !entry.file_type().is_some_and(|kind| kind.is_dir()) {
        return false;
    }
    let name = entry.file_name();
    let among = |list: &[&str]| list.iter().any(|skip| name == *skip);
    match purpose {
        Purpose::List | Purpose::ListTree => among(&LIST_SKIP),
        Purpose::Search => {
            let below_halo =
                entry.path().parent().and_then(Path::file_name).is_some_and(|dir| dir == ".halo");
            among(&SEARCH_SKIP) || below_halo && among(&HALO_SKIP)
        }
    }
}

impl Halt {
    /// A line for the model.
    pub fn note(self) -> String {
        match self {
            Self::Stopped => "stopped".into(),
            Self::Time => {
                format!("[Ended after {} s: the folder is large; search a smaller one]", TIME_LIMIT.as_secs())
            }
        }
    }
}
