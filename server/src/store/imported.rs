//! Writing what `halo import` takes over: whole sessions with their logs and histories, and accounts whose tokens
//! exist already. Each is noted as taken over, so that it does not come back once it was deleted.

use super::accounts::{Account, PREFIX_CHARS, hash};
use super::{Database, StoreError};
use rusqlite::{Connection, params};
use std::fmt;
use std::sync::Arc;

/// A session row as it stands at the end of the import. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// The id of its parent; none for a root.
    pub parent_id: Option<String>,
    /// The agent.
    pub agent_id: String,
    /// The agent's display name.
    pub agent_name: String,
    /// What it was made for.
    pub description: Option<String>,
    /// Its folder within the workspace.
    pub working_dir: Option<String>,
    /// Its level.
    pub access_level: &'static str,
    /// When it was made.
    pub created_at: i64,
    /// Its last activity.
    pub updated_at: i64,
    /// When it was stopped.
    pub stopped_at: Option<i64>,
    /// When it was archived.
    pub archived_at: Option<i64>,
    /// The title in lists.
    pub title: Option<String>,
    /// For a session that judges a goal: the session in which it was set.
    pub goal_worker: Option<String>,
    /// Tokens in the model's context.
    pub context_tokens: i64,
    /// Tokens written over its life.
    pub total_output_tokens: i64,
}

/// One row of a display log.
#[derive(Clone, Debug)]
pub struct LogRow {
    /// Its place.
    pub seq: i64,
    /// Its time; never less than that of the row before.
    pub at: i64,
    /// Whether it is a sub-session's.
    pub task: bool,
    /// Whether `/history` leaves it out.
    pub archived: bool,
    /// The row as clients see it.
    pub row: String,
}

/// One step of taking over. A session comes first, then what belongs to it, then its end.
#[derive(Clone, Debug)]
pub enum Item {
    /// A session.
    Session(Box<Session>),
    /// A row of the log of this session.
    Log(Arc<str>, LogRow),
    /// A message of the model history of this session: place and JSON.
    Message(Arc<str>, i64, String),
    /// This session is complete; so many messages of the user were in it.
    End(Arc<str>, i64),
    /// An agent or skill that is switched off.
    Disabled(String, String, String, i64),
}

impl Item {
    /// About how many bytes it holds.
    pub fn size(&self) -> usize {
        128 + match self {
            Self::Log(_, row) => row.row.len(),
            Self::Message(_, _, message) => message.len(),
            _ => 256,
        }
    }
}

/// Writes them in one transaction.
pub async fn write(db: &Database, items: Vec<Item>) -> Result<(), StoreError> {
    db.write(move |conn| items.iter().try_for_each(|item| put(conn, item))).await
}

fn put(conn: &Connection, item: &Item) -> rusqlite::Result<()> {
    let run =
        |sql: &str, values: &[&dyn rusqlite::ToSql]| conn.prepare_cached(sql)?.execute(values).map(drop);
    match item {
        Item::Session(row) => run(
            "INSERT INTO sessions (id, parent_id, agent_id, agent_name, description, working_dir, access_level,
             created_at, updated_at, stopped_at, archived_at, title, goal_worker, context_tokens, total_output_tokens)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15)",
            params![
                row.id,
                row.parent_id,
                row.agent_id,
                row.agent_name,
                row.description,
                row.working_dir,
                row.access_level,
                row.created_at,
                row.updated_at,
                row.stopped_at,
                row.archived_at,
                row.title,
                row.goal_worker,
                row.context_tokens,
                row.total_output_tokens,
            ],
        ),
        Item::Log(id, row) => run(
            "INSERT INTO log (session_id, seq, at, task, archived, row) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            params![id, row.seq, row.at, row.task, row.archived, row.row],
        ),
        Item::Message(id, seq, message) => run(
            "INSERT INTO model_messages (session_id, seq, message) VALUES (?1, ?2, ?3)",
            params![id, seq, message],
        ),
        Item::End(id, exchanges) => {
            run("UPDATE sessions SET exchange_count = ?2 WHERE id = ?1", params![id, exchanges])?;
            run("INSERT OR IGNORE INTO imported (session_id) VALUES (?1)", params![id])
        }
        Item::Disabled(kind, id, scope, at) => run(
            "INSERT OR IGNORE INTO disabled_items (item_type, item_id, scope, disabled_at) VALUES (?1, ?2, ?3, ?4)",
            params![kind, id, scope, at],
        ),
    }
}

/// An account with the token that it has had.
pub struct WithToken {
    /// The account; its `token_prefix` counts for nothing.
    pub account: Account,
    /// The token, of which only the hash is stored.
    pub token: String,
}

impl fmt::Debug for WithToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WithToken").field("account", &self.account).finish_non_exhaustive()
    }
}

/// Adds the accounts in one transaction; answers the ids of those that were not added, since their id or token is
/// another account's already. Tokens must have the shape of ours.
pub async fn add_accounts(db: &Database, accounts: Vec<WithToken>) -> Result<Vec<String>, StoreError> {
    db.write(move |conn| {
        let mut refused = Vec::new();
        for WithToken { account, token } in &accounts {
            let added = conn
                .prepare_cached(
                    "INSERT INTO channel_accounts (account_id, channel_type, workspace_path, label, enabled,
                     access_level, language, token_hash, token_prefix, created_at, updated_at)
                     VALUES (?1, 'web', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10) ON CONFLICT DO NOTHING",
                )?
                .execute(params![
                    account.id,
                    account.workspace_path.to_string_lossy(),
                    account.label,
                    account.enabled,
                    account.level.as_str(),
                    account.language.as_str(),
                    hash(token),
                    crate::text::head_chars(token, PREFIX_CHARS),
                    account.created_at,
                    account.updated_at,
                ])?;
            if added == 0 {
                refused.push(account.id.clone());
            } else {
                conn.prepare_cached("INSERT OR IGNORE INTO imported (account_id) VALUES (?1)")?
                    .execute([&account.id])?;
            }
        }
        Ok(refused)
    })
    .await
}
