//! The wire table: every kind of exchange that clients of the web channel know, one row each, asked of the real
//! server and compared field by field. A file is a theme; a test is a world, and its rows are asked in order, since
//! later ones see what earlier ones left.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

mod accounts;
mod auth;
mod chat;
mod commands;
mod file;
mod fs;
mod history;
mod lock;
mod other;
mod owners;
mod pattern;
mod run;
mod table;
mod world;
