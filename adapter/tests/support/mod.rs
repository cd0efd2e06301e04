//! What the tests of the binary share: a halo server that plays what a test scripts ([`halo`]), and the real
//! `halo-acp` behind pipes ([`editor`]).

#![allow(dead_code, reason = "each test binary uses a part of it")]
#![allow(clippy::needless_pass_by_value, reason = "a JSON value is written where it is used")]

pub mod editor;
pub mod halo;
