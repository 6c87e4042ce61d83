/* The arguments of a system call, from its registers (syscall(2)): x86-64 and aarch64.
 */
#ifndef AGENT_SANDBOX_REGISTERS_H
#define AGENT_SANDBOX_REGISTERS_H

#include "kernel.h"

struct arguments {
	u64 a, b, c, d, e, f;
	int narrow; /* a 32-bit program: its memory is laid out as such */
};

#if defined(__TARGET_ARCH_x86)

struct pt_regs {
	unsigned long orig_ax, di, si, dx, r10, r8, r9, bx, cx, bp;
} RELOCATED;

/* x32: the registers are those of 64-bit programs all the same. */
#define WIDE_REGISTERS 2
/* The functions of system calls. Those of 32-bit programs are others. */
#define WIDE_CALL(name) "__x64_sys_" name
#define SLIM_CALL(name) "__ia32_sys_" name
#define SLIM_CALL_COMPAT(name) "__ia32_compat_sys_" name

inline_ void call_arguments(struct pt_regs *registers, int narrow, struct arguments *arguments)
{
	arguments->narrow = narrow;
	if (narrow && narrow != WIDE_REGISTERS) {
		arguments->a = (u32)registers->bx;
		arguments->b = (u32)registers->cx;
		arguments->c = (u32)registers->dx;
		arguments->d = (u32)registers->si;
		arguments->e = (u32)registers->di;
		arguments->f = (u32)registers->bp;
	} else {
		arguments->a = registers->di;
		arguments->b = registers->si;
		arguments->c = registers->dx;
		arguments->d = registers->r10;
		arguments->e = registers->r8;
		arguments->f = registers->r9;
	}
}

/* The number of the call that ends. */
inline_ u64 ended_number(struct pt_regs *registers)
{
	return registers->orig_ax;
}

inline_ u64 first_argument(struct pt_regs *registers)
{
	return registers->di;
}

/* Every argument is where it was when the call began. */
inline_ void ended_arguments(struct pt_regs *registers, int narrow, struct mark *mark, int seen, struct arguments *arguments)
{
	call_arguments(registers, narrow, arguments);
}

#elif defined(__TARGET_ARCH_arm64)

struct pt_regs {
	u64 regs[31];
	u64 pstate;
	u64 orig_x0;
	int syscallno;
} RELOCATED;

/* The functions of system calls. Most serve 32-bit programs, too. */
#define WIDE_CALL(name) "__arm64_sys_" name
#define SLIM_CALL_COMPAT(name) "__arm64_compat_sys_" name

/* A 32-bit program has its arguments in the same registers, whose upper halves the kernel sets to zero. */
inline_ void call_arguments(struct pt_regs *registers, int narrow, struct arguments *arguments)
{
	arguments->narrow = narrow;
	arguments->a = registers->regs[0];
	arguments->b = registers->regs[1];
	arguments->c = registers->regs[2];
	arguments->d = registers->regs[3];
	arguments->e = registers->regs[4];
	arguments->f = registers->regs[5];
}

inline_ u64 ended_number(struct pt_regs *registers)
{
	return (u32)registers->syscallno;
}

inline_ u64 first_argument(struct pt_regs *registers)
{
	return registers->regs[0];
}

/* The result lies in the first register by then. What was there when the call was made, the kernel keeps, but whoever
 * traces the process can have changed it since: so the one that the begin has seen counts. Both are read, or the compiler would choose between the places, and the
 * verifier takes no instruction that reads now from one kind of memory and now from another. */
inline_ void ended_arguments(struct pt_regs *registers, int narrow, struct mark *mark, int seen, struct arguments *arguments)
{
	u64 first = mark->first;

	opaque(first);
	call_arguments(registers, narrow, arguments);
	arguments->a = registers->orig_x0;
	if (seen)
		arguments->a = first;
}

#else
#error "the registers of this architecture are not here: only those of x86-64 and aarch64"
#endif

#endif
