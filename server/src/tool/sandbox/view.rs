//! What of the machine a sandboxed command sees, and where it may write: one answer for each path that differs from
//! "readable as it is". Plans only; [`super::bwrap`] turns the plan into mounts, parents before what is in them.
//!
//! Three rules keep a command from undoing it for the next one. A folder between a writable root and a protected
//! path is a mount of its own, so it can neither be renamed nor removed. A folder that databases are in is made anew,
//! closed, of what may be seen in it: names that appear there later are out of sight, and none can be added. What is
//! hidden in a writable root is covered even when it does not exist.

use crate::access::AccessLevel;
use crate::tool::Context;
use crate::workspace::hidden::{HiddenSet, decides_about_keys, names_a_database, names_runtime};
use crate::workspace::scaffold;
use std::collections::BTreeMap;
use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Folders that are empty and the command's own: scratch space, and where sockets of services are.
const PRIVATE: [&str; 4] = ["/tmp", "/var/tmp", "/run", "/var/run"];
/// Made new by the sandbox itself.
const SYSTEM: [&str; 2] = ["/dev", "/proc"];
/// Links below `/run` that programs are found through (NixOS).
const RUN_LINKS: [&str; 2] = ["/run/current-system", "/run/booted-system"];
/// The most places; a command line takes about three times as many arguments.
const MAX_PLACES: usize = 2_500;

/// How a path is shown. Of two for one path the greater counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shown {
    /// An empty folder that the command may write to; gone with it.
    Private,
    /// As it is, writable.
    Writable,
    /// As it is, not writable.
    ReadOnly,
    /// A link with this target.
    Link(PathBuf),
    /// A folder of just those places below it that are listed themselves.
    Selected,
    /// An empty folder.
    NoEntries,
    /// The content of this file instead.
    File(PathBuf),
}

impl Shown {
    fn hides(&self) -> bool {
        matches!(self, Self::NoEntries | Self::File(_))
    }
}

/// What is known beside the session's own context.
#[derive(Debug)]
pub struct Around<'a> {
    /// Every workspace ever used.
    pub workspaces: &'a [PathBuf],
    /// Sockets that something listens at.
    pub sockets: &'a [PathBuf],
    /// An empty file.
    pub empty: &'a Path,
    /// Instead of the machine's `resolv.conf`.
    pub resolv_conf: Option<&'a Path>,
}

/// The plan.
#[derive(Debug, Default)]
pub struct View {
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// Each parent before what is in it.
    pub places: BTreeMap<PathBuf, Shown>,
    writable: Vec<PathBuf>,
    /// Shown as they are although they lie in private folders.
    roots: Vec<PathBuf>,
    private: Vec<PathBuf>,
}

impl View {
    /// Plans for one session below full access. Looks at the disk. The error tells what to mend.
    pub fn new(context: &Context, around: &Around<'_>) -> Result<Self, String> {
        let workspace = context.workspace.canonicalize();
        let workspace = workspace.map_err(|error| format!("the workspace folder: {error}"))?;
        let Context { user_home, halo_home, hidden_dirs, hidden_files, .. } = context;
        let hidden = HiddenSet::of(&workspace, user_home, halo_home, hidden_dirs, hidden_files);
        if workspace == Path::new("/") || hidden.hides_path(&workspace) {
            return Err(
                "the workspace is the root folder, or itself a hidden place; use another folder".into()
            );
        }
        let mut view = Self { workspace: workspace.clone(), ..Self::default() };
        view.add_private();
        let extra = context.writable_dirs.iter().filter_map(|dir| dir.canonicalize().ok());
        let extra = extra.filter(|dir| {
            dir.is_dir() && dir != Path::new("/") && !hidden.hides_path(dir) && !decides_about_keys(dir)
        });
        view.roots = std::iter::once(workspace).chain(extra).collect();
        if context.access == AccessLevel::Workspace {
            view.writable.clone_from(&view.roots);
        }
        view.add_roots()?;
        let homes = [real(halo_home), real(&user_home.join(".halo"))];
        view.add_halo(&homes, around)?;
        view.add_databases(&hidden, around.empty);
        view.add_hidden(&hidden, around.empty)?;
        for socket in around.sockets {
            if !view.is_writable(socket) {
                view.hide(socket, Shown::File(around.empty.to_owned()));
            }
        }
        view.add_name_resolution(around.resolv_conf);
        view.drop_what_is_below_hidden();
        view.pin();
        if view.places.len() > MAX_PLACES {
            let count = view.places.len();
            return Err(format!("{count} places would have to be covered; {MAX_PLACES} are the most"));
        }
        Ok(view)
    }

    fn put(&mut self, path: &Path, shown: Shown) {
        let now = self.places.entry(path.to_owned()).or_insert_with(|| shown.clone());
        *now = shown.max(now.clone());
    }

    fn add_private(&mut self) {
        for dir in PRIVATE.map(|dir| real(Path::new(dir))) {
            if dir.is_dir() && !self.private.contains(&dir) {
                self.put(&dir, Shown::Private);
                self.private.push(dir);
            }
        }
        self.private.extend(SYSTEM.map(PathBuf::from));
        for link in RUN_LINKS.map(PathBuf::from) {
            if let Ok(target) = std::fs::read_link(&link) {
                self.put(&link, Shown::Link(target));
            }
        }
    }

    fn add_roots(&mut self) -> Result<(), String> {
        for root in self.roots.clone() {
            if SYSTEM.iter().any(|system| root.starts_with(system)) && !root.starts_with("/dev/shm") {
                return Err(format!("{} is no folder for files; use another one", root.display()));
            }
            if self.is_writable(&root) {
                self.put(&root, Shown::Writable);
            } else if self.private.iter().any(|dir| root.starts_with(dir)) {
                self.put(&root, Shown::ReadOnly);
            }
        }
        Ok(())
    }

    /// halo's own homes, and the `.halo` of this and of other workspaces.
    fn add_halo(&mut self, homes: &[PathBuf], around: &Around<'_>) -> Result<(), String> {
        for home in homes {
            if self.is_writable(home) && !self.roots.contains(home) {
                self.put(home, Shown::ReadOnly);
            }
        }
        let own = scaffold::folder(&self.workspace);
        if self.is_writable(&own) {
            // A command could put its own in the place of a missing one, or of a link.
            if own.is_symlink() {
                return Err(format!("{} is a link; make it a folder", own.display()));
            }
            scaffold::make(&self.workspace).map_err(|error| format!("{}: {error}", own.display()))?;
        }
        for workspace in around.workspaces.iter().chain([&self.workspace.clone()]) {
            let Ok(halo) = scaffold::folder(workspace).canonicalize() else { continue };
            let is_home = homes.contains(&halo);
            let holds_a_root = self.roots.iter().any(|root| root.starts_with(&halo));
            if halo == own || is_home || holds_a_root || self.is_writable(&halo) {
                let writable = self.is_writable(&halo) && !is_home;
                self.select(&halo, names_runtime, writable, around.empty);
            } else {
                self.hide(&halo, Shown::NoEntries);
            }
        }
        Ok(())
    }

    fn add_databases(&mut self, hidden: &HiddenSet, empty: &Path) {
        for dir in hidden.database_dirs() {
            if self.places.get(dir) != Some(&Shown::Selected) && is_real(dir) {
                self.select(dir, names_a_database, false, empty);
            }
        }
    }

    /// Makes a folder anew of what may be seen in it.
    fn select(&mut self, dir: &Path, hides: fn(&std::ffi::OsStr) -> bool, writable: bool, empty: &Path) {
        if !self.is_seen(dir) || !dir.is_dir() {
            return;
        }
        self.put(dir, Shown::Selected);
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if self.roots.contains(&path) {
                continue;
            }
            let shown = if hides(&entry.file_name()) {
                covered(kind, empty)
            } else if kind.is_symlink() {
                let Ok(target) = std::fs::read_link(&path) else { continue };
                Shown::Link(target)
            } else if !kind.is_dir() && !kind.is_file() {
                continue;
            } else if writable && !decides_about_keys(&path) {
                Shown::Writable
            } else {
                Shown::ReadOnly
            };
            self.put(&path, shown);
        }
    }

    fn add_hidden(&mut self, hidden: &HiddenSet, empty: &Path) -> Result<(), String> {
        let dirs = hidden.dirs().iter().map(|path| (path, Shown::NoEntries));
        let files = hidden.files().iter().map(|path| (path, Shown::File(empty.to_owned())));
        for (path, shown) in dirs.chain(files) {
            match path.symlink_metadata() {
                // Where the link leads is in the lists too.
                Ok(meta) if meta.is_symlink() => {}
                Ok(_) if !is_real(path) => {}
                Ok(meta) => self.hide(path, covered(meta.file_type(), empty)),
                // A folder that is closed has no new names, and in others only the writable ones could get one.
                Err(_) => {
                    let parent = path.parent().unwrap_or(path);
                    let nearest = parent.ancestors().find(|above| above.exists()).unwrap_or(parent);
                    let closed = path.ancestors().any(|above| {
                        matches!(self.places.get(above), Some(Shown::Selected | Shown::ReadOnly))
                    });
                    if self.is_writable(path) && is_real(nearest) && !closed {
                        self.hide(path, shown);
                    }
                }
            }
        }
        let names = hidden.other_names(&self.roots).ok_or(
            "hidden files have hard links, and there are too many files to find them all; give those files one \
             name each, or use a smaller workspace",
        )?;
        for name in names {
            self.hide(&name, Shown::File(empty.to_owned()));
        }
        Ok(())
    }

    fn hide(&mut self, path: &Path, shown: Shown) {
        if self.is_seen(path) && !self.roots.iter().any(|root| root == path) {
            self.put(path, shown);
        }
    }

    fn add_name_resolution(&mut self, instead: Option<&Path>) {
        let conf = real(Path::new("/etc/resolv.conf"));
        if !conf.is_file() {
            return;
        }
        match instead {
            Some(file) => self.put(&conf, Shown::File(file.to_owned())),
            None if self.private.iter().any(|dir| conf.starts_with(dir)) => self.put(&conf, Shown::ReadOnly),
            None => {}
        }
    }

    /// What lies in a hidden folder needs no place; its mount point would tell its name.
    fn drop_what_is_below_hidden(&mut self) {
        let hidden: Vec<PathBuf> =
            self.places.iter().filter(|(_, shown)| shown.hides()).map(|(path, _)| path.clone()).collect();
        self.places.retain(|path, _| !hidden.iter().any(|above| path != above && path.starts_with(above)));
    }

    fn pin(&mut self) {
        let mut pins = Vec::new();
        for path in self.places.keys() {
            let Some(root) =
                self.writable.iter().filter(|root| path.starts_with(root)).max_by_key(|r| depth(r))
            else {
                continue;
            };
            let between =
                path.ancestors().skip(1).take_while(|above| *above != root && above.starts_with(root));
            for above in between.filter(|above| !self.places.contains_key(*above)) {
                let around = above.ancestors().find_map(|path| self.places.get(path));
                if around == Some(&Shown::Writable) {
                    pins.push(above.to_owned());
                }
            }
        }
        for pin in pins {
            self.put(&pin, Shown::Writable);
        }
    }

    fn is_writable(&self, path: &Path) -> bool {
        self.writable.iter().any(|root| path.starts_with(root))
    }

    /// Whether the command would see the path: not in a private folder, or in a root again.
    fn is_seen(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| path.starts_with(root))
            || !self.private.iter().any(|dir| path.starts_with(dir))
    }
}

fn covered(kind: FileType, empty: &Path) -> Shown {
    if kind.is_dir() { Shown::NoEntries } else { Shown::File(empty.to_owned()) }
}

fn depth(path: &Path) -> usize {
    path.components().count()
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn is_real(path: &Path) -> bool {
    path.canonicalize().is_ok_and(|real| real == path)
}

/// Sockets with a path that something on this machine listens at or reads from, at most a thousand.
pub fn listening_sockets() -> Vec<PathBuf> {
    const MOST: usize = 1000;
    let text = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let mut found: Vec<PathBuf> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_ascii_whitespace().nth(7))
        .filter(|name| name.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    found.sort();
    found.dedup();
    found.retain(|path| {
        path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket()) && is_real(path)
    });
    found.truncate(MOST);
    found
}

#[cfg(test)]
mod tests;
