/* Sockets of processes outside, by every name that they have. */
#include "probe.h"

#include <linux/vm_sockets.h>
#include <stddef.h>

int unix_address(struct sockaddr_un *address, const char *path, socklen_t *length)
{
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (path[0] == '@') { /* abstract: no NUL at the end */
        memcpy(address->sun_path + 1, path + 1, strlen(path) - 1);
        *length = offsetof(struct sockaddr_un, sun_path) + strlen(path);
    } else {
        strncpy(address->sun_path, path, sizeof address->sun_path - 1);
        *length = sizeof *address;
    }
    return 0;
}

int listening(int type, const char *path)
{
    struct sockaddr_un address;
    socklen_t length;
    int fd = socket(AF_UNIX, type, 0);
    unix_address(&address, path, &length);
    if (path[0] != '@')
        unlink(path);
    if (fd < 0 || bind(fd, (void *)&address, length) || (type != SOCK_DGRAM && listen(fd, 16)))
        return -1;
    return fd;
}

static long connected(int type, const char *path)
{
    struct sockaddr_un address;
    socklen_t length;
    int fd = socket(AF_UNIX, type, 0);
    unix_address(&address, path, &length);
    return fd < 0 ? -1 : connect(fd, (void *)&address, length);
}

static long sent(const char *path)
{
    struct sockaddr_un address;
    socklen_t length;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    unix_address(&address, path, &length);
    return fd < 0 ? -1 : sendto(fd, "x", 1, 0, (void *)&address, length);
}

#define A(name, expression)                                                                                           \
    static long name(void)                                                                                            \
    {                                                                                                                 \
        return expression;                                                                                            \
    }

A(c_home, connected(SOCK_STREAM, HOST_HOME "/host.sock"))
A(c_shown, connected(SOCK_STREAM, SHOWN "/host.sock"))
A(c_run, connected(SOCK_STREAM, RUNTIME "/host.sock"))
A(c_tmp, connected(SOCK_STREAM, "/tmp/host.sock"))
A(c_root, connected(SOCK_STREAM, "/proc/self/root" SHOWN "/host.sock"))
A(c_relative, connected(SOCK_STREAM, "../host.sock"))
A(c_symlink, symlink(SHOWN "/host.sock", PROJECT "/c1") ? -1 : connected(SOCK_STREAM, PROJECT "/c1"))
A(c_chdir, chdir(SHOWN) ? -1 : connected(SOCK_STREAM, "host.sock"))
A(c_fd, ({
      char path[64];
      int fd = open(SHOWN "/host.sock", O_PATH);
      snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
      fd < 0 ? -1 : connected(SOCK_STREAM, path);
  }))
A(c_link, link(SHOWN "/host.sock", PROJECT "/c2") ? -1 : connected(SOCK_STREAM, PROJECT "/c2"))
A(c_seqpacket, connected(SOCK_SEQPACKET, SHOWN "/host.seq"))
A(c_abstract, connected(SOCK_STREAM, "@" ABSTRACT))
A(d_path, sent(SHOWN "/host.dgram"))
A(d_connect, connected(SOCK_DGRAM, SHOWN "/host.dgram"))
A(d_abstract, sent("@" ABSTRACT_DATAGRAM))
A(v_sock, closed(socket(AF_VSOCK, SOCK_STREAM, 0)))

const struct attack socket_attacks[] = {
    { "connect-home", c_home },
    { "connect-shown", c_shown },
    { "connect-run", c_run },
    { "connect-tmp", c_tmp },
    { "connect-proc-root", c_root },
    { "connect-relative", c_relative },
    { "connect-symlink", c_symlink },
    { "connect-chdir", c_chdir },
    { "connect-fd", c_fd },
    { "connect-hard-link", c_link },
    { "connect-seqpacket", c_seqpacket },
    { "connect-abstract", c_abstract },
    { "datagram-path", d_path },
    { "datagram-connect", d_connect },
    { "datagram-abstract", d_abstract },
    { "vsock", v_sock },
    { NULL, NULL },
};
