//! `/session`: opening, listing and changing sessions, and what can be done to the one at hand.

use super::{Asked, Reply, one_line, texts};
use crate::access::AccessLevel;
use crate::clock::iso;
use crate::http::error::ApiError;
use crate::session::ids::SessionId;
use crate::session::{Branch, Compaction, ContextInfo, Listed, SessionError};
use crate::store::accounts::Language;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Sessions in a list.
const LISTED: u32 = 50;
/// Sessions of a tree.
const BRANCHES: usize = 200;
/// The longest title that is shown, in characters.
const TITLE_CHARS: usize = 60;
/// Characters of a root's id that tell it from others.
const ID_TAIL: usize = 12;
/// How ids of other doors than the web channel begin.
const DOORS: [&str; 9] = ["a2a", "cli", "cron", "feishu", "goal", "slack", "tg", "wechat", "wecom"];

/// `new`.
pub async fn new(asked: &Asked) -> Result<Reply, ApiError> {
    let id = open(asked, asked.agent_id.clone()).await?;
    Ok(Reply { text: texts::session_new(asked.language()), switch: Some(id) })
}

/// Opens a session at the account's level and moves there.
pub async fn open(asked: &Asked, agent_id: Option<String>) -> Result<SessionId, ApiError> {
    let workspace = asked.workspace().await?;
    let id = SessionId::new_web(&asked.caller.account_id, asked.state.clock.now_ms());
    workspace.create(&id, agent_id, asked.access(), None).await?;
    asked.move_to(&workspace, &id);
    Ok(id)
}

/// What the caller's list holds: all of the workspace for full, else its own.
fn prefix(asked: &Asked) -> String {
    if asked.access() == AccessLevel::Full { String::new() } else { asked.caller.session_prefix() }
}

/// `list`.
pub async fn list(asked: &Asked) -> Result<Reply, ApiError> {
    let language = asked.language();
    let none = || Reply::text(texts::session_none(language));
    let Some(workspace) = asked.existing().await? else { return Ok(none()) };
    let (rows, count) = workspace.newest_roots(&prefix(asked), 0, LISTED).await?;
    if rows.is_empty() {
        return Ok(none());
    }
    let active = asked.current().await?.map(|(_, id)| id.root().to_string());
    let own = asked.caller.session_prefix();
    let mut text = texts::session_list_head(language);
    for (number, row) in (1..).zip(&rows) {
        let mark = if Some(&row.session_id) == active.as_ref() { "→" } else { " " };
        let (tag, title) = (tag(&row.session_id, &own), title(language, row.title.as_deref()));
        let _ = write!(text, "\n{mark} {number}. [{tag}] {} {title}", time(row.updated_at));
    }
    let more = count.saturating_sub(rows.len() as u32);
    if more > 0 {
        let _ = write!(text, "\n{}", texts::session_list_more(language, more));
    }
    let foot = if asked.access() == AccessLevel::Full {
        texts::session_list_all(language)
    } else {
        texts::session_list_own(language)
    };
    let _ = write!(text, "\n\n{foot}");
    Ok(Reply::text(text))
}

/// `switch <number>`: a place in the list as it is now.
pub async fn switch(asked: &Asked, number: &str) -> Result<Reply, ApiError> {
    let language = asked.language();
    let none = || Reply::text(texts::session_none(language));
    let Some(workspace) = asked.existing().await? else { return Ok(none()) };
    let number = number.parse::<u32>().ok().filter(|number| *number > 0);
    let (rows, count) =
        workspace.newest_roots(&prefix(asked), number.map_or(0, |number| number - 1), 1).await?;
    if count == 0 {
        return Ok(none());
    }
    let (Some(number), Some(Listed { session_id, title: named, updated_at })) =
        (number, rows.into_iter().next())
    else {
        return Ok(Reply::text(texts::session_switch_usage(language, count)));
    };
    let id: SessionId = session_id.parse().map_err(ApiError::internal)?;
    asked.move_to(&workspace, &id);
    let title = title(language, named.as_deref());
    let text = texts::session_switched(language, number, &title, &time(updated_at));
    Ok(Reply { text, switch: Some(id) })
}

/// `info`.
pub async fn info(asked: &Asked) -> Result<Reply, ApiError> {
    let language = asked.language();
    let none = || Reply::text(texts::session_none(language));
    let Some((workspace, id)) = asked.current().await? else { return Ok(none()) };
    let root = id.root();
    let mut branches = workspace.tree(&root, BRANCHES as u32 + 1).await?;
    let more = branches.len() > BRANCHES;
    branches.truncate(BRANCHES);
    if branches.first().is_none_or(|first| first.session_id != root.as_str()) {
        return Ok(none());
    }
    let mut text = tree(language, &branches);
    if more {
        let _ = write!(text, "\n{}", texts::tree_more(language));
    }
    Ok(Reply::text(text))
}

/// `stop`.
pub async fn stop(asked: &Asked) -> Result<Reply, ApiError> {
    let stopped = match asked.current().await? {
        Some((workspace, id)) => workspace.session(&id).stop().await?,
        None => false,
    };
    let language = asked.language();
    Ok(Reply::text(if stopped { texts::session_stopped(language) } else { texts::session_idle(language) }))
}

/// `interrupt`.
pub async fn interrupt(asked: &Asked) -> Result<Reply, ApiError> {
    let cut = match asked.current().await? {
        Some((workspace, id)) => workspace.session(&id).interrupt().await?,
        None => false,
    };
    let language = asked.language();
    Ok(Reply::text(if cut { texts::session_interrupted(language) } else { texts::session_idle(language) }))
}

/// `compact`. Takes as long as the model needs for a summary.
pub async fn compact(asked: &Asked) -> Result<Reply, ApiError> {
    let language = asked.language();
    let Some((workspace, id)) = asked.current().await? else {
        return Ok(Reply::text(texts::session_none(language)));
    };
    Ok(Reply::text(match workspace.session(&id).compact().await {
        Ok(Compaction::Done { messages }) => texts::compact_done(language, messages),
        Ok(Compaction::Nothing) => texts::compact_nothing(language),
        Ok(Compaction::NoSummary) => texts::compact_no_summary(language),
        Ok(Compaction::Failed(why)) => texts::compact_failed(language, &why),
        Ok(Compaction::Cancelled) => texts::compact_cancelled(language),
        Ok(Compaction::Busy) => texts::compact_busy(language),
        Err(SessionError::NotFound) => texts::session_none(language),
        Err(error) => return Err(error.into()),
    }))
}

/// `context`.
pub async fn context(asked: &Asked) -> Result<Reply, ApiError> {
    let language = asked.language();
    let info = match asked.current().await? {
        Some((workspace, id)) => workspace.session(&id).context().await?,
        None => None,
    };
    Ok(Reply::text(info.map_or_else(|| texts::session_none(language), |info| fullness(language, &info))))
}

fn fullness(language: Language, info: &ContextInfo) -> String {
    let percent = format!("{:.1}", info.used as f64 * 100.0 / info.window.max(1) as f64);
    let tools = if info.tools.is_empty() { texts::none(language) } else { info.tools.join(", ") };
    format!(
        "{}\n{}",
        texts::context(language, info.used, info.window, &percent, info.threshold),
        texts::context_agent(language, &info.agent, &info.model, &tools)
    )
}

/// Whose a session is: mine, or the door that it came in by.
fn tag(id: &str, own: &str) -> &'static str {
    if id.starts_with(own) {
        return "me";
    }
    let door = id.split(['_', '-']).next().unwrap_or_default();
    DOORS.into_iter().find(|known| *known == door).unwrap_or("web")
}

fn title(language: Language, title: Option<&str>) -> String {
    match title.map(|title| one_line(title, TITLE_CHARS)).filter(|title| !title.is_empty()) {
        Some(title) => title,
        None => texts::untitled(language),
    }
}

/// `2026-12-01 18:06:13`, in UTC.
fn time(ms: i64) -> String {
    let iso = iso(ms);
    let (day, rest) = iso.split_once('T').unwrap_or((&iso, ""));
    format!("{day} {}", rest.split('.').next().unwrap_or_default())
}

/// The tree of which the first is the root; of siblings the older first.
fn tree(language: Language, branches: &[Branch]) -> String {
    let Some(root) = branches.first() else { return String::new() };
    let mut children: HashMap<&str, Vec<&Branch>> = HashMap::new();
    for branch in &branches[1..] {
        let parent = branch.session_id.rsplit_once('>').map_or("", |(parent, _)| parent);
        children.entry(parent).or_default().push(branch);
    }
    let tail: String = {
        let count = root.session_id.chars().count();
        root.session_id.chars().skip(count.saturating_sub(ID_TAIL)).collect()
    };
    let mut text = texts::tree_head(language, &tail, &title(language, root.title.as_deref()));
    // What is still to be written, the next one last.
    let mut ahead = vec![(0, root)];
    while let Some((depth, branch)) = ahead.pop() {
        let lead = if depth == 0 { "→".to_owned() } else { format!("{}├", "  ".repeat(depth)) };
        let state = if branch.archived {
            texts::archived(language)
        } else if branch.running {
            texts::running(language)
        } else if branch.stopped {
            texts::stopped(language)
        } else {
            texts::idle(language)
        };
        let times = texts::tree_times(language, &time(branch.created_at), &time(branch.updated_at));
        let _ = write!(text, "\n{lead} {} · {state} · {times}", one_line(&branch.agent_name, TITLE_CHARS));
        if depth > 0 {
            let _ = write!(text, " · {}", title(language, branch.title.as_deref()));
        }
        let mut below = children.remove(branch.session_id.as_str()).unwrap_or_default();
        below.sort_by_key(|child| std::cmp::Reverse(child.created_at));
        ahead.extend(below.into_iter().map(|child| (depth + 1, child)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn branch(id: &str, created_at: i64) -> Branch {
        Branch {
            session_id: id.into(),
            agent_name: id.rsplit('>').next().unwrap().into(),
            title: Some(format!("about {id}")),
            created_at,
            updated_at: 1_796_148_373_010,
            running: false,
            stopped: false,
            archived: false,
        }
    }

    #[test]
    fn a_tree_shows_children_below_their_parent_and_the_older_first() {
        let branches = [
            branch("web_a_mx50d6f6_12345678", 1),
            Branch { running: true, ..branch("web_a_mx50d6f6_12345678>b", 9) },
            Branch { stopped: true, ..branch("web_a_mx50d6f6_12345678>b-c", 5) },
            Branch { archived: true, stopped: true, ..branch("web_a_mx50d6f6_12345678>b>d", 7) },
        ];
        let text = tree(Language::En, &branches);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Session …6f6_12345678: about web_a_mx50d6f6_12345678");
        let lead = |line: &str| line.split(" · made").next().unwrap().to_owned();
        assert_eq!(
            lines[1..].iter().map(|line| lead(line)).collect::<Vec<_>>(),
            [
                "→ web_a_mx50d6f6_12345678 · ⚪ idle",
                "  ├ b-c · ⏹ stopped",
                "  ├ b · 🟢 running",
                "    ├ d · 📦 archived"
            ]
        );
        assert!(lines[1].contains("active 2026-12-01 18:06:13 UTC"), "{}", lines[1]);
    }

    #[test]
    fn a_tag_names_the_owner_or_the_door() {
        assert_eq!(tag("web_a1_x", "web_a1_"), "me");
        assert_eq!(tag("web_b2_x", "web_a1_"), "web");
        assert_eq!(tag("a2a_b2_x", "web_a1_"), "a2a");
        assert_eq!(tag("cron-x", "web_a1_"), "cron");
        assert_eq!(tag("goalkeeper", "web_a1_"), "web");
    }

    #[test]
    fn a_title_is_one_short_line() {
        assert_eq!(title(Language::En, Some("a\n b\t\u{1b}c")), "a b c");
        assert_eq!(title(Language::En, Some(&"x".repeat(100))).chars().count(), TITLE_CHARS);
        assert_eq!(title(Language::Zh, Some(" ")), "（无标题）");
    }
}
