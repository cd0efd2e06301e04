//! The second choice, for readonly sessions where no namespaces can be made: Landlock. It lists what may be read, tree
//! by tree, around the hidden places; nothing may be written but a folder of the command's own and `/dev/null`. It
//! hides contents, not names and sizes. What goes past it is closed by [`super::syscalls`] and by giving up all
//! capabilities. All of it holds for the one thread that then starts the command, and for what that starts.

use super::syscalls::{self, Beside};
use crate::tool::Context;
use crate::workspace::hidden::HiddenSet;
use crate::workspace::scaffold;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The first that keeps signals to other processes back.
const NEEDED: ABI = ABI::V6;
/// The most trees and files that are listed.
const MAX_RULES: usize = 10_000;
/// Devices that may be used; everything else below `/dev` is out of reach.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// What may be opened.
#[derive(Debug)]
pub struct Allowed {
    readable: Vec<PathBuf>,
    /// Its names may be listed, and those in all folders below: contents are judged file by file.
    listed: PathBuf,
    scratch: PathBuf,
}

impl Allowed {
    /// Lists it for one readonly session. Looks at the disk. `scratch` is the folder that may be written to.
    pub fn list(context: &Context, workspaces: &[PathBuf], scratch: &Path) -> Result<Self, String> {
        let Context { workspace, user_home, halo_home, hidden_dirs, hidden_files, .. } = context;
        let hidden = HiddenSet::of(workspace, user_home, halo_home, hidden_dirs, hidden_files);
        let others = hidden.other_names(std::slice::from_ref(workspace));
        let others =
            others.ok_or("hidden files have hard links, and there are too many files to find them all")?;
        let mut around: Vec<PathBuf> = hidden.dirs().iter().chain(hidden.files()).cloned().collect();
        // A name in each of these: so they are looked into.
        around.extend(hidden.database_dirs().iter().map(|dir| dir.join("x.db")));
        let halos = workspaces.iter().chain([workspace]).map(|workspace| scaffold::folder(workspace));
        around.extend(halos.filter_map(|halo| halo.canonicalize().ok()).map(|halo| halo.join("x.db")));
        around.extend(["/dev/null", "/proc/1"].map(PathBuf::from));
        around.extend(others.iter().cloned());
        let walk = Walk { hidden, around, others };
        let mut readable = Vec::new();
        walk.folder(Path::new("/"), &mut readable)?;
        Ok(Self { readable, listed: workspace.clone(), scratch: scratch.to_owned() })
    }
}

struct Walk {
    hidden: HiddenSet,
    /// Places whose folders are not allowed as a whole.
    around: Vec<PathBuf>,
    others: Vec<PathBuf>,
}

impl Walk {
    fn folder(&self, dir: &Path, found: &mut Vec<PathBuf>) -> Result<(), String> {
        if !self.around.iter().any(|place| place.starts_with(dir)) {
            found.push(dir.to_owned());
            return Ok(());
        }
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            if self.hidden.hides_path(&path) || self.others.contains(&path) || path == Path::new("/dev") {
                continue;
            }
            if kind.is_dir() {
                self.folder(&path, found)?;
            } else if kind.is_file() {
                found.push(path);
            }
            if found.len() > MAX_RULES {
                return Err(format!("more than {MAX_RULES} places would have to be listed"));
            }
        }
        Ok(())
    }
}

/// Holds this thread, and what it starts from now on, to what is allowed. Cannot be undone.
pub fn restrict(allowed: &Allowed) -> Result<(), String> {
    let program = syscalls::filter(Beside::Landlock)?;
    let ruleset = ruleset(allowed).map_err(|error| error.to_string())?;
    drop_capabilities().map_err(|error| format!("capabilities: {error}"))?;
    let status = ruleset.restrict_self().map_err(|error| error.to_string())?;
    if status.ruleset != RulesetStatus::FullyEnforced || !status.no_new_privs {
        return Err("Landlock does not enforce everything that is asked of it".into());
    }
    seccompiler::apply_filter(&program).map_err(|error| error.to_string())
}

/// Whether this kernel can hold a command as [`restrict`] does. Ends with the thread that tries it.
pub fn trial() -> Result<(), String> {
    let tried = std::thread::Builder::new().name("halo-landlock".into()).spawn(|| {
        let scratch = std::env::temp_dir();
        restrict(&Allowed { readable: vec!["/usr".into()], listed: "/usr".into(), scratch })?;
        if std::fs::read_dir("/proc/1").is_ok() {
            return Err("it was set, and holds nothing back".to_owned());
        }
        Ok(())
    });
    let ended = tried.map_err(|error| error.to_string())?.join();
    ended.unwrap_or_else(|_| Err("the trial failed".into()))
}

/// Keeps abstract sockets outside of reach of what this thread starts, where the kernel can. Files stay as they are.
pub fn scope_abstract_sockets() {
    let scoped = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::AbstractUnixSocket)
        .and_then(Ruleset::create)
        .and_then(RulesetCreated::restrict_self);
    if let Err(error) = scoped {
        tracing::debug!(%error, "abstract sockets stay within reach of sandboxed commands");
    }
}

fn ruleset(allowed: &Allowed) -> Result<RulesetCreated, RulesetError> {
    let all = AccessFs::from_all(NEEDED);
    let read = AccessFs::from_read(NEEDED);
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
    let mut created = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(all)?
        .scope(Scope::from_all(NEEDED))?
        .create()?;
    for path in &allowed.readable {
        created = allow(created, path, read)?;
    }
    for path in DEVICES {
        created = allow(created, Path::new(path), device)?;
    }
    created = allow(created, &allowed.listed, AccessFs::ReadDir.into())?;
    allow(created, &allowed.scratch, all)
}

/// What is gone by now needs no rule, and neither does what cannot be opened.
fn allow(
    created: RulesetCreated,
    path: &Path,
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    let Ok(fd) = PathFd::new(path) else { return Ok(created) };
    let is_dir = path.metadata().is_ok_and(|meta| meta.mode() & libc::S_IFMT == libc::S_IFDIR);
    let access = if is_dir { access } else { access & AccessFs::from_file(NEEDED) };
    created.add_rule(PathBeneath::new(fd, access))
}

/// The server may be root: what it starts here is not more than its files.
fn drop_capabilities() -> io::Result<()> {
    let now = rustix::thread::capabilities(None)?;
    if now.permitted.contains(CapabilitySet::SETPCAP) {
        for one in CapabilitySet::all().iter() {
            match rustix::thread::remove_capability_from_bounding_set(one) {
                // This kernel is older than the name.
                Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    )?;
    Ok(())
}
