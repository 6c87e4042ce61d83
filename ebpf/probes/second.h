/* The second layer: LSM programs that deny what is forbidden to a task, whatever its namespaces and by whatever
 * name. A program that has nothing to say returns 0, so that the verdicts of others stand; the argument behind
 * the last one is never read, as its place differs between kernels.
 */
#ifndef AGENT_SANDBOX_SECOND_H
#define AGENT_SANDBOX_SECOND_H

#include "verdicts.h"

/* Directories are looked at so many levels up; deeper than that, all is taken for forbidden. */
#define DEPTH 128

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(map_flags, MAP_NO_PREALLOC);
	NUMBER(max_entries, FORBIDDEN);
	TYPE(key, struct forbidden);
	TYPE(value, u32);
} forbidden SEC(".maps");

/* Whose the task is, if something may be forbidden to it. */
struct bound {
	struct task_struct *task;
	struct mark *mark;
	struct trace *trace; /* 0: nothing is forbidden to it */
	u32 rules;
	int enforced;        /* denied; otherwise it is only told that it would be */
};

/* task_struct.atomic_flags: PFA_NO_NEW_PRIVS. */
#define NO_NEW_PRIVILEGES 1

inline_ struct bound bound(void)
{
	struct bound bound = {};
	u32 id;
	struct trace *trace;

	bound.task = current_task();
	bound.mark = mark_of(bound.task);
	if (!bound.mark)
		return bound;
	id = bound.mark->trace;
	trace = map_look_up(&traces, &id);
	if (!trace || !(trace->flags & (TRACE_ENFORCE | TRACE_AUDIT)) || !is_of(bound.task, trace->uid))
		return bound;
	bound.rules = trace->rules ? trace->rules : id;
	/* As with seccomp and Landlock: who can still gain privileges by a program, or has gained some and
	 * then renounced more, is denied nothing. Users could make chosen calls of such a program fail. */
	bound.enforced = trace->flags & TRACE_ENFORCE &&
		(trace->uid == 0 ||
		 (bound.task->atomic_flags & NO_NEW_PRIVILEGES && !is_capable(bound.task)));
	bound.trace = trace;
	return bound;
}

/* Denies, or notes that it would. */
inline_ int deny(struct bound *bound)
{
	if (bound->enforced) {
		bound->mark->call |= VERDICT_DENIED;
		return -EPERM;
	}
	bound->mark->call |= VERDICT_WOULD_DENY;
	return 0;
}

/* The same, with an event: for hooks after which nobody else tells. */
inline_ int deny_telling(struct bound *bound, u32 what, struct dentry *dentry)
{
	int enforced = bound->enforced;
	struct doing doing = operation_of(bound->task, bound->mark, OP_FORBIDDEN, enforced ? -EPERM : 0);

	if (doing.slot) {
		if (enforced)
			doing.event->head.by = BY_TRACER;
		else
			doing.event->head.flags |= FLAG_WOULD_DENY;
		doing.event->first = what;
		add_path(&doing, dentry, 0);
		done(&doing);
	}
	/* It is told of. */
	if (enforced)
		bound->mark->dentry = 0;
	/* A negation instead of a choice between two constants would hide the value's range from the verifier. */
	opaque(enforced);
	return enforced ? -EPERM : 0;
}

/* Whether the file or a directory above it is forbidden, within its file system: mounts play no part. */
outline int is_forbidden(struct dentry *dentry, u32 rules)
{
	struct forbidden key = { .trace = rules };
	struct super_block *block = 0;

	READ(block, dentry->d_sb);
	READ(key.device, block->s_dev);
	for (int i = 0; i < DEPTH; i++) {
		struct inode *inode = 0;
		struct dentry *parent = 0;
		unsigned long number = 0;

		/* What is about to be created has no inode yet. */
		READ(inode, dentry->d_inode);
		if (inode) {
			READ(number, inode->i_ino);
			key.inode = number;
			if (map_look_up(&forbidden, &key))
				return 1;
		}
		READ(parent, dentry->d_parent);
		if (parent == dentry || !parent) {
			u32 flags = 0;

			/* By a handle one can get at a file without a way from the root. */
			READ(flags, dentry->d_flags);
			return !!(flags & DCACHE_DISCONNECTED);
		}
		dentry = parent;
	}
	return 1;
}

/* A file of overlayfs: the file below has names of its own. */
outline int is_forbidden_below(struct file *file, u32 rules)
{
	struct inode *inode = file->f_inode, *named = file->f_path.dentry->d_inode;
	struct hlist_node *first = 0;
	u64 offset;

	if (inode == named)
		return 0;
	if (has_field(((struct dentry *)0)->d_u.d_alias))
		offset = __builtin_preserve_field_info(((struct dentry *)0)->d_u.d_alias, 0);
	else if (has_field(((struct dentry___flat *)0)->d_alias))
		offset = __builtin_preserve_field_info(((struct dentry___flat *)0)->d_alias, 0);
	else
		return 0;
	READ(first, inode->i_dentry.first);
	return first ? is_forbidden((void *)first - offset, rules) : 0;
}

SEC("lsm/file_open")
int deny_open(u64 *context)
{
	struct file *file = ARGUMENT(struct file *, 0);
	struct bound task = bound();

	if (!task.trace)
		return 0;
	if (is_forbidden(file->f_path.dentry, task.rules) || is_forbidden_below(file, task.rules))
		return deny(&task);
	return 0;
}

SEC("lsm/path_link")
int deny_link(u64 *context)
{
	struct dentry *old = ARGUMENT(struct dentry *, 0), *fresh = ARGUMENT(struct dentry *, 2);
	struct bound task = bound();

	if (task.trace && (is_forbidden(old, task.rules) || is_forbidden(fresh, task.rules)))
		return deny(&task);
	return 0;
}

SEC("lsm/inode_link")
int deny_link_inode(u64 *context)
{
	struct dentry *old = ARGUMENT(struct dentry *, 0), *fresh = ARGUMENT(struct dentry *, 2);
	struct bound task = bound();

	if (task.trace && !(task.mark->call & VERDICT_NAMED) &&
	    (is_forbidden(old, task.rules) || is_forbidden(fresh, task.rules)))
		return deny(&task);
	return 0;
}

SEC("lsm/path_rename")
int deny_rename(u64 *context)
{
	struct dentry *old = ARGUMENT(struct dentry *, 1), *fresh = ARGUMENT(struct dentry *, 3);
	struct bound task = bound();

	if (task.trace && (is_forbidden(old, task.rules) || is_forbidden(fresh, task.rules)))
		return deny(&task);
	return 0;
}

SEC("lsm/inode_rename")
int deny_rename_inode(u64 *context)
{
	struct dentry *old = ARGUMENT(struct dentry *, 1), *fresh = ARGUMENT(struct dentry *, 3);
	struct bound task = bound();

	if (task.trace && !(task.mark->call & VERDICT_NAMED) &&
	    (is_forbidden(old, task.rules) || is_forbidden(fresh, task.rules)))
		return deny(&task);
	return 0;
}

inline_ int deny_change(struct dentry *dentry, u32 what)
{
	struct bound task = bound();

	if (task.trace && is_forbidden(dentry, task.rules))
		return deny_telling(&task, what, dentry);
	return 0;
}

/* Hooks of one file or directory, which is the argument of that number. */
#define DENY_CHANGE(hook, number, what) \
	SEC("lsm/" #hook) \
	int deny_##hook(u64 *context) \
	{ \
		return deny_change(ARGUMENT(struct dentry *, number), what); \
	}

DENY_CHANGE(inode_unlink, 1, FORBIDDEN_UNLINK)
DENY_CHANGE(inode_rmdir, 1, FORBIDDEN_RMDIR)
DENY_CHANGE(inode_mkdir, 1, FORBIDDEN_MKDIR)
DENY_CHANGE(inode_mknod, 1, FORBIDDEN_MKNOD)
DENY_CHANGE(inode_symlink, 1, FORBIDDEN_SYMLINK)
DENY_CHANGE(inode_setxattr, 1, FORBIDDEN_ATTRIBUTE)
DENY_CHANGE(inode_removexattr, 1, FORBIDDEN_ATTRIBUTE)
DENY_CHANGE(inode_set_acl, 1, FORBIDDEN_ATTRIBUTE)
DENY_CHANGE(inode_remove_acl, 1, FORBIDDEN_ATTRIBUTE)
DENY_CHANGE(inode_get_acl, 1, FORBIDDEN_ATTRIBUTE)
DENY_CHANGE(inode_getxattr, 0, FORBIDDEN_ATTRIBUTE)
DENY_CHANGE(inode_listxattr, 0, FORBIDDEN_ATTRIBUTE)
/* chattr(1) and file_setattr(2), Linux 6.17. */
DENY_CHANGE(inode_file_setattr, 0, FORBIDDEN_CHANGE)

/* A new file by open(2), too: so nothing is left of one whose open is denied. */
SEC("lsm/inode_create")
int deny_inode_create(u64 *context)
{
	struct dentry *dentry = ARGUMENT(struct dentry *, 1);
	struct bound task = bound();

	if (!task.trace || !is_forbidden(dentry, task.rules))
		return 0;
	if (task.enforced)
		task.mark->call |= VERDICT_DENIED;
	return deny_telling(&task, FORBIDDEN_CREATE, dentry);
}

/* Sizes, modes, owners, times. The dentry is the first of two arguments or, since Linux 6.9, the second of three. */
SEC("lsm/inode_setattr")
int deny_inode_setattr(u64 *context)
{
	struct dentry *dentry;
	u64 first = context[0], second = context[1];

	dentry = (void *)(function_arguments(context) > 2 ? second : first);
	return deny_change(dentry, FORBIDDEN_CHANGE);
}

SEC("lsm/path_notify")
int deny_watch(u64 *context)
{
	struct path *path = ARGUMENT(struct path *, 0);

	return deny_change(path->dentry, FORBIDDEN_WATCH);
}

SEC("lsm/file_receive")
int deny_receive(u64 *context)
{
	struct file *file = ARGUMENT(struct file *, 0);

	return deny_change(file->f_path.dentry, FORBIDDEN_RECEIVE);
}

inline_ int deny_peer(struct sock *peer)
{
	struct dentry *dentry = 0;

	if (has_field(((struct unix_sock *)0)->path))
		READ(dentry, ((struct unix_sock *)peer)->path.dentry);
	return dentry ? deny_change(dentry, FORBIDDEN_SOCKET) : 0;
}

SEC("lsm/unix_stream_connect")
int deny_unix_connect(u64 *context)
{
	return deny_peer(ARGUMENT(struct sock *, 1));
}

SEC("lsm/unix_may_send")
int deny_unix_send(u64 *context)
{
	struct socket *peer = ARGUMENT(struct socket *, 1);

	return deny_peer(sock_of(peer));
}

inline_ int is_internet(u32 family)
{
	return family == AF_INET || family == AF_INET6 || family == AF_RXRPC;
}

/* Whether the socket lives in a network namespace that an ordinary user made: there loopback leads nowhere. */
inline_ int has_own_network(struct sock *sock)
{
	struct net *net = 0;
	struct user_namespace *owner = 0;
	int level = 0;

	READ(net, sock->__sk_common.skc_net.net);
	READ(owner, net->user_ns);
	READ(level, owner->level);
	return level > 0;
}

/* 127.0.0.0/8, ::1, and the former as an IPv6 address. */
inline_ int is_loopback(const void *address, int length)
{
	u8 bytes[28] = {};

	if (!address || length < 8)
		return 0;
	if (length >= (int)sizeof(bytes)) {
		u64 *high = (u64 *)(bytes + 8), *low = (u64 *)(bytes + 16);

		read_kernel(bytes, sizeof(bytes), address);
		if (*(u16 *)bytes == AF_INET6)
			return *high == 0 && (*low == __builtin_bswap64(1) ||
					      ((u32)*low == 0xffff0000u && bytes[20] == 127));
	} else {
		read_kernel(bytes, 8, address);
	}
	return *(u16 *)bytes == AF_INET && bytes[4] == 127;
}

/* Other families can carry an internet address (AF_SMC), so what it says of itself counts as well. */
inline_ int deny_internet(struct sock *sock, const void *address, int length)
{
	struct bound task = bound();
	u16 family = 0, own = 0;

	if (!task.trace || !(task.trace->flags & TRACE_NO_INTERNET))
		return 0;
	if (address && length >= 2)
		read_kernel(&family, sizeof(family), address);
	READ(own, sock->__sk_common.skc_family);
	if (!is_internet(own) && !is_internet(family))
		return 0;
	if (has_own_network(sock) && (!address || is_loopback(address, length)))
		return 0;
	return deny(&task);
}

SEC("lsm/socket_connect")
int deny_connect(u64 *context)
{
	struct socket *socket = ARGUMENT(struct socket *, 0);

	return deny_internet(sock_of(socket), ARGUMENT(void *, 1), context[2]);
}

SEC("lsm/socket_sendmsg")
int deny_message(u64 *context)
{
	struct socket *socket = ARGUMENT(struct socket *, 0);
	struct msghdr *message = ARGUMENT(struct msghdr *, 1);

	return deny_internet(sock_of(socket), message->msg_name, message->msg_namelen);
}

/* SCTP connects by socket options, too. Nobody tells of it but the message that follows and is denied. */
SEC("lsm/sctp_bind_connect")
int deny_sctp(u64 *context)
{
	return deny_internet(ARGUMENT(struct sock *, 0), ARGUMENT(void *, 2), context[3]);
}

SEC("lsm/userns_create")
int deny_user_namespace(u64 *context)
{
	struct bound task = bound();

	return task.trace && task.trace->flags & TRACE_NO_USER_NAMESPACE ? deny(&task) : 0;
}

#endif
