//! Tests of both sides of the crossing, in one program because linking DataFusion takes long.

mod common;
mod round_trip;
mod sharing;
