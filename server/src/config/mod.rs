//! Configuration: where halo's home is, what its files say, and which value of a setting counts
//! (flag, then environment, then file, then default). The floor below all others; it knows no HTTP, no
//! sessions and no SQL. [`Live`] keeps the result current while the server runs.

pub mod aliases;
pub mod edit;
pub mod effective;
pub mod environment;
mod file;
pub mod home;
pub mod live;
pub mod lock;
pub mod logging;
pub mod password;
pub mod problem;
pub mod reference;
pub mod resolve;
pub mod sections;
pub mod settings;
pub mod table;
pub mod value;
mod yaml;

pub use effective::Effective;
pub use environment::Environment;
pub use home::Home;
pub use live::Live;
pub use problem::{Problem, Severity};
pub use resolve::Overrides;
