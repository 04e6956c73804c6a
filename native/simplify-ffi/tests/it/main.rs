//! Tests of both sides of the crossing, in one program because linking DataFusion takes long.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod attack;
mod boundary;
mod common;
mod cost;
mod extra_functions;
mod failures;
mod foreign;
mod hostile;
mod opaque;
mod round_trip;
mod sharing;
mod sql;
