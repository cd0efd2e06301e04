//! The workspaces ever used.
