//! Deleting an agent or a skill: the folder that counts in this workspace, and no other. What is inside the program
//! stays, and so does the last agent of the home.

use super::{Asked, Reply, texts};
use crate::agent::profile::{self, DisabledItem, Origin, is_agent_id};
use crate::agent::remove::remove;
use crate::agent::skill;
use crate::http::error::ApiError;
use crate::store::accounts::Language;
use crate::workspace::scaffold;
use std::path::{Path, PathBuf};

/// What is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Agent,
    Skill,
}

impl Kind {
    const fn folder(self) -> &'static str {
        match self {
            Self::Agent => "agents",
            Self::Skill => "skills",
        }
    }

    fn is_built_in(self, id: &str) -> bool {
        match self {
            Self::Agent => profile::is_built_in(id),
            Self::Skill => skill::is_built_in(id),
        }
    }
}

/// Where something of an id is.
struct Found {
    origin: Origin,
    /// The folder that everything has to be in.
    root: PathBuf,
    place: PathBuf,
}

/// Deletes what this id, which is one of the kind, stands for here, and says what is gone.
pub async fn delete(asked: &Asked, kind: Kind, id: &str) -> Result<Reply, ApiError> {
    let (language, wanted) = (asked.language(), id.to_owned());
    let (files, workspace) = (asked.state.files.clone(), asked.target.workspace.clone());
    let deleting = tokio::task::spawn_blocking(move || {
        let halo = scaffold::folder(&workspace);
        let own = Found { origin: Origin::Workspace, place: halo.join(kind.folder()), root: halo };
        let global = Found {
            origin: Origin::Global,
            place: if kind == Kind::Agent { files.agents.clone() } else { files.skills.clone() },
            root: files.global.clone(),
        };
        delete_now(language, kind, &wanted, own, global)
    });
    let (text, gone) = deleting.await.map_err(ApiError::internal)?;
    if let Some(origin) = gone {
        // Another one of that id is not to be switched off from the start.
        let item_type = if kind == Kind::Agent { "agent" } else { "skill" };
        let item =
            DisabledItem { item_type: item_type.into(), item_id: id.into(), scope: origin.scope().into() };
        if asked.disabled().await?.contains(&item)
            && let Some(workspace) = asked.existing().await?
        {
            workspace.set_disabled(item, false).await?;
        }
    }
    Ok(Reply::text(text))
}

/// What to say, and whose is gone.
fn delete_now(
    language: Language,
    kind: Kind,
    id: &str,
    own: Found,
    global: Found,
) -> (String, Option<Origin>) {
    let [is_own, is_global] = [&own, &global].map(|found| found.place.join(id).is_dir());
    let found = match (is_own, is_global) {
        (true, _) => own,
        (false, true) => global,
        (false, false) => return (texts::delete_built_in(language, id), None),
    };
    if kind == Kind::Agent && found.origin == Origin::Global && is_alone(&found.place, id) {
        return (texts::delete_last(language, id), None);
    }
    let folder = found.place.join(id).display().to_string();
    match remove(&found.root, &found.place, id) {
        Ok(files) => {
            let text = texts::deleted(language, id, &folder, files);
            let next = match (found.origin, is_global) {
                (Origin::Workspace, true) => Some(Origin::Global),
                _ if kind.is_built_in(id) => Some(Origin::BuiltIn),
                _ => None,
            };
            let next = next.map(|origin| format!("\n{}", texts::deleted_next(language, id, origin.label())));
            (text + &next.unwrap_or_default(), Some(found.origin))
        }
        Err(error) => (texts::not_deleted(language, id, &folder, &error.to_string()), None),
    }
}

/// Whether no other agent is in this folder.
fn is_alone(place: &Path, id: &str) -> bool {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut others = entries.filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name != id && is_agent_id(name))
            && entry.path().is_dir()
    });
    others.next().is_none()
}
