//! The folder that sessions work in: which paths may be opened, and which are hidden.

pub mod hidden;
pub mod paths;
