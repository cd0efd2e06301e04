//! What the whole-stack tests share.

pub mod model_server;
