//! Skills: texts for tasks of one kind, read when the task comes up. One folder each with a `SKILL.md`, whose front
//! matter says what the skill is for ([`front`]); a folder of the workspace stands in for the global one of the same
//! id as a whole, and both for the one inside the program. Read fresh at every call. A broken file is named with its
//! place, and the other skills go on. All calls block on one small file a skill.

mod activate;
mod built_in;
mod front;
mod resources;
mod settings;

pub use activate::ActivateSkill;
pub use front::Verb;
pub use settings::{Declared, Entry, is_secret};

use super::files::read_allowed;
use super::profile::{DisabledItem, Origin};
use crate::access::AccessLevel;
use crate::workspace::paths::Guard;
use front::Front;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The tool that reads a skill.
pub const ACTIVATE: &str = "activate_skill";

/// Skill folders that are looked at in one place.
const MAX_SKILLS: usize = 1000;

/// The longest id, in characters.
const MAX_ID_CHARS: usize = 64;

/// Ids of an agent's list that are looked at.
const MAX_LISTED: usize = 200;

/// One skill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skill {
    /// Its id: the folder's name.
    pub id: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Its folder; none inside the program.
    pub folder: Option<PathBuf>,
    /// What people call it.
    pub name: String,
    /// What it is for; empty only where the file is broken.
    pub description: String,
    /// The level below which it does not exist.
    pub requires: AccessLevel,
    /// The command that stands for it, in small letters and without `/`.
    pub command: Option<String>,
    /// What can be done with the command.
    pub verbs: Vec<Verb>,
    /// Whether agents may take it up by themselves.
    pub for_models: bool,
    /// Whether people may give its command.
    pub for_people: bool,
    /// `allowed-tools`, as written; of no effect.
    pub allowed_tools: Vec<String>,
    /// Whether it was switched off for the workspace.
    pub disabled: bool,
    /// Why it cannot be used: file, place and what is wrong.
    pub broken: Option<String>,
    /// What is odd about it, but keeps it from nothing.
    pub warnings: Vec<String>,
}

impl Skill {
    /// Whether it can be used: neither broken nor switched off.
    pub fn usable(&self) -> bool {
        self.broken.is_none() && !self.disabled
    }

    /// Whether it takes this command, given without `/` and in small letters.
    pub fn answers_to(&self, command: &str) -> bool {
        self.usable() && self.for_people && self.command.as_deref() == Some(command)
    }
}

/// Where skills are looked for, and for whom.
#[derive(Clone, Copy)]
pub struct Shelf<'a> {
    /// The home's `global/skills/`; need not exist.
    pub global: &'a Path,
    /// The workspace.
    pub workspace: &'a Path,
    /// What the session may read: a link to something hidden is no skill.
    pub guard: &'a Guard,
    /// The session's level; skills that require more are not there.
    pub access: AccessLevel,
    /// What is switched off.
    pub disabled: &'a [DisabledItem],
}

impl Shelf<'_> {
    /// All skills, sorted by id, broken ones and those that are switched off included.
    pub fn all(&self) -> Vec<Skill> {
        let mut places: BTreeMap<String, Option<(Origin, PathBuf)>> =
            built_in::ids().map(|id| (id.to_owned(), None)).collect();
        for (origin, place) in self.places() {
            // No such folder: no skills there.
            let Ok(entries) = fs::read_dir(place) else { continue };
            for entry in entries.flatten().take(MAX_SKILLS) {
                if let Ok(id) = entry.file_name().into_string()
                    && is_skill_id(&id)
                    && entry.path().is_dir()
                {
                    places.insert(id, Some((origin, entry.path())));
                }
            }
        }
        places.into_iter().filter_map(|(id, place)| self.read(&id, place)).collect()
    }

    /// The skill of this id.
    pub fn find(&self, id: &str) -> Option<Skill> {
        if !is_skill_id(id) {
            return None;
        }
        let of_folder = |(origin, place): (Origin, PathBuf)| {
            let folder = place.join(id);
            folder.is_dir().then_some((origin, folder))
        };
        let [global, own] = self.places();
        self.read(id, of_folder(own).or_else(|| of_folder(global)))
    }

    /// The usable skills of an agent's list, in its order; the others are left out.
    pub fn listed(&self, ids: &[String]) -> Vec<Skill> {
        let mut found: Vec<Skill> = Vec::new();
        for id in ids.iter().take(MAX_LISTED) {
            if found.iter().all(|skill| skill.id != *id) {
                found.extend(self.find(id).filter(Skill::usable));
            }
        }
        found
    }

    /// The text below the front matter, as the file is now.
    pub fn body(&self, skill: &Skill) -> Result<String, String> {
        let text = self.text(&skill.id, skill.folder.as_deref())?;
        let text = text.ok_or_else(|| format!("the skill {} is gone", skill.id))?;
        Ok(super::files::split_front_matter(&text).map_or(&*text, |(_, body)| body).trim().to_owned())
    }

    fn places(&self) -> [(Origin, PathBuf); 2] {
        [(Origin::Global, self.global.to_owned()), (Origin::Workspace, self.workspace.join(".halo/skills"))]
    }

    /// The text of a `SKILL.md`; none where there is no such file.
    fn text(&self, id: &str, folder: Option<&Path>) -> Result<Option<String>, String> {
        let Some(folder) = folder else { return Ok(built_in::text(id).map(str::to_owned)) };
        let file = folder.join("SKILL.md");
        read_allowed(&file, self.guard).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// A folder without a `SKILL.md` is no skill.
    fn read(&self, id: &str, place: Option<(Origin, PathBuf)>) -> Option<Skill> {
        let (origin, folder) =
            place.map_or((Origin::BuiltIn, None), |(origin, folder)| (origin, Some(folder)));
        let front = match self.text(id, folder.as_deref()) {
            Ok(text) => {
                let file = folder.as_deref().unwrap_or(Path::new(id)).join("SKILL.md");
                Front::read(&text?).map_err(|mistake| mistake.at(&file))
            }
            Err(why) => Err(why),
        };
        let off = |item: &DisabledItem| {
            item.item_type == "skill" && item.item_id == id && item.scope == origin.scope()
        };
        let mut skill = Skill {
            id: id.to_owned(),
            origin,
            folder,
            name: id.to_owned(),
            description: String::new(),
            // What cannot be read may have asked for any level, so it has the highest.
            requires: AccessLevel::Full,
            command: None,
            verbs: Vec::new(),
            for_models: false,
            for_people: false,
            allowed_tools: Vec::new(),
            disabled: self.disabled.iter().any(off),
            broken: None,
            warnings: Vec::new(),
        };
        match front {
            Ok(front) => front.tell(&mut skill),
            Err(why) => skill.broken = Some(why),
        }
        (skill.requires <= self.access).then_some(skill)
    }
}

/// Whether a skill of this id is inside the program.
pub fn is_built_in(id: &str) -> bool {
    built_in::text(id).is_some()
}

/// Whether the text may name a skill: letters, digits, `_ . -`, not beginning with `.`, at most 64 characters.
pub fn is_skill_id(text: &str) -> bool {
    let allowed = |c: char| c.is_alphanumeric() || "_.-".contains(c);
    !text.is_empty()
        && !text.starts_with('.')
        && text.chars().take(MAX_ID_CHARS + 1).count() <= MAX_ID_CHARS
        && text.chars().all(allowed)
}

#[cfg(test)]
mod tests;
