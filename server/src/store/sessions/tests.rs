use super::*;
use crate::store::Database;
use crate::store::schema::Schema;

#[tokio::test]
async fn totals_count_each_session_once_and_no_archived_one() {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(&folder.path().join("halo.db"), Schema::Workspace).unwrap();
    let empty = db.read(totals).await.unwrap();
    let nothing = Totals { running: 0, stopped: 0, idle: 0, context_tokens: 0, output_tokens: 0 };
    assert_eq!(empty, nothing);
    db.write(|conn| {
        for (id, stopped_at, archived_at) in [
            ("idle", None, None),
            ("stopped", Some(2), None),
            ("running", None, None),
            // Running again before its mark is gone.
            ("both", Some(2), None),
            ("archived", Some(2), Some(3)),
        ] {
            let row = SessionRow {
                id: id.into(),
                parent_id: None,
                agent_id: "default".into(),
                agent_name: "Default".into(),
                description: None,
                working_dir: None,
                prompt_context: None,
                access_level: "full".into(),
                created_at: 1,
                updated_at: 1,
                stopped_at: None,
                archived_at: None,
                title: None,
                context_tokens: 0,
                total_output_tokens: 0,
            };
            let answered = Write::Answered { at: 1, context_tokens: 100, output_tokens: 7 };
            apply(conn, id, &[Write::Create(row), answered])?;
            if matches!(id, "running" | "both") {
                apply(conn, id, &[Write::RunStarted { at: 1, crashes: 0 }])?;
            }
            conn.execute(
                "UPDATE sessions SET stopped_at = ?2, archived_at = ?3 WHERE id = ?1",
                params![id, stopped_at, archived_at],
            )?;
        }
        Ok(())
    })
    .await
    .unwrap();
    let counted = db.read(totals).await.unwrap();
    let expected = Totals { running: 2, stopped: 1, idle: 1, context_tokens: 400, output_tokens: 28 };
    assert_eq!(counted, expected);
    db.close().await;
}
