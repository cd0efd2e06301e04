//! Who is asking: tokens, the lockout, and the address that a request came from.

pub mod client_addr;
pub mod lockout;
pub mod token;
