//! Nobody else may work on what is imported: neither a server of this program, which the operating system's locks
//! tell, nor one of the Node program, which leaves its process id in the same files.

use super::{Options, Run};
use crate::config::lock::{self, ServerLock};
use crate::workspace::lock::{Lock, LockError, try_lock};
use crate::workspace::scaffold;
use anyhow::{Context, bail};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Takes the lock of the home; in a dry run only looks. The other home is looked at.
pub fn homes(options: &Options) -> anyhow::Result<Option<ServerLock>> {
    for home in [&options.home, &options.from] {
        let file = home.server_lock();
        if let Some(holder) = lock::holder(home).with_context(|| file.display().to_string())? {
            let who = holder.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
            bail!("a server runs on {}{who}; stop it first", home.path().display());
        }
        // Ours ends each line, the Node program writes nothing but the id.
        if let Some(pid) = living(&file).filter(|_| text(&file).matches('\n').count() < 2) {
            bail!(
                "a server of the Node program runs on {} (process {pid}); stop it first, or remove {} if that is \
                 another program",
                home.path().display(),
                file.display()
            );
        }
    }
    if options.dry_run { Ok(None) } else { Ok(Some(ServerLock::take(&options.home)?)) }
}

/// Takes the locks of the workspaces; in a dry run only looks. A workspace where nothing can be written is named and
/// left out.
pub fn workspaces(
    run: &mut Run<'_>,
    workspaces: Vec<PathBuf>,
) -> anyhow::Result<Vec<(PathBuf, Option<Lock>)>> {
    let mut held = Vec::new();
    for workspace in workspaces {
        let file = scaffold::folder(&workspace).join("runtime.lock");
        if let Some(pid) = living(&file) {
            bail!(
                "{}: in use by process {pid}; stop it first, or remove {} if that is another program",
                workspace.display(),
                file.display()
            );
        }
        let lock = if run.options.dry_run { Ok(None) } else { try_lock(&workspace).map(Some) };
        let lock = match lock {
            Ok(lock) => lock,
            Err(error @ LockError::Held { .. }) => {
                return Err(error).with_context(|| workspace.display().to_string());
            }
            Err(error) => {
                run.skip_file(&workspace, error.to_string());
                continue;
            }
        };
        held.push((workspace, lock));
    }
    Ok(held)
}

/// The process that the file names, if it lives and is not this one.
fn living(file: &Path) -> Option<i32> {
    let text = text(file);
    // The id alone, or behind its name where there is more.
    let text = text.split_once("pid").map_or(text.as_str(), |(_, rest)| rest);
    let digits = text.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let pid: i32 = digits[..end].parse().ok().filter(|pid| *pid > 1)?;
    let lives = !matches!(test_kill_process(Pid::from_raw(pid)?), Err(Errno::SRCH));
    (lives && pid.unsigned_abs() != std::process::id()).then_some(pid)
}

fn text(file: &Path) -> String {
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open(file) {
        // What is no text names nobody.
        let _ = file.take(1024).read_to_string(&mut text);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_file_names_a_process_only_while_that_lives() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("runtime.lock");
        assert_eq!(living(&file), None);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        for text in [format!("{pid}"), format!("{pid}\n"), format!("{{\"port\":1,\"pid\":{pid}}}")] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(living(&file), i32::try_from(pid).ok());
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(living(&file), None);
        for nobody in ["", "0", "1", "-1", "none", &std::process::id().to_string()] {
            std::fs::write(&file, nobody).unwrap();
            assert_eq!(living(&file), None, "{nobody}");
        }
    }
}
