/* Whose a task is, by its credentials: its own, and not those that it has taken over for a moment (overlayfs,
 * io_uring).
 */
#ifndef AGENT_SANDBOX_RIGHTS_H
#define AGENT_SANDBOX_RIGHTS_H

#include "kernel.h"

/* User namespaces nest 32 deep at most (user_namespaces(7)). */
#define NAMESPACES 33
/* A task has 65536 supplementary groups at most (NGROUPS_MAX), in order: so many halvings find one. */
#define GROUP_STEPS 17
/* Capabilities by which nothing is reached that is closed to the user: CAP_NET_BIND_SERVICE, _NET_BROADCAST,
 * _NET_RAW, _IPC_LOCK, _SYS_NICE. ping(8) has one of them. */
#define HARMLESS (1ull << 10 | 1ull << 11 | 1ull << 13 | 1ull << 14 | 1ull << 23)

/* Two words in one kernel, one of twice the size in the other: read by their place. */
#define CAPABILITIES(cred, field) \
	capabilities_at(cred, __builtin_preserve_field_info(((struct cred *)0)->field, 0))

inline_ u64 capabilities_at(const struct cred *cred, u64 offset)
{
	const volatile u32 *words = (const void *)cred + offset;

	return (u64)words[1] << 32 | words[0];
}

/* Whether credentials are of a user namespace that the user made, where other ids are theirs, too. */
inline_ int is_in_namespace_of(const struct cred *cred, u32 uid)
{
	struct user_namespace *space = 0;

	READ(space, cred->user_ns);
	for (int i = 0; i < NAMESPACES; i++) {
		u32 owner = 0;
		int level = 0;

		if (!space)
			return 0;
		READ(level, space->level);
		if (level == 0)
			return 0;
		READ(owner, space->owner);
		if (owner == uid)
			return 1;
		READ(space, space->parent);
	}
	return 0;
}

/* Whether the group is one of the supplementary ones. There is no branch in the search but its end, or the verifier
 * would go all ways. */
inline_ int has_group(const struct cred *cred, u32 group)
{
	struct group_info *groups = 0;
	void *first;
	u64 low = 0, high = 0;
	u32 count = 0;

	READ(groups, cred->group_info);
	READ(count, groups->ngroups);
	first = &groups->gid[0];
	high = count;
	for (int i = 0; i < GROUP_STEPS; i++) {
		u64 middle = (low + high) / 2, less;
		u32 found = 0;

		if (low >= high)
			return 0;
		read_kernel(&found, sizeof(found), first + middle * sizeof(found));
		if (found == group)
			return 1;
		less = ((u64)found - group) >> 63;
		opaque(less);
		low += less * (middle + 1 - low);
		high = middle + less * (high - middle);
	}
	return 0;
}

/* What a program has given to a task that the user has not: OTHER_*, and the id of the user or the group in the
 * upper half; 0: nothing. That is a user id (that of the file system follows the effective one), a group that is none of
 * the user's, or capabilities; ambient ones the user has. A process that cannot be dumped is no sign of it:
 * whoever would hide could make itself one.
 *
 * Not static, and `cred` a number: so it is verified by itself, and not at each place where it is called. */
__attribute__((noinline)) u64 rights_of_others(u64 credentials, u32 uid)
{
	const struct cred *cred = (const void *)credentials;
	u32 user = uid, effective = uid, saved = uid, own = 0, group = 0, other = 0;
	u64 permitted = 0, ambient = 0;

	if (is_in_namespace_of(cred, uid))
		return 0;
	READ(user, cred->uid);
	READ(effective, cred->euid);
	READ(saved, cred->suid);
	if (user != uid)
		return (u64)user << 32 | OTHER_USER;
	if (effective != uid)
		return (u64)effective << 32 | OTHER_USER;
	if (saved != uid)
		return (u64)saved << 32 | OTHER_USER;
	READ(own, cred->gid);
	READ(group, cred->egid);
	READ(other, cred->sgid);
	if (group != own && !has_group(cred, group))
		return (u64)group << 32 | OTHER_GROUP;
	if (other != own && !has_group(cred, other))
		return (u64)other << 32 | OTHER_GROUP;
	READ(permitted, cred->cap_permitted);
	READ(ambient, cred->cap_ambient);
	return permitted & ~ambient & ~HARMLESS ? OTHER_CAPABILITIES : 0;
}

/* Whether the user has started the task, whatever it is allowed by now: its mark is the user's to give. */
outline int is_started_by(struct task_struct *task, u32 uid)
{
	return task->real_cred->uid.val == uid || is_in_namespace_of(task->real_cred, uid);
}

inline_ u64 others_rights(struct task_struct *task, u32 uid)
{
	u64 credentials = 0;

	READ(credentials, task->real_cred);
	return rights_of_others(credentials, uid);
}

/* Whether what the task does is the user's to know. Root may know everything. */
outline int is_of(struct task_struct *task, u32 uid)
{
	const struct cred *cred = task->real_cred;
	u32 group = cred->gid.val;

	if (likely(cred->uid.val == uid)) {
		if (uid == 0)
			return 1;
		if (cred->euid.val == uid && cred->suid.val == uid && cred->egid.val == group &&
		    cred->sgid.val == group && !(CAPABILITIES(cred, cap_permitted) & ~HARMLESS))
			return 1;
	}
	return !others_rights(task, uid);
}

/* Whether the task has capabilities that hold everywhere. */
inline_ int is_capable(struct task_struct *task)
{
	const struct cred *cred = task->real_cred;

	return cred->user_ns->level == 0 && CAPABILITIES(cred, cap_permitted) != 0;
}

#endif
