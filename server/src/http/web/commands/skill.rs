//! `/skill`: what there is, and whether it is on in this workspace. Those above the caller's level are not there.

use super::{Asked, Reply, one_line, texts};
use crate::agent::profile::DisabledItem;
use crate::agent::skill::{Skill, skills};
use crate::http::error::ApiError;
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
        let _ = write!(text, "\n  {number}. [{}] {}", skill.origin.scope(), skill.id);
        if skill.disabled {
            let _ = write!(text, " ({})", texts::skill_off(language));
        }
        if !skill.description.is_empty() {
            let _ = write!(text, " — {}", one_line(&skill.description, ABOUT_CHARS));
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
    let state = if skill.disabled { texts::skill_off(language) } else { texts::skill_on(language) };
    let about = if skill.description.is_empty() {
        String::new()
    } else {
        format!("\n{}", one_line(&skill.description, 1000))
    };
    Ok(Reply::text(format!(
        "{} [{}] {}{about}\n{}",
        skill.id,
        skill.origin.scope(),
        one_line(&skill.name, ABOUT_CHARS),
        texts::skill_state(language, &state, skill.requires.as_str())
    )))
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
    let disabled = asked.disabled().await?;
    let (files, folder, access) = (asked.state.files.clone(), asked.target.workspace.clone(), asked.access());
    tokio::task::spawn_blocking(move || skills(&files.skills, &folder, access, &disabled))
        .await
        .map_err(ApiError::internal)
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
