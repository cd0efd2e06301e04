//! Reading the display log: keyset pages, newest or oldest first, up to a fixed top row, so that a slow reader
//! holds no transaction. Archived rows are always the oldest of a log, without a gap among them.

use rusqlite::{Connection, OptionalExtension, params};

const FORWARD: &str = "SELECT seq, row FROM log WHERE session_id = ?1 AND seq > ?2 AND seq <= ?3
    AND (?4 IS NULL OR (at >= ?4 AND task = 0)) ORDER BY seq LIMIT ?5";
const BACKWARD: &str = "SELECT seq FROM log WHERE session_id = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT ?3";
const OLDEST: &str = "SELECT archived FROM log WHERE session_id = ?1 ORDER BY seq LIMIT 1";
const ARCHIVED_AT: &str =
    "SELECT archived FROM log WHERE session_id = ?1 AND seq <= ?2 ORDER BY seq DESC LIMIT 1";
const TOP: &str = "SELECT COALESCE(MAX(seq), 0) FROM log WHERE session_id = ?1";

/// A row of the log with its place.
pub type LogRow = (i64, String);

/// Up to `limit` rows after `after`, up to and with `top`, oldest first, with `at >= since` and without those of
/// sub-sessions when `since` is given. Stops early once the rows exceed `max_bytes` (at least one row comes).
pub fn forward(
    conn: &Connection,
    id: &str,
    after: i64,
    top: i64,
    since: Option<i64>,
    limit: u32,
    max_bytes: usize,
) -> rusqlite::Result<Vec<LogRow>> {
    let mut statement = conn.prepare_cached(FORWARD)?;
    let mut rows = statement.query(params![id, after, top, since, limit])?;
    let mut page: Vec<LogRow> = Vec::new();
    let mut bytes = 0;
    while let Some(row) = rows.next()? {
        let row: LogRow = (row.get(0)?, row.get(1)?);
        bytes += row.1.len();
        page.push(row);
        if bytes > max_bytes {
            break;
        }
    }
    Ok(page)
}

/// The place before the newest `limit` rows of those below `before` (exclusive) and up to `top`, and whether
/// older rows exist.
pub fn page_start(
    conn: &Connection,
    id: &str,
    top: i64,
    before: Option<i64>,
    limit: u32,
) -> rusqlite::Result<(i64, bool)> {
    let end = before.map_or(top, |before| top.min(before - 1));
    let mut statement = conn.prepare_cached(BACKWARD)?;
    let seqs: Vec<i64> = statement
        .query_map(params![id, end, limit + 1], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    if seqs.len() > limit as usize { Ok((seqs[limit as usize], true)) } else { Ok((0, false)) }
}

/// The place before the oldest row with `at >= since`. Times rise with places (one clock, one writer), so the
/// search goes backwards from the newest row and stops at the first older one.
pub fn since_start(conn: &Connection, id: &str, top: i64, since: i64) -> rusqlite::Result<i64> {
    let mut statement =
        conn.prepare_cached("SELECT seq, at FROM log WHERE session_id = ?1 AND seq <= ?2 ORDER BY seq DESC")?;
    let mut rows = statement.query(params![id, top])?;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(1)? < since {
            return row.get(0);
        }
    }
    Ok(0)
}

/// The place of the newest archived row; 0 when there is none. Archived rows come before all others, so one look at
/// the oldest row tells in most logs, and a search by halves finds the border in the rest.
pub fn archived_to(conn: &Connection, id: &str, top: i64) -> rusqlite::Result<i64> {
    let oldest = conn.prepare_cached(OLDEST)?.query_row([id], |row| row.get(0)).optional()?;
    if !oldest.unwrap_or(false) {
        return Ok(0);
    }
    let mut look = conn.prepare_cached(ARCHIVED_AT)?;
    let (mut archived, mut beyond) = (0, top + 1);
    while beyond - archived > 1 {
        let middle = archived + (beyond - archived) / 2;
        if look.query_row(params![id, middle], |row| row.get(0)).optional()?.unwrap_or(true) {
            archived = middle;
        } else {
            beyond = middle;
        }
    }
    Ok(archived)
}

/// Rows that are looked at for the latest turn.
const TURN_ROWS: u32 = 2000;

/// The rows after the newest message of the user up to `top`, oldest first; of a very long turn the newest.
pub fn latest_turn(conn: &Connection, id: &str, top: i64) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare_cached(
        "SELECT row, json_extract(row, '$.type') = 'user' FROM log WHERE session_id = ?1 AND seq <= ?2
         ORDER BY seq DESC LIMIT ?3",
    )?;
    let mut rows = statement.query(params![id, top, TURN_ROWS])?;
    let mut turn = Vec::new();
    while let Some(row) = rows.next()? {
        if row.get::<_, Option<bool>>(1)?.unwrap_or(false) {
            break;
        }
        turn.push(row.get(0)?);
    }
    turn.reverse();
    Ok(turn)
}

/// The last place of the log; 0 when it is empty.
pub fn top(conn: &Connection, id: &str) -> rusqlite::Result<i64> {
    conn.prepare_cached(TOP)?.query_row([id], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Database;
    use crate::store::schema::Schema;
    use crate::store::sessions;
    use rusqlite::StatementStatus::{FullscanStep, Sort, VmStep};

    /// Steps of SQLite's machine that the statements have taken so far, and whether one read a whole table.
    fn work(conn: &Connection) -> (i32, i32) {
        let (mut steps, mut scans) = (0, 0);
        for sql in [FORWARD, BACKWARD, OLDEST, ARCHIVED_AT, TOP] {
            let statement = conn.prepare_cached(sql).unwrap();
            steps += statement.reset_status(VmStep);
            scans += statement.reset_status(FullscanStep) + statement.reset_status(Sort);
        }
        (steps, scans)
    }

    #[tokio::test]
    async fn a_page_costs_the_same_in_a_log_of_100_rows_and_of_100_000() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("halo.db"), Schema::Workspace).unwrap();
        let fill = |id: &'static str, rows: i64, archived: i64| {
            db.write(move |conn| {
                conn.execute(
                    "INSERT INTO sessions (id, agent_id, agent_name, access_level, created_at, updated_at)
                     VALUES (?1, 'default', 'Default', 'full', 0, 0)",
                    [id],
                )?;
                conn.execute(
                    "WITH RECURSIVE n(seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM n WHERE seq < ?2)
                     INSERT INTO log (session_id, seq, at, row, archived)
                     SELECT ?1, seq, seq, '{\"content\":\"some text\"}', seq <= ?3 FROM n",
                    params![id, rows, archived],
                )
            })
        };
        fill("short", 100, 0).await.unwrap();
        fill("long", 100_000, 0).await.unwrap();
        fill("half-archived", 100_000, 50_000).await.unwrap();
        let page = |id: &'static str, before: Option<i64>| {
            db.read(move |conn| {
                work(conn);
                let top = top(conn, id)?;
                let floor = archived_to(conn, id, top)?;
                let (start, more) = page_start(conn, id, top, before, 20)?;
                let end = before.map_or(top, |before| before - 1);
                let rows = forward(conn, id, start.max(floor), end, None, 200, 1 << 20)?;
                assert_eq!((rows.len(), more), (20, true), "{id}");
                assert_eq!(sessions::counters(conn, id)?.log, top + 1);
                Ok(work(conn))
            })
        };
        let (short, _) = page("short", None).await.unwrap();
        let (looks, _) = page("half-archived", None).await.unwrap();
        for before in [None, Some(99_000), Some(50_000), Some(50)] {
            let (steps, scans) = page("long", before).await.unwrap();
            assert!(
                steps <= short + short / 10 && scans == 0,
                "before {before:?}: {steps} steps, not about {short}; {scans} scans"
            );
        }
        // 17 looks find the border of what is archived.
        assert!(looks < short + 17 * 30, "{looks} steps");
        db.close().await;
    }

    #[test]
    fn the_border_of_the_archived_rows_is_found_in_every_log() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE log (session_id TEXT, seq INTEGER, archived INTEGER, PRIMARY KEY (session_id, seq))")
            .unwrap();
        for rows in 0..20 {
            for archived in 0..=rows {
                let id = format!("{rows}-{archived}");
                for seq in 1..=rows {
                    // Every third place is empty.
                    db.execute(
                        "INSERT INTO log VALUES (?1, ?2, ?3)",
                        params![id, seq + seq / 2, seq <= archived],
                    )
                    .unwrap();
                }
                let top = top(&db, &id).unwrap();
                let border = archived_to(&db, &id, top).unwrap();
                let visible: i64 = db
                    .query_row(
                        "SELECT count(*) FROM log WHERE session_id = ?1 AND seq > ?2",
                        params![id, border],
                        |row| row.get(0),
                    )
                    .unwrap();
                assert_eq!(visible, rows - archived, "{id}");
            }
        }
    }
}
