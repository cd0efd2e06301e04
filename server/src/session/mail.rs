//! Letters between the sessions of one tree: a sub-session's start and end for its root's log, its reports for its
//! parent. The sender leaves them in its own transaction and wakes the receiver, whose owner takes them here; neither
//! waits for the other (sessions contract, section 5).

use super::actor::Actor;
use super::frames::Frame;
use super::receive::Drained;
use super::rows;
use super::state::QueueEntry;
use crate::access::AccessLevel;
use crate::store::sessions::{SessionRow, Write};
use crate::store::{StoreError, mail};
use serde::{Deserialize, Serialize};

/// Letters that are taken at once.
const LETTERS: u32 = 256;

/// What one session leaves for another; stored as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Item {
    /// A sub-session began; for the root's log.
    Started {
        /// Its agent's name.
        agent_name: String,
        /// The beginning of what it was told.
        preview: String,
    },
    /// A sub-session is done; for the root's log.
    Done,
    /// What a sub-session has to say to its parent.
    Report {
        /// The text, cut already.
        text: String,
    },
}

impl Item {
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// A message of another session, as the log and the model see it.
pub(super) fn from_session(sender: &str, text: &str) -> String {
    format!("(from: session {sender})\n{text}")
}

impl Actor {
    /// Takes what others have left. While a cancelled run is ending it waits: it is no part of what was cancelled.
    pub async fn collect(&mut self) {
        // During a stop nothing new begins.
        let run = !self.shared.stops.reach(&self.id);
        self.collect_and(run).await;
    }

    /// The same; `run` says whether an idle session works on it at once, or only has it in its history.
    pub async fn collect_and(&mut self, run: bool) {
        self.mail_waits = true;
        if self.is_ending() || self.left.is_some() {
            return;
        }
        while self.mail_waits {
            match self.try_collect(run).await {
                Ok(more) => self.mail_waits = more,
                Err(error) => {
                    tracing::error!(session = %self.id, %error, "a report could not be taken in; it is tried later");
                    return;
                }
            }
        }
    }

    /// Takes some; true when there may be more.
    async fn try_collect(&mut self, run: bool) -> Result<bool, StoreError> {
        let id = self.id.as_str().to_owned();
        let letters = self.shared.db.read(move |conn| mail::waiting(conn, &id, LETTERS)).await?;
        let Some(row) = self.row.clone().filter(|_| !letters.is_empty()) else { return Ok(false) };
        let more = letters.len() == LETTERS as usize;
        self.load_history().await?;
        let before = self.mark();
        let settled = self.settle();
        let mut writes = settled.writes.clone();
        let mut entries = Vec::new();
        for letter in letters {
            match serde_json::from_str(&letter.item) {
                Ok(item) => self.take(&letter.from, item, &row, &mut writes, &mut entries),
                Err(error) => {
                    tracing::error!(session = %self.id, letter = letter.id, %error, "a letter cannot be read and is dropped");
                }
            }
            writes.push(Write::Taken { mail: letter.id });
        }
        let texts: Vec<String> = entries.iter().map(|(_, entry)| entry.text.clone()).collect();
        let mut drained = None;
        if !entries.is_empty() {
            if run || self.run.is_some() {
                let at = self.now();
                let access_level = AccessLevel::from_stored(&row.access_level).as_str();
                writes.push(Write::Received { at, access_level, title: None });
            }
            self.queue.extend(entries);
            if self.run.is_none() {
                let siblings = self.siblings_or_none().await;
                drained = self.drain(siblings);
            }
        }
        let mut start = None;
        if let Some(Drained { writes: moved, access, owes }) = drained {
            writes.extend(moved);
            if run {
                writes.push(Write::RunStarted { at: self.now(), crashes: 0 });
                start = Some((access, owes));
            }
        }
        if let Err(error) = self.commit(writes).await {
            self.back_to(before);
            self.unsettle(settled);
            return Err(error);
        }
        if let (Some(row), false) = (&mut self.row, texts.is_empty()) {
            row.stopped_at = None;
        }
        if let Some((access, owes)) = start {
            self.start_run(access, owes);
            self.look_at_children().await;
        }
        if let Some(run) = &mut self.run {
            for text in &texts {
                run.log.push(&Frame::User { text });
            }
        }
        Ok(more)
    }

    /// What a letter becomes: rows of the log, and an entry of the queue for what the model is to read.
    fn take(
        &mut self,
        sender: &str,
        item: Item,
        row: &SessionRow,
        writes: &mut Vec<Write>,
        entries: &mut Vec<(i64, QueueEntry)>,
    ) {
        let place = self.place();
        match item {
            Item::Started { agent_name, preview } => {
                writes.push(Self::task_write(place, rows::agent_start(place, sender, &agent_name, &preview)));
            }
            Item::Done => writes.push(Self::task_write(place, rows::agent_done(place, sender))),
            Item::Report { text } => {
                let text = from_session(sender, &text);
                writes.push(Self::log_write(place, rows::user(place, &text)));
                let entry = QueueEntry {
                    at: place.at,
                    text,
                    for_model: None,
                    images: Vec::new(),
                    access: AccessLevel::from_stored(&row.access_level),
                    source: Some(sender.to_owned()),
                };
                let seq = self.next.queue;
                self.next.queue += 1;
                if self.run.is_some() {
                    writes.push(Write::Enqueue {
                        seq,
                        entry: serde_json::to_string(&entry).unwrap_or_default(),
                    });
                }
                entries.push((seq, entry));
            }
        }
    }
}
