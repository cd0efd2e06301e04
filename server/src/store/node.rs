//! Databases of the Node program: whose a file is, and what the old tables hold. An old database is never opened
//! where it stands, since that alone may change it: it is read from a copy, its log included. Columns that an older
//! version did not have read as nothing.

use super::OpenError;
use super::migrate::{Look, look, open_immutable, sidecar};
use super::schema::Schema;
use crate::clock::from_iso;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags, Row};
use std::collections::HashSet;
use std::fmt;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whose a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// There is none, or an empty one.
    Nobodys,
    /// Ours.
    Ours,
    /// The Node program's.
    Nodes,
}

/// Whose the file is. Changes nothing; an error means that it is neither, or cannot be read.
pub fn whose(path: &Path, schema: Schema) -> Result<Whose, OpenError> {
    match look(path, &schema.runner()) {
        Ok(Look::New) => Ok(Whose::Nobodys),
        Ok(Look::Current | Look::Unsettled) => Ok(Whose::Ours),
        Err(OpenError::NodeProgram { .. }) => Ok(Whose::Nodes),
        Err(error) => Err(error),
    }
}

/// A copy of an old database. Its files have no names any more, so that nothing of it is left however this ends.
pub struct NodeDatabase(Connection);

/// An account of the Node program.
pub struct NodeAccount {
    /// Its id.
    pub id: String,
    /// `web`, or a channel that this program does not have.
    pub channel_type: String,
    /// Where its sessions live.
    pub workspace_path: String,
    /// Its owner's name for it.
    pub label: String,
    /// Whether its token opens anything.
    pub enabled: bool,
    /// The level as it is stored.
    pub access_level: String,
    /// The language as it is stored.
    pub language: String,
    /// JSON with the clear token.
    pub config: String,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// Milliseconds since the Unix epoch.
    pub updated_at: i64,
}

impl fmt::Debug for NodeAccount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAccount").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A session row of the Node program. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default)]
pub struct NodeSession {
    /// Its id.
    pub id: String,
    /// The agent's folder.
    pub agent_id: String,
    /// The agent's display name.
    pub agent_name: Option<String>,
    /// What it was made for.
    pub description: Option<String>,
    /// Its folder within the workspace.
    pub working_dir: Option<String>,
    /// Its level; none is full access.
    pub access_level: Option<String>,
    /// When it was made.
    pub created_at: Option<i64>,
    /// Its last activity.
    pub updated_at: Option<i64>,
    /// When it was stopped.
    pub stopped_at: Option<i64>,
    /// When it was archived.
    pub archived_at: Option<i64>,
    /// The title in lists.
    pub title: Option<String>,
    /// JSON of the goal that it judges.
    pub goal: Option<String>,
    /// Messages of the user over its life.
    pub exchange_count: i64,
    /// Tokens in the model's context.
    pub context_tokens: i64,
    /// Tokens written over its life.
    pub total_output_tokens: i64,
}

/// An agent or skill that was switched off: type, id, scope, time.
pub type NodeDisabled = (String, String, String, i64);

impl NodeDatabase {
    /// Copies the database whose log, where it has one, stands beside it.
    pub fn copy_of(path: &Path) -> Result<Self, OpenError> {
        let failed = |error: io::Error| OpenError::io(path, error);
        let private = Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("halo-import-").permissions(private).tempdir();
        let folder = folder.map_err(failed)?;
        let copy = folder.path().join("copy.db");
        let take = |from: &Path, to: &Path| {
            fs::copy(from, to).and_then(|_| fs::set_permissions(to, Permissions::from_mode(0o600)))
        };
        take(path, &copy).map_err(failed)?;
        for suffix in ["-wal", "-journal"] {
            match take(&sidecar(path, suffix), &sidecar(&copy, suffix)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                _ => {}
            }
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(&copy, flags)?;
            // The first look opens every file there is.
            connection.execute_batch(
                "PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY; SELECT 1 FROM sqlite_schema",
            )?;
            Ok(connection)
        };
        let connection = open().map_err(|error| OpenError::sqlite(path, error))?;
        folder.close().map_err(failed)?;
        Ok(Self(connection))
    }

    /// Every account, the oldest first.
    pub fn accounts(&self) -> rusqlite::Result<Vec<NodeAccount>> {
        self.all("SELECT * FROM channel_accounts ORDER BY created_at, account_id", |row| {
            let (created_at, updated_at) = (int(row, "created_at"), int(row, "updated_at"));
            Some(NodeAccount {
                id: text(row, "account_id")?,
                channel_type: text(row, "channel_type").unwrap_or_default(),
                workspace_path: text(row, "workspace_path").unwrap_or_default(),
                label: text(row, "label").unwrap_or_default(),
                enabled: int(row, "enabled") != Some(0),
                access_level: text(row, "access_level").unwrap_or_default(),
                language: text(row, "language").unwrap_or_default(),
                config: text(row, "config").unwrap_or_default(),
                created_at: created_at.or(updated_at).unwrap_or_default(),
                updated_at: updated_at.or(created_at).unwrap_or_default(),
            })
        })
    }

    /// Every session, parents before their children.
    pub fn sessions(&self) -> rusqlite::Result<Vec<NodeSession>> {
        self.all("SELECT * FROM agent_sessions ORDER BY id", |row| {
            Some(NodeSession {
                id: text(row, "id")?,
                agent_id: text(row, "agent_id").unwrap_or_default(),
                agent_name: text(row, "agent_name"),
                description: text(row, "description"),
                working_dir: text(row, "working_dir"),
                access_level: text(row, "access_level"),
                created_at: int(row, "created_at"),
                updated_at: int(row, "updated_at"),
                stopped_at: int(row, "stopped_at"),
                archived_at: int(row, "archived_at"),
                title: text(row, "title"),
                goal: text(row, "goal"),
                exchange_count: int(row, "exchange_count").unwrap_or_default(),
                context_tokens: int(row, "context_tokens").unwrap_or_default(),
                total_output_tokens: int(row, "total_output_tokens").unwrap_or_default(),
            })
        })
    }

    /// What was switched off; empty where the table is missing.
    pub fn disabled_items(&self) -> rusqlite::Result<Vec<NodeDisabled>> {
        if !has_table(&self.0, "disabled_items")? {
            return Ok(Vec::new());
        }
        self.all("SELECT * FROM disabled_items", |row| {
            let at = int(row, "disabled_at").unwrap_or_default();
            Some((text(row, "item_type")?, text(row, "item_id")?, text(row, "scope")?, at))
        })
    }

    /// The workspaces with runs that were in flight when the Node program ended.
    pub fn running_workspaces(&self) -> rusqlite::Result<Vec<String>> {
        if !has_table(&self.0, "running_sessions")? {
            return Ok(Vec::new());
        }
        self.all("SELECT DISTINCT workspace FROM running_sessions", |row| text(row, "workspace"))
    }

    fn all<T>(&self, sql: &str, read: impl Fn(&Row<'_>) -> Option<T>) -> rusqlite::Result<Vec<T>> {
        let mut statement = self.0.prepare(sql)?;
        let rows = statement.query_map([], |row| Ok(read(row)))?;
        rows.filter_map(Result::transpose).collect()
    }
}

/// The ids of the sessions that a database of ours has, or once took over. Reads the file without its log, so
/// whoever must be sure opens and closes the database first.
pub fn known_sessions(path: &Path) -> Result<HashSet<String>, OpenError> {
    known(path, "SELECT id FROM sessions", "SELECT session_id FROM imported")
}

/// The same for accounts.
pub fn known_accounts(path: &Path) -> Result<HashSet<String>, OpenError> {
    known(path, "SELECT account_id FROM channel_accounts", "SELECT account_id FROM imported")
}

fn known(path: &Path, present: &str, imported: &str) -> Result<HashSet<String>, OpenError> {
    let read = || {
        let connection = open_immutable(path)?;
        let mut ids = HashSet::new();
        let mut add = |sql: &str| -> rusqlite::Result<()> {
            for id in connection.prepare(sql)?.query_map([], |row| row.get(0))? {
                ids.insert(id?);
            }
            Ok(())
        };
        add(present)?;
        // A database that is still to be migrated took nothing over.
        if has_table(&connection, "imported")? {
            add(imported)?;
        }
        Ok(ids)
    };
    read().map_err(|error| OpenError::sqlite(path, error))
}

fn has_table(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1)";
    connection.query_row(sql, [name], |row| row.get(0))
}

fn text(row: &Row<'_>, column: &str) -> Option<String> {
    match row.get_ref(column).ok()? {
        ValueRef::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        ValueRef::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

/// A number, or the milliseconds of a time that was written as text.
fn int(row: &Row<'_>, column: &str) -> Option<i64> {
    match row.get_ref(column).ok()? {
        ValueRef::Integer(number) => Some(number),
        ValueRef::Real(number) => Some(number as i64),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).ok()?;
            text.parse().ok().or_else(|| from_iso(text))
        }
        _ => None,
    }
}
