//! One way to walk a tree for `file_list`, `grep` and `glob`: without following links to folders (so that no circle
//! is entered), past the folders that nobody searches, and without hidden paths. In the order of names, or, where the
//! work on each file is what takes the time, on several threads in no order.

use crate::workspace::paths::{Guard, Kind, PathError};
use ignore::{DirEntry, WalkBuilder, WalkState};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;
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
/// Threads of one search at most.
const MAX_THREADS: usize = 8;

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
    /// Whether a link leads there.
    pub is_link: bool,
}

/// Why a walk ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// The session was stopped.
    Stopped,
    /// The time limit.
    Time,
}

/// Tells when a search must end.
#[derive(Clone, Debug)]
pub struct Watch {
    cancel: CancellationToken,
    deadline: Instant,
}

impl Watch {
    /// From now on.
    pub fn new(cancel: &CancellationToken) -> Self {
        Self { cancel: cancel.clone(), deadline: Instant::now() + TIME_LIMIT }
    }

    /// Fails when it is time to end.
    pub fn check(&self) -> Result<(), Halt> {
        if self.cancel.is_cancelled() {
            Err(Halt::Stopped)
        } else if Instant::now() > self.deadline {
            Err(Halt::Time)
        } else {
            Ok(())
        }
    }
}

/// What follows a look at something found by [`walk_on_threads`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// On, and into it where it is a folder.
    On,
    /// On, but not into this folder.
    Past,
}

/// Walks below the real path `root`, which is itself left out, until `visit` says false. Gives the number of
/// places that could not be read.
pub fn walk(
    root: &Path,
    purpose: Purpose,
    guard: &Arc<Guard>,
    watch: &Watch,
    mut visit: impl FnMut(Found) -> bool,
) -> Result<usize, Halt> {
    let walk = builder(root, purpose, guard).sort_by_file_name(OsStr::cmp).build();
    let mut unreadable = 0;
    for entry in walk {
        watch.check()?;
        let Ok(entry) = entry else {
            unreadable += 1;
            continue;
        };
        if let Some(found) = look(entry, guard)
            && !visit(found)
        {
            break;
        }
    }
    Ok(unreadable)
}

/// The same walk for a search, on several threads at once and so in no order. Each thread calls a visitor of its
/// own, which `visitor` makes.
pub fn walk_on_threads<V: FnMut(Found) -> Next + Send>(
    root: &Path,
    guard: &Arc<Guard>,
    watch: &Watch,
    visitor: impl Fn() -> V,
) -> Result<(), Halt> {
    let threads = available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let halt = OnceLock::new();
    builder(root, Purpose::Search, guard).threads(threads).build_parallel().run(|| {
        let mut visit = visitor();
        let halt = &halt;
        Box::new(move |entry| {
            if let Err(reason) = watch.check() {
                // The first reason stands.
                let _ = halt.set(reason);
                return WalkState::Quit;
            }
            let found = entry.ok().and_then(|entry| look(entry, guard));
            match found.map_or(Next::On, &mut visit) {
                Next::On => WalkState::Continue,
                Next::Past => WalkState::Skip,
            }
        })
    });
    halt.into_inner().map_or(Ok(()), Err)
}

fn builder(root: &Path, purpose: Purpose, guard: &Arc<Guard>) -> WalkBuilder {
    let guard = Arc::clone(guard);
    let mut builder = WalkBuilder::new(root);
    builder
        .standard_filters(false)
        .follow_links(false)
        .max_depth((purpose == Purpose::List).then_some(1))
        .filter_entry(move |entry| {
            entry.depth() == 0 || !is_skipped(entry, purpose) && !guard.hides(entry.path())
        });
    builder
}

/// What an entry is; `None` for the root and for what is hidden.
fn look(entry: DirEntry, guard: &Guard) -> Option<Found> {
    if entry.depth() == 0 {
        return None;
    }
    let file_type = entry.file_type();
    let is_link = file_type.is_some_and(|kind| kind.is_symlink());
    let kind = match file_type {
        Some(kind) if kind.is_dir() => Some(Kind::Folder),
        Some(kind) if kind.is_file() => Some(Kind::File),
        Some(_) if is_link => match guard.look(entry.path()) {
            Ok((kind, _)) => Some(kind),
            Err(PathError::Hidden(_)) => return None,
            Err(_) => None,
        },
        _ => Some(Kind::Other("device")),
    };
    Some(Found { path: entry.into_path(), kind, is_link })
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
