//! New root sessions: which agent they are bound to for life, and their row.

use super::SessionError;
use super::actor::{Actor, Shared};
use super::run::Unavailable;
use crate::access::AccessLevel;
use crate::agent::profile::DisabledItem;
use crate::store::StoreError;
use crate::store::sessions::{self, SessionRow, Write};

impl Shared {
    /// The agents and skills that are switched off in the workspace.
    pub async fn disabled_items(&self) -> Result<Vec<DisabledItem>, StoreError> {
        let items = self.db.read(sessions::disabled_items).await?;
        let item = |(item_type, item_id, scope)| DisabledItem { item_type, item_id, scope };
        Ok(items.into_iter().map(item).collect())
    }
}

impl Actor {
    /// Makes the session; nothing happens when it exists.
    pub async fn create(
        &mut self,
        agent_id: Option<String>,
        access: AccessLevel,
        description: Option<String>,
    ) -> Result<(), SessionError> {
        if self.row.is_some() {
            return Ok(());
        }
        let row = self.new_row(agent_id, access, description).await?;
        self.commit(vec![Write::Create(row.clone())]).await.map_err(|error| self.internal(&error))?;
        self.row = Some(row);
        Ok(())
    }

    pub async fn new_row(
        &mut self,
        agent_id: Option<String>,
        access: AccessLevel,
        description: Option<String>,
    ) -> Result<SessionRow, SessionError> {
        if self.id.is_child() {
            return Err(SessionError::NotFound);
        }
        let disabled = self.shared.disabled_items().await.map_err(|error| self.internal(&error))?;
        let (agents, workspace) = (self.shared.agents.clone(), self.shared.path.clone());
        let (agent_id, agent_name) =
            tokio::task::spawn_blocking(move || agents.choose(&workspace, agent_id.as_deref(), &disabled))
                .await
                .map_err(|error| super::internal("choosing an agent", &error))?
                .map_err(|why| match why {
                    Unavailable::No => SessionError::AgentNotAvailable,
                    Unavailable::Broken(text) => SessionError::AgentBroken(text),
                })?;
        let now = self.now();
        Ok(SessionRow {
            id: self.id.to_string(),
            parent_id: None,
            agent_id,
            agent_name,
            description,
            working_dir: None,
            prompt_context: None,
            access_level: access.as_str().to_owned(),
            created_at: now,
            updated_at: now,
            stopped_at: None,
            archived_at: None,
            title: None,
            context_tokens: 0,
            total_output_tokens: 0,
        })
    }
}
