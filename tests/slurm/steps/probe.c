/* Looks, from inside of a room, at how a process is confined and at what the kernel lets it do.
 *
 *   probe fields             how this process is confined, a line each: "NAME VALUE"
 *   probe calls NAME         what the kernel answers to what a jail refuses, a line each: "NAME ERRNO".
 *                            NAME: an abstract socket at which somebody outside listens
 *   probe namespaces         the inodes of the namespaces, a line each
 *   probe listen NAME FILE   abstract sockets of each type, until FILE exists; FILE.up says that they are there
 *   probe connect NAME       the errno of a connection to an abstract socket
 *   probe daemon MARK FILE   leaves daemons behind, with MARK in their command lines, once they live;
 *                            each adds a byte to FILE
 *   probe stay MARK          sleeps for ten minutes
 *   probe sockets COUNT      makes that many local sockets, as many at a time as it may have open,
 *                            and says how often it failed
 *   probe garbage            says nonsense on the descriptor in PMI_FD, and closes it
 *   probe slaughter          kills everything that it may kill, and goes on
 *   probe pry                tries to look into init and the attendants of its room: "NAME WHAT ERRNO"
 *   probe forge PATH FILE    listens at PATH as a keeper would, for twenty seconds or until FILE.over
 *                            exists; FILE gets a line when it listens and one for whoever comes */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static void lines(const char *path, const char *head, const char *const *wanted) {
    char line[4096];
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof line, file)) {
        int found = !wanted;
        for (int i = 0; wanted && wanted[i]; i++) {
            size_t length = strlen(wanted[i]);
            found |= strncmp(line, wanted[i], length) == 0 && line[length] == ':';
        }
        if (found) {
            printf("%s %s", head, line);
        }
    }
    if (!file) {
        printf("%s errno %d\n", head, errno);
    } else {
        fclose(file);
    }
}

/* Each mount without its ids and the number of its device: root, place, options, kind, source. */
static void mounts(void) {
    char line[4096];
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char *rest = line;
        for (int skip = 0; skip < 3 && rest; skip++) {
            rest = strchr(rest, ' ');
            rest = rest ? rest + 1 : NULL;
        }
        printf("mount %s", rest ? rest : line);
    }
    if (file) {
        fclose(file);
    }
}

static void descriptors(void) {
    DIR *all = opendir("/proc/self/fd");
    struct dirent *one;
    while (all && (one = readdir(all))) {
        char target[256] = "";
        int number = atoi(one->d_name);
        if (isdigit(one->d_name[0]) && number != dirfd(all)) {
            struct stat found;
            ssize_t length = readlinkat(dirfd(all), one->d_name, target, sizeof target - 1);
            target[length > 0 ? length : 0] = 0;
            fstat(number, &found);
            printf("fd %d %s %o\n", number, S_ISSOCK(found.st_mode) ? "socket" : "other", found.st_mode & S_IFMT);
        }
    }
    closedir(all);
}

static int by_name(const void *one, const void *other) {
    return strcmp(*(char *const *)one, *(char *const *)other);
}

extern char **environ;

static void variables(void) {
    size_t count = 0;
    while (environ[count]) {
        count++;
    }
    qsort(environ, count, sizeof *environ, by_name);
    for (size_t i = 0; i < count; i++) {
        printf("variable %.*s\n", (int)strcspn(environ[i], "="), environ[i]);
    }
}

static int fields(void) {
    static const char *const status[] = {
        "Umask", "Uid", "Gid", "Groups", "NStgid", "CoreDumping", "Threads", "SigBlk", "SigIgn",
        "SigCgt", "SigPnd", "ShdPnd", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs",
        "Seccomp", "Seccomp_filters", "Speculation_Store_Bypass", "TracerPid", NULL};
    lines("/proc/self/status", "status", status);
    lines("/proc/self/limits", "limit", NULL);
    lines("/proc/self/uid_map", "uid_map", NULL);
    lines("/proc/self/gid_map", "gid_map", NULL);
    lines("/proc/self/setgroups", "setgroups", NULL);
    lines("/proc/self/oom_score_adj", "oom_score_adj", NULL);
    lines("/proc/self/personality", "personality", NULL);
    lines("/proc/self/cgroup", "cgroup", NULL);
    printf("securebits %d\n", prctl(PR_GET_SECUREBITS));
    printf("dumpable %d\n", prctl(PR_GET_DUMPABLE));
    printf("keepcaps %d\n", prctl(PR_GET_KEEPCAPS));
    int signal_ = -1, reaper = -1;
    prctl(PR_GET_PDEATHSIG, &signal_);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    printf("pdeathsig %d\nsubreaper %d\n", signal_, reaper);
    printf("timerslack %d\n", prctl(PR_GET_TIMERSLACK));
    printf("nice %d\nscheduler %d\n", getpriority(PRIO_PROCESS, 0), sched_getscheduler(0));
    descriptors();
    variables();
    mounts();
    return 0;
}

static int namespaces(void) {
    static const char *const all[] = {"user", "ipc", "uts", "net", "mnt", "pid", "cgroup"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/ns/%s", all[i]);
        if (readlink(path, target, sizeof target - 1) < 0) {
            return 1;
        }
        printf("%s %s\n", all[i], target);
    }
    return 0;
}

static struct sockaddr_un abstract(const char *name, socklen_t *length) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strnlen(name, sizeof address.sun_path - 1);
    memcpy(address.sun_path + 1, name, size);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + size);
    return address;
}

static int connected(const char *name) {
    socklen_t length;
    struct sockaddr_un address = abstract(name, &length);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int error = made < 0 || connect(made, (struct sockaddr *)&address, length) < 0 ? errno : 0;
    close(made);
    return error;
}

static int listening(const char *name, const char *until) {
    socklen_t length;
    char up[4096];
    struct sockaddr_un address = abstract(name, &length);
    /* Each type has names of its own. */
    const int types[] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        int made = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
        if (made < 0 || bind(made, (struct sockaddr *)&address, length) < 0 ||
            (types[i] != SOCK_DGRAM && listen(made, 100) < 0)) {
            perror("listen");
            return 1;
        }
    }
    snprintf(up, sizeof up, "%s.up", until);
    close(open(up, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    for (int i = 0; i < 600 && access(until, F_OK) != 0; i++) {
        usleep(50000);
    }
    return 0;
}

static void said(const char *name, long answer) {
    printf("%s %d\n", name, answer < 0 ? errno : 0);
    errno = 0;
}

static void opened(const char *path, int flags) {
    char name[128];
    int number = open(path, flags | O_CLOEXEC, 0600);
    snprintf(name, sizeof name, "open %s %d", path, flags);
    said(name, number);
    close(number);
}

/* Everything here is refused in a jail; what is not, harms nobody but this process. */
static int calls(const char *host_name) {
    char byte = 'x', page[64];
    struct iovec here = {page, sizeof page}, there = {&byte, 1};
    const int spaces[] = {CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUTS};
    static const char *const own[] = {"user", "ipc", "uts", "net", "mnt", "pid"};
    char name[64];
    for (size_t i = 0; i < sizeof spaces / sizeof *spaces; i++) {
        snprintf(name, sizeof name, "unshare %x", spaces[i]);
        said(name, unshare(spaces[i]));
        snprintf(name, sizeof name, "/proc/self/ns/%s", own[i]);
        int space = open(name, O_RDONLY | O_CLOEXEC);
        snprintf(name, sizeof name, "setns %s", own[i]);
        said(name, setns(space, 0));
        close(space);
    }
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        _exit(0);
    }
    said("clone user", child);
    char arguments[88] = {0};
    said("clone3", syscall(SYS_clone3, arguments, sizeof arguments));
    said("mount", mount("tmpfs", "/tmp", "tmpfs", 0, NULL));
    said("mount proc", mount("proc", "/proc", "proc", 0, NULL));
    said("umount", umount2("/proc", MNT_DETACH));
    said("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    said("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    said("pivot_root", syscall(SYS_pivot_root, ".", "."));
    said("chroot", chroot("."));
    said("sethostname", sethostname("x", 1));
    said("ptrace init", ptrace(PTRACE_ATTACH, 1, 0, 0));
    said("seize init", ptrace(PTRACE_SEIZE, 1, 0, 0));
    said("read init", process_vm_readv(1, &here, 1, &there, 1, 0));
    said("pidfd_getfd", syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, 1, 0), 0, 0));
    said("keyctl", syscall(SYS_keyctl, 0, -3, 0, 0, 0));
    said("add_key", syscall(SYS_add_key, "user", "x", "x", 1, -3));
    said("TIOCSTI", ioctl(0, TIOCSTI, &byte));
    said("TIOCLINUX", ioctl(0, 0x541C, &byte));
    said("io_uring", syscall(SYS_io_uring_setup, 1, page));
    said("bpf", syscall(SYS_bpf, 0, page, sizeof page));
    said("userfaultfd", syscall(SYS_userfaultfd, 0));
    said("init_module", syscall(SYS_init_module, page, 1, ""));
    said("kexec", syscall(SYS_kexec_load, 0, 0, 0, 0));
    said("open_by_handle_at", syscall(SYS_open_by_handle_at, AT_FDCWD, page, 0));
    said("personality", syscall(SYS_personality, 0x0040000));
    said("set-user-id", chmod("/proc/self/exe", 04755));
    said("AF_PACKET", socket(AF_PACKET, SOCK_RAW, 0));
    said("AF_VSOCK", socket(40, SOCK_STREAM, 0));
    said("AF_ALG", socket(38, SOCK_SEQPACKET, 0));
    said("SOCK_RAW", socket(AF_INET, SOCK_RAW, 1));
    static const char *const paths[] = {
        "/proc/1/ns/mnt", "/proc/1/ns/user", "/proc/1/fd", "/proc/1/root/", "/proc/1/cwd/", "/proc/1/environ",
        "/proc/1/mem", "/proc/1/maps", "/proc/1/exe", "/proc/1/auxv", "/proc/kcore", "/proc/sysrq-trigger",
        "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches",
        "/proc/sys/kernel/shmmax", "/proc/sys/net/ipv4/ip_forward", "/sys/fs/cgroup/cgroup.procs",
        "/dev/mem", "/dev/kmsg", "/dev/fuse", "/dev/tty", "/dev/ptmx"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        opened(paths[i], O_RDONLY);
        opened(paths[i], O_WRONLY);
    }
    static const char *const places[] = {"/usr/x", "/etc/x", "/x", "/proc/x", "/run/x", "/dev/x", "/sys/x",
                                         "/run/agent-sandbox/x", "/run/agent-sandbox/slurm/x", "/tmp/x", "/home/x"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        opened(places[i], O_WRONLY | O_CREAT);
        unlink(places[i]);
    }
    printf("abstract %s\n", connected(host_name) ? "refused" : "reached");
    return 0;
}

/* Nobody's child for long: a session of its own, no streams, deaf. */
static int leave_daemons(const char *mark, const char *path, char **argv) {
    for (int i = 0; i < 3; i++) {
        pid_t first = fork();
        if (first == 0) {
            setsid();
            if (fork() == 0) {
                for (int number = 1; number < 65; number++) {
                    signal(number, SIG_IGN);
                }
                for (int number = 0; number < 1024; number++) {
                    close(number);
                }
                int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
                if (write(file, "x", 1) == 1) {
                    execl(argv[0], "probe", "stay", mark, NULL);
                }
            }
            _exit(0);
        }
        waitpid(first, NULL, 0);
    }
    struct stat found = {0};
    for (int i = 0; i < 400 && (stat(path, &found) < 0 || found.st_size < 3); i++) {
        usleep(10000);
    }
    return found.st_size < 3;
}

static int sockets(long count) {
    enum { AT_A_TIME = 200 };
    int open_now[AT_A_TIME];
    long failed = 0, made = 0;
    while (made < count) {
        for (int i = 0; i < AT_A_TIME; i++) {
            open_now[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
            failed += open_now[i] < 0;
            made++;
        }
        for (int i = 0; i < AT_A_TIME; i++) {
            close(open_now[i]);
        }
    }
    printf("failed %ld\n", failed);
    return 0;
}

static int garbage(void) {
    const char *number = getenv("PMI_FD");
    int pmi = number ? atoi(number) : -1;
    char noise[4096];
    memset(noise, 0xa5, sizeof noise);
    memcpy(noise, "99999\ncmd=;;=\n", 14);
    signal(SIGPIPE, SIG_IGN);
    int flags = fcntl(pmi, F_GETFL);
    fcntl(pmi, F_SETFL, flags | O_NONBLOCK);
    ssize_t written = write(pmi, noise, sizeof noise);
    printf("wrote %d\n", written > 0);
    close(pmi);
    return 0;
}

static int named(const char *pid, char name[32]) {
    char path[300];
    snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "re");
    int read = file && fscanf(file, "%31s", name) == 1;
    if (file) {
        fclose(file);
    }
    return read;
}

static void pried(const char *pid, const char *name) {
    static const char *const files[] = {"ns/mnt", "ns/user", "ns/pid", "fd", "fd/3", "root/", "cwd/", "environ",
                                        "mem", "maps", "exe", "syscall", "stack", "pagemap"};
    enum { FILES = sizeof files / sizeof *files };
    int errors[FILES];
    for (size_t i = 0; i < FILES; i++) {
        char path[300];
        snprintf(path, sizeof path, "/proc/%s/%s", pid, files[i]);
        int file = open(path, O_RDONLY | O_CLOEXEC);
        errors[i] = file < 0 ? errno : 0;
        close(file);
    }
    char byte = 0, now[32] = "";
    struct iovec here = {&byte, 1}, there = {(void *)(uintptr_t)0x1000, 1};
    pid_t number = atoi(pid);
    int traced = ptrace(PTRACE_SEIZE, number, 0, 0) < 0 ? errno : 0;
    int read = process_vm_readv(number, &here, 1, &there, 1, 0) < 0 ? errno : 0;
    struct rlimit limit;
    int limits = prlimit(number, RLIMIT_CORE, NULL, &limit) < 0 ? errno : 0;
    int taken = syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, number, 0), 3, 0) < 0 ? errno : 0;
    /* Another rank bears the name until it executes its own program, and is a rank like this one after that. */
    if (!named(pid, now) || strcmp(now, name) != 0) {
        return;
    }
    /* One that has ended keeps its name until it is waited for. It has no memory, so that maps opens, and is empty. */
    if (read == ESRCH) {
        return;
    }
    for (size_t i = 0; i < FILES; i++) {
        printf("%s %s %d\n", name, files[i], errors[i]);
    }
    printf("%s ptrace %d\n%s process_vm_readv %d\n%s prlimit %d\n%s pidfd_getfd %d\n", name, traced, name, read, name,
           limits, name, taken);
}

static int pry(void) {
    DIR *all = opendir("/proc");
    struct dirent *one;
    while (all && (one = readdir(all))) {
        char name[32] = "";
        if (isdigit(one->d_name[0]) && named(one->d_name, name) &&
            (!strcmp(name, "init") || !strncmp(name, "agent-sandbox", 13))) {
            pried(one->d_name, name);
        }
    }
    closedir(all);
    return 0;
}

static int forge(const char *path, const char *log) {
    char over[4096], bytes[4096];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    FILE *file = fopen(log, "ae");
    int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    snprintf(over, sizeof over, "%s.over", log);
    if (!file || bind(made, (struct sockaddr *)&address, sizeof address) < 0 || listen(made, 100) < 0) {
        perror("forge");
        return 1;
    }
    fprintf(file, "listens\n");
    fflush(file);
    for (int i = 0; i < 1000 && access(over, F_OK) != 0; i++) {
        int came = accept(made, NULL, NULL);
        if (came >= 0) {
            usleep(200000);
            ssize_t got = recv(came, bytes, sizeof bytes, MSG_DONTWAIT);
            fprintf(file, "came %s\n", got > 0 ? "and spoke" : "and said nothing");
            fflush(file);
        }
        usleep(20000);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "", *first = argc > 2 ? argv[2] : "", *second = argc > 3 ? argv[3] : "";
    if (!strcmp(what, "fields")) {
        return fields();
    } else if (!strcmp(what, "calls")) {
        return calls(first);
    } else if (!strcmp(what, "namespaces")) {
        return namespaces();
    } else if (!strcmp(what, "listen")) {
        return listening(first, second);
    } else if (!strcmp(what, "connect")) {
        printf("connect %d\n", connected(first));
        return 0;
    } else if (!strcmp(what, "daemon")) {
        return leave_daemons(first, second, argv);
    } else if (!strcmp(what, "stay")) {
        return (int)sleep(600);
    } else if (!strcmp(what, "sockets")) {
        return sockets(atol(first));
    } else if (!strcmp(what, "garbage")) {
        return garbage();
    } else if (!strcmp(what, "pry")) {
        return pry();
    } else if (!strcmp(what, "forge")) {
        return forge(first, second);
    } else if (!strcmp(what, "slaughter")) {
        printf("killed %d\n", kill(-1, SIGKILL) == 0 ? 0 : errno);
        return 0;
    }
    return 2;
}
