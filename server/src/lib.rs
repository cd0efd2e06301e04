//! halo: a self-hosted agent server. The floors, from the top: [`cli`], [`import`], [`app`], [`http`], [`session`],
//! [`agent`], [`model`] and [`tool`], [`workspace`], [`net`], [`store`], [`config`]. A floor knows only
//! those below it; see `docs/architecture.md`.

pub mod access;
pub mod agent;
pub mod allow_list;
pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod exclusive;
pub mod http;
pub mod import;
pub mod mime;
pub mod model;
pub mod net;
pub mod placeholder;
pub mod session;
pub mod store;
pub mod text;
pub mod tool;
pub mod workspace;
pub mod yaml;
