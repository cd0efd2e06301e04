//! SQLite, and the only floor that contains SQL. One [`Database`] is one file: one writer thread with group
//! commit, and a small pool of read-only connections. What [`Database::write`] has answered is on disk.

pub mod accounts;
pub mod db;
mod error;
pub mod imported;
pub mod log;
mod migrate;
pub mod node;
mod readers;
pub mod runs;
pub mod schema;
pub mod sessions;
mod writer;

pub use db::Database;
pub use error::{OpenError, StoreError};
