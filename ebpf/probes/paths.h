/* Paths, walked by hand from the innermost component outwards, over mounts, to the root that the task sees.
 * Where that root is not on the way, the path is that of the mount namespace.
 */
#ifndef AGENT_SANDBOX_PATHS_H
#define AGENT_SANDBOX_PATHS_H

#include "emit.h"

/* Components and mounts that are walked. */
#define STEPS 64
/* Where the last component may begin. */
#define LAST (EVENT_BYTES - SLACK)

inline_ const char *type_of(struct dentry *dentry)
{
	struct super_block *block = 0;
	struct file_system_type *type = 0;
	const char *name = 0;

	READ(block, dentry->d_sb);
	READ(type, block->s_type);
	READ(name, type->name);
	return name;
}

/* One component, or from a mount to the one that it stands on. Returns 1 at the end. */
inline_ int walk_step(struct slot *slot)
{
	struct walk *walk = &slot->walk;
	struct dentry *dentry = walk->dentry, *parent = 0;
	const unsigned char *name = 0;
	u64 at = walk->at;
	long length;

	if (dentry == walk->root && walk->mount == walk->root_mount) {
		walk->flags = FLAG_REVERSED;
		return 1;
	}
	if (dentry == walk->top) {
		struct mount *inner, *outer = 0;

		inner = (void *)walk->mount - __builtin_preserve_field_info(((struct mount *)0)->mnt, 0);
		READ(outer, inner->mnt_parent);
		if (outer == inner || !outer) {
			walk->flags = FLAG_REVERSED;
			return 1;
		}
		READ(dentry, inner->mnt_mountpoint);
		READ(parent, outer->mnt.mnt_root);
		walk->dentry = dentry;
		walk->mount = &outer->mnt;
		walk->top = parent;
		return 0;
	}
	READ(parent, dentry->d_parent);
	if (parent == dentry || !parent) {
		/* No root that is mounted somewhere: a memory file, for example, which has a name all the same. */
		walk->flags = FLAG_REVERSED | FLAG_TAIL;
		if (at != walk->from)
			return 1;
	}
	READ(name, dentry->d_name.name);
	opaque(at);
	if (at > LAST)
		return 1;
	length = read_kernel_string(slot->bytes + at, SLACK, name);
	if (length <= 0)
		return 1;
	/* Namespaces, processes and the like have no name: that of their file system stands for it. */
	if (!(walk->flags & FLAG_TRUNCATED) && (length == 1 || slot->bytes[at] == '/')) {
		length = read_kernel_string(slot->bytes + at, SLACK, type_of(dentry));
		if (length <= 0)
			return 1;
	}
	walk->at = at + length;
	walk->dentry = parent;
	return !(walk->flags & FLAG_TRUNCATED);
}

/* The walk, all of which stands in the slot: so it is the same wherever it begins. */
separate int walk_path(struct slot *slot)
{
	if (!slot)
		return 0;
	for (int i = 0; i < STEPS; i++)
		if (walk_step(slot))
			break;
	return 0;
}

/* Appends the path at byte `at` of the event and returns where it ends. Without a mount (0) the walk ends at
 * the root of the file system. */
outline u64 append_path(struct slot *slot, u64 at, struct dentry *dentry, struct vfsmount *mount)
{
	struct task_struct *task = current_task();
	struct walk *walk = &slot->walk;
	struct dentry *top = 0;

	if (mount)
		READ(top, mount->mnt_root);
	walk->dentry = dentry;
	walk->mount = mount;
	walk->top = top;
	walk->root = task->fs->root.dentry;
	walk->root_mount = task->fs->root.mnt;
	walk->from = at;
	walk->at = at;
	walk->flags = FLAG_REVERSED | FLAG_TAIL | FLAG_TRUNCATED;
	walk_path(slot);
	BEGIN(slot)->flags |= walk->flags;
	return walk->at;
}

#endif
