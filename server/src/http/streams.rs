//! The event streams that are open, by the account that opened them. A stream ends when its account could not open
//! it any more: deleted, disabled, with another token, or no longer `full`. The routes that change accounts ask for
//! a look at once; what other processes change is seen by a look whenever the database has changed, once a second
//! at most and only while streams are open. The run behind a stream goes on.

use super::auth::token::Caller;
use crate::access::AccountLevel;
use crate::store::accounts::{self, Account};
use crate::store::{Database, StoreError};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// How often the database is asked whether it has changed.
const PAUSE: Duration = Duration::from_secs(1);
/// The last line of a stream that is ended here.
const GOODBYE: Bytes = Bytes::from_static(b": the token is no longer valid\n\n");

/// The open streams; clones share them. As many entries as there are accounts with streams.
#[derive(Clone)]
pub struct Streams(Arc<Inner>);

struct Inner {
    accounts: Database,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    open: HashMap<Pass, Open>,
    /// Whether a task looks at the database.
    watched: bool,
    /// Whether streams came since the last look: their accounts may have changed before.
    unseen: bool,
}

struct Open {
    end: CancellationToken,
    streams: usize,
}

/// What an account was when it opened a stream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pass {
    account_id: String,
    /// 36 random bits: enough to tell a token from the one that replaces it.
    token_prefix: String,
    is_full: bool,
}

impl Pass {
    /// Whether the account, as it is now, could open the stream again.
    fn holds(&self, account: &Account) -> bool {
        self.account_id == account.id
            && self.token_prefix == account.token_prefix
            && (!self.is_full || account.level == AccountLevel::Full)
    }
}

/// One stream that is registered, from before its run starts until it is dropped.
pub struct Registered {
    streams: Streams,
    pass: Pass,
    end: CancellationToken,
}

impl Streams {
    /// No stream yet. `accounts` is the database of the channel accounts.
    pub fn new(accounts: Database) -> Self {
        Self(Arc::new(Inner { accounts, table: Mutex::default() }))
    }

    /// Registers a stream that is about to open. Needs a tokio runtime.
    pub fn register(&self, caller: &Caller) -> Registered {
        let pass = Pass {
            account_id: caller.account_id.clone(),
            token_prefix: caller.token_prefix.clone(),
            is_full: caller.level == AccountLevel::Full,
        };
        let mut table = self.table();
        table.unseen = true;
        let open = table
            .open
            .entry(pass.clone())
            .or_insert_with(|| Open { end: CancellationToken::new(), streams: 0 });
        open.streams += 1;
        let end = open.end.clone();
        if !table.watched {
            table.watched = true;
            tokio::spawn(self.clone().watch());
        }
        drop(table);
        Registered { streams: self.clone(), pass, end }
    }

    /// Looks at the accounts of all open streams and ends those that would not be let in now.
    pub async fn review(&self) -> Result<(), StoreError> {
        let passes: Vec<Pass> = self.table().open.keys().cloned().collect();
        if passes.is_empty() {
            return Ok(());
        }
        let ids: HashSet<String> = passes.iter().map(|pass| pass.account_id.clone()).collect();
        let accounts = accounts::enabled_among(&self.0.accounts, ids.into_iter().collect()).await?;
        let accounts: HashMap<&str, &Account> =
            accounts.iter().map(|account| (account.id.as_str(), account)).collect();
        let mut table = self.table();
        for pass in passes {
            let holds = accounts.get(pass.account_id.as_str()).is_some_and(|account| pass.holds(account));
            if !holds && let Some(open) = table.open.remove(&pass) {
                tracing::info!(
                    account = pass.account_id,
                    streams = open.streams,
                    "streams of a token that ended"
                );
                open.end.cancel();
            }
        }
        Ok(())
    }

    /// Looks again after each change of the database, until no stream is open.
    async fn watch(self) {
        let mut seen = None;
        loop {
            tokio::time::sleep(PAUSE).await;
            let unseen = {
                let mut table = self.table();
                if table.open.is_empty() {
                    table.watched = false;
                    return;
                }
                std::mem::take(&mut table.unseen)
            };
            // The version first: what changes after it is seen at the next look.
            let looked = match self.0.accounts.version().await {
                Ok(version) if !unseen && seen == Some(version) => continue,
                Ok(version) => self.review().await.map(|()| version),
                Err(error) => Err(error),
            };
            match looked {
                Ok(version) => seen = Some(version),
                Err(StoreError::Closed) => {
                    self.table().watched = false;
                    return;
                }
                Err(error) => {
                    tracing::warn!(
                        "the accounts of open streams could not be looked at, trying again: {error}"
                    );
                    self.table().unseen = true;
                }
            }
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing that holds the lock can panic half-way through a change.
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Registered {
    /// The answer with its body ended early when the account loses its token.
    pub fn over(self, response: Response) -> Response {
        response.map(|body| {
            let mut pieces = body.into_data_stream();
            Body::from_stream(async_stream::stream! {
                // Moved in: the stream is registered for as long as it is open.
                let registered = self;
                loop {
                    tokio::select! {
                        biased;
                        () = registered.end.cancelled() => {
                            yield Ok(GOODBYE);
                            break;
                        }
                        piece = pieces.next() => match piece {
                            Some(piece) => yield piece,
                            None => break,
                        },
                    }
                }
            })
        })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if self.end.is_cancelled() {
            // Its entry is gone, and one under the same name is another's.
            return;
        }
        let mut table = self.streams.table();
        if let Some(open) = table.open.get_mut(&self.pass) {
            open.streams -= 1;
            if open.streams == 0 {
                table.open.remove(&self.pass);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::sse;
    use crate::http::testing::text_of;
    use crate::store::accounts::{Change, Created, Language, NewAccount};
    use crate::store::schema::Schema;
    use futures_util::stream;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const PATIENCE: Duration = Duration::from_secs(60);

    struct Place {
        folder: TempDir,
        db: Database,
        streams: Streams,
    }

    impl Place {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let db = Database::open(&folder.path().join("channels.db"), Schema::Channels).unwrap();
            Self { folder, streams: Streams::new(db.clone()), db }
        }

        async fn account(&self, level: AccountLevel) -> Created {
            let new = NewAccount {
                workspace_path: "/".into(),
                label: String::new(),
                level,
                language: Language::En,
            };
            accounts::create(&self.db, new, 0).await.unwrap()
        }

        /// A stream that says one thing and then nothing any more.
        fn open(&self, account: &Account) -> Response {
            let caller = Caller {
                account_id: account.id.clone(),
                level: account.level,
                workspace: PathBuf::new(),
                language: account.language,
                token_prefix: account.token_prefix.clone(),
            };
            let pieces = stream::iter([Bytes::from_static(b"data: {}\n\n")]).chain(stream::pending());
            self.streams.register(&caller).over(sse::response(pieces))
        }

        fn entries(&self) -> usize {
            self.streams.table().open.len()
        }
    }

    async fn ended(stream: Response) -> String {
        tokio::time::timeout(PATIENCE, text_of(stream)).await.expect("the stream ends")
    }

    /// The open stream still has nothing to say after a look.
    async fn goes_on(place: &Place, stream: Response) {
        place.streams.review().await.unwrap();
        let mut pieces = stream.into_body().into_data_stream();
        assert_eq!(pieces.next().await.unwrap().unwrap(), "data: {}\n\n");
        assert!(futures_util::poll!(pieces.next()).is_pending());
    }

    #[tokio::test]
    async fn a_look_ends_the_streams_of_accounts_that_are_gone_disabled_or_have_another_token() {
        let place = Place::new();
        let (gone, off, rotated, stays) = (
            place.account(AccountLevel::Full).await.account,
            place.account(AccountLevel::Workspace).await.account,
            place.account(AccountLevel::ReadOnly).await.account,
            place.account(AccountLevel::ReadOnly).await.account,
        );
        let streams = [&gone, &off, &rotated].map(|account| place.open(account));
        let second = place.open(&gone);
        let stay = place.open(&stays);
        accounts::revoke(&place.db, &gone.id).await.unwrap();
        let change = Change { enabled: Some(false), ..Change::default() };
        accounts::update(&place.db, &off.id, change, 1).await.unwrap();
        accounts::rotate(&place.db, &rotated.id, 1).await.unwrap();
        place.streams.review().await.unwrap();
        for stream in streams.into_iter().chain([second]) {
            assert!(ended(stream).await.ends_with(": the token is no longer valid\n\n"));
        }
        goes_on(&place, stay).await;
        assert_eq!(place.entries(), 0);
    }

    #[tokio::test]
    async fn a_stream_of_a_full_token_ends_with_that_level_and_any_other_change_leaves_streams_alone() {
        let place = Place::new();
        let full = place.account(AccountLevel::Full).await.account;
        let reader = place.account(AccountLevel::ReadOnly).await.account;
        let (first, second) = (place.open(&full), place.open(&reader));
        let change = |level| Change { level: Some(level), label: Some("x".into()), ..Change::default() };
        accounts::update(&place.db, &full.id, change(AccountLevel::Workspace), 1).await.unwrap();
        accounts::update(&place.db, &reader.id, change(AccountLevel::Full), 1).await.unwrap();
        place.streams.review().await.unwrap();
        ended(first).await;
        goes_on(&place, second).await;
    }

    #[tokio::test]
    async fn what_another_process_changes_ends_streams_too() {
        let place = Place::new();
        let account = place.account(AccountLevel::Full).await.account;
        let stream = place.open(&account);
        let theirs = Database::open(&place.folder.path().join("channels.db"), Schema::Channels).unwrap();
        accounts::revoke(&theirs, &account.id).await.unwrap();
        assert!(ended(stream).await.starts_with("data: {}"));
        theirs.close().await;
    }

    #[tokio::test]
    async fn an_account_that_was_gone_before_the_stream_was_registered_is_noticed() {
        let place = Place::new();
        let account = place.account(AccountLevel::Full).await.account;
        let other = place.account(AccountLevel::Full).await.account;
        let _keeps_the_watch_going = place.open(&other);
        accounts::revoke(&place.db, &account.id).await.unwrap();
        tokio::time::timeout(PATIENCE, async {
            while place.streams.table().unseen {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        ended(place.open(&account)).await;
    }

    #[tokio::test]
    async fn a_stream_that_ended_leaves_nothing_behind_not_even_the_watch() {
        let place = Place::new();
        let account = place.account(AccountLevel::Full).await.account;
        let (first, second) = (place.open(&account), place.open(&account));
        drop(first);
        assert_eq!(place.entries(), 1);
        drop(second);
        assert_eq!(place.entries(), 0);
        tokio::time::timeout(PATIENCE, async {
            while place.streams.table().watched {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
        .unwrap();
        // The next one is watched again.
        let third = place.open(&account);
        accounts::revoke(&place.db, &account.id).await.unwrap();
        ended(third).await;
    }
}
