//! The folder that sessions work in: what halo keeps in it, which paths may be opened, and which are hidden;
//! what comes in with messages.

pub mod hidden;
pub mod inbound;
pub mod lock;
pub mod paths;
pub mod scaffold;
