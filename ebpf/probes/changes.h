/* Names that come to be and go, and truncate(2). The hook of paths comes first and knows the mount; whether it went
 * well, the file system's function says at its end. What that is called for otherwise (the layers below overlayfs)
 * is nothing that the process named.
 */
#ifndef AGENT_SANDBOX_CHANGES_H
#define AGENT_SANDBOX_CHANGES_H

#include "verdicts.h"

inline_ void tell_change(struct task_struct *task, struct mark *mark, u32 what, s64 result, struct dentry *dentry,
			 struct vfsmount *mount, u64 first, u64 second, const char *text)
{
	struct doing doing = operation_of(task, mark, what, result);

	if (!doing.slot)
		return;
	doing.event->first = first;
	doing.event->second = second;
	add_path(&doing, dentry, mount);
	add_other(&doing, text);
	done(&doing);
}

/* The hook of paths: notes what it let through. */
inline_ int checked(u32 what, struct path *directory, struct dentry *dentry, s64 result)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct doing doing;

	if (!mark)
		return 0;
	mark->dentry = 0;
	if (result == 0) {
		mark->mount = (u64)directory->mnt;
		mark->dentry = (u64)dentry;
		return 0;
	}
	doing = operation_of(task, mark, what, result);
	if (!doing.slot)
		return 0;
	judge(&doing.event->head, 0, result);
	add_path(&doing, dentry, directory->mnt);
	done(&doing);
	return 0;
}

SEC("fexit/security_path_unlink")
int change_unlink_asked(u64 *context)
{
	return checked(OP_UNLINK, ARGUMENT(struct path *, 0), ARGUMENT(struct dentry *, 1), (int)context[2]);
}

SEC("fexit/security_path_rmdir")
int change_rmdir_asked(u64 *context)
{
	return checked(OP_RMDIR, ARGUMENT(struct path *, 0), ARGUMENT(struct dentry *, 1), (int)context[2]);
}

SEC("fexit/security_path_mkdir")
int change_mkdir_asked(u64 *context)
{
	return checked(OP_MKDIR, ARGUMENT(struct path *, 0), ARGUMENT(struct dentry *, 1), (int)context[3]);
}

SEC("fexit/security_path_symlink")
int change_symlink_asked(u64 *context)
{
	return checked(OP_SYMLINK, ARGUMENT(struct path *, 0), ARGUMENT(struct dentry *, 1), (int)context[3]);
}

/* mknod(2) and bind(2); of files open(2) tells. */
SEC("fexit/security_path_mknod")
int change_mknod_asked(u64 *context)
{
	u32 type = context[2] & S_IFMT;

	if (!type || type == S_IFREG)
		return 0;
	return checked(OP_MKNOD, ARGUMENT(struct path *, 0), ARGUMENT(struct dentry *, 1), (int)context[4]);
}

/* The end: the dentry is the third argument of all. Some give a number and, on later kernels, a pointer. */
inline_ int changed(u64 *context, u32 what, u64 first, u64 second, const char *text)
{
	struct dentry *dentry = ARGUMENT(struct dentry *, 2);
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	u64 result = 0;
	u32 high;

	if (!mark || !mark->dentry || mark->dentry != (u64)dentry)
		return 0;
	mark->dentry = 0;
	function_result(context, &result);
	high = result >> 32;
	/* A pointer that is no error. */
	if (high && high != 0xffffffff)
		result = 0;
	tell_change(task, mark, what, (int)result, dentry, (void *)mark->mount, first, second, text);
	return 0;
}

SEC("fexit/vfs_unlink")
int change_unlink(u64 *context)
{
	return changed(context, OP_UNLINK, 0, 0, 0);
}

SEC("fexit/vfs_rmdir")
int change_rmdir(u64 *context)
{
	return changed(context, OP_RMDIR, 0, 0, 0);
}

SEC("fexit/vfs_mkdir")
int change_mkdir(u64 *context)
{
	return changed(context, OP_MKDIR, (u16)context[3], 0, 0);
}

SEC("fexit/vfs_mknod")
int change_mknod(u64 *context)
{
	return changed(context, OP_MKNOD, (u16)context[3], (u32)context[4], 0);
}

SEC("fexit/vfs_symlink")
int change_symlink(u64 *context)
{
	return changed(context, OP_SYMLINK, 0, 0, ARGUMENT(const char *, 3));
}

/* By path; of a descriptor the open tells. */
SEC("fexit/vfs_truncate")
int change_truncate(u64 *context)
{
	struct path *path = ARGUMENT(struct path *, 0);
	s64 result = (int)context[2];
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct inode *inode;
	struct trace *trace;
	struct slot *slot;
	struct opened *event;
	u64 at = sizeof(struct opened);

	if (!mark)
		return 0;
	trace = recorded(task, mark, KIND_OPEN);
	if (!trace)
		return 0;
	slot = begin(task, trace, mark->trace, KIND_OPEN);
	if (!slot)
		return 0;
	event = (struct opened *)slot->bytes;
	event->head.result = result;
	inode = path->dentry->d_inode;
	event->inode = inode->i_ino;
	event->device = inode->i_sb->s_dev;
	event->mode = inode->i_mode;
	event->open_flags = O_WRONLY_TRUNC;
	at = append_path(slot, at, path->dentry, path->mnt);
	event->path_bytes = at - sizeof(struct opened);
	finish(slot, trace, at);
	return 0;
}

#endif
