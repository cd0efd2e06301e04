//! The arguments of `bwrap`: mounts from a [`View`], in the one order in which the last mount of a path wins and
//! every mount point exists, then the environment and the command.

use super::environment::Variable;
use super::view::{Shown, View};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Read inside of the sandbox before the command begins: the word `ready` goes to the server on a pipe that the
/// command never gets, and the command waits for the word `go`. When the server goes away meanwhile, nothing runs.
const PROLOGUE: &str =
    "echo ready >&2; read -r word; [ \"$word\" = go ] || exit 1; exec \"$@\" </dev/null 2>&1";

/// Namespaces and privileges, the same for every command. Capabilities are dropped because the server may be root.
const FIXED: [&str; 10] = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--new-session",
    "--die-with-parent",
    "--cap-drop",
    "ALL",
    "--clearenv",
];

/// The number under which `bwrap` finds the filter of system calls.
pub const FILTER_FD: i32 = 3;

/// What is run, and how.
#[derive(Debug)]
pub struct Inside<'a> {
    /// The environment.
    pub variables: &'a [Variable],
    /// A network namespace of its own, in which nothing but loopback is there at first.
    pub own_network: bool,
    /// Let the person be called root inside, with no more rights than before. Without, `bwrap` would make one user
    /// namespace within another for whoever is not root, and nobody could set routes in the outer one.
    pub as_root: bool,
    /// Shell code that closes what the server has inherited, and a shell that can.
    pub closing: (&'a str, &'a Path),
    /// The command.
    pub command: &'a [&'a OsStr],
}

/// All arguments.
pub fn arguments(view: &View, inside: &Inside<'_>) -> Vec<OsString> {
    let mut all = Arguments::default();
    all.add(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]);
    for (path, shown) in &view.places {
        match shown {
            Shown::Private | Shown::NoEntries | Shown::Selected => all.place(&["--tmpfs"], path),
            Shown::Writable => all.bind("--bind", path, path),
            Shown::ReadOnly => all.bind("--ro-bind", path, path),
            Shown::File(source) => all.bind("--ro-bind", source, path),
            Shown::Link(target) => all.bind("--symlink", target, path),
        }
    }
    // Last: until then mount points are made in them.
    for (path, shown) in &view.places {
        if matches!(shown, Shown::NoEntries | Shown::Selected) {
            all.place(&["--remount-ro"], path);
        }
    }
    all.add(FIXED);
    if inside.own_network {
        all.add(["--unshare-net"]);
    }
    if inside.as_root {
        all.add(["--uid", "0", "--gid", "0"]);
    }
    for (name, value) in inside.variables {
        all.0.extend(["--setenv".into(), name.clone(), value.clone()]);
    }
    all.place(&["--chdir"], &view.workspace);
    let (closing, shell) = inside.closing;
    all.add(["--seccomp", &FILTER_FD.to_string()]);
    all.place(&["--"], shell);
    all.add(["-c", &format!("{closing}{PROLOGUE}"), "sh"]);
    all.0.extend(inside.command.iter().map(Into::into));
    all.0
}

#[derive(Default)]
struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<'a>(&mut self, words: impl IntoIterator<Item = &'a str>) {
        self.0.extend(words.into_iter().map(OsString::from));
    }

    fn place(&mut self, words: &[&str], path: &Path) {
        self.add(words.iter().copied());
        self.0.push(path.into());
    }

    fn bind(&mut self, how: &str, source: &Path, path: &Path) {
        self.0.extend([how.into(), source.into(), path.into()]);
    }
}

#[cfg(test)]
mod tests;
