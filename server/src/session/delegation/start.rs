//! `start_session`: a sub-session with an agent of the caller's team.

use super::Caller;
use crate::access::AccessLevel;
use crate::session::ids::SessionId;
use crate::session::receive::Arrival;
use crate::session::scope::Scope;
use crate::session::{Unavailable, rows};
use crate::store::sessions::SessionRow;
use crate::text::head_chars;
use crate::tool::Context;
use crate::tool::args::Args;
use crate::workspace::inbound::Saved;
use serde_json::{Value, json};
use std::path::Path;

/// Characters of a title.
const TITLE_CHARS: usize = 60;
/// Characters of the description: the beginning of the task.
const DESCRIPTION_CHARS: usize = 200;

/// What a sub-session is made of.
pub(in crate::session) struct Birth {
    pub parent: String,
    /// Told of the start.
    pub root: String,
    pub agent_id: String,
    pub agent_name: String,
    pub description: String,
    pub title: Option<String>,
    pub working_dir: Option<String>,
    pub prompt_context: Option<String>,
    /// The parent's, now and for life.
    pub access: AccessLevel,
}

impl Birth {
    /// The row of the new session.
    pub fn row(&self, id: &SessionId, now: i64) -> SessionRow {
        SessionRow {
            id: id.to_string(),
            parent_id: Some(self.parent.clone()),
            agent_id: self.agent_id.clone(),
            agent_name: self.agent_name.clone(),
            description: Some(self.description.clone()),
            working_dir: self.working_dir.clone(),
            prompt_context: self.prompt_context.clone(),
            access_level: self.access.as_str().to_owned(),
            created_at: now,
            updated_at: now,
            stopped_at: None,
            archived_at: None,
            title: self.title.clone(),
            context_tokens: 0,
            total_output_tokens: 0,
        }
    }
}

impl Caller {
    pub(super) async fn start(&self, args: &Args<'_>, context: &Context) -> Result<Value, String> {
        let required =
            |name| args.optional_text(name).map(|text| text.filter(|text| !text.trim().is_empty()));
        let (Some(agent_id), Some(message)) = (required("agent_id")?, required("message")?) else {
            return Err("agent_id and message are required".into());
        };
        let agent_id = agent_id.trim();
        let agent_name = self.member(agent_id, context.access).await?;
        let limit = self.workspace.shared().agents.delegation().max_depth;
        if self.session.depth() >= limit {
            return Err(format!("Maximum nesting depth ({limit}) reached. Do the work yourself."));
        }
        let working_dir = match args.optional_text("working_dir")?.map(str::trim) {
            None | Some("" | ".") => None,
            Some(folder) => Some(inside(&self.workspace, folder).await?),
        };
        let id = self
            .session
            .new_child()
            .ok_or("this session's id is too long for a sub-session; do the work yourself")?;
        let title = args.optional_text("title")?.filter(|title| !title.trim().is_empty());
        let birth = Birth {
            parent: self.session.to_string(),
            root: self.session.root().to_string(),
            agent_id: agent_id.to_owned(),
            agent_name,
            description: head_chars(message.trim(), DESCRIPTION_CHARS).to_owned(),
            title: title
                .map(|title| head_chars(title.trim(), TITLE_CHARS).to_owned())
                .or_else(|| rows::title(message)),
            working_dir,
            prompt_context: args.optional_text("system_prompt_context")?.map(str::to_owned),
            access: context.access,
        };
        let message = Arrival {
            text: message.to_owned(),
            images: Vec::new(),
            saved: Saved::default(),
            scope: Scope::default(),
            access: context.access,
            agent_id: None,
            source: Some(self.session.to_string()),
            hard: false,
            birth: Some(birth),
        };
        self.workspace.session(&id).deliver(message).await.map_err(|error| error.to_string())?;
        Ok(json!({"session_id": id.as_str()}))
    }

    /// The display name of an agent that the caller may delegate to.
    async fn member(&self, agent_id: &str, access: AccessLevel) -> Result<String, String> {
        let disabled = self.workspace.shared().disabled_items().await.map_err(|error| error.to_string())?;
        let (workspace, caller, wanted) =
            (self.workspace.clone(), self.agent_id.clone(), agent_id.to_owned());
        let looked = tokio::task::spawn_blocking(move || {
            let agents = &workspace.shared().agents;
            let (_, name) =
                agents.choose(workspace.path(), Some(&wanted), &disabled).map_err(|why| match why {
                    Unavailable::No => {
                        format!("agent \"{wanted}\" not found. Your team is in your instructions.")
                    }
                    Unavailable::Broken(text) => format!("agent \"{wanted}\" cannot be used: {text}"),
                })?;
            let team = agents.team(workspace.path(), &caller, access, &disabled)?;
            let found = team.iter().any(|member| member.id == wanted);
            found.then_some(name).ok_or_else(|| {
                let ids: Vec<&str> = team.iter().map(|member| member.id.as_str()).collect();
                format!("agent \"{wanted}\" is not in your team. Your team: {}.", ids.join(", "))
            })
        });
        looked.await.map_err(|error| error.to_string())?
    }
}

/// The folder relative to the workspace, judged where it really is.
async fn inside(workspace: &super::Workspace, folder: &str) -> Result<String, String> {
    let root = workspace.path();
    let real = tokio::fs::canonicalize(root.join(folder))
        .await
        .map_err(|_| format!("working_dir \"{folder}\" does not exist"))?;
    let relative =
        real.strip_prefix(root).map_err(|_| format!("working_dir \"{folder}\" is outside the workspace"))?;
    if !tokio::fs::metadata(&real).await.is_ok_and(|metadata| metadata.is_dir()) {
        return Err(format!("working_dir \"{folder}\" is not a directory"));
    }
    relative.to_str().filter(|text| !Path::new(text).as_os_str().is_empty()).map(str::to_owned).ok_or_else(
        || format!("working_dir \"{folder}\" is not a folder below the workspace with a name in UTF-8"),
    )
}
