//! `stop_session` and `archive_session`: the end of sub-agents, with all that they have started.

use super::Caller;
use crate::session::ids::SessionId;
use crate::tool::args::Args;
use serde_json::{Value, json};

impl Caller {
    /// Who waits for its report is told, unless it is the caller itself.
    fn tell_parent(&self, target: &SessionId) -> bool {
        target.parent().as_ref() != Some(&self.session)
    }

    pub(super) async fn stop(&self, args: &Args<'_>) -> Result<Value, String> {
        let target = self.other(args.filled_text("session_id")?, "stop").await?;
        let tell_parent = self.tell_parent(&target);
        let session = self.workspace.session(&target);
        let stopped = session.stop_tree(tell_parent).await.map_err(|error| error.to_string())?;
        Ok(json!({"session_id": target.as_str(), "stopped": stopped}))
    }

    pub(super) async fn archive(&self, args: &Args<'_>) -> Result<Value, String> {
        let target = self.other(args.filled_text("session_id")?, "archive").await?;
        let tell_parent = self.tell_parent(&target);
        self.workspace.session(&target).archive_tree(tell_parent).await.map_err(|error| error.to_string())?;
        Ok(json!({"session_id": target.as_str(), "archived": true}))
    }
}
