//! What is done to a session and to all that it has started: stop, archive, delete. The whole tree at once, then
//! another look, since a sub-session may have been on its way into life at that moment (sessions contract, sections 2
//! and 5).

use super::actor::Command;
use super::ids::SessionId;
use super::remove::Removal;
use super::state::Stop;
use super::{Handle, SessionError};
use crate::store::tree;
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Looks at a tree before it is given up that it comes to rest.
const LOOKS: u32 = 5;

/// The stops under way. While one is, no session that it reaches is started or sent anything by another one, and what
/// sub-sessions report starts nothing: a tree would else grow on ahead of its stop.
#[derive(Debug, Default)]
pub(super) struct Stops(Mutex<Vec<SessionId>>);

impl Stops {
    fn begin<'a>(&'a self, id: &'a SessionId) -> UnderWay<'a> {
        self.list().push(id.clone());
        UnderWay { stops: self, id }
    }

    /// Whether one of them reaches this session.
    pub fn reach(&self, id: &SessionId) -> bool {
        self.list().iter().any(|stopping| id == stopping || id.is_below(stopping))
    }

    fn list(&self) -> MutexGuard<'_, Vec<SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stop, until it is dropped.
struct UnderWay<'a> {
    stops: &'a Stops,
    id: &'a SessionId,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut list = self.stops.list();
        if let Some(at) = list.iter().position(|id| id == self.id) {
            list.swap_remove(at);
        }
    }
}

impl Handle {
    /// Stops the run in flight and everything it started, at any depth; false when nothing of it runs. Answers when
    /// all runs have ended, within about 2 s. The parent of a sub-session is told.
    pub async fn stop(&self) -> Result<bool, SessionError> {
        self.stop_tree(true).await
    }

    /// The same; `tell_parent` says whether the parent of a sub-session hears of it.
    pub(super) async fn stop_tree(&self, tell_parent: bool) -> Result<bool, SessionError> {
        if !self.workspace.is_owned() {
            return Ok(false);
        }
        let _under_way = self.workspace.shared().stops.begin(&self.id);
        let mut stopped = false;
        for look in 0..LOOKS {
            let own = Stop { tell_parent, again: look > 0 };
            let own = self.ask(|reply| Command::Stop { stop: own, reply });
            let (own, below) = tokio::join!(own, self.stop_below());
            let any = own? | below?;
            stopped |= any;
            if !any {
                break;
            }
        }
        Ok(stopped)
    }

    async fn stop_below(&self) -> Result<bool, SessionError> {
        let mut tree: BTreeSet<SessionId> = self.workspace.in_memory_below(&self.id).into_iter().collect();
        let key = self.id.to_string();
        let active = self.workspace.read(move |conn| tree::active(conn, &key)).await?;
        tree.extend(active.iter().filter_map(|id| id.parse().ok()));
        let stop = Stop { tell_parent: false, again: false };
        let answers = join_all(tree.into_iter().map(|id| async move {
            self.workspace.session(&id).ask(|reply| Command::Stop { stop, reply }).await
        }));
        answers.await.into_iter().try_fold(false, |any, answer| Ok(any | answer?))
    }

    /// Stops the session and sets it aside with all that is below it: none of it is on a list any more, and what
    /// waited is dropped. A message to it brings it back. The parent of a sub-session is told.
    pub async fn archive(&self) -> Result<(), SessionError> {
        self.archive_tree(true).await
    }

    /// The same; `tell_parent` says whether the parent of a sub-session hears of it.
    pub(super) async fn archive_tree(&self, tell_parent: bool) -> Result<(), SessionError> {
        self.remove(Removal::Archive, tell_parent).await
    }

    /// Deletes the session with all that is below it. The parent of a sub-session is told.
    pub async fn delete(&self) -> Result<(), SessionError> {
        self.remove(Removal::Delete, true).await
    }

    async fn remove(&self, how: Removal, tell_parent: bool) -> Result<(), SessionError> {
        self.workspace.own().await?;
        let _under_way = self.workspace.shared().stops.begin(&self.id);
        for _ in 0..LOOKS {
            self.stop_tree(tell_parent).await?;
            let key = self.id.to_string();
            let below = self.workspace.read(move |conn| tree::descendants(conn, &key)).await?;
            let mut at_rest = true;
            // The deepest first: a parent goes when nothing is below it any more.
            for id in below.iter().filter_map(|id| id.parse().ok()).chain([self.id.clone()]) {
                at_rest &= self.workspace.session(&id).ask(|reply| Command::Remove { how, reply }).await??;
            }
            if at_rest {
                return Ok(());
            }
        }
        Err(SessionError::Busy)
    }
}
