//! Which session an account talks to where a request names none: in memory, one an account, moved by commands alone.
//! Whether that session still exists and still is the account's own, its user asks.

use crate::session::ids::SessionId;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Accounts whose pointer is remembered; past that the one that moved longest ago is forgotten.
const MAX_ACCOUNTS: usize = 10_000;

/// The pointers of all accounts.
#[derive(Debug, Default)]
pub struct Pointers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    moves: u64,
    accounts: HashMap<String, Pointer>,
}

#[derive(Debug)]
struct Pointer {
    moved: u64,
    workspace: PathBuf,
    session: SessionId,
}

impl Pointers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves the account to a session of this workspace.
    pub fn set(&self, account_id: &str, workspace: &Path, session: &SessionId) {
        let mut state = self.lock();
        state.moves += 1;
        let pointer =
            Pointer { moved: state.moves, workspace: workspace.to_owned(), session: session.clone() };
        state.accounts.insert(account_id.to_owned(), pointer);
        if state.accounts.len() > MAX_ACCOUNTS
            && let Some(oldest) =
                state.accounts.iter().min_by_key(|(_, pointer)| pointer.moved).map(|(id, _)| id.clone())
        {
            state.accounts.remove(&oldest);
        }
    }

    /// Forgets where the account is.
    pub fn clear(&self, account_id: &str) {
        self.lock().accounts.remove(account_id);
    }

    /// The session of this workspace that the account was moved to.
    pub fn get(&self, account_id: &str, workspace: &Path) -> Option<SessionId> {
        let state = self.lock();
        let pointer = state.accounts.get(account_id)?;
        (pointer.workspace == workspace).then(|| pointer.session.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> SessionId {
        text.parse().unwrap()
    }

    #[test]
    fn an_account_has_one_pointer_and_it_counts_in_its_workspace_alone() {
        let pointers = Pointers::default();
        let (here, there) = (Path::new("/here"), Path::new("/there"));
        pointers.set("a", here, &id("s1"));
        pointers.set("b", here, &id("s2"));
        assert_eq!(pointers.get("a", here), Some(id("s1")));
        assert_eq!(pointers.get("a", there), None);
        pointers.set("a", there, &id("s3"));
        assert_eq!((pointers.get("a", here), pointers.get("a", there)), (None, Some(id("s3"))));
        pointers.clear("a");
        assert_eq!((pointers.get("a", there), pointers.get("b", here)), (None, Some(id("s2"))));
    }

    #[test]
    fn the_pointer_that_moved_longest_ago_makes_room() {
        let pointers = Pointers::default();
        let here = Path::new("/here");
        for n in 0..MAX_ACCOUNTS {
            pointers.set(&n.to_string(), here, &id("s"));
        }
        pointers.set("0", here, &id("s"));
        pointers.set("new", here, &id("s"));
        assert_eq!(pointers.get("1", here), None);
        assert!(["0", "2", "new"].iter().all(|account| pointers.get(account, here).is_some()));
        assert_eq!(pointers.lock().accounts.len(), MAX_ACCOUNTS);
    }
}
