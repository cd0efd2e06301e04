//! The folder that sessions work in: what halo keeps in it, which paths may be opened, and which are hidden.

pub mod hidden;
pub mod lock;
pub mod paths;
pub mod scaffold;
