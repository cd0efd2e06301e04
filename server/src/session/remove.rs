//! Setting sessions aside, and deleting them, with all that is below them. Deleting leaves nothing behind, and nothing
//! comes back from a late save: the session's owner is the only one that writes it.

use super::SessionError;
use super::actor::Actor;
use super::mail::Item;
use crate::store::sessions::{self, Counters, Write};

/// How a session goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is on no list any more; what waited in its queue is dropped.
    Archive,
    /// All of it.
    Delete,
}

impl Actor {
    /// Sets the session aside or deletes it; false while a run is in flight.
    pub async fn remove(&mut self, how: Removal) -> Result<bool, SessionError> {
        if self.run.is_some() {
            return Ok(false);
        }
        // Whether a sub-session is still active was decided in the store, when its last run ended.
        let id = self.id.as_str().to_owned();
        let stored = self.shared.db.read(move |conn| sessions::get(conn, &id)).await;
        let Some(row) = stored.map_err(|error| self.internal(&error))? else { return Ok(true) };
        let at = self.now();
        let mut writes = Vec::new();
        if self.id.is_child() && row.stopped_at.is_none() && row.archived_at.is_none() {
            writes.push(Write::Post { to: self.id.root().to_string(), item: Item::Done.json() });
        }
        match how {
            Removal::Archive => {
                writes.extend(self.queue.last().map(|(up_to, _)| Write::Dequeue { up_to: *up_to }));
                writes.push(Write::Archived { at });
            }
            Removal::Delete => {
                // What could not be stored yet belongs to what is deleted now.
                self.pending.clear();
                self.left = None;
                writes.push(Write::Deleted);
            }
        }
        self.commit(writes).await.map_err(|error| self.internal(&error))?;
        self.queue.clear();
        match how {
            Removal::Archive => {
                if let Some(row) = &mut self.row {
                    row.archived_at = Some(at);
                }
            }
            Removal::Delete => {
                self.row = None;
                self.history = None;
                self.gauge = None;
                self.last = None;
                self.mail_waits = false;
                self.next = Counters { log: 1, message: 1, queue: 1 };
            }
        }
        Ok(true)
    }
}
