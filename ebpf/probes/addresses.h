/* Addresses of sockets, as a struct sockaddr of their family.
 */
#ifndef AGENT_SANDBOX_ADDRESSES_H
#define AGENT_SANDBOX_ADDRESSES_H

#include "emit.h"

#define ADDRESS_AT(slot) ((slot)->bytes + sizeof(struct address))

/* sizeof(struct sockaddr_in), struct sockaddr_in6, and where sun_path begins. */
#define INET_BYTES 16
#define INET6_BYTES 28
#define UNIX_PATH 2

/* A socket that is being closed has none. */
inline_ struct sock *sock_of(struct socket *socket)
{
	struct sock *sock = 0;

	READ(sock, socket->sk);
	return sock;
}

/* What a socket is; its address comes after. */
inline_ void about_socket(struct address *event, struct socket *socket)
{
	struct sock *sock = sock_of(socket);
	short type = 0;
	unsigned short protocol = 0;

	READ(type, socket->type);
	READ(protocol, sock->sk_protocol);
	event->type = type;
	event->protocol = protocol;
	event->pad = 0;
	event->family = 0;
	event->address_bytes = 0;
}

/* Copies an address of the kernel's into the event; returns its length. */
inline_ u64 copy_address(struct slot *slot, const void *address, u64 bytes)
{
	struct address *event = (struct address *)slot->bytes;

	event->family = 0;
	event->address_bytes = 0;
	opaque(bytes);
	if (bytes > ADDRESS_BYTES)
		bytes = ADDRESS_BYTES;
	if (!address || read_kernel(ADDRESS_AT(slot), bytes, address) < 0)
		return 0;
	if (bytes >= sizeof(u16))
		event->family = *(u16 *)ADDRESS_AT(slot);
	event->address_bytes = bytes;
	return bytes;
}

inline_ u64 own_unix_address(struct slot *slot, struct sock *sock)
{
	struct unix_address *own = 0;
	int length = 0;

	/* Sockets of this family can be a module, and unknown. */
	if (!has_field(((struct unix_sock *)0)->addr))
		return 0;
	READ(own, ((struct unix_sock *)sock)->addr);
	READ(length, own->len);
	/* The address follows its length. */
	return copy_address(slot, (void *)&own->len + sizeof(own->len), (u32)length);
}

/* Puts the address that a socket is bound to into the event; returns its length. */
inline_ u64 own_address(struct slot *slot, struct sock *sock)
{
	struct address *event = (struct address *)slot->bytes;
	u8 *to = ADDRESS_AT(slot);
	unsigned short family = 0, port = 0;
	u64 bytes = 0;

	READ(family, sock->__sk_common.skc_family);
	READ(port, sock->__sk_common.skc_num);
	if (family == AF_UNIX)
		bytes = own_unix_address(slot, sock);
	event->family = family;
	if (family != AF_INET && family != AF_INET6) {
		event->address_bytes = bytes;
		return bytes;
	}
	bytes = family == AF_INET ? INET_BYTES : INET6_BYTES;
	__builtin_memset(to, 0, INET6_BYTES);
	*(u16 *)to = family;
	*(u16 *)(to + 2) = __builtin_bswap16(port);
	if (family == AF_INET)
		READ(*(u32 *)(to + 4), sock->__sk_common.skc_rcv_saddr);
	else if (has_field(((struct sock_common *)0)->skc_v6_rcv_saddr))
		READ(*(struct in6_addr *)(to + 8), sock->__sk_common.skc_v6_rcv_saddr);
	event->address_bytes = bytes;
	return bytes;
}

#endif
