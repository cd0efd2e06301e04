//! `stop_session` and `archive_session`: the end of sub-agents, with all that they have started.

use super::Caller;
use crate::tool::args::Args;
use serde_json::{Value, json};

impl Caller {
    pub(super) async fn stop(&self, args: &Args<'_>) -> Result<Value, String> {
        let target = self.other(args.filled_text("session_id")?, "stop").await?;
        // Who waits for its report is told, unless it is the caller itself.
        let tell_parent = target.parent().as_ref() != Some(&self.session);
        let session = self.workspace.session(&target);
        let stopped = session.stop_tree(tell_parent).await.map_err(|error| error.to_string())?;
        Ok(json!({"session_id": target.as_str(), "stopped": stopped}))
    }

    pub(super) async fn archive(&self, args: &Args<'_>) -> Result<Value, String> {
        let target = self.other(args.filled_text("session_id")?, "archive").await?;
        self.workspace.session(&target).archive().await.map_err(|error| error.to_string())?;
        Ok(json!({"session_id": target.as_str(), "archived": true}))
    }
}
