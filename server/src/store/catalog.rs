//! What surfaces ask of a workspace before they turn to a session: which roots there are, whether one may be
//! addressed, what is switched off.

use super::sessions::{RootRow, after_prefix};
use rusqlite::{Connection, OptionalExtension, params};

/// Roots whose id starts with `prefix`, archived ones left out, newest first: `limit` after the first `skip`, and
/// how many there are in all.
pub fn newest_roots(
    conn: &Connection,
    prefix: &str,
    skip: u32,
    limit: u32,
) -> rusqlite::Result<(Vec<RootRow>, u32)> {
    let end = after_prefix(prefix);
    let count = conn
        .prepare_cached(
            "SELECT COUNT(*) FROM sessions
             WHERE id >= ?1 AND id < ?2 AND parent_id IS NULL AND archived_at IS NULL",
        )?
        .query_row(params![prefix, end], |row| row.get(0))?;
    let rows = conn
        .prepare_cached(
            "SELECT id, COALESCE(title, description), updated_at FROM sessions
             WHERE id >= ?1 AND id < ?2 AND parent_id IS NULL AND archived_at IS NULL
             ORDER BY updated_at DESC, id DESC LIMIT ?3 OFFSET ?4",
        )?
        .query_map(params![prefix, end, limit, skip], |row| {
            Ok(RootRow { id: row.get(0)?, title: row.get(1)?, updated_at: row.get(2)? })
        })?
        .collect::<rusqlite::Result<_>>()?;
    Ok((rows, count))
}

/// Whether the session exists and is not archived.
pub fn is_live(conn: &Connection, id: &str) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM sessions WHERE id = ?1 AND archived_at IS NULL")?.exists([id])
}

/// The session that a goal was set in, for the session that judges it.
pub fn goal_worker(conn: &Connection, id: &str) -> rusqlite::Result<Option<String>> {
    let found = conn
        .prepare_cached("SELECT goal_worker FROM sessions WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    Ok(found.flatten())
}

/// Switches an agent or a skill off (at this time) or on.
pub fn set_disabled(
    conn: &Connection,
    item_type: &str,
    item_id: &str,
    scope: &str,
    off_since: Option<i64>,
) -> rusqlite::Result<()> {
    match off_since {
        Some(at) => conn
            .prepare_cached(
                "INSERT INTO disabled_items (item_type, item_id, scope, disabled_at) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT DO NOTHING",
            )?
            .execute(params![item_type, item_id, scope, at])?,
        None => conn
            .prepare_cached(
                "DELETE FROM disabled_items WHERE item_type = ?1 AND item_id = ?2 AND scope = ?3",
            )?
            .execute(params![item_type, item_id, scope])?,
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Database;
    use crate::store::schema::Schema;

    fn put(conn: &Connection, id: &str, updated_at: i64) -> rusqlite::Result<usize> {
        let parent = id.rsplit_once('>').map(|(parent, _)| parent);
        conn.prepare_cached(
            "INSERT INTO sessions (id, parent_id, agent_id, agent_name, access_level, created_at, updated_at)
             VALUES (?1, ?2, 'default', 'Default', 'full', 1, ?3)",
        )?
        .execute(params![id, parent, updated_at])
    }

    async fn with(ids: &'static [(&'static str, i64)]) -> (tempfile::TempDir, Database) {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("halo.db"), Schema::Workspace).unwrap();
        db.write(|conn| ids.iter().try_for_each(|(id, at)| put(conn, id, *at).map(drop))).await.unwrap();
        (folder, db)
    }

    #[tokio::test]
    async fn roots_come_newest_first_in_pieces_with_their_count() {
        let (_folder, db) =
            with(&[("web_a_1", 5), ("web_a_2", 9), ("web_a_2>x", 20), ("web_b_1", 7), ("other", 1)]).await;
        db.write(|conn| conn.execute("UPDATE sessions SET archived_at = 1 WHERE id = 'other'", []))
            .await
            .unwrap();
        let page = |prefix: &'static str, skip, limit| {
            let db = db.clone();
            async move {
                let (rows, count) =
                    db.read(move |conn| newest_roots(conn, prefix, skip, limit)).await.unwrap();
                (rows.into_iter().map(|row| row.id).collect::<Vec<_>>(), count)
            }
        };
        assert_eq!(page("", 0, 2).await, (vec!["web_a_2".into(), "web_b_1".into()], 3));
        assert_eq!(page("", 2, 2).await, (vec!["web_a_1".into()], 3));
        assert_eq!(page("web_a_", 0, 9).await, (vec!["web_a_2".into(), "web_a_1".into()], 2));
        assert_eq!(page("web_c_", 0, 9).await, (vec![], 0));
    }

    #[tokio::test]
    async fn what_is_switched_off_twice_is_on_after_once() {
        let (_folder, db) = with(&[]).await;
        let count = || db.read(|conn| crate::store::sessions::disabled_items(conn).map(|items| items.len()));
        for at in [1, 2] {
            db.write(move |conn| set_disabled(conn, "skill", "x", "global", Some(at))).await.unwrap();
        }
        assert_eq!(count().await.unwrap(), 1);
        db.write(|conn| set_disabled(conn, "skill", "x", "workspace", None)).await.unwrap();
        assert_eq!(count().await.unwrap(), 1);
        db.write(|conn| set_disabled(conn, "skill", "x", "global", None)).await.unwrap();
        assert_eq!(count().await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_goal_names_its_worker_and_an_unknown_one_nobody() {
        let (_folder, db) = with(&[("goal_1", 1), ("goal_2", 1)]).await;
        db.write(|conn| conn.execute("UPDATE sessions SET goal_worker = 'web_a_1' WHERE id = 'goal_1'", []))
            .await
            .unwrap();
        let worker = |id: &'static str| db.read(move |conn| goal_worker(conn, id));
        assert_eq!(worker("goal_1").await.unwrap().as_deref(), Some("web_a_1"));
        assert_eq!(worker("goal_2").await.unwrap(), None);
        assert_eq!(worker("goal_3").await.unwrap(), None);
    }
}
