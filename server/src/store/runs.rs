//! `runs.db`: which folders were ever opened as a workspace, so that a start finds the runs that were cut off.

use super::{Database, StoreError};
use std::path::{Path, PathBuf};

/// Notes that `workspace` is in use at `now_ms`. A path that is no UTF-8 is noted lossily; such a workspace is
/// refused before it gets here. Of one that is known already only the time is lost when the disk is full, so that
/// is no error.
pub async fn remember(db: &Database, workspace: &Path, now_ms: i64) -> Result<(), StoreError> {
    let path = workspace.to_string_lossy().into_owned();
    let noted = db.write(move |db| {
        db.prepare_cached(
            "INSERT INTO workspaces (path, first_used_at, last_used_at) VALUES (?1, ?2, ?2)
             ON CONFLICT (path) DO UPDATE SET last_used_at = max(last_used_at, excluded.last_used_at)",
        )?
        .execute((&path, now_ms))?;
        Ok(())
    });
    let Err(error) = noted.await else { return Ok(()) };
    if !all(db).await?.iter().any(|known| known == workspace) {
        return Err(error);
    }
    tracing::warn!(workspace = %workspace.display(), %error, "the time of use could not be noted");
    Ok(())
}

/// Every workspace ever used, the last used first. Some of the folders may be gone by now.
pub async fn all(db: &Database) -> Result<Vec<PathBuf>, StoreError> {
    db.read(|db| {
        db.prepare_cached("SELECT path FROM workspaces ORDER BY last_used_at DESC, path")?
            .query_map([], |row| row.get::<_, String>(0).map(PathBuf::from))?
            .collect()
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::schema::Schema;

    #[tokio::test]
    async fn workspaces_are_listed_once_with_the_last_used_first() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("runs.db"), Schema::Runs).unwrap();
        remember(&db, Path::new("/a"), 1).await.unwrap();
        remember(&db, Path::new("/b"), 2).await.unwrap();
        assert_eq!(all(&db).await.unwrap(), [Path::new("/b"), Path::new("/a")]);
        remember(&db, Path::new("/a"), 3).await.unwrap();
        assert_eq!(all(&db).await.unwrap(), [Path::new("/a"), Path::new("/b")]);
        db.close().await;
    }

    #[tokio::test]
    async fn a_known_workspace_can_be_used_when_nothing_can_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let db = Database::open(&folder.path().join("runs.db"), Schema::Runs).unwrap();
        remember(&db, Path::new("/a"), 1).await.unwrap();
        db.write(|db| {
            db.execute_batch(
                "CREATE TRIGGER full_up BEFORE UPDATE ON workspaces BEGIN SELECT RAISE(ABORT, 'full'); END;
                 CREATE TRIGGER full_new BEFORE INSERT ON workspaces WHEN new.path = '/b'
                   BEGIN SELECT RAISE(ABORT, 'full'); END",
            )
        })
        .await
        .unwrap();
        remember(&db, Path::new("/a"), 2).await.unwrap();
        assert!(remember(&db, Path::new("/b"), 2).await.is_err());
        db.close().await;
    }
}
