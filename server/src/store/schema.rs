//! The schemas.
/// Which schema.
#[derive(Clone, Copy, Debug)]
pub enum Schema {
    /// channels.db
    Channels,
    /// runs.db
    Runs,
    /// halo.db
    Workspace,
}
