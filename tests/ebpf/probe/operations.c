/* Operations that matter, as `events.h` lists them, with what an ordinary user may do. */
#include "probe.h"

#include <linux/keyctl.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define SECOND_STACK_BYTES 65536

static pid_t sleeper(void)
{
    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    return child;
}

static long ended(pid_t child, long result)
{
    int error = errno;
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    errno = error;
    return result;
}

static long attached(void)
{
    pid_t child = sleeper();
    return ended(child, ptrace(PTRACE_SEIZE, child, 0, 0));
}

static long memory_read(pid_t of)
{
    static char here[8];
    struct iovec mine = { here, sizeof here }, theirs = { here, sizeof here };
    return process_vm_readv(of, &mine, 1, &theirs, 1, 0);
}

static long joined_namespace(void)
{
    return own_namespaces() ? -1 : setns(open("/proc/self/ns/mnt", O_RDONLY), CLONE_NEWNS);
}

static long mounted(void)
{
    return own_namespaces() ? -1 : mount("some", MOUNT, "tmpfs", MS_NOSUID, NULL);
}

static long unmounted(void)
{
    return mounted() ? -1 : umount2(MOUNT, MNT_DETACH);
}

/* The old root would lie outside of the new one: it fails on all kernels, and is seen all the same. Before Linux 7.0 the first file
 * system of all cannot be left this way, either. */
static long pivoted(void)
{
    return mounted() ? -1 : syscall(SYS_pivot_root, MOUNT, "/tmp");
}

static int nothing(void *unused)
{
    (void)unused;
    return 0;
}

static long cloned(int flags)
{
    static char stack[SECOND_STACK_BYTES];
    return joined(clone(nothing, stack + sizeof stack, flags | SIGCHLD, NULL));
}

static long user_in_user_namespace(void)
{
    return own_namespaces() || syscall(SYS_setresuid, 0, 0, 0) ? -1 : 0;
}

static long set_id(const char *path)
{
    return put(path, "") ? -1 : chmod(path, 04755);
}

static long truncated(void)
{
    return put(PLACE "/op-cut", "text") ? -1 : truncate(PLACE "/op-cut", 1);
}

/* Below a directory's descriptor, and below where the process is. */
static long removed(void)
{
    return put(PLACE "/inner/op-gone", "") ? -1 : unlinkat(open(PLACE "/inner", O_PATH), "op-gone", 0);
}

static long removed_here(void)
{
    return put(PLACE "/inner/op-gone-here", "") || chdir(PLACE "/inner") ? -1 : unlink("op-gone-here");
}

static long removed_directory(void)
{
    return mkdir(PLACE "/op-made", 0750) ? -1 : unlinkat(AT_FDCWD, PLACE "/op-made", AT_REMOVEDIR);
}

static long bound(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = PLACE "/op-socket" };
    return bind(socket(AF_UNIX, SOCK_DGRAM, 0), (struct sockaddr *)&name, sizeof name);
}

static long descriptor_set_id(void)
{
    return fchmod(open(PLACE "/set-id-fd", O_RDWR | O_CREAT, 0600), 02755);
}

A(p_seize, attached())
A(p_traceme, ptrace(PTRACE_TRACEME, 0, 0, 0))
A(p_unshare, unshare(CLONE_NEWUSER))
/* BPF_PROG_GET_NEXT_ID. */
A(p_bpf, ({
      static char about[128];
      syscall(SYS_bpf, 11, about, sizeof about);
  }))
A(p_keyctl, syscall(SYS_keyctl, KEYCTL_GET_KEYRING_ID, -4 /* the user's */, 1))
A(p_add_key, syscall(SYS_add_key, "user", "name", "text", 4, -2 /* the process's */))
A(p_request_key, syscall(SYS_request_key, "user", "nothing", NULL, 0))
A(p_kill, kill(keeper(), SIGCONT))
A(p_kill_none, kill(getpid(), SIGCONT))
A(p_process_vm, memory_read(keeper()))
A(p_link, link(PLACE "/link", PLACE "/inner/linked"))
A(p_rename, rename(PLACE "/rename", PLACE "/inner/renamed"))
A(p_exchange, renameat2(AT_FDCWD, PLACE "/exchange", AT_FDCWD, PLACE "/inner/exchanged", 2 /* RENAME_EXCHANGE */))
A(p_chmod, set_id(PLACE "/set-id"))
A(p_unlink, put(PLACE "/op-old", "") ? -1 : unlink(PLACE "/op-old"))
A(p_unlink_not, unlink(BUSYBOX))
A(p_rmdir_not, rmdir(PLACE))
A(p_symlink, symlink("to/nowhere", PLACE "/op-symlink"))
A(p_pipe, mknod(PLACE "/op-pipe", S_IFIFO | 0600, 0))
A(p_truncate_not, truncate(BUSYBOX, 0))
A(p_raw, closed(socket(AF_INET, SOCK_RAW, 1)))
A(p_packets, closed(socket(17 /* AF_PACKET */, SOCK_RAW, 0)))
A(p_userfaultfd, closed(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */)))
A(p_ring, closed(ring_open(0, PLACE "/ring", O_RDONLY)))
A(p_clone, cloned(CLONE_NEWUSER))

const struct action operation_actions[] = {
    { "op-ptrace", p_seize },      { "op-traceme", p_traceme },
    { "op-mount", mounted },       { "op-umount", unmounted },
    { "op-pivot", pivoted },       { "op-unshare", p_unshare },   { "op-clone", p_clone },
    { "op-setns", joined_namespace }, { "op-bpf", p_bpf },        { "op-keyctl", p_keyctl },
    { "op-add-key", p_add_key },   { "op-request-key", p_request_key }, { "op-kill", p_kill },
    { "op-kill-own", p_kill_none }, { "op-vm", p_process_vm },    { "op-link", p_link },
    { "op-rename", p_rename },     { "op-exchange", p_exchange }, { "op-chmod", p_chmod },
    { "op-fchmod", descriptor_set_id }, { "op-raw", p_raw },      { "op-packets", p_packets },
    { "op-truncate", truncated },  { "op-cut-not", p_truncate_not }, { "op-unlink", p_unlink },
    { "op-unlinkat", removed },    { "op-unlink-here", removed_here }, { "op-unlink-not", p_unlink_not },
    { "op-rmdir", removed_directory }, { "op-rmdir-not", p_rmdir_not }, { "op-symlink", p_symlink },
    { "op-pipe", p_pipe },         { "op-bind", bound },
    { "op-uffd", p_userfaultfd },  { "op-ring", p_ring },         { "op-userns", user_in_user_namespace },
    { NULL, NULL },
};

static long by_unshare(void)
{
    return unshare(CLONE_NEWUSER);
}

static long by_clone3(void)
{
    struct {
        uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    } how = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
    long child = syscall(SYS_clone3, &how, sizeof how);
    if (child == 0)
        _exit(0);
    return child < 0 ? -1 : joined((pid_t)child);
}

static long other_namespace(void)
{
    return closed(open("/proc/self/ns/user", O_RDONLY));
}

A(n_clone, cloned(CLONE_NEWUSER))
A(n_both, unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID))

/* Without new user namespaces, all of these but the last are denied. */
const struct action namespace_actions[] = {
    { "ns-unshare", by_unshare }, { "ns-clone", n_clone },        { "ns-clone3", by_clone3 },
    { "ns-several", n_both },     { "in-namespace", other_namespace }, { NULL, NULL },
};
