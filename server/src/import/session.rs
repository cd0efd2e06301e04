//! One session: its row, its archives, its file, in this order. All of it, or nothing when its file is broken; a
//! broken archive alone is left out.

use super::builder::Builder;
use super::rows::Rows;
use super::session_file::{self, SessionFile};
use super::{Run, archive, history};
use crate::access::AccessLevel;
use crate::session::ids::SessionId;
use crate::store::imported::{Item, Session};
use crate::store::node::NodeSession;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The title that the Node program gave to a session that had none yet.
const NO_TITLE: &str = "New session";
/// More archives than a session can have.
const MAX_ARCHIVES: u64 = 100_000;

/// A session to be taken over.
#[derive(Debug)]
pub struct Job {
    /// Its row in the old database; none for a file that the database does not know.
    pub row: Option<NodeSession>,
    /// Its file; none when it was never written.
    pub file: Option<PathBuf>,
    /// The agent, by the folder that the file is in.
    pub agent_id: String,
}

/// Takes it over. `known` are the sessions that were here before this run, `taken` those of this run.
pub async fn import(
    run: &mut Run<'_>,
    builder: &mut Builder,
    job: Job,
    known: &HashSet<String>,
    taken: &mut HashSet<String>,
) -> anyhow::Result<()> {
    let text = job.file.as_deref().map(session_file::read).transpose();
    let parsed = match &text {
        Ok(text) => text.as_deref().map(SessionFile::parse).transpose(),
        Err(why) => Err(why.clone()),
    };
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(why) => {
            run.skip_file(job.file.as_deref().unwrap_or(Path::new("")), why);
            return Ok(());
        }
    };
    let orphan = job.row.is_none();
    let row = job.row.unwrap_or_else(|| row_of_file(job.file.as_deref(), parsed.as_ref(), &job.agent_id));
    if let Err(why) = row.id.parse::<SessionId>() {
        run.skip(format!("session {}", row.id.escape_debug()), why.to_string());
        return Ok(());
    }
    if known.contains(&row.id) {
        run.report.known_sessions += 1;
        return Ok(());
    }
    if !taken.insert(row.id.clone()) {
        run.skip_file(
            job.file.as_deref().unwrap_or(Path::new("")),
            "another file has the session of this name",
        );
        return Ok(());
    }
    take(run, builder, row, orphan, job.file.as_deref(), parsed.as_ref()).await
}

async fn take(
    run: &mut Run<'_>,
    builder: &mut Builder,
    row: NodeSession,
    orphan: bool,
    file: Option<&Path>,
    parsed: Option<&SessionFile<'_>>,
) -> anyhow::Result<()> {
    let id: Arc<str> = row.id.as_str().into();
    let created = row.created_at.or_else(|| parsed?.created_at());
    let mut rows = Rows::new(created.unwrap_or(0));
    if orphan || row.agent_name.is_none() || created.is_none() {
        // What the row does not tell is taken from the log, which then is read twice.
        for text in parsed.into_iter().flat_map(|file| &file.messages) {
            rows.next(text.get(), false);
        }
    }
    let last = row.updated_at.or_else(|| parsed?.updated_at()).unwrap_or_else(|| rows.at());
    let created = created.or(rows.first_at).unwrap_or(last);
    let agent_name = row.agent_name.clone().or_else(|| rows.agent_name.take());
    builder.add(Item::Session(Box::new(converted(&row, agent_name, created, last)))).await?;

    let mut rows = Rows::new(created.min(last));
    if let (Some(file), Some(parsed)) = (file, parsed) {
        for number in 1..=parsed.archives().min(MAX_ARCHIVES) {
            let part = archive::path_of(file, number);
            match archive::read(&part) {
                Ok(text) => match archive::parse(&text) {
                    Ok(found) => log(run, builder, &id, &mut rows, &found, true).await?,
                    Err(why) => run.skip_file(&part, why),
                },
                Err(why) => run.skip_file(&part, why),
            }
        }
        log(run, builder, &id, &mut rows, &parsed.messages, false).await?;
        let (messages, dropped) = history::convert(parsed.raw_messages.as_deref().unwrap_or_default());
        run.report.dropped_blocks += dropped;
        run.report.messages += messages.len();
        for (seq, message) in (1..).zip(&messages) {
            let text = serde_json::to_string(&**message)?;
            builder.add(Item::Message(Arc::clone(&id), seq, text)).await?;
        }
    }
    run.report.sessions += 1;
    builder.add(Item::End(id, rows.exchanges.max(row.exchange_count))).await
}

async fn log(
    run: &mut Run<'_>,
    builder: &mut Builder,
    id: &Arc<str>,
    rows: &mut Rows,
    found: &[&RawValue],
    archived: bool,
) -> anyhow::Result<()> {
    for text in found {
        match rows.next(text.get(), archived) {
            Some(row) => {
                run.report.rows += 1;
                run.report.archived_rows += usize::from(archived);
                builder.add(Item::Log(Arc::clone(id), row)).await?;
            }
            None => run.report.dropped_rows += 1,
        }
    }
    Ok(())
}

/// A row for a file that the old database does not know. Nobody knows its level, so it has the lowest.
fn row_of_file(file: Option<&Path>, parsed: Option<&SessionFile<'_>>, agent_id: &str) -> NodeSession {
    let leaf = file.and_then(Path::file_stem).map(|leaf| leaf.to_string_lossy()).unwrap_or_default();
    let parent = parsed.and_then(SessionFile::parent);
    NodeSession {
        id: parent.map_or_else(|| leaf.to_string(), |parent| format!("{parent}>{leaf}")),
        agent_id: agent_id.to_owned(),
        access_level: Some(AccessLevel::ReadOnly.as_str().to_owned()),
        title: parsed.and_then(SessionFile::title).map(str::to_owned),
        ..NodeSession::default()
    }
}

/// The session in which a goal was set.
fn goal_worker(goal: &str) -> Option<String> {
    let goal: Value = serde_json::from_str(goal).ok()?;
    let worker = goal.get("workerSessionId")?.as_str()?;
    worker.parse::<SessionId>().is_ok().then(|| worker.to_owned())
}

fn converted(row: &NodeSession, agent_name: Option<String>, created_at: i64, updated_at: i64) -> Session {
    let level = row.access_level.as_deref().map_or(AccessLevel::Full, AccessLevel::from_stored);
    Session {
        id: row.id.clone(),
        parent_id: row.id.rsplit_once('>').map(|(parent, _)| parent.to_owned()),
        agent_id: row.agent_id.clone(),
        agent_name: agent_name.unwrap_or_else(|| row.agent_id.clone()),
        description: row.description.clone(),
        working_dir: row.working_dir.clone(),
        access_level: level.as_str(),
        created_at,
        updated_at,
        // A sub-session that nobody stopped would count as one at work.
        stopped_at: row.stopped_at.or(row.id.contains('>').then_some(updated_at)),
        archived_at: row.archived_at,
        title: row.title.clone().filter(|title| !title.is_empty() && title != NO_TITLE),
        goal_worker: row.goal.as_deref().and_then(goal_worker),
        context_tokens: row.context_tokens,
        total_output_tokens: row.total_output_tokens,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_names_the_session_in_which_it_was_set() {
        let goal = r#"{"goalId": "goal_1", "workerSessionId": "web_a1_x", "status": "done"}"#;
        assert_eq!(goal_worker(goal).as_deref(), Some("web_a1_x"));
        for none in ["", "null", "{}", r#"{"workerSessionId": 5}"#, r#"{"workerSessionId": "a/b"}"#] {
            assert_eq!(goal_worker(none), None, "{none}");
        }
    }
}
