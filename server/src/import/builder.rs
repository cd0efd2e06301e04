//! Builds a workspace's database beside its place, in transactions of some megabytes, and moves it there when it is
//! complete. Where one of ours stands already, it starts from a copy of that.

use super::place::Place;
use crate::store::Database;
use crate::store::imported::{Item, write};
use crate::store::schema::Schema;
use anyhow::Context;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Bytes that wait to be written together.
const BATCH_BYTES: usize = 4 << 20;

/// A database that is being built; nothing of it counts before [`Builder::finish`]. Without a database it only
/// throws away: a dry run.
pub struct Builder {
    db: Option<Database>,
    waiting: Vec<Item>,
    bytes: usize,
}

impl Builder {
    /// Begins. A database of ours in the place must be closed, with its log folded into it.
    pub fn begin(place: &Place, dry_run: bool) -> anyhow::Result<Self> {
        if dry_run {
            return Ok(Self { db: None, waiting: Vec::new(), bytes: 0 });
        }
        place.clear()?;
        let file = place.building();
        if place.is_ours() {
            let copied = fs::copy(place.path(), &file)
                .and_then(|_| fs::set_permissions(&file, Permissions::from_mode(0o600)));
            copied.with_context(|| file.display().to_string())?;
        }
        Ok(Self { db: Some(Database::open(&file, Schema::Workspace)?), waiting: Vec::new(), bytes: 0 })
    }

    /// Adds one thing.
    pub async fn add(&mut self, item: Item) -> anyhow::Result<()> {
        if self.db.is_none() {
            return Ok(());
        }
        self.bytes += item.size();
        self.waiting.push(item);
        if self.bytes > BATCH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> anyhow::Result<()> {
        self.bytes = 0;
        let items = std::mem::take(&mut self.waiting);
        if let Some(db) = &self.db {
            write(db, items).await.context("the new database cannot be written")?;
        }
        Ok(())
    }

    /// Throws away what was built.
    pub async fn abandon(self, place: &Place) -> anyhow::Result<()> {
        let Some(db) = self.db else { return Ok(()) };
        db.close().await;
        place.clear()
    }

    /// Writes what waits and puts the database into its place. Answers the new name of an old one that stood there.
    pub async fn finish(mut self, place: &Place) -> anyhow::Result<Option<PathBuf>> {
        self.flush().await?;
        match self.db {
            None => Ok(place.is_old().then(|| place.aside())),
            Some(db) => {
                db.close().await;
                place.settle(true)
            }
        }
    }
}
