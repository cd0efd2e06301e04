//! Agents: who answers in a session, and what it is told before the first word.

mod files;
pub mod profile;
pub mod prompt;
mod yaml;
