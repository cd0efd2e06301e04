//! What a sub-session tells its parent: one report when it and its children are quiet, an interim one when it has
//! answered its parent and is not done (sessions contract, section 5). And what a root tells its model about its
//! sub-sessions beside a report.

use super::actor::Actor;
use super::mail::Item;
use super::state::Cancelled;
use crate::agent::turn::Outcome;
use crate::clock::iso;
use crate::store::sessions::{self, Write};
use crate::store::tree::Node;
use crate::store::{StoreError, tree};
use crate::text::head_chars;
use std::fmt::Write as _;

/// Sub-sessions that a status names.
const SIBLINGS: u32 = 50;
/// What stands before an answer that is not the last.
const INTERIM: &str = "[Interim report · status: still running] ";

/// What the turn in flight has said.
#[derive(Debug, Default)]
pub(super) struct Said {
    /// All its text.
    pub all: String,
    /// The text of the call that ended it.
    pub last: String,
}

impl Said {
    /// A call has said this; `last` when no tool call follows.
    pub fn add(&mut self, text: &str, last: bool) {
        if !self.all.is_empty() && !text.is_empty() {
            self.all.push_str("\n\n");
        }
        self.all.push_str(text);
        if last {
            text.clone_into(&mut self.last);
        }
    }
}

/// The status of a root's sub-sessions.
#[derive(Debug)]
pub(super) struct Siblings {
    /// For the model.
    pub told: String,
    /// For people.
    pub shown: String,
}

impl Actor {
    /// The writes with which a turn's end goes to the parent; `goes_on` when another turn follows.
    pub fn report_writes(&mut self, outcome: &Outcome, goes_on: bool) -> Vec<Write> {
        let (Some(parent), Some(root)) = (self.id.parent(), self.id.is_child().then(|| self.id.root()))
        else {
            return Vec::new();
        };
        let at = self.now();
        let Some(run) = &self.run else { return Vec::new() };
        let done = Item::Done.json();
        if run.cancelled == Some(Cancelled::Stop) {
            let mut writes = vec![Write::Post { to: root.to_string(), item: done }];
            if run.tell_parent {
                let text = format!("{}{}", aborted(STOPPED, false), self.body(&run.said));
                writes.push(Write::Post { to: parent.to_string(), item: Item::Report { text }.json() });
            }
            return writes;
        }
        let failed = matches!(outcome, Outcome::Failed { .. });
        let due = run.owes && (goes_on || run.children_before);
        let interim = (due && !failed && !run.said.all.trim().is_empty()).then(|| {
            let text = format!("{INTERIM}{}", self.cut(run.said.all.trim()));
            Item::Report { text }.json()
        });
        if goes_on {
            return interim.map(|item| Write::Post { to: parent.to_string(), item }).into_iter().collect();
        }
        let body = self.body(&run.said);
        let text = match outcome {
            Outcome::Failed { message, account } => format!("{}{body}", aborted(message, *account)),
            Outcome::Aborted => format!("{}{body}", aborted(INTERRUPTED, false)),
            Outcome::Done | Outcome::Yielded => body,
        };
        vec![Write::Report {
            at,
            parent: parent.to_string(),
            root: root.to_string(),
            done,
            report: Item::Report { text }.json(),
            interim,
        }]
    }

    /// Notes whether the turn that begins finds sub-sessions of its own at work: then its answer cannot wait for them.
    pub async fn look_at_children(&mut self) {
        if !self.id.is_child() {
            return;
        }
        let id = self.id.as_str().to_owned();
        let busy = self.shared.db.read(move |conn| tree::has_active_children(conn, &id)).await;
        if let Some(run) = &mut self.run {
            run.children_before = busy.unwrap_or(false);
        }
    }

    /// Marks a sub-session without a run as stopped, if it is active: it waits for what it has started itself.
    pub async fn stamp(&mut self, tell_parent: bool) -> Result<(), StoreError> {
        let Some(parent) = self.id.parent() else { return Ok(()) };
        let id = self.id.as_str().to_owned();
        let stored = self.shared.db.read(move |conn| sessions::get(conn, &id)).await?;
        if stored.is_none_or(|row| row.stopped_at.is_some() || row.archived_at.is_some()) {
            return Ok(());
        }
        let at = self.now();
        let mut writes = vec![
            Write::Stopped { at },
            Write::Post { to: self.id.root().to_string(), item: Item::Done.json() },
        ];
        if tell_parent {
            let text = format!("{}(no output)", aborted(STOPPED, false));
            writes.push(Write::Post { to: parent.to_string(), item: Item::Report { text }.json() });
        }
        self.commit(writes).await
    }

    /// The closing text, else all the text.
    fn body(&self, said: &Said) -> String {
        let body = if said.last.trim().is_empty() { said.all.trim() } else { said.last.trim() };
        if body.is_empty() { "(no output)".to_owned() } else { self.cut(body) }
    }

    fn cut(&self, text: &str) -> String {
        let limit = self.shared.agents.delegation().report_chars;
        let head = head_chars(text, limit);
        if head.len() == text.len() {
            return text.to_owned();
        }
        let total = text.chars().count();
        format!(
            "{head}\n[Report truncated: {total} chars total, showing first {limit}. Use get_session_output(\"{}\") for \
             its end.]",
            self.id
        )
    }

    /// How a root's sub-sessions stand, where something of the queue comes from one.
    pub async fn sibling_status(&self) -> Result<Option<Siblings>, StoreError> {
        if self.id.is_child() || self.queue.iter().all(|(_, entry)| entry.source.is_none()) {
            return Ok(None);
        }
        let id = self.id.as_str().to_owned();
        let at_work = self.shared.db.read(move |conn| tree::at_work(conn, &id, SIBLINGS)).await?;
        Ok(Some(siblings(&at_work, self.shared.clock.now_ms())))
    }
}

const STOPPED: &str = "it was stopped before it was done";
const INTERRUPTED: &str = "it was interrupted before it was done, and told nothing";

fn aborted(why: &str, account: bool) -> String {
    let hint = if account {
        "To repeat it will fail in the same way: fix the model configuration first."
    } else {
        "What it did so far is kept; query_session takes it up again."
    };
    format!("[SUB-AGENT ABORTED: the work was not finished. Error: {why}. {hint}]\n\n")
}

fn siblings(at_work: &[Node], now: i64) -> Siblings {
    let iso_now = iso(now);
    if at_work.is_empty() {
        return Siblings {
            told: format!("[System @ {iso_now}] None of your sub-agents is running any more."),
            shown: "[System] All sub-agents are done.".to_owned(),
        };
    }
    let mut told = format!("[System @ {iso_now}] Sub-agents that are still at work:");
    let mut shown = "[System] Sub-agents still at work:".to_owned();
    for child in at_work {
        // Writing to a string cannot fail.
        let _ = write!(
            told,
            "\n- {} ({}): begun {}, last active {}",
            child.id,
            child.agent_name,
            iso(child.created_at),
            iso(child.updated_at)
        );
        let _ = write!(
            shown,
            "\n- {}: begun {} ago, last active {} ago",
            child.title.as_deref().unwrap_or(&child.agent_name),
            age(now - child.created_at),
            age(now - child.updated_at)
        );
    }
    Siblings { told, shown }
}

fn age(ms: i64) -> String {
    match ms.max(0) / 1000 {
        seconds @ 0..60 => format!("{seconds} s"),
        seconds @ 60..3600 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(-5, "0 s")]
    #[case(59_999, "59 s")]
    #[case(60_000, "1 min")]
    #[case(7_200_000, "2 h")]
    fn an_age_is_told_in_its_largest_unit(#[case] ms: i64, #[case] text: &str) {
        assert_eq!(age(ms), text);
    }
}
