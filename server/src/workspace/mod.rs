//! The folder that sessions work in, and what halo keeps in it.

pub mod lock;
pub mod scaffold;
