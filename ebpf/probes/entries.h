/* Operations that only a system call shows: the trampolines are on the calls' own functions, of which there are
 * two where 32-bit programs have entries of their own.
 */
#ifndef AGENT_SANDBOX_ENTRIES_H
#define AGENT_SANDBOX_ENTRIES_H

#include "verdicts.h"
#include "calls.h"

#define ENTRY_AT(function, name, call, narrow) \
	SEC("fexit/" call) \
	int name(u64 *context) \
	{ \
		struct arguments with; \
		call_arguments(ARGUMENT(struct pt_regs *, 0), narrow, &with); \
		return function(&with, context[1]); \
	}
/* Of calls whose arguments differ in size there are two functions everywhere. */
#define ENTRY_COMPAT(function, name, call) \
	ENTRY_AT(function, entry_##name, WIDE_CALL(call), 0) \
	ENTRY_AT(function, narrow_##name, SLIM_CALL_COMPAT(call), 1)
#ifdef SLIM_CALL
#define ENTRY(function, call) \
	ENTRY_AT(function, entry_##call, WIDE_CALL(#call), 0) \
	ENTRY_AT(function, narrow_##call, SLIM_CALL(#call), 1)
#else
#define ENTRY(function, call) ENTRY_AT(function, entry_##call, WIDE_CALL(#call), 0)
#endif

inline_ int ended_setns(struct arguments *with, s64 result)
{
	simple_operation(OP_SETNS, result, (u32)with->a, with->b & CLONE_NEW, 0);
	return 0;
}
ENTRY(ended_setns, setns)

inline_ int ended_bpf(struct arguments *with, s64 result)
{
	/* Those that give a descriptor have gone well. */
	simple_operation(OP_BPF, result < 0 ? result : 0, (u32)with->a, 0, 0);
	return 0;
}
ENTRY(ended_bpf, bpf)

inline_ int ended_key(u64 call, u64 first, s64 result)
{
	simple_operation(OP_KEYCTL, result < 0 ? result : 0, call, first, 0);
	return 0;
}

/* The numbers are those of 64-bit programs. */
inline_ int ended_keyctl(struct arguments *with, s64 result)
{
	return ended_key(CALL_keyctl, with->a, result);
}
ENTRY_COMPAT(ended_keyctl, keyctl, "keyctl")

inline_ int ended_add_key(struct arguments *with, s64 result)
{
	return ended_key(CALL_add_key, 0, result);
}
ENTRY(ended_add_key, add_key)

inline_ int ended_request_key(struct arguments *with, s64 result)
{
	return ended_key(CALL_request_key, 0, result);
}
ENTRY(ended_request_key, request_key)

/* Which process it is, the hook of ptrace has left; if it did not come so far, it is known by the caller's
 * number alone. */
inline_ int ended_process_vm(u64 call, struct arguments *with, s64 result)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct doing doing;
	u64 other;

	if (!mark)
		return 0;
	other = mark->aside;
	mark->aside = 0;
	doing = operation_of(task, mark, OP_PROCESS_VM, result < 0 ? result : 0);
	if (!doing.slot)
		return 0;
	doing.event->first = other ? other : (u32)with->a;
	doing.event->second = call;
	done(&doing);
	return 0;
}

inline_ int ended_readv(struct arguments *with, s64 result)
{
	return ended_process_vm(CALL_process_vm_readv, with, result);
}
ENTRY(ended_readv, process_vm_readv)

inline_ int ended_writev(struct arguments *with, s64 result)
{
	return ended_process_vm(CALL_process_vm_writev, with, result);
}
ENTRY(ended_writev, process_vm_writev)

inline_ int ended_userfaultfd(struct arguments *with, s64 result)
{
	simple_operation(OP_USERFAULTFD, result < 0 ? result : 0, (u32)with->a, 0, 0);
	return 0;
}
ENTRY(ended_userfaultfd, userfaultfd)

/* struct io_uring_params: the flags are its third number. */
inline_ int ended_io_uring(struct arguments *with, s64 result)
{
	struct doing doing = operation(OP_IO_URING, result < 0 ? result : 0);
	u32 flags = 0;

	if (!doing.slot)
		return 0;
	read_user(&flags, sizeof(flags), (void *)(with->b + 8));
	doing.event->first = (u32)with->a;
	doing.event->second = flags;
	doing.event->head.flags |= FLAG_FROM_USER;
	done(&doing);
	return 0;
}
ENTRY(ended_io_uring, io_uring_setup)

/* What fails for lack of a right, before the hooks that tell of the rest. */
inline_ int refused(u32 what, s64 result, u64 first, u64 second, u64 third)
{
	struct doing doing;

	if (result != -EPERM)
		return 0;
	doing = operation(what, result);
	if (!doing.slot)
		return 0;
	doing.event->head.by = BY_PERMISSIONS;
	doing.event->first = first;
	doing.event->second = second;
	doing.event->third = third;
	done(&doing);
	return 0;
}

inline_ int refused_module(struct arguments *with, s64 result)
{
	return refused(OP_MODULE_LOAD, result, 2, 0, 0);
}
ENTRY(refused_module, init_module)
ENTRY(refused_module, finit_module)

inline_ int refused_kill(struct arguments *with, s64 result)
{
	return refused(OP_KILL, result, (u32)with->a, (u32)with->b, 0);
}
ENTRY(refused_kill, kill)
ENTRY(refused_kill, tkill)
ENTRY_COMPAT(refused_kill, sigqueue, "rt_sigqueueinfo")

inline_ int refused_tgkill(struct arguments *with, s64 result)
{
	return refused(OP_KILL, result, (u32)with->a, (u32)with->c, 0);
}
ENTRY(refused_tgkill, tgkill)

/* Ids as the caller's user namespace numbers them. LSM_SETID_*: 1 id, 2 re, 4 res. */
SEC("fexit/__sys_setuid")
int refused_setuid(u64 *context)
{
	return refused(OP_SETUID, (s64)context[1], (u32)context[0], 0, 1);
}

SEC("fexit/__sys_setreuid")
int refused_setreuid(u64 *context)
{
	return refused(OP_SETUID, (s64)context[2], (u32)context[1], 0, 2);
}

SEC("fexit/__sys_setresuid")
int refused_setresuid(u64 *context)
{
	return refused(OP_SETUID, (s64)context[3], (u32)context[1], 0, 4);
}

SEC("fexit/__sys_setgid")
int refused_setgid(u64 *context)
{
	return refused(OP_SETGID, (s64)context[1], (u32)context[0], 0, 1);
}

SEC("fexit/__sys_setregid")
int refused_setregid(u64 *context)
{
	return refused(OP_SETGID, (s64)context[2], (u32)context[1], 0, 2);
}

SEC("fexit/__sys_setresgid")
int refused_setresgid(u64 *context)
{
	return refused(OP_SETGID, (s64)context[3], (u32)context[1], 0, 4);
}

#endif
