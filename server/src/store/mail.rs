//! What sessions leave for each other. A letter is written in the sender's own transaction and removed in the one in
//! which the receiver makes something of it, so that none is lost and none is taken twice.

use rusqlite::{Connection, params};

/// One letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Its number; they are taken in its order.
    pub id: i64,
    /// The session that left it.
    pub from: String,
    /// What it is, as JSON.
    pub item: String,
}

/// Leaves an item for `to`; nothing happens when that session is gone or archived.
pub(super) fn post(conn: &Connection, from: &str, to: &str, item: &str) -> rusqlite::Result<()> {
    conn.prepare_cached(
        "INSERT INTO mail (to_session, from_session, item)
         SELECT id, ?2, ?3 FROM sessions WHERE id = ?1 AND archived_at IS NULL",
    )?
    .execute(params![to, from, item])
    .map(drop)
}

pub(super) fn taken(conn: &Connection, id: i64) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM mail WHERE id = ?1")?.execute([id]).map(drop)
}

/// Removes what was left for a session. What it has left for others tells them that it is gone, too.
pub(super) fn forget(conn: &Connection, session: &str) -> rusqlite::Result<()> {
    conn.prepare_cached("DELETE FROM mail WHERE to_session = ?1")?.execute([session]).map(drop)
}

/// The oldest letters for a session, at most `limit`.
pub fn waiting(conn: &Connection, to: &str, limit: u32) -> rusqlite::Result<Vec<Letter>> {
    conn.prepare_cached("SELECT id, from_session, item FROM mail WHERE to_session = ?1 ORDER BY id LIMIT ?2")?
        .query_map(params![to, limit], |row| {
            Ok(Letter { id: row.get(0)?, from: row.get(1)?, item: row.get(2)? })
        })?
        .collect()
}
