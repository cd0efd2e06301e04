//! The files that lie beside a `SKILL.md`.

use std::fs;
use std::path::{Path, PathBuf};

/// Files that are listed.
const MAX_FILES: usize = 200;
/// Entries that are looked at.
const MAX_ENTRIES: usize = 5000;
/// Folders one below another.
const MAX_DEPTH: usize = 8;
/// What nobody wants to read.
const SKIPPED: [&str; 4] = [".git", "node_modules", "__pycache__", ".DS_Store"];

/// The files below the folder, sorted, `SKILL.md` left out, and whether there are more. Links to folders are not
/// followed. Names that are no UTF-8 are left out: no tool could be told of them.
pub(super) fn files(folder: &Path) -> (Vec<PathBuf>, bool) {
    let mut found = Vec::new();
    let mut ahead = vec![(0, folder.to_owned())];
    let mut seen = 0;
    let mut more = false;
    while let Some((depth, place)) = ahead.pop() {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            seen += 1;
            if seen > MAX_ENTRIES {
                more = true;
                break;
            }
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str().filter(|name| !SKIPPED.contains(name)) else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                if depth < MAX_DEPTH {
                    ahead.push((depth + 1, path));
                }
            } else if (depth > 0 || name != "SKILL.md") && path.is_file() {
                found.push(path);
            }
        }
    }
    found.sort();
    more |= found.len() > MAX_FILES;
    found.truncate(MAX_FILES);
    (found, more)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_are_listed_within_bounds_and_no_link_leads_away() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("s/scripts")).unwrap();
        fs::create_dir_all(at("s/node_modules")).unwrap();
        fs::create_dir_all(at("elsewhere")).unwrap();
        for file in [
            "s/SKILL.md",
            "s/b.md",
            "s/scripts/SKILL.md",
            "s/scripts/a.py",
            "s/node_modules/x",
            "elsewhere/y",
        ] {
            fs::write(at(file), "").unwrap();
        }
        symlink(at("elsewhere"), at("s/link")).unwrap();
        symlink(at("s"), at("s/scripts/circle")).unwrap();
        let expected = ["s/b.md", "s/scripts/SKILL.md", "s/scripts/a.py"].map(at).to_vec();
        assert_eq!(files(&at("s")), (expected, false));
        for number in 0..MAX_FILES {
            fs::write(at(&format!("s/{number}")), "").unwrap();
        }
        let (found, more) = files(&at("s"));
        assert_eq!((found.len(), more), (MAX_FILES, true));
    }
}
