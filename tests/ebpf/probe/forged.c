/* Processes that want a record of what did not happen, or of another address than theirs. */
#include "probe.h"

#include <arpa/inet.h>
#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>

/* Not answered for so long does a connection wait; meanwhile its address is changed. */
#define WAIT_US 300000
#define ROWS(list) (sizeof(list) / sizeof *(list))

/* A filter that answers these calls with 0, and does nothing. */
static int answer(const int *calls, size_t count)
{
    struct sock_filter filter[32] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
    size_t at = 1;
    for (size_t i = 0; i < count; i++) {
        filter[at++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 0);
    }
    filter[at++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { .len = (unsigned short)at, .filter = filter };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static const int answered_calls[] = { SYS_setuid,  SYS_mount,  SYS_ptrace,   SYS_finit_module,
                                      SYS_connect, SYS_execve, SYS_unlinkat, SYS_openat };

static long calls(void)
{
    struct sockaddr_in far = { .sin_family = AF_INET, .sin_port = htons(443), .sin_addr.s_addr = inet_addr("203.0.113.66") };
    char *none[] = { NULL };
    int client = socket(AF_INET, SOCK_STREAM, 0);
    return syscall(SYS_setuid, 0) || syscall(SYS_mount, "/dev/forged", "/srv", "ext4", 0, NULL) ||
           syscall(SYS_ptrace, 16 /* PTRACE_ATTACH */, 1, 0, 0) || syscall(SYS_finit_module, 0, "", 0) ||
           syscall(SYS_connect, client, &far, sizeof far) || syscall(SYS_execve, "/usr/bin/forged", none, none) ||
           syscall(SYS_unlinkat, AT_FDCWD, "/forged-removal", 0) || syscall(SYS_openat, AT_FDCWD, "/etc/forged", O_RDONLY)
               ? fail(ENOTRECOVERABLE)
               : 0;
}

static long answered(void)
{
    return answer(answered_calls, ROWS(answered_calls)) ? fail(ENOSYS) : calls();
}

/* The first call of all that matter, in a process that has just come to be. */
static long answered_first(void)
{
    const int call = SYS_setuid;
    if (answer(&call, 1))
        return fail(ENOSYS);
    pid_t child = fork();
    if (child == 0)
        _exit((int)syscall(SYS_setuid, 0));
    return joined(child);
}

#ifdef __x86_64__
#define RESULT(registers) (registers).rax
#else
#define RESULT(registers) (registers).regs[0]
#endif

/* Calls that are skipped, and answered by who traces the process. */
static long emulated(void)
{
    pid_t child = fork();
    int status;
    if (child == 0) {
        /* In memory that is there: nobody else looks at it. */
        char path[] = "/etc/emulated";
        ptrace(PTRACE_TRACEME, 0, 0, 0);
        raise(SIGSTOP);
        syscall(SYS_setuid, 0);
        syscall(SYS_openat, AT_FDCWD, path, O_RDONLY);
        _exit(0);
    }
    waitpid(child, &status, 0);
    for (int i = 0; i < 2; i++) {
        struct user_regs_struct registers;
        struct iovec part = { &registers, sizeof registers };
        if (ptrace(PTRACE_SYSEMU, child, 0, 0) || waitpid(child, &status, 0) != child || !WIFSTOPPED(status) ||
            ptrace(PTRACE_GETREGSET, child, NT_PRSTATUS, &part))
            return -1;
        RESULT(registers) = 0;
        ptrace(PTRACE_SETREGSET, child, NT_PRSTATUS, &part);
    }
    ptrace(PTRACE_CONT, child, 0, 0);
    return joined(child);
}

static struct sockaddr_in *given;
static int server, unmapped;

static void *change(void *unused)
{
    usleep(WAIT_US);
    if (unmapped) {
        munmap(given, 4096);
    } else {
        given->sin_addr.s_addr = inet_addr("140.82.112.3");
        given->sin_port = htons(443);
    }
    for (int i = 0; i < 100; i++) {
        closed(accept4(server, NULL, NULL, SOCK_NONBLOCK));
        usleep(10000);
    }
    return unused;
}

/* A server that takes its time: its queue is full. */
static long waited(int port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    pthread_t thread;
    int one = 1;
    server = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    given = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (given == MAP_FAILED || bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 0))
        return -1;
    for (int i = 0; i < 3; i++) {
        int client = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        /* Under another name, so that these records are not taken for the one that matters. */
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_NAME, "filling");
            connect(client, (struct sockaddr *)&address, sizeof address);
            _exit(0);
        }
        joined(child);
    }
    *given = address;
    if (pthread_create(&thread, NULL, change, NULL))
        return -1;
    int client = socket(AF_INET, SOCK_STREAM, 0);
    long result = connect(client, (struct sockaddr *)given, sizeof *given);
    int error = errno;
    pthread_join(thread, NULL);
    errno = error;
    return result;
}

static long unmapped_address(void)
{
    unmapped = 1;
    return waited(20031);
}

/* A socket by another name than its own. */
static long from_link(void)
{
    struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = PLACE "/fg-behind" };
    int listening = socket(AF_UNIX, SOCK_STREAM, 0), client = socket(AF_UNIX, SOCK_STREAM, 0);
    unlink(PLACE "/fg-link");
    unlink(name.sun_path);
    if (bind(listening, (struct sockaddr *)&name, sizeof name) || listen(listening, 1) ||
        symlink(name.sun_path, PLACE "/fg-link"))
        return -1;
    strcpy(name.sun_path, PLACE "/fg-link");
    return connect(client, (struct sockaddr *)&name, sizeof name);
}

/* With more before it than there is room for. */
static long long_argument(void)
{
    static char padding[3000];
    memset(padding, 'x', sizeof padding - 1);
    pid_t child = fork();
    if (child == 0) {
        char *arguments[] = { padding, "-c", "--at-the-end", "fg-arguments", NULL }, *none[] = { NULL };
        execve(BUSYBOX, arguments, none);
        _exit(0);
    }
    int status;
    return waitpid(child, &status, 0) == child ? 0 : -1;
}

A(f_changed, waited(20030))

const struct action forged_actions[] = {
    { "fg-answered", answered }, { "fg-first", answered_first }, { "fg-emulated", emulated },
    { "fg-changed", f_changed },   { "fg-unmapped", unmapped_address },
    { "fg-link", from_link },    { "fg-arguments", long_argument }, { NULL, NULL },
};
