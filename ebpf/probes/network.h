/* Connections, messages to addresses, listeners, raw sockets.
 */
#ifndef AGENT_SANDBOX_NETWORK_H
#define AGENT_SANDBOX_NETWORK_H

#include "verdicts.h"
#include "addresses.h"

/* An event of a socket and of an address that the kernel has copied. */
inline_ void tell_address(struct socket *socket, const void *address, int length, s64 result)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct address *event;
	u64 verdict;

	if (!mark)
		return;
	verdict = take_verdict(mark);
	trace = recorded(task, mark, KIND_CONNECT);
	if (!trace)
		return;
	slot = begin(task, trace, mark->trace, KIND_CONNECT);
	if (!slot)
		return;
	event = (struct address *)slot->bytes;
	judge(&event->head, verdict, result);
	about_socket(event, socket);
	finish(slot, trace, sizeof(struct address) + copy_address(slot, address, (u32)length));
}

SEC("fexit/security_socket_connect")
int socket_connect(u64 *context)
{
	tell_address(ARGUMENT(struct socket *, 0), ARGUMENT(void *, 1), context[2], (int)context[3]);
	return 0;
}

/* Messages on a connected socket have no address: the connection is recorded, unless the second layer denies
 * the message. */
SEC("fexit/security_socket_sendmsg")
int socket_message(u64 *context)
{
	struct msghdr *message = ARGUMENT(struct msghdr *, 1);
	s64 result = (int)context[3];

	if (message->msg_name || result < 0)
		tell_address(ARGUMENT(struct socket *, 0), message->msg_name, message->msg_namelen, result);
	return 0;
}

SEC("fexit/security_socket_listen")
int socket_listen(u64 *context)
{
	struct socket *socket = ARGUMENT(struct socket *, 0);
	s64 result = (int)context[2];
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct trace *trace;
	struct slot *slot;
	struct address *event;

	if (!mark)
		return 0;
	trace = recorded(task, mark, KIND_LISTEN);
	if (!trace)
		return 0;
	slot = begin(task, trace, mark->trace, KIND_LISTEN);
	if (!slot)
		return 0;
	event = (struct address *)slot->bytes;
	judge(&event->head, 0, result);
	about_socket(event, socket);
	finish(slot, trace, sizeof(struct address) + own_address(slot, sock_of(socket)));
	return 0;
}

SEC("fexit/__sock_create")
int socket_create(u64 *context)
{
	u32 family = context[1], type = context[2] & 0xf;
	u32 kernel = context[5];

	if (kernel || (family != AF_PACKET && (type != SOCK_RAW || family == AF_NETLINK)))
		return 0;
	simple_operation(OP_RAW_SOCKET, (int)context[6], family, type, (u32)context[3]);
	return 0;
}

#endif
