//! Many tasks, more events than there is room for, and what system calls take.

use crate::{TRACEPOINTS, ended, number, on_each_with, unless};

/// As `init` starts them.
const TASKS: u64 = 10_000;
const OPENS: u64 = 80_000;
/// What the tracer may have in memory after it has recorded ten thousand tasks, in KiB: as it is built for tests, a
/// third of it is the program. `make bench` has the figure of the one that is installed.
const TRACER_KIB: u64 = 32 * 1024;
/// How much longer system calls take may differ by so much between two runs on an emulated machine, which others share.
const NOISE: f64 = 2.0;
/// Untraced tasks open and close files this much slower at most with the tracer there. Two machines are emulated at
/// once, so that one measurement can have had a processor for itself and another half of one; what a mistake would
/// cost, a path that is walked for tasks that are not traced, is more than that.
const UNTRACED: f64 = 4.0;

#[test]
fn ten_thousand_tasks_are_traced_without_loss() {
    on_each_with("many", "many tasks", |_, said| {
        let mut wrong = ended(said, "many", 0, &["made 10000", "opened 10000"]);
        let sum = |name| number(said, "many-sum", name);
        for (name, least) in [("open-allowed", TASKS), ("fork", TASKS), ("exit", TASKS)] {
            wrong.extend(unless(sum(name) >= least, || {
                format!("{name}: {}", said.stage("many-sum").text())
            }));
        }
        wrong.extend(unless(sum("open-allowed") == TASKS, || {
            format!("{} opens", sum("open-allowed"))
        }));
        wrong.extend(unless(sum("lost") == 0, || format!("lost {}", sum("lost"))));
        let memory = said.stage("many-memory").text();
        let kib: u64 = memory
            .split_whitespace()
            .find_map(|word| word.parse().ok())
            .unwrap_or(u64::MAX);
        println!("tracer: {kib} KiB with {TASKS} tasks");
        wrong.extend(unless(kib <= TRACER_KIB, || format!("tracer: {kib} KiB")));
        wrong
    });
}

#[test]
fn what_is_lost_is_counted() {
    on_each_with("loss", "losses", |machine, said| {
        let mut wrong = ended(said, "storm", 0, &["opened 80000"]);
        let sum = |name| number(said, "storm-sum", name);
        let (seen, lost) = (sum("open-allowed"), sum("lost"));
        println!("{}: {seen} of {OPENS} seen, {lost} lost", machine.name);
        wrong.extend(unless(seen + lost == OPENS, || {
            format!("{seen} seen and {lost} lost are not {OPENS}")
        }));
        wrong.extend(unless(lost > 0, || "nothing was lost".to_owned()));
        wrong.extend(unless(seen > 0, || "nothing was seen".to_owned()));
        wrong
    });
}

#[test]
fn untraced_tasks_pay_little_for_the_tracer() {
    on_each_with("speed", "speed", |machine, said| {
        let took = |stage: &str, name: &str| {
            let ns = u32::try_from(number(said, &format!("speed-{stage}"), name));
            f64::from(ns.unwrap_or(u32::MAX))
        };
        let ratio = |stage, name| took(stage, name) / took("nothing", name);
        println!(
            "Linux {}, emulated: open+close {:.0} ns; untraced {:.2}, traced {:.2}; getppid {:.0} ns; untraced {:.2}, traced {:.2}",
            machine.kernel,
            took("nothing", "open-close"),
            ratio("untraced", "open-close"),
            ratio("traced", "open-close"),
            took("nothing", "getppid"),
            ratio("untraced", "getppid"),
            ratio("traced", "getppid"),
        );
        let mut wrong = Vec::new();
        wrong.extend(unless(ratio("untraced", "open-close") <= UNTRACED, || {
            format!(
                "open+close untraced: {:.2}",
                ratio("untraced", "open-close")
            )
        }));
        // Trampolines are on what is recorded alone: no other system call is slower, traced or not. Of the two
        // measurements one has had the processor for itself.
        let best = ratio("untraced", "getppid").min(ratio("traced", "getppid"));
        let taxed = machine.object == TRACEPOINTS || best <= NOISE;
        wrong.extend(unless(taxed, || {
            format!("getppid untraced: {:.2}", ratio("untraced", "getppid"))
        }));
        wrong.extend(unless(
            number(said, "speed-sum", "open-allowed") > 0,
            || "the traced run was not traced".to_owned(),
        ));
        wrong
    });
}
