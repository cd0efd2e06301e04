//! The model call for a summary: like any other call in retries and waits, but nothing of it is shown, and calls of
//! tools in its answer are ignored.

use super::retry::{Patience, Retry};
use super::turn::{NoSummary, Outcome, Spent, Step, Summary, Turn};
use crate::model::{Block, Completion, ErrorKind, Event, Message, ModelError, StopReason};
use futures_util::StreamExt;
use std::sync::Arc;
use tokio::time::Instant;

/// Answers without content after which there is no summary: a model that says nothing twice says nothing.
const MAX_NOTHINGS: u32 = 2;

impl<S: From<Step>> Turn<'_, S> {
    /// Asks the model for a summary; `messages` end in the request for it.
    pub(super) async fn summarise(&self, messages: Vec<Arc<Message>>) -> Result<Summary, Outcome> {
        let mut messages = self.as_seen(messages);
        let mut patience = Patience::new(self.agent.max_tries);
        let mut nothings = 0;
        loop {
            let began = Instant::now();
            let error = match self.silent_attempt(messages.clone()).await? {
                Ok(completion) => {
                    let e2e_ms = began.elapsed().as_millis() as u64;
                    let spent = Some(Spent { usage: completion.usage, e2e_ms });
                    return Ok(Summary { text: text(&completion), spent });
                }
                Err(error) => error,
            };
            nothings += u32::from(error.kind == ErrorKind::EmptyResponse);
            if nothings >= MAX_NOTHINGS {
                return Ok(Summary { text: Err(NoSummary::Empty), spent: None });
            }
            match patience.after(&error) {
                Retry::GiveUp => {
                    return Ok(Summary { text: Err(NoSummary::Failed(error.message)), spent: None });
                }
                Retry::WithoutImages => messages = Self::without_rejected_images(&messages),
                Retry::After(wait) => {
                    tracing::warn!(%error, wait_ms = wait.as_millis() as u64, "a summary failed and is tried again");
                    self.until_cancelled(tokio::time::sleep(wait)).await?;
                }
            }
        }
    }

    async fn silent_attempt(
        &self,
        messages: Vec<Arc<Message>>,
    ) -> Result<Result<Completion, ModelError>, Outcome> {
        let mut events = self.agent.model.call(self.request(messages));
        while let Some(event) = self.until_cancelled(events.next()).await? {
            match event {
                Ok(Event::Done(completion)) => return Ok(Ok(completion)),
                Ok(Event::Text(_) | Event::Thinking(_) | Event::Activity) => {}
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Err(Self::ended_without_answer()))
    }
}

fn text(completion: &Completion) -> Result<String, NoSummary> {
    if let StopReason::Refusal { explanation } = &completion.stop {
        return Err(NoSummary::Failed(format!("the model declined: {explanation}")));
    }
    let text: String = completion
        .content
        .iter()
        .filter_map(|block| if let Block::Text { text } = block { Some(text.as_str()) } else { None })
        .collect();
    if text.trim().is_empty() { Err(NoSummary::Empty) } else { Ok(text) }
}
