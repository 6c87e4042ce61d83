//! Many tasks, more events than there is room for, and what system calls take.

use crate::machines::{NO_TAX, Speeds, TRACED, UNTRACED};
use crate::{ended, number, on_each_with, unless};

/// As `init` starts them.
const TASKS: u64 = 10_000;
const OPENS: u64 = 80_000;
/// What the tracer may have in memory after it has recorded ten thousand tasks, in KiB: as it is built for tests, a
/// third of it is the program. `make bench` has the figure of the one that is installed.
const TRACER_KIB: u64 = 32 * 1024;

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
        let speeds = Speeds::of(said);
        println!(
            "Linux {}, in instructions: open+close {:.0}, {:.2?} times that untraced, {:.2?} traced",
            machine.kernel, speeds.nothing.open_close, speeds.untraced, speeds.traced
        );
        let within = |what: &str, figure: f64, most: f64| {
            unless(figure <= most, || {
                format!("{what}: {figure:.3}, more than {most}")
            })
        };
        let wrong = [
            within("untraced", speeds.untraced.open_close, UNTRACED),
            within("traced", speeds.traced.open_close, TRACED),
            // Trampolines are on what is recorded alone: no other system call is slower.
            within("getppid, untraced", speeds.untraced.getppid, NO_TAX),
            within("getppid, traced", speeds.traced.getppid, NO_TAX),
            unless(number(said, "speed-sum", "open-allowed") > 0, || {
                "the traced run was not traced".to_owned()
            }),
        ];
        wrong.into_iter().flatten().collect()
    });
}
