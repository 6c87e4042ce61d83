/* The arguments of a system call, from its registers (x86-64; syscall(2)).
 */
#ifndef AGENT_SANDBOX_REGISTERS_H
#define AGENT_SANDBOX_REGISTERS_H

#include "kernel.h"

#if !defined(__TARGET_ARCH_x86)
#error "the registers of this architecture are not here: only those of x86-64"
#endif

struct pt_regs {
	unsigned long orig_ax, di, si, dx, r10, r8, r9, bx, cx, bp;
} RELOCATED;

struct arguments {
	u64 a, b, c, d, e, f;
	int narrow; /* a 32-bit program: its memory is laid out as such */
};
/* x32: the registers are those of 64-bit programs all the same. */
#define WIDE_REGISTERS 2

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

#endif
