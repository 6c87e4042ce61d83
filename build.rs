//! Where the launcher finds its shared libraries.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script: cargo tells it about the target by its environment"
)]

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    library_path();
}

/// The launcher is started in directories that hostile programs can write. An empty entry in
/// `LD_LIBRARY_PATH`, which a trailing colon makes, means the current directory to the dynamic
/// linker: a planted `libc.so.6` would run outside the jail, as the launcher. A `DT_RPATH` is
/// searched first (ld.so(8)); the newer `DT_RUNPATH`, which linkers write by default, is not.
fn library_path() {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").unwrap_or_default();
    let system = env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if system == "linux" {
        let multiarch = format!("{arch}-linux-gnu");
        let directories = [
            format!("/lib/{multiarch}"),
            format!("/usr/lib/{multiarch}"),
            "/lib64".to_owned(),
            "/usr/lib64".to_owned(),
        ];
        println!("cargo:rustc-link-arg-bins=-Wl,--disable-new-dtags");
        println!(
            "cargo:rustc-link-arg-bins=-Wl,-rpath,{}",
            directories.join(":")
        );
    }
}
