//! What calls to Amazon need beyond HTTP: credentials, the region, signatures, and the SDK's HTTP over our own clients.
//! Promises that nothing here happens before the first call asks for it, that every wait has a bound, and that no text
//! of it holds a secret. Which service is called, and what its answers mean, is the callers'.

pub mod credentials;
pub mod http;
pub mod region;
pub mod sign;
