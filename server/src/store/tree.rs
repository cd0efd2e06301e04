//! The tree of sub-sessions below a session. An id tells its place: `root>child>grandchild`, so that all that is
//! below `X` lies in one range of ids.

use rusqlite::{Connection, params};

/// A session as a list of children shows it. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The id.
    pub id: String,
    /// The parent.
    pub parent_id: Option<String>,
    /// The agent.
    pub agent_id: String,
    /// The agent's display name.
    pub agent_name: String,
    /// What it was made for.
    pub description: Option<String>,
    /// Its level.
    pub access_level: String,
    /// When it was made.
    pub created_at: i64,
    /// Its last activity.
    pub updated_at: i64,
    /// When it was stopped.
    pub stopped_at: Option<i64>,
    /// When it was archived.
    pub archived_at: Option<i64>,
    /// The title in lists.
    pub title: Option<String>,
    /// Messages to it so far.
    pub exchange_count: i64,
    /// Tokens in the model's context.
    pub context_tokens: i64,
    /// Tokens written over its life.
    pub total_output_tokens: i64,
    /// Whether a run is in the ledger.
    pub running: bool,
}

const NODE: &str = "SELECT s.id, s.parent_id, s.agent_id, s.agent_name, s.description, s.access_level, s.created_at,
    s.updated_at, s.stopped_at, s.archived_at, s.title, s.exchange_count, s.context_tokens, s.total_output_tokens,
    r.session_id IS NOT NULL
    FROM sessions s LEFT JOIN runs r ON r.session_id = s.id";

fn nodes(conn: &Connection, rest: &str, values: &[&dyn rusqlite::ToSql]) -> rusqlite::Result<Vec<Node>> {
    conn.prepare_cached(&format!("{NODE} {rest}"))?
        .query_map(values, |row| {
            Ok(Node {
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
                exchange_count: row.get(11)?,
                context_tokens: row.get(12)?,
                total_output_tokens: row.get(13)?,
                running: row.get(14)?,
            })
        })?
        .collect()
}

/// The first and the first-too-far id of all that is below `id`.
fn below(id: &str) -> (String, String) {
    (format!("{id}>"), format!("{id}>{}", char::MAX))
}

/// The direct children that are not archived, oldest first, at most `limit`.
pub fn children(conn: &Connection, id: &str, limit: u32) -> rusqlite::Result<Vec<Node>> {
    let (from, to) = below(id);
    nodes(
        conn,
        "WHERE s.id > ?1 AND s.id < ?2 AND s.parent_id = ?3 AND s.archived_at IS NULL
         ORDER BY s.created_at, s.id LIMIT ?4",
        &[&from, &to, &id, &limit],
    )
}

/// The direct children that are neither stopped nor archived, oldest first, at most `limit`.
pub fn at_work(conn: &Connection, id: &str, limit: u32) -> rusqlite::Result<Vec<Node>> {
    let (from, to) = below(id);
    nodes(
        conn,
        "WHERE s.id > ?1 AND s.id < ?2 AND s.parent_id = ?3 AND s.stopped_at IS NULL AND s.archived_at IS NULL
         ORDER BY s.created_at, s.id LIMIT ?4",
        &[&from, &to, &id, &limit],
    )
}

/// The session and all that is below it, in the order of their ids, at most `limit`; archived ones included.
pub fn whole(conn: &Connection, id: &str, limit: u32) -> rusqlite::Result<Vec<Node>> {
    let (from, to) = below(id);
    nodes(
        conn,
        "WHERE s.id = ?1 OR (s.id > ?2 AND s.id < ?3) ORDER BY s.id LIMIT ?4",
        &[&id, &from, &to, &limit],
    )
}

/// The ids below `id` that may have something to do: neither stopped nor archived, or with a run.
pub fn active(conn: &Connection, id: &str) -> rusqlite::Result<Vec<String>> {
    let (from, to) = below(id);
    conn.prepare_cached(
        "SELECT s.id FROM sessions s LEFT JOIN runs r ON r.session_id = s.id
         WHERE s.id > ?1 AND s.id < ?2
         AND ((s.stopped_at IS NULL AND s.archived_at IS NULL) OR r.session_id IS NOT NULL)",
    )?
    .query_map(params![from, to], |row| row.get(0))?
    .collect()
}

/// All ids below `id`, the deepest first.
pub fn descendants(conn: &Connection, id: &str) -> rusqlite::Result<Vec<String>> {
    let (from, to) = below(id);
    conn.prepare_cached("SELECT id FROM sessions WHERE id > ?1 AND id < ?2 ORDER BY id DESC")?
        .query_map(params![from, to], |row| row.get(0))?
        .collect()
}

/// Whether nothing of the session's own is under way: no child is active, and no letter waits for it.
pub(super) fn is_quiet(conn: &Connection, id: &str) -> rusqlite::Result<bool> {
    if has_active_children(conn, id)? {
        return Ok(false);
    }
    conn.prepare_cached("SELECT NOT EXISTS (SELECT 1 FROM mail WHERE to_session = ?1)")?
        .query_row([id], |row| row.get(0))
}

/// Whether a direct child is neither stopped nor archived.
pub fn has_active_children(conn: &Connection, id: &str) -> rusqlite::Result<bool> {
    let (from, to) = below(id);
    conn.prepare_cached(
        "SELECT EXISTS (SELECT 1 FROM sessions WHERE id > ?1 AND id < ?2 AND parent_id = ?3
                        AND stopped_at IS NULL AND archived_at IS NULL)",
    )?
    .query_row(params![from, to, id], |row| row.get(0))
}

/// Marks every sub-session that is neither stopped nor archived as stopped: the process that ran it is gone. Each
/// root gets `done` of each, once. Gives how many there were.
pub fn stamp_orphans(conn: &Connection, at: i64, done: &str) -> rusqlite::Result<usize> {
    conn.prepare_cached(
        "INSERT INTO mail (to_session, from_session, item)
         SELECT r.id, s.id, ?1 FROM sessions s JOIN sessions r ON r.id = substr(s.id, 1, instr(s.id, '>') - 1)
         WHERE s.parent_id IS NOT NULL AND s.stopped_at IS NULL AND s.archived_at IS NULL AND r.archived_at IS NULL
         ORDER BY s.id",
    )?
    .execute([done])?;
    conn.prepare_cached(
        "UPDATE sessions SET stopped_at = ?1
         WHERE parent_id IS NOT NULL AND stopped_at IS NULL AND archived_at IS NULL",
    )?
    .execute([at])
}
