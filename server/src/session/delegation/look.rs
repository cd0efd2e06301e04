//! `session_list`, `get_session_output` and `query_agent`: looking at sub-agents and at the team.

use super::Caller;
use crate::clock::iso;
use crate::store::log;
use crate::store::tree::{self, Node};
use crate::text::tail_chars;
use crate::tool::Context;
use crate::tool::args::Args;
use serde_json::{Value, json};

/// Sub-sessions that a list has.
const LISTED: u32 = 500;
/// Characters of an output; what a tool's answer may have, less some room for its frame.
const OUTPUT_CHARS: usize = 8000 - 500;

impl Caller {
    pub(super) async fn list(&self) -> Result<Value, String> {
        let key = self.session.to_string();
        let children = self.workspace.read(move |conn| tree::children(conn, &key, LISTED)).await;
        let sessions: Vec<Value> = children.map_err(|error| error.to_string())?.iter().map(listed).collect();
        Ok(json!({"count": sessions.len(), "sessions": sessions}))
    }

    pub(super) async fn output(&self, args: &Args<'_>) -> Result<Value, String> {
        let (target, row) = self.target(args.filled_text("session_id")?).await?;
        let look = self.workspace.session(&target).snapshot().await.map_err(|error| error.to_string())?;
        let Some(look) = look else { return Err(format!("session {target} not found")) };
        let (key, top) = (target.to_string(), look.top);
        let written = self.workspace.read(move |conn| log::latest_turn(conn, &key, top)).await;
        let mut text = String::new();
        for row in written.map_err(|error| error.to_string())?.iter().chain(&look.streaming) {
            let row: Value = serde_json::from_str(row).unwrap_or_default();
            if row["type"] == "assistant" {
                text.push_str(row["content"].as_str().unwrap_or_default());
            }
        }
        let status = match (look.running, row.stopped_at) {
            (true, _) => "running",
            (false, Some(_)) => "stopped",
            (false, None) => "idle",
        };
        let total = text.chars().count();
        let output = if total > OUTPUT_CHARS {
            let tail = tail_chars(&text, OUTPUT_CHARS);
            format!("[Output truncated: {total} chars total, showing LAST {OUTPUT_CHARS}.]\n{tail}")
        } else {
            text
        };
        Ok(json!({"status": status, "output": output, "last_activity_at": iso(row.updated_at)}))
    }

    pub(super) async fn describe(&self, args: &Args<'_>, context: &Context) -> Result<Value, String> {
        let wanted = args.filled_text("agent_id")?.trim().to_owned();
        let missing = format!("agent \"{wanted}\" not found.");
        let Ok(disabled) = self.workspace.shared().disabled_items().await else { return Err(missing) };
        let (workspace, agent_id, access) = (self.workspace.clone(), self.agent_id.clone(), context.access);
        let team = tokio::task::spawn_blocking(move || {
            workspace.shared().agents.team(workspace.path(), &agent_id, access, &disabled)
        });
        let team = team.await.ok().and_then(Result::ok).unwrap_or_default();
        let member = team.into_iter().find(|member| member.id == wanted).ok_or(missing)?;
        Ok(json!({
            "agent_id": member.id,
            "name": member.name,
            "description": member.description,
            "model": member.model,
            "tools": member.tools,
            "skills": member.skills,
        }))
    }
}

fn listed(node: &Node) -> Value {
    let status = match (node.running, node.stopped_at) {
        (true, _) => "running",
        (false, Some(_)) => "stopped",
        (false, None) => "idle",
    };
    json!({
        "id": node.id,
        "parentId": node.parent_id,
        "agentId": node.agent_id,
        "agentName": node.agent_name,
        "description": node.description,
        "status": status,
        "accessLevel": node.access_level,
        "goalSessionId": null,
        "createdAt": node.created_at,
        "updatedAt": node.updated_at,
        "stoppedAt": node.stopped_at,
        "archivedAt": node.archived_at,
        "title": node.title,
        "exchangeCount": node.exchange_count,
        "contextTokens": node.context_tokens,
        "totalOutputTokens": node.total_output_tokens,
    })
}
