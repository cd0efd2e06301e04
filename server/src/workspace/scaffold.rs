//! The folder `.halo/` inside a workspace. It is made when a workspace is opened, never when somebody only asks
//! about a folder. What is there already stays as it is.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The folder's name.
pub const NAME: &str = ".halo";

/// Folders inside. None of `prompts/`: an empty one would stand in for the texts that come with the program.
const FOLDERS: [&str; 5] = ["agents", "skills", "logs", "memory", "tmp"];

/// What must not end up in a repository: state, scratch files, and settings with keys in them.
const GITIGNORE: &str = "*.db\n*.db-*\n*.db.*\nruntime.lock\nsettings.yaml\nlogs/\ntmp/\nassets/\n";

/// `<workspace>/.halo`.
pub fn folder(workspace: &Path) -> PathBuf {
    workspace.join(NAME)
}

/// Whether the folder has been opened as a workspace before. Creates nothing.
pub fn exists(workspace: &Path) -> bool {
    folder(workspace).is_dir()
}

/// Makes `.halo/` and its folders where they are missing. A new `.halo/` is its owner's alone, and gets a
/// `.gitignore` that keeps state and secrets out of a repository. The workspace itself must exist.
pub fn make(workspace: &Path) -> io::Result<()> {
    let halo = folder(workspace);
    match DirBuilder::new().mode(0o700).create(&halo) {
        Ok(()) => match OpenOptions::new().write(true).create_new(true).open(halo.join(".gitignore")) {
            Ok(mut file) => file.write_all(GITIGNORE.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        },
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(error),
    }
    for name in FOLDERS {
        fs::create_dir_all(halo.join(name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_new_workspace_gets_its_folders_and_a_gitignore_once() {
        let workspace = tempfile::tempdir().unwrap();
        assert!(!exists(workspace.path()));
        make(workspace.path()).unwrap();
        assert!(exists(workspace.path()));
        let halo = workspace.path().join(".halo");
        assert!(FOLDERS.iter().all(|name| halo.join(name).is_dir()));
        assert_eq!(fs::metadata(&halo).unwrap().permissions().mode() & 0o777, 0o700);
        let ignored = fs::read_to_string(halo.join(".gitignore")).unwrap();
        assert!(ignored.lines().any(|line| line == "settings.yaml"));

        fs::remove_file(halo.join(".gitignore")).unwrap();
        fs::remove_dir(halo.join("tmp")).unwrap();
        fs::write(halo.join("memory/x.md"), "kept").unwrap();
        make(workspace.path()).unwrap();
        assert!(halo.join("tmp").is_dir() && !halo.join(".gitignore").exists());
        assert_eq!(fs::read_to_string(halo.join("memory/x.md")).unwrap(), "kept");
    }

    #[test]
    fn a_missing_workspace_is_not_made() {
        let parent = tempfile::tempdir().unwrap();
        assert!(make(&parent.path().join("missing")).is_err());
        assert!(!parent.path().join("missing").exists());
        fs::write(parent.path().join(".halo"), "a file in the way").unwrap();
        assert!(make(parent.path()).is_err() && !exists(parent.path()));
    }
}
