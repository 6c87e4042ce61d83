/* System calls that have come to their end, as events. What the caller named is read from its memory; of files
 * that were opened the kernel's own names are taken.
 */
#ifndef AGENT_SANDBOX_ENDED_H
#define AGENT_SANDBOX_ENDED_H

#include "operations.h"
#include "calls.h"
#include "sampling.h"
#include "addresses.h"

/* A call, its arguments and how it went. */
struct ended {
	struct arguments with;
	s64 result;
	u32 call;
	u32 by;
};

/* 0, or the error: some calls give a number when they have gone well. */
inline_ s64 error_of(struct ended *ended)
{
	return ended->result < 0 ? ended->result : 0;
}

inline_ void set_result(struct head *head, struct ended *ended)
{
	head->result = error_of(ended);
	if (head->result)
		head->by = ended->by;
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

outline int ended_open(struct ended *ended, u64 path, u64 flags)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	s64 result = ended->result;
	struct trace *trace;
	struct slot *slot;
	struct opened *event;
	u64 at, from = sizeof(struct opened);

	if (!mark)
		return 0;
	trace = recorded(task, mark, KIND_OPEN);
	if (!trace)
		return 0;
	if ((result == -ENOENT || result == -ENOTDIR) && !(trace->flags & TRACE_MISSING))
		return 0;
	if (result >= 0 && sampled_out(trace))
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
	at = result >= 0 ? append_opened(task, slot, from, result) : 0;
	if (!at)
		/* By a handle nothing is named. */
		at = path ? append_written(slot, from, path, PATH_BYTES) : from;
	if (result == -EROFS)
		event->head.by = BY_PERMISSIONS;
	event->path_bytes = at - from;
	finish(slot, trace, at);
	return 0;
}

/* A program that was not started. */
outline int ended_exec(struct ended *ended, u64 path)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct exec *event;
	s64 result = ended->result;
	u64 at = sizeof(struct exec);

	if (!mark || result >= 0)
		return 0;
	trace = recorded(task, mark, KIND_EXEC);
	if (!trace)
		return 0;
	if ((result == -ENOENT || result == -ENOTDIR) && !(trace->flags & TRACE_MISSING))
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

/* The socket behind a descriptor: its type, protocol and, for one that listens, its address. */
inline_ struct socket *socket_of(struct task_struct *task, u64 descriptor)
{
	struct fdtable *table = task->files->fdt;
	struct file *file = 0;
	struct inode *inode = 0;
	struct socket *socket = 0;
	unsigned short mode = 0;

	opaque(descriptor);
	if (descriptor >= table->max_fds)
		return 0;
	read_kernel(&file, sizeof(file), table->fd + descriptor);
	READ(inode, file->f_inode);
	READ(mode, inode->i_mode);
	if ((mode & S_IFMT) != S_IFSOCK)
		return 0;
	READ(socket, file->private_data);
	return socket;
}

outline int ended_address(struct ended *ended, u64 address, u64 length)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct address *event;

	if (!mark || !address || !length)
		return 0;
	trace = recorded(task, mark, KIND_CONNECT);
	if (!trace)
		return 0;
	slot = begin(task, trace, mark->trace, KIND_CONNECT);
	if (!slot)
		return 0;
	event = (struct address *)slot->bytes;
	event->head.flags |= FLAG_FROM_USER;
	about_socket(event, socket_of(task, (u32)ended->with.a));
	if (ended->result != -EINPROGRESS)
		set_result(&event->head, ended);
	opaque(length);
	if (length > ADDRESS_BYTES)
		length = ADDRESS_BYTES;
	if (read_user(ADDRESS_AT(slot), length, (void *)address) < 0)
		length = 0;
	else if (length >= sizeof(u16))
		event->family = *(u16 *)ADDRESS_AT(slot);
	event->address_bytes = length;
	finish(slot, trace, sizeof(struct address) + length);
	return 0;
}

/* struct msghdr begins with the address and its length. */
outline int ended_message(struct ended *ended, u64 message)
{
	u64 address = 0;
	u32 length = 0;

	if (ended->with.narrow) {
		read_user(&address, sizeof(u32), (void *)message);
		read_user(&length, sizeof(length), (void *)(message + 4));
	} else {
		read_user(&address, sizeof(address), (void *)message);
		read_user(&length, sizeof(length), (void *)(message + 8));
	}
	return ended_address(ended, address, length);
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

outline int ended_listen(struct ended *ended)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct address *event;
	struct socket *socket;
	u64 bytes = 0;

	if (!mark)
		return 0;
	trace = recorded(task, mark, KIND_LISTEN);
	if (!trace)
		return 0;
	slot = begin(task, trace, mark->trace, KIND_LISTEN);
	if (!slot)
		return 0;
	event = (struct address *)slot->bytes;
	set_result(&event->head, ended);
	socket = socket_of(task, (u32)ended->with.a);
	about_socket(event, socket);
	if (socket)
		bytes = own_address(slot, sock_of(socket));
	finish(slot, trace, sizeof(struct address) + bytes);
	return 0;
}

/* An operation of numbers. */
outline int ended_numbers(struct ended *ended, u32 what, u64 first, u64 second, u64 third)
{
	struct doing doing = operation(what, 0);

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
outline int ended_names(struct ended *ended, u32 what, u64 first, u64 path, u64 other)
{
	struct doing doing = operation(what, 0);
	u64 from;

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

#endif
