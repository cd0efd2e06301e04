//! `continue_task`: an agent whose work was interrupted by a message asks for one more turn, in which it goes on with
//! that work once it has answered (agents contract, section 3). It is asked for in the turn that the interruption
//! began; whoever speaks or stops meanwhile goes first, and then it must be asked for again.

use super::actor::{Actor, Command};
use super::frames::Frame;
use super::ids::SessionId;
use super::rows;
use super::state::QueueEntry;
use super::workspace::Workspace;
use crate::agent::turn::Outcome;
use crate::model::ToolSpec;
use crate::store::sessions::Write;
use crate::tool::{Context, Output, Tool};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What the agent reads when its turn to go on comes; people see it in the log.
const GO_ON: &str = "[System] You called continue_task: go on now with the work that was interrupted, from where it \
     stands. What was said meanwhile counts. If nothing is left to do, say so in a sentence.";

/// Whether the turn in flight may ask for a turn to go on, and has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Resume {
    /// It interrupted nothing.
    #[default]
    Nothing,
    /// It was begun by an interruption.
    Possible,
    /// It was, and has asked.
    Asked,
}

/// What became of the wish to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    /// A turn to go on follows this one.
    Granted,
    /// Nothing was interrupted, so there is nothing to go on with but the task at hand.
    NotInterrupted,
    /// The turn is over or stopped.
    NoTurn,
}

impl Actor {
    /// The turn in flight wishes to be followed by one that goes on with what it interrupted.
    pub fn wish_to_go_on(&mut self) -> Wish {
        let Some(run) = self.run.as_mut().filter(|run| run.cancelled.is_none()) else { return Wish::NoTurn };
        match run.resume {
            Resume::Nothing => Wish::NotInterrupted,
            Resume::Possible | Resume::Asked => {
                run.resume = Resume::Asked;
                Wish::Granted
            }
        }
    }

    /// Whether the turn that ended like this is followed by one to go on: it has asked, it came to its end by itself,
    /// and nobody else waits.
    pub fn goes_on_with_its_work(&self, outcome: &Outcome) -> bool {
        let asked = |run: &super::state::ActiveRun| run.resume == Resume::Asked && run.cancelled.is_none();
        *outcome == Outcome::Done && self.queue.is_empty() && self.run.as_ref().is_some_and(asked)
    }

    /// Puts the word to go on into the queue; the write is its row in the log.
    pub fn queue_going_on(&mut self) -> Option<Write> {
        let access = self.run.as_ref()?.access;
        let place = self.place();
        let entry = QueueEntry {
            at: place.at,
            text: GO_ON.to_owned(),
            for_model: None,
            images: Vec::new(),
            access,
            source: None,
        };
        // It leaves the queue in the same transaction, so it is never in the store.
        self.queue.push((self.next.queue, entry));
        self.next.queue += 1;
        Some(Self::log_write(place, rows::user(place, GO_ON)))
    }

    /// Shows the word to go on to those who watch.
    pub fn show_going_on(&self) {
        if let Some(run) = &self.run {
            run.log.push(&Frame::User { text: GO_ON });
        }
    }
}

/// The tool of one session.
pub(super) struct ContinueTask {
    workspace: Workspace,
    session: SessionId,
}

impl ContinueTask {
    pub(super) fn of(workspace: &Workspace, session: &SessionId) -> Arc<dyn Tool> {
        Arc::new(Self { workspace: workspace.clone(), session: session.clone() })
    }
}

impl Tool for ContinueTask {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "continue_task".into(),
            description: "Call this when a message came in the middle of your work and you want to go on with that work \
                          after you have answered: when your reply ends, you get one more turn for it. Without it the \
                          work stays where it is. It has no effect when nothing was interrupted."
                .into(),
            parameters: json!({"type": "object", "properties": {}, "required": []}),
        }
    }

    fn run<'a>(&'a self, _: Map<String, Value>, _: &'a Context) -> BoxFuture<'a, Output> {
        async move {
            let session = self.workspace.session(&self.session);
            match session.ask(|reply| Command::WishToGoOn { reply }).await {
                Ok(wish) => answer(wish),
                Err(error) => Output::error(json!({"code": 1, "error": error.to_string()}).to_string()),
            }
        }
        .boxed()
    }
}

fn answer(wish: Wish) -> Output {
    let (state, text) = match wish {
        Wish::Granted => (
            "resume_armed",
            "When this reply ends, you get a turn to go on with the work that was interrupted. Answer the message now.",
        ),
        Wish::NotInterrupted => {
            ("not_interrupted", "Nothing was interrupted, so nothing is to be taken up again: simply go on.")
        }
        Wish::NoTurn => {
            let error = json!({"code": 1, "state": "no_turn", "error": "this turn was stopped, so nothing follows it"});
            return Output::error(error.to_string());
        }
    };
    Output::ok(json!({"code": 0, "state": state, "message": text}).to_string())
}
