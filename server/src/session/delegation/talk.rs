//! `query_session` and `interrupt_session`: messages to sessions of the caller's tree.

use super::Caller;
use crate::session::Sent;
use crate::session::receive::Arrival;
use crate::session::scope::Scope;
use crate::tool::Context;
use crate::tool::args::Args;
use crate::workspace::inbound::Saved;
use serde_json::{Value, json};

impl Caller {
    pub(super) async fn query(&self, args: &Args<'_>, context: &Context) -> Result<Value, String> {
        self.send(args.filled_text("target_session_id")?, args.filled_text("message")?, context, false).await
    }

    pub(super) async fn interrupt(&self, args: &Args<'_>, context: &Context) -> Result<Value, String> {
        self.send(args.filled_text("session_id")?, args.filled_text("message")?, context, true).await
    }

    async fn send(&self, target: &str, text: &str, context: &Context, hard: bool) -> Result<Value, String> {
        let (target, _) = self.target(target).await?;
        if target == self.session {
            return Err("that is your own session".into());
        }
        let message = Arrival {
            text: text.to_owned(),
            images: Vec::new(),
            saved: Saved::default(),
            scope: Scope::default(),
            access: context.access,
            agent_id: None,
            source: Some(self.session.to_string()),
            hard,
            birth: None,
        };
        let sent =
            self.workspace.session(&target).deliver(message).await.map_err(|error| error.to_string())?;
        let status = match sent {
            Sent::Started(_) => "started",
            Sent::Queued(_) if hard => "interrupted",
            Sent::Queued(_) => "queued",
        };
        Ok(json!({"session_id": target.as_str(), "status": status}))
    }
}
