/* Links and renames. Two hooks see each: that of paths knows the mounts, but some kernels lack it; that of inodes
 * comes second, knows the file system alone, and then only tells what the first could not.
 */
#ifndef AGENT_SANDBOX_NAMES_H
#define AGENT_SANDBOX_NAMES_H

#include "verdicts.h"

inline_ void tell_names(struct mark *mark, u32 what, s64 result, struct dentry *old, struct dentry *fresh,
			struct vfsmount *old_mount, struct vfsmount *mount, u32 flags)
{
	u64 verdict = take_verdict(mark);
	struct doing doing = operation_of(current_task(), mark, what, result);

	if (!doing.slot)
		return;
	judge(&doing.event->head, verdict, result);
	doing.event->first = flags;
	add_path(&doing, old, old_mount);
	add_other_path(&doing, fresh, mount);
	done(&doing);
}

/* Whether the hook of inodes has something to tell after that of paths: a denial. */
inline_ int untold(struct mark *mark, s64 result)
{
	if (!(mark->call & VERDICT_NAMED))
		return 1;
	mark->call &= ~(u64)VERDICT_NAMED;
	return result < 0;
}

inline_ void told(struct mark *mark, s64 result)
{
	if (result == 0)
		mark->call |= VERDICT_NAMED;
	else
		mark->call &= ~(u64)VERDICT_NAMED;
}

SEC("fexit/security_path_link")
int name_link(u64 *context)
{
	struct dentry *old = ARGUMENT(struct dentry *, 0), *fresh = ARGUMENT(struct dentry *, 2);
	struct path *directory = ARGUMENT(struct path *, 1);
	s64 result = (int)context[3];
	struct mark *mark = mark_of(current_task());

	if (!mark)
		return 0;
	/* A link stays on its mount. */
	tell_names(mark, OP_LINK, result, old, fresh, directory->mnt, directory->mnt, 0);
	told(mark, result);
	return 0;
}

SEC("fexit/security_inode_link")
int name_link_inode(u64 *context)
{
	struct dentry *old = ARGUMENT(struct dentry *, 0), *fresh = ARGUMENT(struct dentry *, 2);
	s64 result = (int)context[3];
	struct mark *mark = mark_of(current_task());

	if (mark && untold(mark, result))
		tell_names(mark, OP_LINK, result, old, fresh, 0, 0, 0);
	return 0;
}

/* The flags are the hook's fifth argument, where it has five (Linux 6.0). */
SEC("fexit/security_path_rename")
int name_rename(u64 *context)
{
	struct path *from = ARGUMENT(struct path *, 0), *to = ARGUMENT(struct path *, 2);
	struct dentry *old = ARGUMENT(struct dentry *, 1), *fresh = ARGUMENT(struct dentry *, 3);
	struct mark *mark = mark_of(current_task());
	u64 result = 0;
	u32 flags = 0;

	if (!mark)
		return 0;
	function_result(context, &result);
	if (function_arguments(context) > 4)
		flags = context[4];
	if (from->dentry != to->dentry || (int)result < 0 || mark->call & VERDICT_WOULD_DENY)
		tell_names(mark, OP_RENAME, (int)result, old, fresh, from->mnt, to->mnt, flags);
	told(mark, (int)result);
	return 0;
}

SEC("fexit/security_inode_rename")
int name_rename_inode(u64 *context)
{
	struct inode *from = ARGUMENT(struct inode *, 0), *to = ARGUMENT(struct inode *, 2);
	struct dentry *old = ARGUMENT(struct dentry *, 1), *fresh = ARGUMENT(struct dentry *, 3);
	s64 result = (int)context[5];
	struct mark *mark = mark_of(current_task());

	if (mark && untold(mark, result) &&
	    (from != to || result < 0 || mark->call & VERDICT_WOULD_DENY))
		tell_names(mark, OP_RENAME, result, old, fresh, 0, 0, (u32)context[4]);
	return 0;
}

#endif
