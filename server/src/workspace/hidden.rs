//! What sessions below full access never see: keys and logins of the person, halo's own secrets, databases and
//! logs. Judges real paths, and by device and inode the files that have more than one name. Whose
//! list is which is said here once, in [`HiddenPlaces`]; for tools it is the path guard's business.

use crate::access::AccessLevel;
use rustix::fs::Stat;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::DirEntry;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Folders of the person's home.
const HOME_DIRS: [&str; 5] = [".aws", ".ssh", ".gnupg", ".docker", ".config/gh"];
/// Files of the person's home.
const HOME_FILES: [&str; 5] = [".npmrc", ".bash_history", ".gitconfig", ".git-credentials", ".netrc"];
/// Folders of a halo home.
const HALO_DIRS: [&str; 3] = ["secrets", "global/internal-sessions", "global/logs"];
/// Folders directly below any `.halo`.
const RUNTIME_DIRS: [&str; 3] = ["sessions", "logs", "evo"];
/// The runtime lock below any `.halo`: who replaces the file lets a second server in.
const LOCK: &str = "runtime.lock";
/// How many files of hidden folders are looked at to recognise a hard link.
const LINK_SCAN_LIMIT: usize = 100_000;

/// Device and inode.
type FileId = (u64, u64);

/// Where the hidden places of this server are, whatever the workspace.
#[derive(Clone, Debug, Default)]
pub struct HiddenPlaces {
    /// The person's home.
    pub user_home: PathBuf,
    /// halo's own home.
    pub halo_home: PathBuf,
    /// `general.sandbox.hidden_dirs`, absolute.
    pub dirs: Arc<[PathBuf]>,
    /// `general.sandbox.hidden_files`, absolute.
    pub files: Arc<[PathBuf]>,
}

impl HiddenPlaces {
    /// What a surface that serves files of `workspace` keeps from someone of this level: what halo keeps there from
    /// everyone, the rest from all below full access, as from their sessions.
    pub fn served(&self, workspace: &Path, access: AccessLevel) -> HiddenSet {
        if access == AccessLevel::Full {
            HiddenSet::runtime_of(workspace)
        } else {
            HiddenSet::of(workspace, &self.user_home, &self.halo_home, &self.dirs, &self.files)
        }
    }

    /// What the admin's file browser keeps from everyone: keys and logins of the person, secrets and databases of
    /// halo's home. What halo keeps in workspaces is the admin's to see.
    pub fn browsed(&self) -> HiddenSet {
        let mut set = HiddenSet::default();
        set.add_of_server(&self.user_home, &self.halo_home, &self.dirs, &self.files);
        set
    }
}

/// The hidden places of one workspace.
#[derive(Debug, Default)]
pub struct HiddenSet {
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
    /// Folders where every name with `.db` in it is hidden.
    database_dirs: Vec<PathBuf>,
    /// Whether what halo keeps below any `.halo` is hidden.
    runtimes: bool,
    /// Whether the memory and environment of processes is hidden.
    processes: bool,
    /// Hidden files that have several names, found when first asked for. `None`: too many to tell.
    linked: OnceLock<Option<HashSet<FileId>>>,
}

impl HiddenSet {
    /// Everything that is hidden from a session of `workspace`; `dirs` and `files` are added to the fixed lists.
    pub fn of(
        workspace: &Path,
        user_home: &Path,
        halo_home: &Path,
        dirs: &[PathBuf],
        files: &[PathBuf],
    ) -> Self {
        let mut set = Self::runtime_of(workspace);
        set.add_of_server(user_home, halo_home, dirs, files);
        set
    }

    /// Adds what is hidden whatever the workspace.
    fn add_of_server(&mut self, user_home: &Path, halo_home: &Path, dirs: &[PathBuf], files: &[PathBuf]) {
        self.processes = true;
        for name in HOME_DIRS {
            add(&mut self.dirs, &user_home.join(name));
        }
        for name in HOME_FILES {
            add(&mut self.files, &user_home.join(name));
        }
        for home in [halo_home.to_owned(), user_home.join(".halo")] {
            for name in HALO_DIRS {
                add(&mut self.dirs, &home.join(name));
            }
            add(&mut self.database_dirs, &home.join("global"));
        }
        add(&mut self.files, Path::new("/proc/kcore"));
        for dir in dirs {
            add(&mut self.dirs, dir);
        }
        for file in files {
            add(&mut self.files, file);
        }
    }

    /// Only what halo itself keeps in a workspace: sessions, logs, databases.
    pub fn runtime_of(workspace: &Path) -> Self {
        let mut set = Self { runtimes: true, ..Self::default() };
        let own = workspace.join(".halo");
        for name in RUNTIME_DIRS {
            add(&mut set.dirs, &own.join(name));
        }
        add(&mut set.database_dirs, &own);
        set
    }

    /// Whether a real path is hidden.
    pub fn hides_path(&self, real: &Path) -> bool {
        self.dirs.iter().any(|dir| real.starts_with(dir))
            || self.files.iter().any(|file| real == file)
            || real.parent().is_some_and(|parent| self.database_dirs.iter().any(|dir| dir == parent))
                && real.file_name().is_some_and(names_a_database)
            || self.runtimes && is_runtime(real)
            || self.processes && belongs_to_a_process(real)
    }

    /// Whether anything directly in this real folder, which is not hidden itself, may be hidden by its path. Spares
    /// who lists a large folder the look at each entry.
    pub fn may_hide_in(&self, dir: &Path) -> bool {
        let mut places = self.dirs.iter().chain(&self.files);
        self.runtimes
            || places.any(|place| place.parent() == Some(dir))
            || self.database_dirs.iter().any(|databases| databases == dir)
            || self.processes && dir == Path::new("/proc")
    }

    /// Whether a file is another name (a hard link) of a hidden one. When there are too many hidden files to
    /// tell, it is.
    pub fn hides_file(&self, stat: &Stat) -> bool {
        stat.st_nlink > 1
            && self
                .linked
                .get_or_init(|| self.find_linked())
                .as_ref()
                .is_none_or(|linked| linked.contains(&(stat.st_dev, stat.st_ino)))
    }

    /// Hidden folders, under their names and their real names. They may not exist.
    pub fn dirs(&self) -> &[PathBuf] {
        &self.dirs
    }

    /// Hidden files, likewise.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// Folders where databases are hidden and the rest is not, likewise.
    pub fn database_dirs(&self) -> &[PathBuf] {
        &self.database_dirs
    }

    /// Other names (hard links) of hidden files below these folders. `None` when there are too many files to tell.
    /// Costs nothing but a look at the hidden files while each of them has one name.
    pub fn other_names(&self, below: &[PathBuf]) -> Option<Vec<PathBuf>> {
        let linked = self.linked.get_or_init(|| self.find_linked()).as_ref()?;
        let mut found = Vec::new();
        if linked.is_empty() {
            return Some(found);
        }
        each_file_below(below, |entry| {
            if entry.metadata().is_ok_and(|meta| linked.contains(&(meta.dev(), meta.ino()))) {
                found.push(entry.path());
            }
        })?;
        Some(found)
    }

    fn find_linked(&self) -> Option<HashSet<FileId>> {
        let mut found = HashSet::new();
        for file in &self.files {
            note_if_linked(file, &mut found);
        }
        for dir in &self.database_dirs {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                if names_a_database(&entry.file_name()) {
                    note_if_linked(&entry.path(), &mut found);
                }
            }
        }
        each_file_below(&self.dirs, |entry| note_if_linked(&entry.path(), &mut found))?;
        Some(found)
    }
}

/// Adds a place under its name and, where links lead to it, under its real name.
fn add(list: &mut Vec<PathBuf>, place: &Path) {
    let real = real_of(place);
    if real != place {
        list.push(real);
    }
    list.push(place.to_owned());
}

/// The real path of what may not exist yet: that of its nearest existing ancestor, and the rest.
fn real_of(path: &Path) -> PathBuf {
    for ancestor in path.ancestors() {
        if let Ok(real) = ancestor.canonicalize() {
            // No rest means no separator either: `join("")` would append one.
            return match path.strip_prefix(ancestor) {
                Ok(rest) if rest.as_os_str().is_empty() => real,
                Ok(rest) => real.join(rest),
                Err(_) => break,
            };
        }
    }
    path.to_owned()
}

/// Looks at everything below these folders that is no folder; follows no links. `None` when there is too much of it.
fn each_file_below(dirs: &[PathBuf], mut look: impl FnMut(&DirEntry)) -> Option<()> {
    let mut open = dirs.to_vec();
    let mut seen = 0;
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            seen += 1;
            if seen > LINK_SCAN_LIMIT {
                return None;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            } else {
                look(&entry);
            }
        }
    }
    Some(())
}

fn note_if_linked(file: &Path, found: &mut HashSet<FileId>) {
    if let Ok(meta) = file.symlink_metadata()
        && meta.nlink() > 1
    {
        found.insert((meta.dev(), meta.ino()));
    }
}

/// `halo.db`, its `-wal`, `-shm` and `-journal`, and copies such as `halo.db.bak`.
pub fn names_a_database(name: &OsStr) -> bool {
    name.to_string_lossy().contains(".db")
}

/// Whether a name directly below a `.halo` is of what halo itself keeps there: sessions, logs, databases, the lock.
pub fn names_runtime(name: &OsStr) -> bool {
    RUNTIME_DIRS.iter().any(|dir| name == *dir) || name == LOCK || names_a_database(name)
}

/// Sessions, logs, databases and the lock below any `.halo`, also those of other workspaces.
fn is_runtime(real: &Path) -> bool {
    let mut below_halo = false;
    for part in real.components() {
        let Component::Normal(name) = part else { continue };
        if below_halo && names_runtime(name) {
            return true;
        }
        below_halo = name == ".halo";
    }
    false
}

/// Agents and settings below any `.halo`. They decide where keys are sent, so a session that may not read the keys
/// may not write them either.
pub fn decides_about_keys(real: &Path) -> bool {
    let mut below_halo = false;
    for part in real.components() {
        let Component::Normal(name) = part else { continue };
        if below_halo && (name == "agents" || name == "settings.yaml") {
            return true;
        }
        below_halo = name == ".halo";
    }
    false
}

/// `/proc/<pid>/…` shows the environment, the memory and the open files of a process, this one among them.
fn belongs_to_a_process(real: &Path) -> bool {
    real.strip_prefix("/proc").ok().and_then(|rest| rest.iter().next()).is_some_and(|first| {
        let first = first.as_encoded_bytes();
        !first.is_empty() && first.iter().all(u8::is_ascii_digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn set() -> HiddenSet {
        HiddenSet::of(
            Path::new("/ws"),
            Path::new("/home/u"),
            Path::new("/data/halo"),
            &["/srv/private".into()],
            &["/srv/key.pem".into()],
        )
    }

    #[rstest]
    #[case("/home/u/.ssh/id_ed25519")]
    #[case("/home/u/.ssh")]
    #[case("/home/u/.aws/credentials")]
    #[case("/home/u/.gnupg/x")]
    #[case("/home/u/.docker/config.json")]
    #[case("/home/u/.config/gh/hosts.yml")]
    #[case("/home/u/.npmrc")]
    #[case("/home/u/.bash_history")]
    #[case("/home/u/.gitconfig")]
    #[case("/home/u/.git-credentials")]
    #[case("/home/u/.netrc")]
    #[case("/data/halo/secrets/channels/channels.db")]
    #[case("/home/u/.halo/secrets/key")]
    #[case("/data/halo/global/runs.db")]
    #[case("/data/halo/global/a2a.db-journal")]
    #[case("/data/halo/global/cron.db-shm")]
    #[case("/data/halo/global/evo.db-wal")]
    #[case("/home/u/.halo/global/runs.db-wal")]
    #[case("/data/halo/global/logs/today.log")]
    #[case("/data/halo/global/internal-sessions/x")]
    #[case("/ws/.halo/halo.db")]
    #[case("/ws/.halo/halo.db-wal")]
    #[case("/ws/.halo/a2a.db-shm")]
    #[case("/ws/.halo/runs.db-journal")]
    #[case("/ws/.halo/sessions/1")]
    #[case("/ws/.halo/runtime.lock")]
    #[case("/ws/.halo/logs")]
    #[case("/ws/.halo/evo/x")]
    #[case("/other/ws/.halo/halo.db")]
    #[case("/srv/private/x")]
    #[case("/srv/key.pem")]
    #[case("/proc/1/environ")]
    fn a_hidden_place_is_hidden(#[case] path: &str) {
        assert!(set().hides_path(Path::new(path)));
    }

    #[rstest]
    #[case("/ws/src/main.rs")]
    #[case("/ws/data.db")]
    #[case("/ws/sessions/x")]
    #[case("/ws/.halo/settings.yaml")]
    #[case("/ws/.halo/skills/logs/SKILL.md")]
    #[case("/home/u/.sshx")]
    #[case("/home/u/.config/other")]
    #[case("/data/halo/global/agents/default/agent.yaml")]
    #[case("/srv/key.pem.pub")]
    #[case("/proc/cpuinfo")]
    fn anything_else_is_not(#[case] path: &str) {
        assert!(!set().hides_path(Path::new(path)));
    }

    #[rstest]
    #[case("/home/u/.ssh/id_ed25519", true)]
    #[case("/data/halo/secrets/config.yaml", true)]
    #[case("/data/halo/global/runs.db-wal", true)]
    #[case("/srv/private", true)]
    #[case("/srv/key.pem", true)]
    #[case("/proc/1/environ", true)]
    #[case("/ws/.halo/halo.db", false)]
    #[case("/ws/.halo/sessions/x", false)]
    #[case("/ws/.halo/logs", false)]
    fn the_file_browser_sees_what_halo_keeps_in_workspaces_and_no_secrets(
        #[case] path: &str,
        #[case] hidden: bool,
    ) {
        let places = HiddenPlaces {
            user_home: "/home/u".into(),
            halo_home: "/data/halo".into(),
            dirs: Arc::from(["/srv/private".into()]),
            files: Arc::from(["/srv/key.pem".into()]),
        };
        let set = places.browsed();
        assert_eq!(set.hides_path(Path::new(path)), hidden);
        let path = Path::new(path);
        let first = path.ancestors().find(|above| above.parent().is_none_or(|above| !set.hides_path(above)));
        assert_eq!(set.may_hide_in(first.and_then(Path::parent).unwrap()), hidden, "{first:?}");
    }

    #[test]
    fn a_hidden_place_that_is_a_link_is_hidden_where_it_leads() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("keys")).unwrap();
        std::os::unix::fs::symlink(real.join("keys"), real.join(".ssh")).unwrap();
        let set = HiddenSet::of(Path::new("/ws"), &real, Path::new("/data/halo"), &[], &[]);
        assert!(set.hides_path(&real.join("keys/id_rsa")));
    }
}
