//! The program of a filter: instructions of classic BPF (Documentation/networking/filter.rst) over a
//! `struct seccomp_data`.
//!
//! It is, in this order:
//!
//! 1. an entry: ENOSYS for a foreign architecture and, on x86-64, for x32 numbers;
//! 2. a balanced tree of comparisons that finds the call's number among ranges with one verdict each;
//! 3. at each leaf a verdict: the action of the first case whose tests all hold, else "allow".
//!
//! Most numbers end in a plain "allow" without a look at an argument; the kernel finds these out when the program is
//! installed and runs nothing for them later (Linux 5.11, kernel/seccomp.c, `seccomp_cache_prepare`).

use std::collections::BTreeMap;

/// The longest program that the kernel takes (BPF_MAXINSNS, include/uapi/linux/bpf_common.h).
pub const MAX_INSTRUCTIONS: usize = 4096;

/// Size of one instruction in bytes (`struct sock_filter`, include/uapi/linux/filter.h).
pub const INSTRUCTION_BYTES: usize = 8;

// Instructions: include/uapi/linux/bpf_common.h, offsets: struct seccomp_data and return values,
// include/uapi/linux/seccomp.h.

/// BPF_LD | BPF_W | BPF_ABS: load a word of `struct seccomp_data`.
const LOAD: u16 = 0x20;
/// BPF_ALU | BPF_AND | BPF_K.
const AND: u16 = 0x54;
/// BPF_JMP | BPF_JEQ | BPF_K.
const JUMP_EQUAL: u16 = 0x15;
/// BPF_JMP | BPF_JGE | BPF_K.
const JUMP_NOT_LESS: u16 = 0x35;
/// BPF_JMP | BPF_JSET | BPF_K.
const JUMP_SET: u16 = 0x45;
/// BPF_JMP | BPF_JA.
const JUMP_ALWAYS: u16 = 0x05;
/// BPF_RET | BPF_K.
const RETURN: u16 = 0x06;
/// Offset of `nr` in bytes.
const NR_OFFSET: u32 = 0;
/// Offset of `arch` in bytes.
const ARCH_OFFSET: u32 = 4;
/// Offset of the first argument in bytes; each has [`ARGUMENT_BYTES`], the low half first on both architectures.
const ARGUMENTS_OFFSET: u32 = 16;
const ARGUMENT_BYTES: u32 = 8;
const HALF: u32 = 4;

/// AUDIT_ARCH_X86_64, include/uapi/linux/audit.h.
#[cfg(target_arch = "x86_64")]
pub(super) const AUDIT_ARCH: u32 = 0xc000_003e;
/// `__X32_SYSCALL_BIT`, arch/x86/include/uapi/asm/unistd.h. x32 has the same AUDIT_ARCH.
#[cfg(target_arch = "x86_64")]
const X32_SYSCALL_BIT: u32 = 0x4000_0000;
/// AUDIT_ARCH_AARCH64, include/uapi/linux/audit.h.
#[cfg(target_arch = "aarch64")]
pub(super) const AUDIT_ARCH: u32 = 0xc000_00b7;

/// What the kernel does with a call: a return value of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action(u32);

/// Lets the call through.
const ALLOW: Action = Action(libc::SECCOMP_RET_ALLOW);
/// Hands the call over to whoever has the filter's listener.
pub const HAND_OVER: Action = Action(libc::SECCOMP_RET_USER_NOTIF);

/// Fails with this `errno`, which is positive.
#[must_use]
pub const fn refused(errno: i32) -> Action {
    Action(libc::SECCOMP_RET_ERRNO | errno.unsigned_abs())
}

/// How much of an argument is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// The low 32 bits: right for every argument that the kernel takes as an `int`, and of which it drops the rest.
    Low,
    /// All 64 bits.
    Full,
}

/// What must hold of an argument, counted from 0.
#[derive(Clone, Copy, Debug)]
pub enum Test<'a> {
    /// `argument & mask == equals`: mask, then value.
    Masked(u8, Width, u64, u64),
    /// At least one of these bits is set.
    AnyBit(u8, Width, u64),
    /// It is none of these.
    NotIn(u8, Width, &'a [u64]),
}

/// That an argument, which the kernel takes as an `int`, is this.
#[must_use]
pub const fn int_is(index: u8, value: u32) -> Test<'static> {
    Test::Masked(index, Width::Low, 0xffff_ffff, value as u64)
}

/// What is done with a call once its number is known: the action of the first case that holds, else it is allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    cases: Vec<Instruction>,
    otherwise: Option<Action>,
}

impl Verdict {
    /// The same whatever the arguments.
    #[must_use]
    pub fn always(action: Action) -> Self {
        Self {
            cases: Vec::new(),
            otherwise: Some(action),
        }
    }

    /// The action if these tests hold, else the call is allowed.
    #[must_use]
    pub fn on(test: Test<'_>, action: Action) -> Self {
        Self::default().case(&[test], action)
    }

    /// Adds a case, which counts where none before it holds: all of these tests. If they do not [`fit`](fits) the
    /// action is taken whatever the arguments, which is stricter.
    #[must_use]
    pub fn case(mut self, tests: &[Test<'_>], action: Action) -> Self {
        self.cases
            .extend(Block::of(tests).resolved().unwrap_or_default());
        self.cases.push(ret(action));
        self
    }

    fn code(&self) -> Vec<Instruction> {
        let mut code = self.cases.clone();
        code.push(ret(self.otherwise.unwrap_or(ALLOW)));
        code
    }
}

/// Whether tests are short enough for a conditional jump past all of them.
#[must_use]
pub fn fits(tests: &[Test<'_>]) -> bool {
    Block::of(tests).resolved().is_some()
}

/// A filter by the numbers of calls.
#[derive(Clone, Debug, Default)]
pub struct Filter(BTreeMap<u32, Verdict>);

impl Filter {
    /// Sets what is done with a call, in place of what was set before.
    pub fn set(&mut self, number: i64, verdict: Verdict) {
        // Every number of a call is small and not below 0 (kernel/seccomp.c takes them as `int`).
        self.0
            .extend(u32::try_from(number).ok().map(|number| (number, verdict)));
    }

    /// The same verdict for many calls.
    pub fn set_all(&mut self, numbers: &[i64], verdict: &Verdict) {
        for &number in numbers {
            self.set(number, verdict.clone());
        }
    }

    /// The program as the bytes of a `struct sock_filter` array in this machine's layout.
    #[must_use]
    pub fn compile(&self) -> Vec<u8> {
        let mut program = entry();
        program.push(load(NR_OFFSET));
        program.extend(tree(&self.ranges()));
        program.iter().flat_map(Instruction::bytes).collect()
    }

    /// All numbers, as ranges with one verdict each. The first begins with 0.
    fn ranges(&self) -> Vec<Range> {
        let allowed = Verdict::default();
        let mut ranges: Vec<Range> = vec![(0, allowed.clone())];
        let mut from = |start: u32, verdict: &Verdict| match ranges.last_mut() {
            Some((last, held)) if *last == start => *held = verdict.clone(),
            Some((_, held)) if held == verdict => {}
            _ => ranges.push((start, verdict.clone())),
        };
        for (number, verdict) in &self.0 {
            from(*number, verdict);
            if !self.0.contains_key(&(number + 1)) {
                from(number + 1, &allowed);
            }
        }
        ranges
    }
}

/// The number from which a verdict holds, up to the next.
type Range = (u32, Verdict);

/// Instructions that find the range of the number that is loaded, and do as its verdict says.
fn tree(ranges: &[Range]) -> Vec<Instruction> {
    let (below, above) = ranges.split_at(ranges.len() / 2);
    let Some((start, verdict)) = above.first() else {
        return Vec::new();
    };
    if below.is_empty() {
        return verdict.code();
    }
    let below = tree(below);
    // A conditional jump leaves out 255 instructions at most.
    let mut found = match u8::try_from(below.len()) {
        Ok(length) => vec![jump(JUMP_NOT_LESS, *start, length, 0)],
        Err(_) => vec![
            jump(JUMP_NOT_LESS, *start, 0, 1),
            // The kernel takes 4096 instructions in all.
            jump(JUMP_ALWAYS, below.len() as u32, 0, 0),
        ],
    };
    found.extend(below);
    found.extend(tree(above));
    found
}

/// The head of a program: calls of another ABI get ENOSYS, before anything looks at a number.
fn entry() -> Vec<Instruction> {
    let no_such_call = ret(refused(libc::ENOSYS));
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut entry = vec![
        load(ARCH_OFFSET),
        jump(JUMP_EQUAL, AUDIT_ARCH, 1, 0),
        no_such_call,
    ];
    #[cfg(target_arch = "x86_64")]
    entry.extend([
        load(NR_OFFSET),
        // -1 is no x32 call but how a tracer (strace, gdb) makes the kernel skip one: let it pass.
        jump(JUMP_EQUAL, u32::MAX, 2, 0),
        jump(JUMP_SET, X32_SYSCALL_BIT, 0, 1),
        no_such_call,
    ]);
    entry
}

/// An instruction (`struct sock_filter`, include/uapi/linux/filter.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Instruction {
    code: u16,
    /// Instructions that a jump leaves out if it is taken, and if it is not.
    jt: u8,
    jf: u8,
    k: u32,
}

impl Instruction {
    /// As the kernel reads it.
    fn bytes(&self) -> [u8; INSTRUCTION_BYTES] {
        let mut bytes = [0; INSTRUCTION_BYTES];
        bytes[..2].copy_from_slice(&self.code.to_ne_bytes());
        bytes[2] = self.jt;
        bytes[3] = self.jf;
        bytes[4..].copy_from_slice(&self.k.to_ne_bytes());
        bytes
    }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> Instruction {
    Instruction { code, jt, jf, k }
}

const fn load(offset: u32) -> Instruction {
    jump(LOAD, offset, 0, 0)
}

const fn ret(Action(value): Action) -> Instruction {
    jump(RETURN, value, 0, 0)
}

/// Where a jump of a [`Block`] leads.
#[derive(Clone, Copy)]
enum To {
    /// Past this many instructions.
    Over(u8),
    /// Past the block and the action behind it: a test does not hold.
    Next,
}

/// The tests of a case. What falls through them has passed.
#[derive(Default)]
struct Block(Vec<(u16, u32, To, To)>);

impl Block {
    fn of(tests: &[Test<'_>]) -> Self {
        let mut block = Self::default();
        tests.iter().for_each(|test| block.add(*test));
        block
    }

    fn add(&mut self, test: Test<'_>) {
        match test {
            Test::Masked(index, width, mask, equals) => {
                for half in halves(width) {
                    let (mask, equals) = (half.of(mask), half.of(equals));
                    if mask == 0 {
                        continue;
                    }
                    self.load(index, half);
                    if mask != u32::MAX {
                        self.plain(AND, mask);
                    }
                    self.jump(JUMP_EQUAL, equals, To::Over(0), To::Next);
                }
            }
            Test::AnyBit(index, width, bits) => {
                let halves = halves(width).iter().filter(|half| half.of(bits) != 0);
                let mut halves = halves.peekable();
                while let Some(half) = halves.next() {
                    self.load(index, half);
                    let (held, not) = match halves.peek() {
                        // The other half need not be looked at: one load and one jump.
                        Some(_) => (To::Over(2), To::Over(0)),
                        None => (To::Over(0), To::Next),
                    };
                    self.jump(JUMP_SET, half.of(bits), held, not);
                }
            }
            Test::NotIn(index, Width::Low, values) => {
                self.load(index, &Half::Low);
                for value in values {
                    self.jump(JUMP_EQUAL, Half::Low.of(*value), To::Next, To::Over(0));
                }
            }
            Test::NotIn(index, Width::Full, values) => {
                for value in values {
                    self.load(index, &Half::High);
                    self.jump(JUMP_EQUAL, Half::High.of(*value), To::Over(0), To::Over(2));
                    self.load(index, &Half::Low);
                    self.jump(JUMP_EQUAL, Half::Low.of(*value), To::Next, To::Over(0));
                }
            }
        }
    }

    fn load(&mut self, index: u8, half: &Half) {
        let offset = ARGUMENTS_OFFSET + ARGUMENT_BYTES * u32::from(index);
        self.plain(
            LOAD,
            match half {
                Half::Low => offset,
                Half::High => offset + HALF,
            },
        );
    }

    fn plain(&mut self, code: u16, k: u32) {
        self.jump(code, k, To::Over(0), To::Over(0));
    }

    fn jump(&mut self, code: u16, k: u32, held: To, not: To) {
        self.0.push((code, k, held, not));
    }

    /// With the lengths of its jumps; `None` if one is longer than a conditional jump can be.
    fn resolved(self) -> Option<Vec<Instruction>> {
        let length = self.0.len();
        let instructions = self.0.into_iter().enumerate();
        let resolved = instructions.map(|(at, (code, k, held, not))| {
            // The action is one more instruction behind the block.
            let over = |to| match to {
                To::Over(count) => Some(count),
                To::Next => u8::try_from(length - at).ok(),
            };
            Some(jump(code, k, over(held)?, over(not)?))
        });
        resolved.collect()
    }
}

/// Half of an argument.
#[derive(Clone, Copy)]
enum Half {
    Low,
    High,
}

impl Half {
    /// This half of a value.
    const fn of(self, value: u64) -> u32 {
        match self {
            Self::Low => value as u32,
            Self::High => (value >> 32) as u32,
        }
    }
}

const fn halves(width: Width) -> &'static [Half] {
    match width {
        Width::Low => &[Half::Low],
        Width::Full => &[Half::High, Half::Low],
    }
}
