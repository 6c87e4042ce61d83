/* Addresses of calls that have begun. A call can wait for as long as its other end likes, and what it was given lies
 * in memory that another thread can change meanwhile: so it is copied before. What a socket is then connected to the
 * kernel knows.
 */
#ifndef AGENT_SANDBOX_BEGUN_H
#define AGENT_SANDBOX_BEGUN_H

#include "addresses.h"
#include "calls.h"

/* A call, its arguments and how it went. */
struct ended {
	struct arguments with;
	s64 result;
	u32 call;
	u16 by;
	u16 flags; /* FLAG_BEGUN_BEFORE, or none */
};

struct begun {
	u64 socket; /* to compare, and never to look at: nobody holds it */
	u64 length; /* as the caller gave it */
	u32 call;   /* 0: no address */
	u32 bytes;  /* so many were copied */
	u8 address[ADDRESS_BYTES];
};

struct {
	NUMBER(type, MAP_TASK_STORAGE);
	NUMBER(map_flags, MAP_NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct begun);
} begun_calls SEC(".maps");

/* sk_protocol; skc_state of what is not connected. */
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define TCP_CLOSE 7

/* The socket behind a descriptor. */
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

/* Whether others can change the task's descriptors while it is in a call. */
inline_ int shares_files(struct task_struct *task)
{
	return task->files->count.counter > 1;
}

/* Where a message goes to. */
struct given {
	u64 address;
	u64 length;
};

/* struct msghdr begins with the address and its length. */
inline_ struct given given_message(int narrow, u64 message)
{
	struct given given = {};
	u32 length = 0;

	if (narrow) {
		read_user(&given.address, sizeof(u32), (void *)message);
		read_user(&length, sizeof(length), (void *)(message + 4));
	} else {
		read_user(&given.address, sizeof(given.address), (void *)message);
		read_user(&length, sizeof(length), (void *)(message + 8));
	}
	given.length = length;
	return given;
}

/* A call that has an address begins. Separate, as before Linux 6.8 the verifier takes two states for the same that
 * differ in what lies on the caller's stack, and cuts off the branch of the second: each call was then taken for
 * connect(2). */
separate int begin_address(struct ended *call)
{
	struct task_struct *task = current_task();
	struct begun *begun;
	struct given given;
	u64 bytes;

	if (!call)
		return 0;
	begun = storage_get(&begun_calls, task, 0, 0);
	if (begun)
		begun->call = 0;
	given.address = call->with.b;
	given.length = (u32)call->with.c;
	if (call->call == CALL_sendto) {
		given.address = call->with.e;
		given.length = (u32)call->with.f;
	} else if (call->call == CALL_sendmsg) {
		given = given_message(call->with.narrow, call->with.b);
	}
	if (!given.address || !given.length)
		return 0;
	begun = storage_get(&begun_calls, task, 0, STORAGE_CREATE);
	if (!begun) {
		miss();
		return 0;
	}
	begun->socket = (u64)socket_of(task, (u32)call->with.a);
	begun->length = given.length;
	__builtin_memset(begun->address, 0, ADDRESS_BYTES);
	bytes = given.length;
	opaque(bytes);
	if (bytes > ADDRESS_BYTES)
		bytes = ADDRESS_BYTES;
	begun->bytes = read_user(begun->address, bytes, (void *)given.address) < 0 ? 0 : bytes;
	begun->call = call->call;
	return 0;
}

/* What a call that ends was given when it began; 0 if it was given no address, or nobody saw its begin. */
inline_ struct begun *begun_of(struct ended *ended)
{
	struct begun *begun;

	if (ended->by || ended->flags)
		return 0;
	begun = storage_get(&begun_calls, current_task(), 0, 0);
	return begun && begun->call == ended->call ? begun : 0;
}

/* Whether the socket is connected after this, or is about to be: the kernel goes on where a signal ended the wait. */
inline_ int connects(s64 result)
{
	return result >= 0 || result == -EINPROGRESS || result == -EALREADY || result == -EISCONN ||
	       result == -EINTR || result == -ERESTARTSYS;
}

/* Puts the address that a socket is connected to into the event; returns its length, 0 if it is not known. Messages
 * of all but TCP go where they are sent, whatever the socket is connected to. */
inline_ u64 peer_address(struct slot *slot, struct sock *sock, int sends)
{
	struct address *event = (struct address *)slot->bytes;
	u8 *to = ADDRESS_AT(slot);
	unsigned short family = 0, protocol = 0;
	unsigned char state = 0;
	struct sock *peer = 0;
	u64 bytes;

	READ(family, sock->__sk_common.skc_family);
	READ(protocol, sock->sk_protocol);
	READ(state, sock->__sk_common.skc_state);
	if (family == AF_UNIX) {
		if (sends || !has_field(((struct unix_sock *)0)->peer))
			return 0;
		READ(peer, ((struct unix_sock *)sock)->peer);
		bytes = own_unix_address(slot, peer);
		event->family = family;
		return bytes > UNIX_PATH ? bytes : 0;
	}
	if ((family != AF_INET && family != AF_INET6) || state == TCP_CLOSE)
		return 0;
	if (protocol != IPPROTO_TCP && (sends || protocol != IPPROTO_UDP))
		return 0;
	bytes = family == AF_INET ? INET_BYTES : INET6_BYTES;
	__builtin_memset(to, 0, INET6_BYTES);
	*(u16 *)to = family;
	READ(*(u16 *)(to + 2), sock->__sk_common.skc_dport);
	if (family == AF_INET)
		READ(*(u32 *)(to + 4), sock->__sk_common.skc_daddr);
	else if (has_field(((struct sock_common *)0)->skc_v6_daddr))
		READ(*(struct in6_addr *)(to + 8), sock->__sk_common.skc_v6_daddr);
	else
		return 0;
	event->family = family;
	event->address_bytes = bytes;
	return bytes;
}

/* Room for two names in the slot, behind all that an event of an address needs. */
#define NAME_AT 2048
#define NAME_WORDS (ADDRESS_BYTES / 8)

/* Whether the names of two sockets are the same: paths up to their zero, abstract names in all their bytes. Without a
 * branch for each byte: the verifier would follow all of them. */
outline int is_same_name(struct slot *slot, struct begun *begun, u64 bytes)
{
	u8 *peer = ADDRESS_AT(slot);
	u64 *one = (u64 *)(slot->bytes + NAME_AT), *other = one + NAME_WORDS, differ = 0;
	u64 given = begun->bytes;

	for (int i = 0; i < NAME_WORDS; i++)
		one[i] = other[i] = 0;
	opaque(bytes);
	opaque(given);
	if (bytes > ADDRESS_BYTES || given > ADDRESS_BYTES)
		return 0;
	if (peer[UNIX_PATH]) {
		read_kernel_string(one, ADDRESS_BYTES - UNIX_PATH, peer + UNIX_PATH);
		read_kernel_string(other, ADDRESS_BYTES - UNIX_PATH, begun->address + UNIX_PATH);
	} else {
		if (bytes != begun->length)
			return 0;
		read_kernel(one, bytes, peer);
		read_kernel(other, given, begun->address);
	}
	for (int i = 0; i < NAME_WORDS; i++)
		differ |= one[i] ^ other[i];
	return !differ;
}

/* Whether the address that the caller gave is the one that the kernel has. 0.0.0.0 and :: are the machine itself. */
inline_ int is_given(struct slot *slot, struct begun *begun, u64 bytes)
{
	u8 *peer = ADDRESS_AT(slot), *given = begun->address;
	u16 family = *(u16 *)peer, said = *(u16 *)given;
	u32 wide, any;
	u64 *high = (u64 *)(given + 8), *low = (u64 *)(given + 16);

	if (family == AF_UNIX)
		return said == family && is_same_name(slot, begun, bytes);
	if (begun->bytes < INET_BYTES || *(u16 *)(peer + 2) != *(u16 *)(given + 2))
		return 0;
	wide = *(u32 *)(peer + (family == AF_INET ? 4 : 20));
	any = *(u32 *)(given + 4);
	if (said == AF_INET)
		return any == wide || !any;
	if (said != AF_INET6 || family != AF_INET6 || begun->bytes < INET6_BYTES - 4)
		return 0;
	return (*high == *(u64 *)(peer + 8) && *low == *(u64 *)(peer + 16)) || (!*high && !*low);
}

#endif
