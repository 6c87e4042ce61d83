//! What the object of trampolines costs, which this machine's kernel may refuse: on kernels under qemu, whose clocks
//! count instructions. Emulated times are noise; instructions are the same on each run.

use crate::machine::{Clocks, Workshop, fetched};
use crate::machines::{MACHINES, Machine, contents};
use crate::{Bench, machines};

/// With this argument it measures that alone: `tests/run --bench -- trampolines`.
pub(crate) const ONLY_TRAMPOLINES: &str = "trampolines";

impl Bench {
    pub(crate) fn trampolines(&mut self) {
        let found = match fetched() {
            Ok(found) => found,
            Err(why) => {
                println!("not checked: the trampolines object, on kernels under qemu: {why}");
                return;
            }
        };
        let workshop = Workshop::new(found.clone(), &contents(&found));
        let counted = |machine: &&Machine| machine.clocks == Clocks::Instructions;
        for machine in MACHINES.iter().filter(counted) {
            let speeds = machines::Speeds::of(&machine.boot(&workshop));
            let row = |what: &str| format!("Linux {}, instructions: {what}", machine.kernel);
            self.note(
                &row("open + close"),
                &format!("{:.0}", speeds.nothing.open_close),
            );
            let [untraced, traced] = [speeds.untraced, speeds.traced];
            for (what, most, figure) in [
                (
                    "untraced / nothing",
                    machines::UNTRACED,
                    untraced.open_close,
                ),
                ("traced / nothing", machines::TRACED, traced.open_close),
                ("getppid, untraced", machines::NO_TAX, untraced.getppid),
                ("getppid, traced", machines::NO_TAX, traced.getppid),
            ] {
                self.row(&row(what), most, figure, " ×");
            }
        }
    }
}
