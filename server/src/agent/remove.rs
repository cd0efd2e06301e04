//! Deletes the folder of an agent or a skill: all of it or nothing, and nothing outside of it. The folder first gets a
//! name under which nobody looks for it; what a crash leaves under such a name goes with the next deletion.

use std::fs;
use std::io;
use std::path::Path;
use uuid::Uuid;

/// How the names begin; no id has a `~`.
const GONE: &str = ".deleted~";
/// Files that are counted.
const MAX_COUNTED: usize = 10_000;

/// Why nothing was deleted.
#[derive(Debug, thiserror::Error)]
pub enum RemoveError {
    /// There is no such folder.
    #[error("there is no such folder")]
    Missing,
    /// A link leads away from the folder that everything has to be in.
    #[error("a link leads to {0}, outside of where it belongs; delete it there by hand")]
    Elsewhere(String),
    /// What the system says.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Deletes `place/id`; `place` has to be beneath `root`, wherever links lead. Gives how many files are gone. Of a link
/// only the link goes.
pub fn remove(root: &Path, place: &Path, id: &str) -> Result<usize, RemoveError> {
    let folder = place.join(id);
    let kind = match folder.symlink_metadata() {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(RemoveError::Missing),
        Err(error) => return Err(error.into()),
    };
    let real = place.canonicalize()?;
    if !real.starts_with(root.canonicalize()?) {
        return Err(RemoveError::Elsewhere(real.display().to_string()));
    }
    let files = if kind.is_dir() { count(&folder) } else { 1 };
    let gone = place.join(format!("{GONE}{}", Uuid::new_v4().simple()));
    fs::rename(&folder, &gone)?;
    sweep(place);
    Ok(files)
}

/// Removes what was renamed. What cannot be removed now stays out of sight until the next time.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(GONE) {
            continue;
        }
        // Neither follows links.
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let removed =
            if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
        if let Err(error) = removed {
            tracing::warn!(folder = %entry.path().display(), %error, "what was deleted is still on the disk");
        }
    }
}

fn count(folder: &Path) -> usize {
    let mut ahead = vec![folder.to_owned()];
    let mut files = 0;
    while let Some(place) = ahead.pop() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            if files >= MAX_COUNTED {
                return files;
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ahead.push(entry.path());
            } else {
                files += 1;
            }
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_folder_goes_as_a_whole_and_nothing_outside_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("ws/skills/a/deep")).unwrap();
        fs::create_dir_all(at("outside/keep")).unwrap();
        fs::write(at("outside/keep/x"), "").unwrap();
        fs::write(at("ws/skills/a/deep/y"), "").unwrap();
        symlink(at("outside/keep"), at("ws/skills/a/link")).unwrap();
        symlink(at("outside/keep"), at("ws/skills/linked")).unwrap();
        // What a crash left.
        fs::create_dir_all(at("ws/skills/.deleted~old")).unwrap();
        assert_eq!(remove(&at("ws"), &at("ws/skills"), "a").unwrap(), 2);
        assert_eq!(remove(&at("ws"), &at("ws/skills"), "linked").unwrap(), 1);
        assert!(matches!(remove(&at("ws"), &at("ws/skills"), "a"), Err(RemoveError::Missing)));
        assert_eq!(fs::read_dir(at("ws/skills")).unwrap().count(), 0);
        assert!(at("outside/keep/x").exists());
    }

    #[test]
    fn a_place_that_is_elsewhere_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("ws")).unwrap();
        fs::create_dir_all(at("shared/a")).unwrap();
        symlink(at("shared"), at("ws/skills")).unwrap();
        let refused = remove(&at("ws"), &at("ws/skills"), "a").unwrap_err();
        assert!(refused.to_string().contains("by hand"), "{refused}");
        assert!(at("shared/a").exists());
    }
}
