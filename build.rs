//! Where the launcher finds its shared libraries, which one it does without, and what is left out of a release.

#![allow(
    clippy::disallowed_methods,
    reason = "a build script: cargo tells it about the target by its environment"
)]

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    library_path();
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|is| is == value);
    if is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ENV", "gnu")
        && env::var("HOST") == env::var("TARGET")
    {
        unwinder();
        if is("PROFILE", "release") {
            no_tables();
            packed_relocations();
        }
    }
}

/// A release aborts where it panics, and has no names of functions to print: what says how to unwind it, an eleventh of
/// the program, is left out. (musl's start files want it, and a linker that somebody chose, as mold, may know no such scripts.)
fn no_tables() {
    if env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("fuse-ld")) {
        return;
    }
    let script = Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("no_tables.ld");
    let text = "SECTIONS { /DISCARD/ : { *(.eh_frame) *(.eh_frame_hdr) } }\nINSERT AFTER .text;\n";
    if std::fs::write(&script, text).is_ok() {
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
}

/// What the dynamic linker relocates takes 24 bytes for each pointer of the program's tables, and one bit where it is
/// packed (`DT_RELR`): 130 KB less, of a program that two processes of a launch start. glibc knows it since 2.36, and a program that has it
/// starts with no older one. So it is used where the machine that builds has it; others build a program of their own, or a static one.
fn packed_relocations() {
    if env::var("CARGO_ENCODED_RUSTFLAGS").is_ok_and(|flags| flags.contains("fuse-ld")) {
        return;
    }
    let named = Command::new("cc")
        .arg("-print-file-name=libc.so.6")
        .output();
    let path = named.map(|named| String::from_utf8_lossy(&named.stdout).trim().to_owned());
    let library = path.and_then(std::fs::read).unwrap_or_default();
    const KNOWS: &[u8] = b"GLIBC_ABI_DT_RELR";
    if library.windows(KNOWS.len()).any(|bytes| bytes == KNOWS) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The standard library takes the unwinder from `libgcc_s.so.1`. Two processes of a launch would look for that in all directories
/// of the library path, map and relocate it, and never unwind. The compiler's static form of it costs 30 KB and none of that; a linker
/// without one takes the shared library.
fn unwinder() {
    let named = Command::new("cc")
        .arg("-print-file-name=libgcc_eh.a")
        .output();
    let path = named.map(|named| String::from_utf8_lossy(&named.stdout).trim().to_owned());
    if let Some(directory) = path
        .ok()
        .as_deref()
        .map(Path::new)
        .filter(|path| path.is_absolute())
        .and_then(Path::parent)
    {
        println!("cargo:rustc-link-search=native={}", directory.display());
        println!("cargo:rustc-link-lib=static:+whole-archive,-bundle=gcc_eh");
    }
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
