/* System calls as the tracepoint object sees them: which matter, and their numbers. x86-64 with its two other
 * kinds of calls: those of 32-bit programs (any program can make them: int 0x80) and x32's; aarch64 with those of 32-bit
 * programs (EABI).
 */
#ifndef AGENT_SANDBOX_CALLS_H
#define AGENT_SANDBOX_CALLS_H

#include "registers.h"

/* Every call that is looked at: X(name, number, number for 32-bit programs, another one for those or 0). */
#if defined(__TARGET_ARCH_x86)

/* thread_info.status: the call came by the 32-bit entry. */
#define TS_COMPAT 2
/* The bit of x32's numbers. */
#define X32 0x40000000

#define CALLS(X) \
	X(open, 2, 5, 0) X(creat, 85, 8, 0) X(openat, 257, 295, 0) X(openat2, 437, 437, 0) \
	X(open_by_handle_at, 304, 342, 0) \
	X(execve, 59, 11, 0) X(execveat, 322, 358, 0) \
	X(connect, 42, 362, 0) X(sendto, 44, 369, 0) X(sendmsg, 46, 370, 0) X(sendmmsg, 307, 345, 0) \
	X(listen, 50, 363, 0) X(socket, 41, 359, 0) \
	X(ptrace, 101, 26, 0) \
	X(setuid, 105, 23, 213) X(setgid, 106, 46, 214) X(setreuid, 113, 70, 203) X(setregid, 114, 71, 204) \
	X(setresuid, 117, 164, 208) X(setresgid, 119, 170, 210) X(setfsuid, 122, 138, 215) \
	X(setfsgid, 123, 139, 216) \
	X(mount, 165, 21, 0) X(umount2, 166, 52, 22) X(pivot_root, 155, 217, 0) X(move_mount, 429, 429, 0) \
	X(unshare, 272, 310, 0) X(setns, 308, 346, 0) \
	X(init_module, 175, 128, 0) X(finit_module, 313, 350, 0) X(kexec_load, 246, 283, 0) \
	X(kexec_file_load, 320, 0, 0) X(bpf, 321, 357, 0) \
	X(add_key, 248, 286, 0) X(request_key, 249, 287, 0) X(keyctl, 250, 288, 0) \
	X(kill, 62, 37, 0) X(tkill, 200, 238, 0) X(tgkill, 234, 270, 0) X(rt_sigqueueinfo, 129, 178, 0) \
	X(rt_tgsigqueueinfo, 297, 335, 0) X(pidfd_send_signal, 424, 424, 0) \
	X(process_vm_readv, 310, 347, 0) X(process_vm_writev, 311, 348, 0) \
	X(link, 86, 9, 0) X(linkat, 265, 303, 0) X(rename, 82, 38, 0) X(renameat, 264, 302, 0) \
	X(renameat2, 316, 353, 0) \
	X(chmod, 90, 15, 0) X(fchmod, 91, 94, 0) X(fchmodat, 268, 306, 0) X(fchmodat2, 452, 452, 0) \
	X(truncate, 76, 92, 193) X(unlink, 87, 10, 0) X(unlinkat, 263, 301, 0) X(rmdir, 84, 40, 0) \
	X(mkdir, 83, 39, 0) X(mkdirat, 258, 296, 0) X(mknod, 133, 14, 0) X(mknodat, 259, 297, 0) \
	X(symlink, 88, 83, 0) X(symlinkat, 266, 304, 0) X(bind, 49, 361, 0) \
	X(userfaultfd, 323, 374, 0) X(io_uring_setup, 425, 425, 0)
/* 32-bit programs call all of sockets by this one, whose arguments lie in memory. */
#define NARROW_SOCKETCALL 102

#else

/* pstate of a 32-bit program. */
#define PSR_MODE32_BIT 0x10
/* 32-bit programs alone have it: no number that is one. */
#define OLD(narrow) (1000 + (narrow))

#define CALLS(X) \
	X(open, OLD(5), 5, 0) X(creat, OLD(8), 8, 0) X(openat, 56, 322, 0) X(openat2, 437, 437, 0) \
	X(open_by_handle_at, 265, 371, 0) X(execve, 221, 11, 0) X(execveat, 281, 387, 0) X(connect, 203, 283, 0) \
	X(sendto, 206, 290, 0) X(sendmsg, 211, 296, 0) X(sendmmsg, 269, 374, 0) X(listen, 201, 284, 0) \
	X(socket, 198, 281, 0) X(ptrace, 117, 26, 0) X(setuid, 146, 23, 213) X(setgid, 144, 46, 214) \
	X(setreuid, 145, 70, 203) X(setregid, 143, 71, 204) X(setresuid, 147, 164, 208) \
	X(setresgid, 149, 170, 210) X(setfsuid, 151, 138, 215) X(setfsgid, 152, 139, 216) X(mount, 40, 21, 0) \
	X(umount2, 39, 52, 0) X(pivot_root, 41, 218, 0) X(move_mount, 429, 429, 0) X(unshare, 97, 337, 0) \
	X(setns, 268, 375, 0) X(init_module, 105, 128, 0) X(finit_module, 273, 379, 0) X(kexec_load, 104, 347, 0) \
	X(kexec_file_load, 294, 401, 0) X(bpf, 280, 386, 0) X(add_key, 217, 309, 0) X(request_key, 218, 310, 0) \
	X(keyctl, 219, 311, 0) X(kill, 129, 37, 0) X(tkill, 130, 238, 0) X(tgkill, 131, 268, 0) \
	X(rt_sigqueueinfo, 138, 178, 0) X(rt_tgsigqueueinfo, 240, 363, 0) X(pidfd_send_signal, 424, 424, 0) \
	X(process_vm_readv, 270, 376, 0) X(process_vm_writev, 271, 377, 0) X(link, OLD(9), 9, 0) \
	X(linkat, 37, 330, 0) X(rename, OLD(38), 38, 0) X(renameat, 38, 329, 0) X(renameat2, 276, 382, 0) \
	X(chmod, OLD(15), 15, 0) X(fchmod, 52, 94, 0) X(fchmodat, 53, 333, 0) X(fchmodat2, 452, 452, 0) \
	X(truncate, 45, 92, 193) X(unlink, OLD(10), 10, 0) X(unlinkat, 35, 328, 0) X(rmdir, OLD(40), 40, 0) \
	X(mkdir, OLD(39), 39, 0) X(mkdirat, 34, 323, 0) X(mknod, OLD(14), 14, 0) X(mknodat, 33, 324, 0) \
	X(symlink, OLD(83), 83, 0) X(symlinkat, 36, 331, 0) X(bind, 200, 282, 0) X(userfaultfd, 282, 388, 0) \
	X(io_uring_setup, 425, 425, 0)

#endif

enum {
#define X(name, number, narrow, second) CALL_##name = number,
	CALLS(X)
#undef X
	/* No number that is one. */
	CALL_socketcall = 511,
};

/* A bit for each number that matters, by 64 of them. */
inline_ u64 calls_among(u32 which)
{
	u64 bits = 0;

#define X(name, number, narrow, second) bits |= (number) / 64 == which ? 1ull << (number) % 64 : 0;
	CALLS(X)
#undef X
	return bits;
}

inline_ int call_matters(u64 number)
{
	u64 bits;

	switch (number >> 6) {
	case 0: bits = calls_among(0); break;
	case 1: bits = calls_among(1); break;
	case 2: bits = calls_among(2); break;
	case 3: bits = calls_among(3); break;
	case 4: bits = calls_among(4); break;
	case 5: bits = calls_among(5); break;
	case 6: bits = calls_among(6); break;
	case 7: bits = calls_among(7); break;
	default: return 0;
	}
	return bits >> (number & 63) & 1;
}

/* A 32-bit program's number as the one that it has for others, 0 for those that do not matter. */
outline u32 call_of_narrow(u32 number)
{
	switch (number) {
#define X(name, number, narrow, second) \
	case (narrow) ? (narrow) : 0x10000 + (number): \
	case (second) ? (second) : 0x20000 + (number): return number;
	CALLS(X)
#undef X
#ifdef NARROW_SOCKETCALL
	case NARROW_SOCKETCALL: return CALL_socketcall;
#endif
	default: return 0;
	}
}

#if defined(__TARGET_ARCH_x86)

/* x32's own numbers: of calls whose arguments point to numbers of another size. */
outline u32 call_of_x32(u32 number)
{
	switch (number) {
	case 518: return CALL_sendmsg;
	case 520: return CALL_execve;
	case 521: return CALL_ptrace;
	case 524: return CALL_rt_sigqueueinfo;
	case 528: return CALL_kexec_load;
	case 536: return CALL_rt_tgsigqueueinfo;
	case 538: return CALL_sendmmsg;
	case 539: return CALL_process_vm_readv;
	case 540: return CALL_process_vm_writev;
	case 545: return CALL_execveat;
	default: return 0;
	}
}

/* The call, by its number for 64-bit programs, or 0 if it does not matter. */
inline_ u32 call_number(struct task_struct *task, struct pt_regs *registers, u64 number, int *narrow)
{
	*narrow = 0;
	if (unlikely(task->thread_info.status & TS_COMPAT)) {
		*narrow = 1;
		return call_of_narrow(number);
	}
	if (unlikely(number & X32)) {
		number &= ~(u64)X32;
		/* Up to 511 it has the same numbers. */
		if (number >= 512) {
			*narrow = WIDE_REGISTERS;
			return call_of_x32(number);
		}
	}
	return call_matters(number) ? number : 0;
}

#else

/* The call, by its number for 64-bit programs, or 0 if it does not matter. */
inline_ u32 call_number(struct task_struct *task, struct pt_regs *registers, u64 number, int *narrow)
{
	*narrow = (registers->pstate & PSR_MODE32_BIT) != 0;
	if (unlikely(*narrow))
		return call_of_narrow(number);
	return call_matters(number) ? number : 0;
}

#endif

#endif
