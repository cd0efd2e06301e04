//! Skills on disk: one folder each with a `SKILL.md`, whose front matter says what the skill is for. A folder of the
//! workspace stands in for the global one of the same id as a whole. All calls block on one small file a skill.

use super::files::{read_text, split_front_matter};
use super::profile::{DisabledItem, Origin};
use crate::access::AccessLevel;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Skill folders that are looked at in one place.
const MAX_SKILLS: usize = 1000;

/// The longest id, in characters.
const MAX_ID_CHARS: usize = 64;

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its id: the folder's name.
    pub id: String,
    /// Where it comes from.
    pub origin: Origin,
    /// What people call it.
    pub name: String,
    /// What it is for; may be empty.
    pub description: String,
    /// The level below which it does not exist.
    pub requires: AccessLevel,
    /// Whether it was switched off for the workspace.
    pub disabled: bool,
}

/// What the front matter tells; other keys are for whoever runs the skill.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Front {
    name: Option<String>,
    description: Option<String>,
    requires_access: Option<String>,
}

/// The skills that a session of this level has in the workspace, sorted by id, those that are switched off included.
/// A folder without a readable `SKILL.md` is none. `global` is the home's `global/skills/`.
pub fn skills(global: &Path, workspace: &Path, access: AccessLevel, disabled: &[DisabledItem]) -> Vec<Skill> {
    let mut folders: BTreeMap<String, (Origin, PathBuf)> = BTreeMap::new();
    for (origin, place) in
        [(Origin::Global, global.to_owned()), (Origin::Workspace, workspace.join(".halo/skills"))]
    {
        // No such folder: no skills there.
        let Ok(entries) = fs::read_dir(place) else { continue };
        for entry in entries.flatten().take(MAX_SKILLS) {
            if let Ok(id) = entry.file_name().into_string()
                && is_skill_id(&id)
                && entry.path().is_dir()
            {
                folders.insert(id, (origin, entry.path()));
            }
        }
    }
    let found = folders.into_iter().filter_map(|(id, (origin, folder))| {
        let text = read_text(&folder.join("SKILL.md")).ok().flatten()?;
        let skill = skill(id, origin, &text, disabled);
        (skill.requires <= access).then_some(skill)
    });
    found.collect()
}

fn is_skill_id(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    !text.starts_with('.') && text.chars().count() <= MAX_ID_CHARS && text.chars().all(allowed)
}

fn skill(id: String, origin: Origin, text: &str, disabled: &[DisabledItem]) -> Skill {
    let yaml = split_front_matter(text).map(|(yaml, _)| yaml);
    // What cannot be read may have asked for any level, so it has the highest.
    let front = match yaml.map(crate::yaml::from_str::<Front>) {
        Some(Err(_)) => {
            Front { requires_access: Some(AccessLevel::Full.as_str().to_owned()), ..Front::default() }
        }
        Some(Ok(front)) => front,
        None => Front::default(),
    };
    let requires = match front.requires_access.as_deref() {
        None | Some("readonly") => AccessLevel::ReadOnly,
        Some("workspace") => AccessLevel::Workspace,
        Some(_) => AccessLevel::Full,
    };
    let off =
        |item: &DisabledItem| item.item_type == "skill" && item.item_id == id && item.scope == origin.scope();
    Skill {
        disabled: disabled.iter().any(off),
        name: front.name.unwrap_or_else(|| id.clone()),
        description: front.description.unwrap_or_default(),
        requires,
        origin,
        id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(place: &Path, id: &str, text: &str) {
        fs::create_dir_all(place.join(id)).unwrap();
        fs::write(place.join(id).join("SKILL.md"), text).unwrap();
    }

    fn ids(skills: &[Skill]) -> Vec<&str> {
        skills.iter().map(|skill| skill.id.as_str()).collect()
    }

    #[test]
    fn a_skill_of_the_workspace_stands_in_for_the_global_one_and_is_switched_off_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let (global, workspace) = (folder.path().join("skills"), folder.path().join("ws"));
        write(&global, "both", "---\nname: Global\ndescription: the one\n---\nbody");
        write(&global, "plain", "no front matter");
        write(&workspace.join(".halo/skills"), "both", "---\nname: Own\ndescription: the other\n---\n");
        fs::create_dir_all(global.join("empty")).unwrap();
        let off = |scope: &str| DisabledItem {
            item_type: "skill".into(),
            item_id: "both".into(),
            scope: scope.into(),
        };
        let found = skills(&global, &workspace, AccessLevel::ReadOnly, &[off("global")]);
        assert_eq!(ids(&found), ["both", "plain"]);
        let both = &found[0];
        assert_eq!((&*both.name, &*both.description, both.origin), ("Own", "the other", Origin::Workspace));
        assert!(!both.disabled);
        assert!(skills(&global, &workspace, AccessLevel::ReadOnly, &[off("workspace")])[0].disabled);
        assert_eq!((&*found[1].name, &*found[1].description), ("plain", ""));
    }

    #[test]
    fn a_skill_above_the_level_is_not_there_and_a_broken_one_is_for_full_alone() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "a", "---\nrequiresAccess: workspace\n---\n");
        write(folder.path(), "b", "---\nrequiresAccess: full\n---\n");
        write(folder.path(), "c", "---\n[broken\n---\n");
        write(folder.path(), "d", "---\nrequiresAccess: readonly\n---\n");
        let at = |access| {
            let found = skills(folder.path(), Path::new("/nonexistent"), access, &[]);
            found.into_iter().map(|skill| skill.id).collect::<String>()
        };
        assert_eq!(at(AccessLevel::ReadOnly), "d");
        assert_eq!(at(AccessLevel::Workspace), "ad");
        assert_eq!(at(AccessLevel::Full), "abcd");
    }
}
