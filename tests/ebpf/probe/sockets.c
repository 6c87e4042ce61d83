/* Connections, messages to addresses, and listening. */
#include "probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>

/* Nobody listens there. */
#define CLOSED_PORT 9
/* The first of the ports of these actions, each of which has one of its own. */
#define PORTS 20000
#define ABSTRACT "ebpf-abstract"

static struct sockaddr_in inet(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static struct sockaddr_in6 inet6(int port)
{
    return (struct sockaddr_in6){ .sin6_family = AF_INET6,
                                  .sin6_port = htons((uint16_t)port),
                                  .sin6_addr = IN6ADDR_LOOPBACK_INIT };
}

static struct sockaddr_un local(const char *path, socklen_t *length)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    size_t at = path[0] == '@';
    strcpy(address.sun_path + at, path + at);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path) + !at);
    return address;
}

static int listening(const void *address, socklen_t length, int type)
{
    int family = ((const struct sockaddr *)address)->sa_family, server = socket(family, type, 0), one = 1;
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(server, address, length) || (type == SOCK_STREAM && listen(server, 7)))
        return -1;
    return server;
}

static long connected(const void *address, socklen_t length, int type)
{
    int family = ((const struct sockaddr *)address)->sa_family, client = socket(family, type, 0);
    return connect(client, address, length);
}

static long both(const void *address, socklen_t length)
{
    return listening(address, length, SOCK_STREAM) < 0 ? -1 : connected(address, length, SOCK_STREAM);
}

static long with_inet(int port)
{
    struct sockaddr_in address = inet(port);
    return both(&address, sizeof address);
}

static long with_inet6(int port)
{
    struct sockaddr_in6 address = inet6(port);
    return both(&address, sizeof address);
}

static long with_local(const char *path)
{
    socklen_t length;
    struct sockaddr_un address = local(path, &length);
    return both(&address, length);
}

static long refused(void)
{
    struct sockaddr_in address = inet(CLOSED_PORT);
    return connected(&address, sizeof address, SOCK_STREAM);
}

static long datagram_connected(void)
{
    struct sockaddr_in address = inet(PORTS + 2);
    return connected(&address, sizeof address, SOCK_DGRAM);
}

static long sent(int port, int how)
{
    struct sockaddr_in address = inet(port);
    struct iovec text = { "text", 4 };
    struct mmsghdr message = { .msg_hdr = { .msg_name = &address,
                                            .msg_namelen = sizeof address,
                                            .msg_iov = &text,
                                            .msg_iovlen = 1 } };
    int client = socket(AF_INET, SOCK_DGRAM, 0);
    if (how == 0)
        return sendto(client, "text", 4, 0, (struct sockaddr *)&address, sizeof address);
    return how == 1 ? sendmsg(client, &message.msg_hdr, 0) : sendmmsg(client, &message, 1, 0);
}

static long sent_locally(void)
{
    socklen_t length;
    struct sockaddr_un address = local(PLACE "/datagrams", &length);
    if (listening(&address, length, SOCK_DGRAM) < 0)
        return -1;
    return sendto(socket(AF_UNIX, SOCK_DGRAM, 0), "text", 4, 0, (struct sockaddr *)&address, length);
}

/* A connection that begins with a message (TCP Fast Open), and never calls connect(2). */
static long sent_fast(int port)
{
    struct sockaddr_in address = inet(port);
    if (listening(&address, sizeof address, SOCK_STREAM) < 0)
        return -1;
    return sendto(socket(AF_INET, SOCK_STREAM, 0), "text", 4, MSG_FASTOPEN, (struct sockaddr *)&address, sizeof address);
}

A(s_inet, with_inet(PORTS))
A(s_inet6, with_inet6(PORTS + 1))
A(s_unix, with_local(PLACE "/connected"))
A(s_abstract, with_local("@" ABSTRACT))
A(s_sendto, sent(PORTS + 3, 0))
A(s_sendmsg, sent(PORTS + 4, 1))
A(s_sendmmsg, sent(PORTS + 5, 2))
A(s_fast, sent_fast(PORTS + 6))

const struct action socket_actions[] = {
    { "inet", s_inet },
    { "inet6", s_inet6 },
    { "unix", s_unix },
    { "abstract", s_abstract },
    { "refused", refused },
    { "udp-connect", datagram_connected },
    { "udp-sendto", s_sendto },
    { "udp-sendmsg", s_sendmsg },
    { "udp-sendmmsg", s_sendmmsg },
    { "unix-sendto", sent_locally },
    { "fast-open", s_fast },
    { NULL, NULL },
};

static long listening_inet(void)
{
    struct sockaddr_in address = inet(PORTS + 10);
    return listening(&address, sizeof address, SOCK_STREAM);
}

static long listening_inet6(void)
{
    struct sockaddr_in6 address = inet6(PORTS + 11);
    return listening(&address, sizeof address, SOCK_STREAM);
}

static long listening_locally(const char *path)
{
    socklen_t length;
    struct sockaddr_un address = local(path, &length);
    return listening(&address, length, SOCK_STREAM);
}

A(l_unix, listening_locally(PLACE "/listening"))
A(l_abstract, listening_locally("@" ABSTRACT "-listening"))

const struct action listening_actions[] = {
    { "listen-inet", listening_inet },
    { "listen-inet6", listening_inet6 },
    { "listen-unix", l_unix },
    { "listen-abstract", l_abstract },
    { NULL, NULL },
};

/* A server that is not traced listens there (`keeper_main`). */
static long to_keeper(int type)
{
    struct sockaddr_in address = inet(PORTS + 20);
    return connected(&address, sizeof address, type);
}

static long to_keeper6(void)
{
    struct sockaddr_in6 address = inet6(PORTS + 20);
    return connected(&address, sizeof address, SOCK_STREAM);
}

static long fast_to_keeper(void)
{
    struct sockaddr_in address = inet(PORTS + 20);
    return sendto(socket(AF_INET, SOCK_STREAM, 0), "text", 4, MSG_FASTOPEN, (struct sockaddr *)&address, sizeof address);
}

static long locally(void)
{
    return with_local("@" ABSTRACT "-local");
}

A(i_stream, to_keeper(SOCK_STREAM))
A(i_datagram, to_keeper(SOCK_DGRAM))
A(i_sendto, sent(PORTS + 20, 0))
A(i_sendmsg, sent(PORTS + 20, 1))
A(i_sendmmsg, sent(PORTS + 20, 2))

/* With no internet, all of these but the last are denied. */
const struct action internet_actions[] = {
    { "net-stream", i_stream },   { "net-stream6", to_keeper6 },  { "net-datagram", i_datagram },
    { "net-sendto", i_sendto },   { "net-sendmsg", i_sendmsg },   { "net-sendmmsg", i_sendmmsg },
    { "net-fast", fast_to_keeper }, { "in-local", locally },      { NULL, NULL },
};
