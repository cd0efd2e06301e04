//! What a workspace has, for people to choose from: its sessions, its agents, what is switched off in it. Looks
//! only; the one thing that it changes is what is switched off.

use super::ids::SessionId;
use super::workspace::Workspace;
use super::{Engine, Listed, SessionError, internal};
use crate::access::AccessLevel;
use crate::agent::names::Names;
use crate::agent::profile::{DisabledItem, Profile};
use crate::store::{catalog, sessions, tree};
use std::path::Path;

/// One session of a tree. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch {
    /// The id.
    pub session_id: String,
    /// The agent's display name.
    pub agent_name: String,
    /// Title, else description.
    pub title: Option<String>,
    /// When it was made.
    pub created_at: i64,
    /// Its last activity.
    pub updated_at: i64,
    /// Whether a run is in flight.
    pub running: bool,
    /// Whether somebody stopped it, and nobody has written to it since.
    pub stopped: bool,
    /// Whether it was archived.
    pub archived: bool,
}

/// The agents of a workspace.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// Those that a client may name, sorted by id.
    pub visible: Vec<Profile>,
    /// Those whose files have a mistake: id, and what is wrong where.
    pub broken: Vec<(String, String)>,
    /// The id of the one that answers where none is named.
    pub entry: Option<String>,
}

impl Workspace {
    /// Whether the session exists and is not archived.
    pub async fn is_live(&self, id: &SessionId) -> Result<bool, SessionError> {
        let id = id.to_string();
        self.read(move |conn| catalog::is_live(conn, &id)).await
    }

    /// The agent that the session is bound to; `None` when it has no row.
    pub async fn agent_of(&self, id: &SessionId) -> Result<Option<String>, SessionError> {
        let id = id.to_string();
        Ok(self.read(move |conn| sessions::get(conn, &id)).await?.map(|row| row.agent_id))
    }

    /// The session in which the goal was set that `id` judges, for a session that came from the goal mode of the
    /// program before this one.
    pub async fn goal_worker(&self, id: &SessionId) -> Result<Option<String>, SessionError> {
        let id = id.to_string();
        self.read(move |conn| catalog::goal_worker(conn, &id)).await
    }

    /// Roots whose id starts with `prefix`, archived ones left out, newest first: at most `limit` after the first
    /// `skip`, and how many there are in all.
    pub async fn newest_roots(
        &self,
        prefix: &str,
        skip: u32,
        limit: u32,
    ) -> Result<(Vec<Listed>, u32), SessionError> {
        let prefix = prefix.to_owned();
        let (rows, count) = self.read(move |conn| catalog::newest_roots(conn, &prefix, skip, limit)).await?;
        let listed = rows.into_iter().map(|row| Listed {
            session_id: row.id,
            title: row.title,
            updated_at: row.updated_at,
        });
        Ok((listed.collect(), count))
    }

    /// A root and everything below it, parents before their children, at most `limit`; archived ones included.
    pub async fn tree(&self, root: &SessionId, limit: u32) -> Result<Vec<Branch>, SessionError> {
        let root = root.to_string();
        let nodes = self.read(move |conn| tree::whole(conn, &root, limit)).await?;
        let branch = |node: tree::Node| Branch {
            session_id: node.id,
            agent_name: node.agent_name,
            title: node.title.or(node.description),
            created_at: node.created_at,
            updated_at: node.updated_at,
            running: node.running,
            stopped: node.stopped_at.is_some(),
            archived: node.archived_at.is_some(),
        };
        Ok(nodes.into_iter().map(branch).collect())
    }

    /// What is switched off here.
    pub async fn disabled(&self) -> Result<Vec<DisabledItem>, SessionError> {
        let items = self.shared().disabled_items().await;
        items.map_err(|error| internal("reading what is switched off", &error))
    }

    /// Switches an agent or a skill off or on. Nothing happens where it is so already.
    pub async fn set_disabled(&self, item: DisabledItem, off: bool) -> Result<(), SessionError> {
        self.own().await?;
        let off_since = off.then(|| self.shared().clock.now_ms());
        let DisabledItem { item_type, item_id, scope } = item;
        let write = self
            .shared()
            .db
            .write(move |conn| catalog::set_disabled(conn, &item_type, &item_id, &scope, off_since));
        write.await.map_err(|error| internal("switching something off or on", &error))
    }
}

impl Engine {
    /// What placeholders stand for in the texts of an agent of this name, for a session of this level.
    pub async fn names(
        &self,
        folder: &Path,
        agent_name: &str,
        access: AccessLevel,
    ) -> Result<Names, SessionError> {
        let (source, folder, name) = (self.agent_source(), folder.to_owned(), agent_name.to_owned());
        let look = tokio::task::spawn_blocking(move || {
            let real = folder.canonicalize().unwrap_or(folder);
            source.names(&real, &name, access)
        });
        look.await.map_err(|error| internal("looking at placeholders", &error))
    }

    /// The agents of a folder, whether or not it has been used as a workspace; `disabled` are left out.
    pub async fn agents(&self, folder: &Path, disabled: Vec<DisabledItem>) -> Result<Agents, SessionError> {
        let (source, folder) = (self.agent_source(), folder.to_owned());
        let look = tokio::task::spawn_blocking(move || {
            let visible = source.visible(&folder, &disabled);
            Agents {
                visible: visible.agents,
                broken: visible.broken,
                entry: source.choose(&folder, None, &disabled).ok().map(|(id, _)| id),
            }
        });
        look.await.map_err(|error| internal("looking at the agents", &error))
    }
}
