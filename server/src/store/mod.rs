//! SQLite, and the only floor that contains SQL. One [`Database`] is one file: one writer thread with group
//! commit, and a small pool of read-only connections. What [`Database::write`] has answered is on disk.

pub mod accounts;
pub mod catalog;
pub mod db;
mod error;
pub mod imported;
pub mod log;
pub mod mail;
mod migrate;
pub mod node;
mod read_only;
mod readers;
pub mod runs;
pub mod schema;
pub mod sessions;
pub mod tree;
mod writer;

pub use db::Database;
pub use error::{OpenError, StoreError};
