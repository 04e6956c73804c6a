//! The crate as applications use it: sessions with the rules and the operators.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod by_row;
mod differences;
mod forward;
mod held_sides;
mod operations;
mod register;
mod sent;
mod session;
mod snapshots;
