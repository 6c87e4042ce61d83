/* System calls that have come to their end, as events. What the caller named is read from its memory; of files
 * that were opened the kernel's own names are taken.
 */
#ifndef AGENT_SANDBOX_ENDED_H
#define AGENT_SANDBOX_ENDED_H

#include "operations.h"
#include "sampling.h"
#include "begun.h"

/* 0, or the error: some calls give a number when they have gone well. */
inline_ s64 error_of(struct ended *ended)
{
	return ended->result < 0 ? ended->result : 0;
}

inline_ void set_result(struct head *head, struct ended *ended)
{
	head->result = error_of(ended);
	head->by = ended->by;
	head->flags |= ended->flags;
}

/* What programs try all the time, and what says little: there is no such file, or there is one already. */
inline_ int is_missing(s64 result)
{
	return result == -ENOENT || result == -ENOTDIR;
}

/* Appends what the caller wrote as a path; returns where it ends. */
inline_ u64 append_written(struct slot *slot, u64 at, u64 from, u32 room)
{
	long length;

	BEGIN(slot)->flags |= FLAG_UNRESOLVED | FLAG_FROM_USER;
	opaque(at);
	if (at > EVENT_BYTES - room)
		return at;
	length = read_user_string(slot->bytes + at, room, (void *)from);
	if (length <= 0) {
		BEGIN(slot)->flags |= FLAG_TRUNCATED;
		return at;
	}
	if (length == room)
		BEGIN(slot)->flags |= FLAG_TRUNCATED;
	return at + length;
}

/* The file behind the descriptor that the call gave; returns where its path ends, 0 if there is no file. */
inline_ u64 append_opened(struct task_struct *task, struct slot *slot, u64 at, u32 descriptor)
{
	struct opened *event = (struct opened *)slot->bytes;
	struct fdtable *table = task->files->fdt;
	struct file *file = 0;
	struct dentry *dentry = 0;
	struct vfsmount *mount = 0;
	struct inode *inode = 0;
	struct super_block *block = 0;
	unsigned short mode = 0;
	unsigned long number = 0;
	u32 device = 0;

	if (descriptor >= table->max_fds)
		return 0;
	read_kernel(&file, sizeof(file), table->fd + descriptor);
	/* Another thread can have closed it already. */
	if (!file)
		return 0;
	READ(dentry, file->f_path.dentry);
	READ(mount, file->f_path.mnt);
	READ(inode, file->f_inode);
	READ(mode, inode->i_mode);
	READ(number, inode->i_ino);
	READ(block, inode->i_sb);
	READ(device, block->s_dev);
	event->inode = number;
	event->device = device;
	event->mode = mode;
	return append_path(slot, at, dentry, mount);
}

separate int ended_open(struct ended *ended, u64 path, u64 flags)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct opened *event;
	u64 at, from = sizeof(struct opened);
	s64 result;

	if (!ended || !mark)
		return 0;
	result = ended->result;
	trace = recorded(task, mark, KIND_OPEN);
	if (!trace)
		return 0;
	if (is_missing(result) && !(trace->flags & TRACE_MISSING))
		return 0;
	if (result >= 0 && !ended->by && sampled_out(trace))
		return 0;
	slot = begin(task, trace, mark->trace, KIND_OPEN);
	if (!slot)
		return 0;
	event = (struct opened *)slot->bytes;
	event->inode = 0;
	event->device = 0;
	event->mode = 0;
	event->open_flags = flags;
	set_result(&event->head, ended);
	/* Of a call that has not run the result is no descriptor. */
	at = result >= 0 && !ended->by ? append_opened(task, slot, from, result) : 0;
	if (!at)
		/* By a handle nothing is named. */
		at = path ? append_written(slot, from, path, PATH_BYTES) : from;
	if (result == -EROFS && !ended->by)
		event->head.by = BY_PERMISSIONS;
	event->path_bytes = at - from;
	finish(slot, trace, at);
	return 0;
}

/* A program that was not started: one that was does not come back. */
separate int ended_exec(struct ended *ended, u64 path)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct exec *event;
	u64 at = sizeof(struct exec);
	s64 result;

	if (!ended || !mark)
		return 0;
	result = ended->result;
	if (result >= 0 && !ended->by)
		return 0;
	trace = recorded(task, mark, KIND_EXEC);
	if (!trace)
		return 0;
	if (is_missing(result) && !(trace->flags & TRACE_MISSING))
		return 0;
	slot = begin(task, trace, mark->trace, KIND_EXEC);
	if (!slot)
		return 0;
	event = (struct exec *)slot->bytes;
	set_result(&event->head, ended);
	event->argument_bytes = 0;
	event->argument_total = 0;
	event->pad = 0;
	at = append_written(slot, at, path, PATH_BYTES);
	event->path_bytes = at - sizeof(struct exec);
	finish(slot, trace, at);
	return 0;
}

/* An event of where a call connects or sends to, without the address; 0 if it is not recorded. Nothing of a socket
 * is looked at for a call that has not run. */
inline_ struct slot *begin_peer(struct ended *ended, struct trace **trace, struct socket *socket)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct slot *slot;

	if (!mark)
		return 0;
	*trace = recorded(task, mark, KIND_CONNECT);
	if (!*trace)
		return 0;
	slot = begin(task, *trace, mark->trace, KIND_CONNECT);
	if (!slot)
		return 0;
	set_result(BEGIN(slot), ended);
	about_socket((struct address *)slot->bytes, socket);
	return slot;
}

/* The address that the kernel has. Returns 1 if there is one, and the caller gave the same. */
separate int ended_peer(struct ended *ended, struct begun *begun)
{
	struct socket *socket;
	struct sock *sock;
	struct trace *trace;
	struct slot *slot;
	int same;
	u64 bytes;

	if (!ended || !begun || !connects(ended->result))
		return 0;
	/* Taken anew: nobody holds the one that was there at the begin, and another thread may have closed it. */
	socket = socket_of(current_task(), (u32)ended->with.a);
	if (!socket || (u64)socket != begun->socket)
		return 0;
	sock = sock_of(socket);
	if (!sock)
		return 0;
	slot = begin_peer(ended, &trace, socket);
	if (!slot)
		return 1;
	bytes = peer_address(slot, sock, ended->call != CALL_connect);
	opaque(bytes);
	if (!bytes || bytes > ADDRESS_BYTES) {
		release(slot);
		return 0;
	}
	same = is_given(slot, begun, bytes);
	/* The call may have found another socket than both looks, if a thread put it there and took it away again. */
	if (!same && shares_files(current_task()))
		BEGIN(slot)->flags |= FLAG_FROM_USER;
	finish(slot, trace, sizeof(struct address) + bytes);
	return same;
}

/* The address that the caller gave: as it was when the call began, where that was seen. */
separate int ended_given(struct ended *ended, struct begun *begun, u64 from, u64 length)
{
	struct socket *socket = 0;
	struct trace *trace;
	struct slot *slot;
	struct address *event;

	if (!ended)
		return 0;
	if (!ended->by)
		socket = socket_of(current_task(), (u32)ended->with.a);
	/* Another thread has put another file there. */
	if (begun && (u64)socket != begun->socket)
		socket = 0;
	slot = begin_peer(ended, &trace, socket);
	if (!slot)
		return 0;
	event = (struct address *)slot->bytes;
	event->head.flags |= FLAG_FROM_USER;
	if (begun)
		length = begun->bytes;
	opaque(length);
	if (length > ADDRESS_BYTES) {
		length = ADDRESS_BYTES;
		event->head.flags |= FLAG_TRUNCATED;
	}
	if (begun)
		read_kernel(ADDRESS_AT(slot), length, begun->address);
	else if (read_user(ADDRESS_AT(slot), length, (void *)from) < 0)
		length = 0;
	if (length >= sizeof(u16)) {
		event->family = *(u16 *)ADDRESS_AT(slot);
	} else if (socket) {
		/* It cannot be read: of what kind it was the socket says. */
		struct sock *sock = sock_of(socket);

		READ(event->family, sock->__sk_common.skc_family);
		event->head.flags |= FLAG_TRUNCATED;
	} else {
		event->head.flags |= FLAG_TRUNCATED;
	}
	event->address_bytes = length;
	finish(slot, trace, sizeof(struct address) + length);
	return 0;
}

/* Where the kernel has another address than was given, both are told of. */
inline_ int ended_address(struct ended *ended, u64 address, u64 length)
{
	struct begun *begun = begun_of(ended);

	if (!begun && (!address || !length))
		return 0;
	if (begun && ended_peer(ended, begun))
		return 0;
	return ended_given(ended, begun, address, length);
}

/* A message whose begin was seen, and no address then, has none. */
outline int ended_message(struct ended *ended, u64 message)
{
	struct given given = {};

	if (ended->by || ended->flags || ended->call == CALL_sendmmsg)
		given = given_message(ended->with.narrow, message);
	return ended_address(ended, given.address, given.length);
}

/* sizeof(struct mmsghdr), of a 64-bit program and of a 32-bit one. */
#define MESSAGE_BYTES 64
#define NARROW_MESSAGE_BYTES 32
/* Of one sendmmsg(2) so many messages are looked at. The rest counts as lost. */
#define MESSAGES 8

outline int ended_messages(struct ended *ended)
{
	u64 message = ended->with.b;
	s64 sent = ended->result;

	/* If none was sent, the first one is to blame. */
	if (sent < 1)
		sent = 1;
	for (int i = 0; i < MESSAGES; i++) {
		if (i >= sent)
			return 0;
		ended_message(ended, message);
		message += ended->with.narrow ? NARROW_MESSAGE_BYTES : MESSAGE_BYTES;
	}
	if (sent > MESSAGES) {
		struct task_struct *task = current_task();
		struct mark *mark = mark_of(task);
		struct trace *trace = mark ? recorded(task, mark, KIND_CONNECT) : 0;

		if (trace)
			__sync_fetch_and_add(&trace->lost, sent - MESSAGES);
	}
	return 0;
}

separate int ended_listen(struct ended *ended)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct address *event;
	struct socket *socket;
	u64 bytes = 0;

	if (!ended || !mark)
		return 0;
	trace = recorded(task, mark, KIND_LISTEN);
	if (!trace)
		return 0;
	slot = begin(task, trace, mark->trace, KIND_LISTEN);
	if (!slot)
		return 0;
	event = (struct address *)slot->bytes;
	set_result(&event->head, ended);
	socket = ended->by ? 0 : socket_of(task, (u32)ended->with.a);
	about_socket(event, socket);
	if (socket)
		bytes = own_address(slot, sock_of(socket));
	finish(slot, trace, sizeof(struct address) + bytes);
	return 0;
}

/* An operation of numbers. */
separate int ended_numbers(struct ended *ended, u32 what, u64 first, u64 second, u64 third)
{
	struct doing doing;

	if (!ended)
		return 0;
	doing = operation(what, 0);
	if (!doing.slot)
		return 0;
	set_result(&doing.event->head, ended);
	doing.event->first = first;
	doing.event->second = second;
	doing.event->third = third;
	done(&doing);
	return 0;
}

/* An operation with one or two names. A name fills half of the room at most. */
separate int ended_names(struct ended *ended, u32 what, u64 first, u64 path, u64 other)
{
	struct doing doing;
	u64 from;

	if (!ended)
		return 0;
	doing = operation(what, 0);
	if (!doing.slot)
		return 0;
	set_result(&doing.event->head, ended);
	doing.event->first = first;
	from = doing.at;
	if (path)
		doing.at = append_written(doing.slot, from, path, EVENT_BYTES / 4);
	doing.event->path_bytes = doing.at - from;
	from = doing.at;
	if (other)
		doing.at = append_written(doing.slot, from, other, EVENT_BYTES / 4);
	doing.event->other_bytes = doing.at - from;
	done(&doing);
	return 0;
}

/* A name that comes to be, or goes. */
struct changed {
	u64 first;
	u64 second;
	u64 path;
	u64 other;
	u32 what;
	u32 directory; /* the descriptor of the one that the path begins at */
};

#define AT_FDCWD 0xffffff9c

/* Behind a path that was written: the directory at which it begins. Returns where that ends. */
outline u64 append_directory(struct slot *slot, u64 at, u32 descriptor)
{
	struct task_struct *task = current_task();
	struct dentry *dentry = 0;
	struct vfsmount *mount = 0;

	if (descriptor == AT_FDCWD) {
		dentry = task->fs->pwd.dentry;
		mount = task->fs->pwd.mnt;
	} else {
		struct fdtable *table = task->files->fdt;
		struct file *file = 0;

		if (descriptor >= table->max_fds)
			return at;
		read_kernel(&file, sizeof(file), table->fd + descriptor);
		READ(dentry, file->f_path.dentry);
		READ(mount, file->f_path.mnt);
	}
	return dentry ? append_path(slot, at, dentry, mount) : at;
}

/* A name as it was written, from the root if it is known where it begins. */
outline u64 append_whole(struct slot *slot, struct ended *ended, u64 from, u64 path, u32 directory)
{
	u64 at = append_written(slot, from, path, EVENT_BYTES / 4);

	opaque(from);
	if (from > EVENT_BYTES / 4 || at <= from || slot->bytes[from] == '/' || ended->by)
		return at;
	return append_directory(slot, at, directory);
}

separate int ended_change(struct ended *ended, struct changed *changed)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct doing doing;
	u64 from;

	if (!ended || !changed || !mark)
		return 0;
	if (is_missing(ended->result) || ended->result == -EEXIST) {
		u32 id = mark->trace;
		struct trace *trace = map_look_up(&traces, &id);

		if (!trace || !(trace->flags & TRACE_MISSING))
			return 0;
	}
	doing = operation_of(task, mark, changed->what, 0);
	if (!doing.slot)
		return 0;
	set_result(&doing.event->head, ended);
	doing.event->first = changed->first;
	doing.event->second = changed->second;
	from = sizeof(struct operation);
	doing.at = append_whole(doing.slot, ended, from, changed->path, changed->directory);
	doing.event->path_bytes = doing.at - from;
	from = doing.at;
	if (changed->other)
		doing.at = append_written(doing.slot, from, changed->other, EVENT_BYTES / 4);
	doing.event->other_bytes = doing.at - from;
	done(&doing);
	return 0;
}

/* truncate(2): what open(2) can do as well. */
separate int ended_truncate(struct ended *ended)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct opened *event;
	u64 at, from = sizeof(struct opened);

	if (!ended || !mark)
		return 0;
	trace = recorded(task, mark, KIND_OPEN);
	if (!trace || (is_missing(ended->result) && !(trace->flags & TRACE_MISSING)))
		return 0;
	slot = begin(task, trace, mark->trace, KIND_OPEN);
	if (!slot)
		return 0;
	event = (struct opened *)slot->bytes;
	event->inode = 0;
	event->device = 0;
	event->mode = 0;
	event->open_flags = O_WRONLY_TRUNC;
	set_result(&event->head, ended);
	at = append_whole(slot, ended, from, ended->with.a, AT_FDCWD);
	event->path_bytes = at - from;
	finish(slot, trace, at);
	return 0;
}

/* bind(2): a unix socket's name is a new file. */
outline int ended_bind(struct ended *ended)
{
	struct changed changed = { .what = OP_MKNOD, .first = S_IFSOCK, .directory = AT_FDCWD };
	u16 family = 0;
	char first = 0;

	read_user(&family, sizeof(family), (void *)ended->with.b);
	changed.path = ended->with.b + UNIX_PATH;
	read_user(&first, sizeof(first), (void *)changed.path);
	if (family != AF_UNIX || !first || (u32)ended->with.c <= UNIX_PATH)
		return 0;
	return ended_change(ended, &changed);
}

#endif
