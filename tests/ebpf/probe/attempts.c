/* Attempts to get at what is forbidden, each of which succeeds where nobody denies it. `init` makes the
 * files anew before each run. */
#include "probe.h"

#include <linux/io_uring.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/xattr.h>
#include <utime.h>

#define S(name) SECRET "/" name

/* A list as acl(5) has it, for user 1; chmod(2) does not make these. */
static const unsigned char acl[] = {
    2, 0, 0, 0, /* version */
    1, 0, 6, 0, 255, 255, 255, 255, /* the owner */
    2, 0, 4, 0, 1, 0, 0, 0, /* user 1 */
    4, 0, 4, 0, 255, 255, 255, 255, /* the group */
    16, 0, 4, 0, 255, 255, 255, 255, /* the mask */
    32, 0, 0, 0, 255, 255, 255, 255, /* others */
};

static long opened(const char *path, int flags)
{
    return closed(open(path, flags, 0600));
}

static int handed_over(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = KEEPER_SOCKET };
    char byte, control[CMSG_SPACE(sizeof(int))];
    struct iovec text = { &byte, 1 };
    struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
    int client = socket(AF_UNIX, SOCK_STREAM, 0), got;
    if (connect(client, (struct sockaddr *)&address, sizeof address) || recvmsg(client, &message, 0) != 1)
        return -1;
    if (message.msg_flags & MSG_CTRUNC || !CMSG_FIRSTHDR(&message))
        return (int)fail(EACCES);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    return got;
}

static long read_descriptor(int descriptor)
{
    char byte;
    return descriptor < 0 ? -1 : pread(descriptor, &byte, 1, 0) == 1 ? 0 : -1;
}

static long reopened(int descriptor)
{
    char name[64];
    if (descriptor < 0)
        return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    return readable(name);
}

static long of_keeper(const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "/proc/%d/%s", keeper(), what);
    return readable(name);
}

static long bound(void)
{
    if (own_namespaces() || mount(SECRET, MOUNT, NULL, MS_BIND, NULL))
        return -1;
    return readable(MOUNT "/bound");
}

/* A file system whose files are others' (overlayfs): another device, other inodes. */
static long overlaid(void)
{
    if (own_namespaces() || mount("none", MOUNT, "overlay", 0, "userxattr,lowerdir=" SECRET ":" PLACE "/inner"))
        return -1;
    return readable(MOUNT "/overlaid");
}

static long other_root(void)
{
    if (own_namespaces() || chroot(SECRET) || chdir("/"))
        return -1;
    return readable("/rooted");
}

/* Of an open descriptor a new name is made. */
static long linked_descriptor(void)
{
    char name[64];
    int descriptor = open(S("linked-fd"), O_PATH);
    if (descriptor < 0)
        return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    if (linkat(AT_FDCWD, name, AT_FDCWD, PLACE "/linked-fd", AT_SYMLINK_FOLLOW))
        return -1;
    return readable(PLACE "/linked-fd");
}

static long by_ring(const struct io_uring_sqe *entry)
{
    return ring_call(0, entry);
}

static long ring_unlink(void)
{
    struct io_uring_sqe entry = { .opcode = IORING_OP_UNLINKAT, .fd = AT_FDCWD, .addr = (uintptr_t)S("ring-unlinked") };
    return by_ring(&entry);
}

static long ring_rename(void)
{
    struct io_uring_sqe entry = { .opcode = IORING_OP_RENAMEAT,
                                  .fd = AT_FDCWD,
                                  .addr = (uintptr_t)S("ring-renamed"),
                                  .len = (unsigned)AT_FDCWD,
                                  .addr2 = (uintptr_t)PLACE "/ring-renamed" };
    return by_ring(&entry);
}

static long ring_link(void)
{
    struct io_uring_sqe entry = { .opcode = IORING_OP_LINKAT,
                                  .fd = AT_FDCWD,
                                  .addr = (uintptr_t)S("ring-linked"),
                                  .len = (unsigned)AT_FDCWD,
                                  .addr2 = (uintptr_t)PLACE "/ring-linked" };
    return by_ring(&entry);
}

static long to_socket(int type, const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    strcpy(address.sun_path, path);
    int client = socket(AF_UNIX, type, 0);
    if (type == SOCK_STREAM)
        return connect(client, (struct sockaddr *)&address, sizeof address);
    return sendto(client, "text", 4, 0, (struct sockaddr *)&address, sizeof address);
}

static long socket_made(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = S("socket") };
    return bind(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address);
}

/* What somebody of the user's who is not traced does for this process: it is made to by ptrace(2). */
static long by_another(void)
{
    return ptrace(PTRACE_SEIZE, keeper(), 0, 0);
}

static long executed(void)
{
    char *const words[] = { "true", NULL };
    pid_t child = fork();
    if (child == 0)
        _exit(execv(S("program"), words) == -1 ? errno : 0);
    return joined(child);
}

static long swapped(void)
{
    return renameat2(AT_FDCWD, S("exchanged"), AT_FDCWD, PLACE "/exchanged-in", 2 /* RENAME_EXCHANGE */)
               ? -1
               : readable(PLACE "/exchanged-in");
}

/* The directory's own name goes away; what is forbidden stays the same directory. */
static long directory_renamed(void)
{
    return rename(SECRET, PLACE "/moved") ? -1 : readable(PLACE "/moved/key");
}

static long in_place_of(void)
{
    return put(PLACE "/instead", "instead") ? -1 : rename(PLACE "/instead", S("over"));
}

/* A directory above it gets another name, or changes places with one. */
static long above_renamed(void)
{
    return rename(PLACE "/other", PLACE "/inner/above") ? -1 : readable(PLACE "/inner/above/below/key");
}

static long above_exchanged(void)
{
    mkdir(PLACE "/other", 0700);
    return renameat2(AT_FDCWD, PLACE "/above", AT_FDCWD, PLACE "/other", 2 /* RENAME_EXCHANGE */)
               ? -1
               : readable(PLACE "/other/below/key");
}

/* A file system of others' files, with what holds the directory below, and a copy made by a change. */
static long overlaid_above(void)
{
    if (own_namespaces() || mkdir(PLACE "/inner/work", 0700) || mkdir(PLACE "/inner/upper", 0700) ||
        mount("none", MOUNT, "overlay", 0,
              "userxattr,lowerdir=" PLACE "/above,upperdir=" PLACE "/inner/upper,workdir=" PLACE "/inner/work"))
        return -1;
    return chmod(MOUNT "/below/listed", 0644) ? -1 : readable(MOUNT "/below/listed");
}

/* A descriptor of another process's, which does not hand it over. */
static long taken(void)
{
    int other = (int)syscall(434 /* pidfd_open */, keeper(), 0);
    return read_descriptor((int)syscall(438 /* pidfd_getfd */, other, KEEPER_DESCRIPTOR, 0));
}

static long mapped_tree(void)
{
    int tree = (int)syscall(428 /* open_tree */, AT_FDCWD, SECRET, 0);
    int file = openat(tree, "tree", O_RDONLY);
    return closed(file);
}

A(t_read, readable(S("key")))
A(t_write, opened(S("key"), O_WRONLY))
A(t_openat, closed(openat(open(SECRET, O_PATH), "key", O_RDONLY)))
A(t_relative, chdir(SECRET) ? -1 : readable("key"))
A(t_link, symlink(S("key"), PLACE "/symlink") ? -1 : readable(PLACE "/symlink"))
A(t_list, opened(SECRET, O_RDONLY | O_DIRECTORY))
A(t_below, readable(S("below/key")))
A(t_single, readable(SINGLE))
A(t_single_link, link(SINGLE, PLACE "/single-linked") ? -1 : readable(PLACE "/single-linked"))
A(t_single_rename, rename(SINGLE, PLACE "/inner/single") ? -1 : readable(PLACE "/inner/single"))
A(t_path, read_descriptor(open(S("key"), O_PATH)))
A(t_reopen, reopened(open(S("key"), O_PATH)))
A(t_proc_root, of_keeper("root" S("key")))
A(t_own_root, readable("/proc/self/root" S("key")))
A(t_proc_fd, of_keeper("fd/77"))
A(t_hardlink, link(S("linked"), PLACE "/hardlinked") ? -1 : readable(PLACE "/hardlinked"))
A(t_rename, rename(S("renamed"), PLACE "/renamed") ? -1 : readable(PLACE "/renamed"))
A(t_passed, read_descriptor(handed_over()))
A(t_passed_reopen, reopened(handed_over()))
A(t_truncate, truncate(S("truncated"), 0))
A(t_unlink, unlink(S("unlinked")))
A(t_rmdir, rmdir(S("empty")))
A(t_mkdir, mkdir(S("made"), 0700))
A(t_mknod, mknod(S("fifo"), S_IFIFO | 0600, 0))
A(t_symlink_in, symlink("anywhere", S("symlink")))
A(t_create, opened(S("created"), O_WRONLY | O_CREAT))
A(t_temporary, opened(SECRET, O_TMPFILE | O_RDWR))
A(t_setxattr, setxattr(S("attributes"), "user.name", "text", 4, 0))
A(t_listxattr, listxattr(S("attributes"), NULL, 0))
A(t_set_acl, setxattr(S("attributes"), "system.posix_acl_access", acl, sizeof acl, 0))
A(t_chmod, chmod(S("mode"), 0644))
A(t_chown, chown(S("mode"), (uid_t)-1, getgid()))
A(t_utime, utime(S("mode"), &(struct utimbuf){ 1, 1 }))
A(t_stat, ({
      struct stat found;
      stat(S("key"), &found);
  }))
A(t_readlink, ({
      char text[64];
      readlink(S("a-link"), text, sizeof text);
  }))
A(t_watch, inotify_add_watch(inotify_init(), SECRET, IN_ALL_EVENTS))
A(t_ring, closed(ring_open(0, S("key"), O_RDONLY)))
A(t_ring_async, closed(ring_open(RING_ASYNC, S("key"), O_RDONLY)))
A(t_ring_polled, closed(ring_open(RING_SQPOLL, S("key"), O_RDONLY)))
A(t_connect, to_socket(SOCK_STREAM, S("stream")))
A(t_send, to_socket(SOCK_DGRAM, S("datagrams")))

A(t_in_open, readable(PLACE "/open"))

/* The directory's rename comes last: nothing is at its place any more. */
const struct action attempt_actions[] = {
    { "read", t_read },
    { "write", t_write },
    { "read-at", t_openat },
    { "read-relative", t_relative },
    { "by-symlink", t_link },
    { "list", t_list },
    { "read-below", t_below },
    { "single", t_single },
    { "single-link", t_single_link },
    { "single-rename", t_single_rename },
    { "path-read", t_path },
    { "path-reopen", t_reopen },
    { "proc-root", t_proc_root },
    { "own-root", t_own_root },
    { "proc-fd", t_proc_fd },
    { "bind-mount", bound },
    { "overlay", overlaid },
    { "chroot", other_root },
    { "hard-link", t_hardlink },
    { "link-fd", linked_descriptor },
    { "rename", t_rename },
    { "exchange", swapped },
    { "rename-over", in_place_of },
    { "passed", t_passed },
    { "passed-reopen", t_passed_reopen },
    { "truncate", t_truncate },
    { "unlink", t_unlink },
    { "rmdir", t_rmdir },
    { "mkdir", t_mkdir },
    { "mknod", t_mknod },
    { "symlink-in", t_symlink_in },
    { "create", t_create },
    { "temporary", t_temporary },
    { "bind", socket_made },
    { "setxattr", t_setxattr },
    { "listxattr", t_listxattr },
    { "set-acl", t_set_acl },
    { "chmod", t_chmod },
    { "chown", t_chown },
    { "utime", t_utime },
    { "stat", t_stat },
    { "readlink", t_readlink },
    { "watch", t_watch },
    { "execute", executed },
    { "open-tree", mapped_tree },
    { "ring", t_ring },
    { "ring-async", t_ring_async },
    { "ring-polled", t_ring_polled },
    { "ring-unlink", ring_unlink },
    { "ring-rename", ring_rename },
    { "ring-link", ring_link },
    { "connect", t_connect },
    { "send", t_send },
    { "taken", taken },
    { "overlay-above", overlaid_above },
    { "exchange-above", above_exchanged },
    { "rename-above", above_renamed },
    { "by-another", by_another },
    { "rename-dir", directory_renamed },
    { NULL, NULL },
};

/* The kernel's own name of a file, which no path leads to. */
static long by_handle(void)
{
    struct {
        struct file_handle handle;
        unsigned char bytes[MAX_HANDLE_SZ];
    } of = { .handle = { .handle_bytes = MAX_HANDLE_SZ } };
    int mount_id;
    if (name_to_handle_at(AT_FDCWD, S("key"), &of.handle, &mount_id, 0))
        return -1;
    return read_descriptor(open_by_handle_at(open(PLACE, O_RDONLY | O_DIRECTORY), &of.handle, O_RDONLY));
}

static long bound_by_root(void)
{
    if (unshare(CLONE_NEWNS) || mount(SECRET, MOUNT, NULL, MS_BIND, NULL))
        return -1;
    return readable(MOUNT "/bound");
}

const struct action root_attempt_actions[] = {
    { "by-handle", by_handle },
    { "root-bind", bound_by_root },
    { "root-read", t_read },
    { NULL, NULL },
};

/* What remains to a jail that shows the directory of the keeper's and not the secret. */
const struct action jailed_actions[] = {
    { "in-open", t_in_open },
    { "hidden", t_read },
    { "passed", t_passed },
    { "passed-reopen", t_passed_reopen },
    { NULL, NULL },
};
