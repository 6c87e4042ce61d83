//! The tracer's program.

#![deny(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "effects: reads arguments, writes what was asked for"
)]

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use agent_sandbox_tracer::cli::{Cli, Command, Load, Object, Options};
use agent_sandbox_tracer::kernel::{self, About, Choice, Kind, Probes, Report};
use agent_sandbox_tracer::{logging, service};
use anyhow::{Context as _, Result};
use clap::Parser as _;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match perform(cli.command.unwrap_or(Command::Run), cli.options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("agent-sandbox-tracer: error: {error:#}");
            if let Some(hint) = error.chain().find_map(hint) {
                eprintln!("hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn hint(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    error.downcast_ref::<kernel::Error>()?.hint()
}

fn perform(command: Command, options: Options) -> Result<ExitCode> {
    match command {
        Command::Run => {
            logging::begin(options.verbose)?;
            service::run(&wanted(options))?;
        }
        Command::Check => check(&options)?,
        Command::Unpin => {
            let settings = service::settings(&wanted(options))?;
            let objects = Probes::unpin_all(&settings)?;
            println!("removed the pins of {objects} objects");
        }
        Command::Key => println!("{}", service::mark_key(&wanted(options))?),
        Command::Load(order) => return load(&order, options.objects.as_deref()),
        Command::Prove { directory } => kernel::exercise(&directory)?,
        Command::Nothing => {}
    }
    Ok(ExitCode::SUCCESS)
}

fn wanted(options: Options) -> service::Options {
    service::Options {
        config: options.config,
        socket: options.socket,
        records: options.records,
        audit: options.audit,
        bpffs: options.bpffs,
        state: options.state,
        object: options.object.map(|object| match object {
            Object::Auto => Choice::Auto,
            Object::Trampolines => Choice::Trampolines,
            Object::Tracepoints => Choice::Tracepoints,
        }),
        objects: options.objects,
    }
}

/// Loads the probes, tries them, says what they can do, unloads them.
fn check(options: &Options) -> Result<()> {
    let settings = service::settings(&wanted(options.clone()))?;
    std::fs::create_dir_all(&settings.state)
        .with_context(|| format!("cannot make {}", settings.state.display()))?;
    let probes = Probes::check(&settings)?;
    let text = described(probes.about());
    let unpinned = probes.unpin();
    io::stdout().write_all(text.as_bytes())?;
    unpinned.context("cannot unload the probes")
}

fn described(about: &About) -> String {
    let mut lines = vec![
        format!("kernel:   {}", about.kernel),
        format!("probes:   {}", about.object),
        format!("denies:   {}", if about.enforces { "yes" } else { "no" }),
    ];
    for (title, list) in [
        ("proved", &about.proved),
        ("not seen or denied here", &about.blind),
        ("refused by the kernel", &about.refused),
    ] {
        if !list.is_empty() {
            lines.push(format!("{title}:"));
            lines.extend(list.iter().map(|line| format!("  {line}")));
        }
    }
    lines.join("\n") + "\n"
}

/// The loading child: says on standard output how it went.
fn load(order: &Load, objects: Option<&Path>) -> Result<ExitCode> {
    let report = match Kind::named(&order.kind) {
        Some(kind) => kernel::load(kind, objects, &order.directory, order.ring, order.lsm),
        None => Report {
            failed: Some(format!("there are no probes of kind `{}`", order.kind)),
            ..Report::default()
        },
    };
    serde_json::to_writer(io::stdout().lock(), &report)?;
    Ok(if report.failed.is_some() {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}
