/* Opened files, and those that were not.
 */
#ifndef AGENT_SANDBOX_OPENS_H
#define AGENT_SANDBOX_OPENS_H

#include "verdicts.h"
#include "sampling.h"

/* The kernel writes the path itself here: this function is one of those where it does. */
SEC("fexit/security_file_open")
int open_checked(u64 *context)
{
	struct file *file = ARGUMENT(struct file *, 0);
	s64 result = (int)context[1];
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct inode *inode;
	struct trace *trace;
	struct slot *slot;
	struct opened *event;
	u64 at = sizeof(struct opened), verdict;
	long length;

	if (!mark)
		return 0;
	verdict = take_verdict(mark);
	if (result < 0)
		mark->call |= VERDICT_TOLD;
	trace = recorded(task, mark, KIND_OPEN);
	if (!trace)
		return 0;
	if (result == 0 && !(verdict & VERDICT_WOULD_DENY) && sampled_out(trace))
		return 0;
	slot = begin(task, trace, mark->trace, KIND_OPEN);
	if (!slot)
		return 0;
	event = (struct opened *)slot->bytes;
	judge(&event->head, verdict, result);
	inode = file->f_inode;
	event->inode = inode->i_ino;
	event->device = inode->i_sb->s_dev;
	event->mode = inode->i_mode;
	event->open_flags = file->f_flags;
	length = write_path(&file->f_path, (char *)slot->bytes + sizeof(struct opened), PATH_BYTES);
	if (length > 0 && length <= PATH_BYTES)
		at += length;
	else
		at = append_path(slot, at, file->f_path.dentry, file->f_path.mnt);
	event->path_bytes = at - sizeof(struct opened);
	finish(slot, trace, at);
	return 0;
}

/* What failed before there was a file: no permission, no such file. The name is the kernel's copy. */
inline_ int open_failed(u64 *context)
{
	struct filename *name = ARGUMENT(struct filename *, 1);
	struct open_flags *flags = ARGUMENT(struct open_flags *, 2);
	s64 result = (s64)context[3];
	struct task_struct *task;
	struct mark *mark;
	struct trace *trace;
	struct slot *slot;
	struct opened *event;
	u64 verdict;
	u64 at = sizeof(struct opened);
	long length;

	task = current_task();
	mark = mark_of(task);
	if (!mark)
		return 0;
	verdict = mark->call;
	mark->call = 0;
	/* An address is no error. */
	if ((verdict & VERDICT_TOLD) || result >= 0 || result < -4095)
		return 0;
	trace = recorded(task, mark, KIND_OPEN);
	if (!trace)
		return 0;
	if ((result == -ENOENT || result == -ENOTDIR) && !(trace->flags & TRACE_MISSING))
		return 0;
	slot = begin(task, trace, mark->trace, KIND_OPEN);
	if (!slot)
		return 0;
	event = (struct opened *)slot->bytes;
	event->head.result = result;
	event->head.flags |= FLAG_UNRESOLVED;
	if (result == -EPERM && (verdict & VERDICT_DENIED))
		event->head.by = BY_TRACER;
	else if ((result == -EPERM || result == -EACCES) && (verdict & VERDICT_REFUSED))
		event->head.by = BY_SECURITY_MODULE;
	else if (result == -EACCES || result == -EPERM || result == -EROFS)
		event->head.by = BY_PERMISSIONS;
	event->inode = 0;
	event->device = 0;
	event->mode = 0;
	event->open_flags = flags->open_flag;
	length = read_kernel_string(slot->bytes + sizeof(struct opened), PATH_BYTES, name->name);
	if (length > 0)
		at += length;
	event->path_bytes = at - sizeof(struct opened);
	finish(slot, trace, at);
	return 0;
}

SEC("fexit/do_filp_open")
int open_failed_filp(u64 *context)
{
	return open_failed(context);
}

/* Its name since Linux 7.1. */
SEC("fexit/do_file_open")
int open_failed_file(u64 *context)
{
	return open_failed(context);
}

/* A new file is asked about by these before it is opened. Those that set an id are told of as chmod is. */
SEC("fexit/security_path_mknod")
int open_created(u64 *context)
{
	struct path *directory = ARGUMENT(struct path *, 0);
	struct dentry *dentry = ARGUMENT(struct dentry *, 1);
	u32 mode = context[2];
	s64 result = (int)context[4];
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);

	if (!mark)
		return 0;
	if (result < 0)
		mark->call |= VERDICT_REFUSED;
	if (mode & (S_ISUID | S_ISGID)) {
		struct doing doing = operation_of(task, mark, OP_CHMOD, 0);

		if (doing.slot) {
			judge(&doing.event->head, 0, result);
			doing.event->first = mode;
			add_path(&doing, dentry, directory->mnt);
			done(&doing);
		}
	}
	return 0;
}

SEC("fexit/security_inode_create")
int open_created_inode(u64 *context)
{
	struct mark *mark;

	if ((int)context[3] == 0)
		return 0;
	mark = mark_of(current_task());
	if (mark && !(mark->call & VERDICT_DENIED))
		mark->call |= VERDICT_REFUSED;
	return 0;
}

#endif
