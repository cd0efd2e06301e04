//! `/agent`: who there is, and a new session with one of them: a session keeps its agent for life.

use super::delete::{self, Kind};
use super::{Asked, Reply, one_line, session, texts};
use crate::agent::profile::Profile;
use crate::http::error::ApiError;
use crate::session::Agents;
use std::fmt::Write as _;

/// The longest description in the list, in characters.
const ABOUT_CHARS: usize = 100;

/// `list`.
pub async fn list(asked: &Asked) -> Result<Reply, ApiError> {
    let agents = asked.agents().await?;
    let current = current(asked, &agents).await?;
    let mut text = texts::agent_list_head(asked.language());
    for (number, profile) in (1..).zip(&agents.visible) {
        let _ = write!(text, "\n  {number}. [{}] {}", profile.origin.label(), profile.id);
        if profile.name != profile.id {
            let _ = write!(text, " ({})", one_line(&profile.name, ABOUT_CHARS));
        }
        if !profile.description.is_empty() {
            let _ = write!(text, " — {}", one_line(&profile.description, ABOUT_CHARS));
        }
        if Some(&profile.id) == current.as_ref() {
            text.push_str("  ◀");
        }
    }
    for (id, why) in &agents.broken {
        let _ = write!(text, "\n  ⚠ {}", texts::agent_broken(asked.language(), id, why));
    }
    let _ = write!(text, "\n\n{}", texts::agent_list_foot(asked.language()));
    Ok(Reply::text(text))
}

/// `switch <name or number>`.
pub async fn switch(asked: &Asked, name: &str) -> Result<Reply, ApiError> {
    if name.is_empty() {
        return Ok(Reply::text(texts::usage(asked.language(), "/agent switch", "<name or number>")));
    }
    let agents = asked.agents().await?;
    match find(asked, &agents, name) {
        Ok(profile) => {
            let id = session::open(asked, Some(profile.id.clone())).await?;
            let text = texts::agent_switched(asked.language(), &profile.name);
            Ok(Reply { text, switch: Some(id) })
        }
        Err(text) => Ok(Reply::text(text)),
    }
}

/// `desc [name or number]`; without one, the agent of the session.
pub async fn desc(asked: &Asked, name: &str) -> Result<Reply, ApiError> {
    let agents = asked.agents().await?;
    let wanted = if name.is_empty() { current(asked, &agents).await? } else { Some(name.to_owned()) };
    let Some(wanted) = wanted else { return list(asked).await };
    Ok(Reply::text(find(asked, &agents, &wanted).map_or_else(|text| text, |found| described(asked, found))))
}

/// The agent of the session, else the one that a new session gets.
async fn current(asked: &Asked, agents: &Agents) -> Result<Option<String>, ApiError> {
    let bound = match asked.current().await? {
        Some((workspace, id)) => workspace.agent_of(&id).await?,
        None => None,
    };
    Ok(bound.or_else(|| agents.entry.clone()))
}

/// The agent that works in the session of the command, or would in a session that it makes.
pub async fn working<'a>(asked: &Asked, agents: &'a Agents) -> Result<Option<&'a Profile>, ApiError> {
    let bound = match asked.current().await? {
        Some((workspace, id)) => workspace.agent_of(&id).await?,
        None => None,
    };
    let id = bound.or_else(|| asked.agent_id.clone()).or_else(|| agents.entry.clone());
    Ok(id.and_then(|id| agents.visible.iter().find(|profile| profile.id == id)))
}

/// `delete <name or number>`.
pub async fn delete(asked: &Asked, name: &str) -> Result<Reply, ApiError> {
    if name.is_empty() {
        return Ok(Reply::text(texts::usage(asked.language(), "/agent delete", "<name or number>")));
    }
    let agents = asked.agents().await?;
    let id = match find(asked, &agents, name) {
        Ok(profile) => &profile.id,
        // What is broken can be deleted, too.
        Err(text) => match agents.broken.iter().find(|(id, _)| id == name) {
            Some((id, _)) => id,
            None => return Ok(Reply::text(text)),
        },
    };
    delete::delete(asked, Kind::Agent, id).await
}

/// The agent of this number in the list, of this id, or of this name; the error says why there is none.
fn find<'a>(asked: &Asked, agents: &'a Agents, name: &str) -> Result<&'a Profile, String> {
    let visible = &agents.visible;
    let numbered = name.parse::<usize>().ok().and_then(|number| visible.get(number.checked_sub(1)?));
    if let Some(found) = numbered.or_else(|| visible.iter().find(|profile| profile.id == name)) {
        return Ok(found);
    }
    let lower = name.to_lowercase();
    let named: Vec<&Profile> = visible
        .iter()
        .filter(|profile| profile.id.to_lowercase() == lower || profile.name.to_lowercase() == lower)
        .collect();
    let shown = one_line(name, ABOUT_CHARS);
    match named[..] {
        [found] => Ok(found),
        [] => Err(match agents.broken.iter().find(|(id, _)| id.to_lowercase() == lower) {
            Some((id, why)) => texts::agent_broken(asked.language(), id, why),
            None => texts::agent_unknown(asked.language(), &shown),
        }),
        _ => {
            let ids: Vec<&str> = named.iter().map(|profile| profile.id.as_str()).collect();
            Err(texts::agent_ambiguous(asked.language(), &shown, &ids.join(", ")))
        }
    }
}

fn described(asked: &Asked, profile: &Profile) -> String {
    let language = asked.language();
    let list = |items: &[String]| if items.is_empty() { texts::none(language) } else { items.join(", ") };
    let model = profile.model.as_ref().map_or_else(
        || texts::agent_any_model(language),
        |model| format!("{} / {}", model.provider, model.id),
    );
    let about = if profile.description.is_empty() {
        String::new()
    } else {
        format!("\n{}", one_line(&profile.description, 1000))
    };
    let missing = if profile.missing.is_empty() {
        String::new()
    } else {
        format!("\n⚠ {}", texts::agent_missing(language, &profile.missing.join(", ")))
    };
    let skills: Vec<String> =
        profile.skills.iter().filter(|id| !profile.missing.contains(id)).cloned().collect();
    format!(
        "{} [{}] {}{about}\n{}{missing}",
        profile.id,
        profile.origin.label(),
        one_line(&profile.name, ABOUT_CHARS),
        texts::agent_parts(language, &model, &list(&profile.tools), &list(&skills), &list(&profile.team))
    )
}
