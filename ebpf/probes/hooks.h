/* Operations, at the end of the kernel's functions for them.
 */
#ifndef AGENT_SANDBOX_HOOKS_H
#define AGENT_SANDBOX_HOOKS_H

#include "verdicts.h"

/* ptrace(2) and what needs the same right; without it: looking at /proc. */
#define PTRACE_MODE_ATTACH 2
#define READING_MODULE 2

/* A simple operation of which a security module had the last word. */
inline_ void judged_operation(u32 what, s64 result, u64 first, u64 second, u64 third)
{
	struct doing doing = operation(what, result);

	if (!doing.slot)
		return;
	judge(&doing.event->head, 0, result);
	doing.event->first = first;
	doing.event->second = second;
	doing.event->third = third;
	done(&doing);
}

SEC("fexit/security_ptrace_access_check")
int op_ptrace(u64 *context)
{
	struct task_struct *other = ARGUMENT(struct task_struct *, 0);
	u32 mode = context[1];
	struct mark *mark;

	if (!(mode & PTRACE_MODE_ATTACH))
		return 0;
	mark = mark_of(current_task());
	if (!mark)
		return 0;
	/* Calls that follow know the process by the caller's number alone. */
	mark->aside = other->tgid;
	judged_operation(OP_PTRACE, (int)context[2], other->tgid, mode, 0);
	return 0;
}

SEC("fexit/security_ptrace_traceme")
int op_traceme(u64 *context)
{
	struct task_struct *parent = ARGUMENT(struct task_struct *, 0);

	judged_operation(OP_PTRACE, (int)context[1], parent->tgid, PTRACE_MODE_ATTACH, 0);
	return 0;
}

SEC("fexit/security_task_fix_setuid")
int op_setuid(u64 *context)
{
	struct cred *own = ARGUMENT(struct cred *, 0);
	struct cred *old = ARGUMENT(struct cred *, 1);
	u32 how = context[2];
	int fs = how == 8; /* LSM_SETID_FS */

	judged_operation(OP_SETUID, (int)context[3], fs ? own->fsuid.val : own->euid.val,
			 fs ? old->fsuid.val : old->euid.val, how);
	return 0;
}

SEC("fexit/security_task_fix_setgid")
int op_setgid(u64 *context)
{
	struct cred *own = ARGUMENT(struct cred *, 0);
	struct cred *old = ARGUMENT(struct cred *, 1);
	u32 how = context[2];
	int fs = how == 8;

	judged_operation(OP_SETGID, (int)context[3], fs ? own->fsgid.val : own->egid.val,
			 fs ? old->fsgid.val : old->egid.val, how);
	return 0;
}

SEC("fexit/path_mount")
int op_mount(u64 *context)
{
	const char *source = ARGUMENT(const char *, 0), *type = ARGUMENT(const char *, 2);
	struct path *path = ARGUMENT(struct path *, 1);
	struct doing doing = operation(OP_MOUNT, (int)context[5]);

	if (!doing.slot)
		return 0;
	doing.event->first = context[3];
	add_path(&doing, path->dentry, path->mnt);
	add_other(&doing, type ? type : source);
	done(&doing);
	return 0;
}

SEC("fexit/security_move_mount")
int op_move_mount(u64 *context)
{
	struct path *from = ARGUMENT(struct path *, 0), *to = ARGUMENT(struct path *, 1);
	s64 result = (int)context[2];
	struct doing doing = operation(OP_MOUNT, result);

	if (!doing.slot)
		return 0;
	judge(&doing.event->head, 0, result);
	add_path(&doing, to->dentry, to->mnt);
	add_other(&doing, from->mnt->mnt_sb->s_type->name);
	done(&doing);
	return 0;
}

SEC("fexit/security_sb_umount")
int op_umount(u64 *context)
{
	struct vfsmount *mount = ARGUMENT(struct vfsmount *, 0);
	s64 result = (int)context[2];
	struct doing doing = operation(OP_UMOUNT, result);

	if (!doing.slot)
		return 0;
	judge(&doing.event->head, 0, result);
	doing.event->first = (u32)context[1];
	add_path(&doing, mount->mnt_root, mount);
	done(&doing);
	return 0;
}

SEC("fexit/security_sb_pivotroot")
int op_pivot_root(u64 *context)
{
	judged_operation(OP_PIVOT_ROOT, (int)context[2], 0, 0, 0);
	return 0;
}

SEC("fexit/ksys_unshare")
int op_unshare(u64 *context)
{
	simple_operation(OP_UNSHARE, (int)context[1], context[0] & CLONE_NEW, 0, 0);
	return 0;
}

SEC("fexit/create_user_ns")
int op_user_namespace(u64 *context)
{
	s64 result = (int)context[1];
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct doing doing;
	u64 verdict;

	if (!mark)
		return 0;
	verdict = take_verdict(mark);
	doing = operation_of(task, mark, OP_USER_NAMESPACE, result);
	if (!doing.slot)
		return 0;
	if (verdict & VERDICT_WOULD_DENY)
		doing.event->head.flags |= FLAG_WOULD_DENY;
	if (result == -EPERM && (verdict & VERDICT_DENIED))
		doing.event->head.by = BY_TRACER;
	done(&doing);
	return 0;
}

/* finit_module(2) and kexec_file_load(2) say which file. */
SEC("fexit/security_kernel_read_file")
int op_module_file(u64 *context)
{
	struct file *file = ARGUMENT(struct file *, 0);
	u32 kind = context[1];
	s64 result = (int)context[3];
	struct doing doing;

	if (kind < READING_MODULE)
		return 0;
	doing = operation(OP_MODULE_LOAD, result);
	if (!doing.slot)
		return 0;
	judge(&doing.event->head, 0, result);
	doing.event->first = kind;
	if (file)
		add_path(&doing, file->f_path.dentry, file->f_path.mnt);
	done(&doing);
	return 0;
}

SEC("fexit/security_kernel_load_data")
int op_module_data(u64 *context)
{
	u32 kind = context[0];

	if (kind >= READING_MODULE)
		judged_operation(OP_MODULE_LOAD, (int)context[2], kind, 0, 0);
	return 0;
}

/* Only what leaves the trace. Signals that cannot be sent for lack of the right are calls.h's. */
SEC("fexit/security_task_kill")
int op_kill(u64 *context)
{
	struct task_struct *other = ARGUMENT(struct task_struct *, 0);
	u32 signal = context[2];
	struct mark *mark = mark_of(current_task()), *theirs;

	if (!mark || !signal)
		return 0;
	theirs = mark_of(other);
	if (theirs && theirs->trace == mark->trace)
		return 0;
	judged_operation(OP_KILL, (int)context[4], other->tgid, signal, 0);
	return 0;
}

SEC("fexit/security_path_chmod")
int op_chmod(u64 *context)
{
	struct path *path = ARGUMENT(struct path *, 0);
	u32 mode = context[1];
	s64 result = (int)context[2];
	struct doing doing;

	if (!(mode & (S_ISUID | S_ISGID)))
		return 0;
	doing = operation(OP_CHMOD, result);
	if (!doing.slot)
		return 0;
	judge(&doing.event->head, 0, result);
	doing.event->first = mode & 07777;
	add_path(&doing, path->dentry, path->mnt);
	done(&doing);
	return 0;
}

#endif
