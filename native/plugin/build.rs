//! Asks the linker to keep one copy of functions that are the same machine code, where it can.
//!
//! What the library contains of DataFusion is generic code in the main, of which many copies for different types compile to
//! the same instructions. rustc's own linker on Linux (rust-lld, since 1.90) folds them; others are left as they are.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What folds equal functions. Rust promises no address of a function to be its own, so `all` is safe for it.
const FOLD: &str = "-Wl,--icf=all";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // What the quick profile makes is linked again and again, and not handed out.
    if env::var("OPT_LEVEL").is_ok_and(|level| level == "3") && links() {
        println!("cargo:rustc-cdylib-link-arg={FOLD}");
    }
}

/// Whether an empty program links with that argument, by the linker that the library will have.
fn links() -> bool {
    let (Some(rustc), Some(out), Ok(target)) = (env::var_os("RUSTC"), env::var_os("OUT_DIR"), env::var("TARGET"))
    else {
        return false;
    };
    let program = PathBuf::from(out).join("empty.rs");
    if std::fs::write(&program, "fn main() {}\n").is_err() {
        return false;
    }
    let mut command = Command::new(rustc);
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        command.arg("-C").arg(format!("linker={}", linker.to_string_lossy()));
    }
    command
        .args(["--target", &target, "-C", &format!("link-arg={FOLD}"), "-o"])
        .arg(program.with_extension(""))
        .arg(&program)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
