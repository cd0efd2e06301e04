//! Session rows, and the changes that a session's owner writes. A change of a session is a list of [`Write`]s
//! applied in one transaction, so log, model history, queue and ledger never disagree.

use super::{mail, tree};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// A row of `sessions`. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRow {
    /// The id, the key.
    pub id: String,
    /// The id of the parent session; none for a root.
    pub parent_id: Option<String>,
    /// The agent that the session is bound to for life.
    pub agent_id: String,
    /// The agent's display name when the session was made.
    pub agent_name: String,
    /// What it was made for; the fallback of the title.
    pub description: Option<String>,
    /// The folder that a sub-session was pointed to, relative to the workspace.
    pub working_dir: Option<String>,
    /// What a sub-session was told beside its message: more of its system prompt.
    pub prompt_context: Option<String>,
    /// The level of its last message; a sub-session keeps the one it was made with.
    pub access_level: String,
    /// When it was made.
    pub created_at: i64,
    /// Its last activity.
    pub updated_at: i64,
    /// When it was stopped, until it goes on.
    pub stopped_at: Option<i64>,
    /// When it was archived.
    pub archived_at: Option<i64>,
    /// The title in lists.
    pub title: Option<String>,
    /// Tokens in the model's context after the last call.
    pub context_tokens: i64,
    /// Tokens written over the session's life.
    pub total_output_tokens: i64,
}

/// One entry of a list of roots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootRow {
    /// The id.
    pub id: String,
    /// Title, else description.
    pub title: Option<String>,
    /// Its last activity.
    pub updated_at: i64,
}

/// The next free sequence numbers of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    /// In its log.
    pub log: i64,
    /// In its model history.
    pub message: i64,
    /// In its queue.
    pub queue: i64,
}

/// One step of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// Makes the session.
    Create(SessionRow),
    /// A message arrived: activity, level, a title where there is none, no longer stopped.
    Received {
        /// Now.
        at: i64,
        /// The sender's level.
        access_level: &'static str,
        /// For a session without a title.
        title: Option<String>,
    },
    /// The model answered.
    Answered {
        /// Now.
        at: i64,
        /// Tokens in the context.
        context_tokens: i64,
        /// Tokens that this call wrote.
        output_tokens: i64,
    },
    /// Marks the session as stopped by somebody.
    Stopped {
        /// Now.
        at: i64,
    },
    /// Adds a row to the display log.
    Log {
        /// Its place.
        seq: i64,
        /// Its time.
        at: i64,
        /// Whether it tells of a sub-session: it has a `taskId`.
        task: bool,
        /// The row as the client sees it.
        row: String,
    },
    /// Adds or replaces a message of the model history.
    Message {
        /// Its place.
        seq: i64,
        /// The message as JSON.
        message: String,
    },
    /// Removes the messages of the model history before this place.
    Forget {
        /// The first place to stay.
        before: i64,
    },
    /// Adds an entry to the queue.
    Enqueue {
        /// Its place.
        seq: i64,
        /// The entry as JSON.
        entry: String,
    },
    /// Removes the queue's entries up to this place.
    Dequeue {
        /// The last place to go.
        up_to: i64,
    },
    /// Sets or removes the assistant row in flight.
    Inflight(Option<String>),
    /// A run begins.
    RunStarted {
        /// Now.
        at: i64,
        /// How often in a row it ended with the process; -1 keeps the next end from counting.
        crashes: i64,
    },
    /// The run is over.
    RunEnded,
    /// Leaves something for another session, if that one exists.
    Post {
        /// The receiver.
        to: String,
        /// What it is, as JSON.
        item: String,
    },
    /// The end of a sub-session's run. If it is quiet (no child of its own is active, and nothing of one waits for
    /// it), it is marked as stopped, and its report is left for its parent; otherwise `interim` is.
    Report {
        /// Now.
        at: i64,
        /// The parent.
        parent: String,
        /// The root, which is told first that the sub-session is done.
        root: String,
        /// For the root.
        done: String,
        /// For the parent.
        report: String,
        /// For the parent, where it is owed an answer already.
        interim: Option<String>,
    },
    /// What another session left was taken.
    Taken {
        /// Which.
        mail: i64,
    },
    /// Sets the session aside: it is on no list any more, and what others have left for it goes.
    Archived {
        /// Now.
        at: i64,
    },
    /// Deletes the session with all that belongs to it.
    Deleted,
}

/// Applies a change of the session `id`.
pub fn apply(conn: &Connection, id: &str, writes: &[Write]) -> rusqlite::Result<()> {
    for write in writes {
        apply_one(conn, id, write)?;
    }
    Ok(())
}

fn apply_one(conn: &Connection, id: &str, write: &Write) -> rusqlite::Result<()> {
    let run =
        |sql: &str, values: &[&dyn rusqlite::ToSql]| conn.prepare_cached(sql)?.execute(values).map(drop);
    match write {
        Write::Create(row) => insert(conn, row),
        Write::Received { at, access_level, title } => run(
            "UPDATE sessions SET updated_at = ?2, access_level = ?3, title = COALESCE(title, ?4), stopped_at = NULL,
             archived_at = NULL, exchange_count = exchange_count + 1 WHERE id = ?1",
            &[&id, at, access_level, title],
        ),
        Write::Answered { at, context_tokens, output_tokens } => run(
            "UPDATE sessions SET updated_at = ?2, context_tokens = ?3, total_output_tokens = total_output_tokens + ?4
             WHERE id = ?1",
            &[&id, at, context_tokens, output_tokens],
        ),
        Write::Stopped { at } => run("UPDATE sessions SET stopped_at = ?2 WHERE id = ?1", &[&id, at]),
        Write::Log { seq, at, task, row } => run(
            "INSERT INTO log (session_id, seq, at, task, row) VALUES (?1, ?2, ?3, ?4, ?5)",
            &[&id, seq, at, task, row],
        ),
        Write::Message { seq, message } => run(
            "INSERT INTO model_messages (session_id, seq, message) VALUES (?1, ?2, ?3)
             ON CONFLICT (session_id, seq) DO UPDATE SET message = excluded.message",
            &[&id, seq, message],
        ),
        Write::Forget { before } => {
            run("DELETE FROM model_messages WHERE session_id = ?1 AND seq < ?2", &[&id, before])
        }
        Write::Enqueue { seq, entry } => {
            run("INSERT INTO queue (session_id, seq, entry) VALUES (?1, ?2, ?3)", &[&id, seq, entry])
        }
        Write::Dequeue { up_to } => run("DELETE FROM queue WHERE session_id = ?1 AND seq <= ?2", &[&id, up_to]),
        Write::Inflight(Some(row)) => run(
            "INSERT INTO inflight (session_id, row) VALUES (?1, ?2)
             ON CONFLICT (session_id) DO UPDATE SET row = excluded.row",
            &[&id, row],
        ),
        Write::Inflight(None) => run("DELETE FROM inflight WHERE session_id = ?1", &[&id]),
        Write::RunStarted { at, crashes } => run(
            "INSERT INTO runs (session_id, started_at, crashes) VALUES (?1, ?2, ?3)
             ON CONFLICT (session_id) DO UPDATE SET started_at = excluded.started_at, crashes = excluded.crashes",
            &[&id, at, crashes],
        ),
        Write::RunEnded => run("DELETE FROM runs WHERE session_id = ?1", &[&id]),
        Write::Post { to, item } => mail::post(conn, id, to, item),
        Write::Report { at, parent, root, done, report, interim } => {
            if tree::is_quiet(conn, id)? {
                run("UPDATE sessions SET stopped_at = ?2 WHERE id = ?1", &[&id, at])?;
                mail::post(conn, id, root, done)?;
                mail::post(conn, id, parent, report)
            } else {
                interim.iter().try_for_each(|interim| mail::post(conn, id, parent, interim))
            }
        }
        Write::Taken { mail } => mail::taken(conn, *mail),
        Write::Archived { at } => {
            mail::forget(conn, id)?;
            run("UPDATE sessions SET archived_at = ?2 WHERE id = ?1", &[&id, at])
        }
        Write::Deleted => {
            mail::forget(conn, id)?;
            run("DELETE FROM sessions WHERE id = ?1", &[&id])
        }
    }
}

fn insert(conn: &Connection, row: &SessionRow) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO sessions (id, parent_id, agent_id, agent_name, description, working_dir, prompt_context,
         access_level, created_at, updated_at, title) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
    )?
    .execute(params![
        row.id,
        row.parent_id,
        row.agent_id,
        row.agent_name,
        row.description,
        row.working_dir,
        row.prompt_context,
        row.access_level,
        row.created_at,
        row.updated_at,
        row.title,
    ])
    .map(drop)
}

/// The session, if it exists.
pub fn get(conn: &Connection, id: &str) -> rusqlite::Result<Option<SessionRow>> {
    conn.prepare_cached(
        "SELECT id, parent_id, agent_id, agent_name, description, access_level, created_at, updated_at, stopped_at,
         archived_at, title, context_tokens, total_output_tokens, working_dir, prompt_context
         FROM sessions WHERE id = ?1",
    )?
    .query_row([id], session_row)
    .optional()
}

fn session_row(row: &Row<'_>) -> rusqlite::Result<SessionRow> {
    Ok(SessionRow {
        id: row.get(0)?,
        parent_id: row.get(1)?,
        agent_id: row.get(2)?,
        agent_name: row.get(3)?,
        description: row.get(4)?,
        access_level: row.get(5)?,
        created_at: row.get(6)?,
        updated_at: row.get(7)?,
        stopped_at: row.get(8)?,
        archived_at: row.get(9)?,
        title: row.get(10)?,
        context_tokens: row.get(11)?,
        total_output_tokens: row.get(12)?,
        working_dir: row.get(13)?,
        prompt_context: row.get(14)?,
    })
}

/// The next free sequence numbers of the session.
pub fn counters(conn: &Connection, id: &str) -> rusqlite::Result<Counters> {
    let next = |sql: &str| conn.prepare_cached(sql)?.query_row([id], |row| row.get(0));
    Ok(Counters {
        log: next("SELECT COALESCE(MAX(seq), 0) + 1 FROM log WHERE session_id = ?1")?,
        message: next("SELECT COALESCE(MAX(seq), 0) + 1 FROM model_messages WHERE session_id = ?1")?,
        queue: next("SELECT COALESCE(MAX(seq), 0) + 1 FROM queue WHERE session_id = ?1")?,
    })
}

/// The most recently active root whose id starts with `prefix`, archived ones left out.
pub fn latest_root(conn: &Connection, prefix: &str) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(
        "SELECT id FROM sessions WHERE id >= ?1 AND id < ?2 AND parent_id IS NULL AND archived_at IS NULL
         ORDER BY updated_at DESC, id DESC LIMIT 1",
    )?
    .query_row(params![prefix, after_prefix(prefix)], |row| row.get(0))
    .optional()
}

/// Roots whose id starts with `prefix`, archived ones left out, newest first and strictly older than `before`:
/// at most `limit`, extended over all rows that share the last one's millisecond. The flag tells whether more
/// follow.
pub fn roots(
    conn: &Connection,
    prefix: &str,
    before: Option<i64>,
    limit: u32,
) -> rusqlite::Result<(Vec<RootRow>, bool)> {
    let mut statement = conn.prepare_cached(
        "SELECT id, COALESCE(title, description), updated_at FROM sessions
         WHERE id >= ?1 AND id < ?2 AND parent_id IS NULL AND archived_at IS NULL AND updated_at < ?3
         ORDER BY updated_at DESC, id DESC",
    )?;
    let mut rows = statement.query(params![prefix, after_prefix(prefix), before.unwrap_or(i64::MAX)])?;
    let mut page: Vec<RootRow> = Vec::new();
    while let Some(row) = rows.next()? {
        let row = RootRow { id: row.get(0)?, title: row.get(1)?, updated_at: row.get(2)? };
        let full = page.len() >= limit as usize;
        if full && page.last().is_some_and(|last| last.updated_at != row.updated_at) {
            return Ok((page, true));
        }
        page.push(row);
    }
    Ok((page, false))
}

/// The first text that sorts after everything that starts with `prefix`: prefixes end in ASCII, so the last
/// character has a successor.
pub(super) fn after_prefix(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    end.push(char::MAX);
    end
}

/// The model history in order, as JSON texts.
pub fn messages(conn: &Connection, id: &str) -> rusqlite::Result<Vec<(i64, String)>> {
    conn.prepare_cached("SELECT seq, message FROM model_messages WHERE session_id = ?1 ORDER BY seq")?
        .query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// The queue in order, as JSON texts.
pub fn queue(conn: &Connection, id: &str) -> rusqlite::Result<Vec<(i64, String)>> {
    conn.prepare_cached("SELECT seq, entry FROM queue WHERE session_id = ?1 ORDER BY seq")?
        .query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// The assistant row that was in flight when the session's process ended.
pub fn inflight(conn: &Connection, id: &str) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached("SELECT row FROM inflight WHERE session_id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()
}

/// What is switched off in the workspace: type (`agent`, `skill`), id, and scope (`global`, `workspace`).
pub fn disabled_items(conn: &Connection) -> rusqlite::Result<Vec<(String, String, String)>> {
    conn.prepare_cached("SELECT item_type, item_id, scope FROM disabled_items")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
        .collect()
}

/// A session with work left over from another life of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The session.
    pub id: String,
    /// The ledger's count of crashes in a row, where a run was in flight.
    pub crashes: Option<i64>,
    /// Whether something of other sessions waits for it.
    pub mail: bool,
}

/// What a workspace holds. Archived sessions are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Sessions with a run in the ledger.
    pub running: i64,
    /// Of the others, those that are marked as stopped.
    pub stopped: i64,
    /// The rest.
    pub idle: i64,
    /// Tokens in the contexts after the last calls.
    pub context_tokens: i64,
    /// Tokens written.
    pub output_tokens: i64,
}

/// Counts the sessions of the workspace.
pub fn totals(conn: &Connection) -> rusqlite::Result<Totals> {
    conn.prepare_cached(
        "SELECT COUNT(r.session_id),
           COALESCE(SUM(r.session_id IS NULL AND s.stopped_at IS NOT NULL), 0),
           COALESCE(SUM(r.session_id IS NULL AND s.stopped_at IS NULL), 0),
           COALESCE(SUM(s.context_tokens), 0), COALESCE(SUM(s.total_output_tokens), 0)
         FROM sessions s LEFT JOIN runs r ON r.session_id = s.id WHERE s.archived_at IS NULL",
    )?
    .query_row([], |row| {
        Ok(Totals {
            running: row.get(0)?,
            stopped: row.get(1)?,
            idle: row.get(2)?,
            context_tokens: row.get(3)?,
            output_tokens: row.get(4)?,
        })
    })
}

/// Sessions with a run in the ledger, a queue, a row in flight, or mail.
pub fn unfinished(conn: &Connection) -> rusqlite::Result<Vec<Unfinished>> {
    conn.prepare_cached(
        "SELECT session_id, MAX(crashes), MAX(mail) FROM (
           SELECT session_id, crashes, 0 AS mail FROM runs
           UNION ALL SELECT session_id, NULL, 0 FROM queue
           UNION ALL SELECT session_id, NULL, 0 FROM inflight
           UNION ALL SELECT to_session, NULL, 1 FROM mail)
         GROUP BY session_id ORDER BY session_id",
    )?
    .query_map([], |row| Ok(Unfinished { id: row.get(0)?, crashes: row.get(1)?, mail: row.get(2)? }))?
    .collect()
}

#[cfg(test)]
mod tests;
