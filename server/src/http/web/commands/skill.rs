//! `/skill`: what there is, and whether it is on in this workspace. Those above the caller's level are not there.

use super::delete::{self, Kind};
use super::{Asked, Reply, one_line, texts};
use crate::agent::profile::DisabledItem;
use crate::agent::skill::{Declared, Entry, Shelf, Skill};
use crate::http::error::ApiError;
use crate::store::accounts::Language;
use std::fmt::Write as _;

/// The longest description in the list, in characters.
const ABOUT_CHARS: usize = 100;

/// `list`.
pub async fn list(asked: &Asked) -> Result<Reply, ApiError> {
    let language = asked.language();
    let found = all(asked).await?;
    if found.is_empty() {
        return Ok(Reply::text(texts::skill_list_none(language)));
    }
    let mut text = texts::skill_list_head(language);
    for (number, skill) in (1..).zip(&found) {
        let _ = write!(text, "\n  {number}. [{}] {}", skill.origin.label(), skill.id);
        if skill.disabled {
            let _ = write!(text, " ({})", texts::skill_off(language));
        }
        if !skill.description.is_empty() {
            let _ = write!(text, " — {}", one_line(&skill.description, ABOUT_CHARS));
        }
        if let Some(why) = &skill.broken {
            let _ = write!(text, "\n     ⚠ {}", texts::skill_broken(language, &skill.id, why));
        }
    }
    Ok(Reply::text(text))
}

/// `desc <id or number>`.
pub async fn desc(asked: &Asked, name: &str) -> Result<Reply, ApiError> {
    let language = asked.language();
    let skill = match find(asked, "/skill desc", name).await? {
        Ok(skill) => skill,
        Err(text) => return Ok(Reply::text(text)),
    };
    let declared = match &skill.folder {
        None => Ok(Declared::default()),
        Some(folder) => {
            let file = folder.join("config.yaml");
            tokio::task::spawn_blocking(move || Declared::read(&file)).await.map_err(ApiError::internal)?
        }
    };
    Ok(Reply::text(described(language, &skill, declared)))
}

/// All that the files of a skill tell.
fn described(language: Language, skill: &Skill, declared: Result<Declared, String>) -> String {
    let state = if skill.disabled { texts::skill_off(language) } else { texts::skill_on(language) };
    let name = one_line(&skill.name, ABOUT_CHARS);
    let mut text = format!("{} [{}] {name}", skill.id, skill.origin.label());
    let mut line = |part: String| {
        text.push('\n');
        text.push_str(&part);
    };
    if !skill.description.is_empty() {
        line(one_line(&skill.description, 1000));
    }
    line(texts::skill_state(language, &state, skill.requires.as_str()));
    if let Some(why) = &skill.broken {
        line(format!("⚠ {}", texts::skill_broken(language, &skill.id, why)));
        return text;
    }
    if let Some(command) = skill.command.as_ref().filter(|_| skill.for_people) {
        line(texts::skill_command(language, command));
        for verb in &skill.verbs {
            let about = verb.desc.as_deref().map(|about| one_line(about, ABOUT_CHARS)).unwrap_or_default();
            let needs = verb.requires.map(|needs| format!(" [{}]", needs.as_str())).unwrap_or_default();
            line(format!("  /{command} {}{needs}  {about}", verb.name).trim_end().to_owned());
        }
    }
    if !skill.for_models {
        line(texts::skill_not_for_models(language));
    }
    if !skill.allowed_tools.is_empty() {
        line(texts::skill_tools(language, &one_line(&skill.allowed_tools.join(", "), 1000)));
    }
    if let Some(folder) = &skill.folder {
        line(texts::skill_folder(language, &folder.display().to_string()));
    }
    let mut warnings = skill.warnings.clone();
    match declared {
        Ok(Declared { params, secrets }) => {
            for (part, entries) in [("params", params), ("secrets", secrets)] {
                for Entry { key, description, .. } in entries.unwrap_or_default() {
                    let about = description.map(|about| one_line(&about, ABOUT_CHARS)).unwrap_or_default();
                    line(format!("  {}.{part}.{key}  {about}", skill.id).trim_end().to_owned());
                }
            }
        }
        Err(why) => warnings.push(why),
    }
    for warning in warnings {
        line(format!("⚠ {warning}"));
    }
    text
}

/// `delete <id or number>`.
pub async fn delete(asked: &Asked, name: &str) -> Result<Reply, ApiError> {
    match find(asked, "/skill delete", name).await? {
        Ok(skill) => delete::delete(asked, Kind::Skill, &skill.id).await,
        Err(text) => Ok(Reply::text(text)),
    }
}

/// `enable <id or number>` and `disable <id or number>`.
pub async fn turn(asked: &Asked, name: &str, on: bool) -> Result<Reply, ApiError> {
    let command = if on { "/skill enable" } else { "/skill disable" };
    let skill = match find(asked, command, name).await? {
        Ok(skill) => skill,
        Err(text) => return Ok(Reply::text(text)),
    };
    let item = DisabledItem {
        item_type: "skill".into(),
        item_id: skill.id.clone(),
        scope: skill.origin.scope().into(),
    };
    asked.workspace().await?.set_disabled(item, !on).await?;
    let language = asked.language();
    Ok(Reply::text(if on {
        texts::skill_enabled(language, &skill.id)
    } else {
        texts::skill_disabled(language, &skill.id)
    }))
}

async fn all(asked: &Asked) -> Result<Vec<Skill>, ApiError> {
    asked.skills(asked.access(), |shelf: Shelf<'_>| shelf.all()).await
}

/// The skill of this number in the list, or of this id; the inner error says why there is none.
async fn find(asked: &Asked, command: &str, name: &str) -> Result<Result<Skill, String>, ApiError> {
    let language = asked.language();
    if name.is_empty() {
        return Ok(Err(texts::usage(language, command, "<id or number>")));
    }
    let mut found = all(asked).await?;
    let by_number = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let place = by_number
        .filter(|place| *place < found.len())
        .or_else(|| found.iter().position(|skill| skill.id == name))
        .or_else(|| found.iter().position(|skill| skill.id.to_lowercase() == name.to_lowercase()));
    Ok(match place {
        Some(place) => Ok(found.swap_remove(place)),
        None => Err(texts::skill_unknown(language, &one_line(name, ABOUT_CHARS))),
    })
}
