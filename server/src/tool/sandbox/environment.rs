//! The environment of a sandboxed command: small, and without anything that the server holds.

use super::bounded;
use crate::tool::Context;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Passed on when they are set: where programs are, and language and time.
const KEPT: [&str; 4] = ["LANG", "LC_ALL", "LC_CTYPE", "TZ"];
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const GIT_LIMIT: Duration = Duration::from_secs(5);

/// A variable.
pub type Variable = (OsString, OsString);

/// All of a command's environment.
pub fn variables(context: &Context, identity: &[Variable]) -> Vec<Variable> {
    let path = std::env::var_os("PATH").filter(|path| !path.is_empty());
    let mut all = vec![
        ("PATH".into(), path.unwrap_or_else(|| DEFAULT_PATH.into())),
        ("HOME".into(), context.user_home.clone().into_os_string()),
        ("TERM".into(), "dumb".into()),
    ];
    for name in KEPT {
        match std::env::var_os(name) {
            Some(value) => all.push((name.into(), value)),
            None if name == "LANG" => all.push((name.into(), "C.UTF-8".into())),
            None => {}
        }
    }
    // Root inside is no root: it cannot give files away, which tar would do for one.
    let fixed = [
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("TAR_OPTIONS", "--no-same-owner"),
    ];
    all.extend(fixed.map(|(name, value)| (name.into(), value.into())));
    all.extend(identity.iter().cloned());
    all
}

/// Who commits, as git on this machine knows it: `~/.gitconfig` itself is hidden from commands. Empty where git or
/// the name is missing.
pub fn git_identity(user_home: &Path) -> Vec<Variable> {
    let mut identity = Vec::new();
    for (key, names) in [
        ("user.name", ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"]),
        ("user.email", ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"]),
    ] {
        let configured = config(user_home, key);
        for name in names {
            let own = std::env::var(name).ok().filter(|value| !value.is_empty());
            if let Some(value) = own.or_else(|| configured.clone()) {
                identity.push((name.into(), value.into()));
            }
        }
    }
    identity
}

fn config(user_home: &Path, key: &str) -> Option<String> {
    let mut git = Command::new("git");
    git.args(["config", "--get", key]).current_dir("/").env("HOME", user_home);
    let (status, text) = bounded::run(git, b"", GIT_LIMIT).ok()?;
    let line = text.lines().next().unwrap_or_default().trim();
    (status.success() && !line.is_empty()).then(|| line.to_owned())
}
