/* What one process may do to another of the same user, tried on one outside; and ways into the
 * kernel that the jail closes. */
#include "probe.h"

#include <linux/sched.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <mqueue.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#define X32 0x40000000
#define IOPRIO_WHO_PROCESS 1
#define IOPRIO_WHO_GROUP 2
#define IOPRIO_WHO_USER 3
#define IOPRIO_IDLE (3 << 13)

static long detached(long result)
{
    if (result != -1) {
        waitpid(victim().pid, NULL, __WALL);
        ptrace(PTRACE_DETACH, victim().pid, 0, 0);
    }
    return result;
}

static long p_attach(void)
{
    return detached(ptrace(PTRACE_ATTACH, victim().pid, 0, 0));
}

static long p_seize(void)
{
    /* The attacker's end detaches it. */
    return ptrace(PTRACE_SEIZE, victim().pid, 0, 0);
}

static long p_readv(void)
{
    char there[16] = "";
    struct iovec mine = { there, sizeof there }, its = { (void *)victim().secret, sizeof there };
    if (process_vm_readv(victim().pid, &mine, 1, &its, 1, 0) < 0)
        return -1;
    return memcmp(there, victim_secret, sizeof there) ? fail(ENODATA) : 1;
}

static long p_writev(void)
{
    char there[16] = "written by other";
    struct iovec mine = { there, sizeof there }, its = { (void *)(victim().secret + 64), sizeof there };
    return process_vm_writev(victim().pid, &mine, 1, &its, 1, 0);
}

static long p_getfd(void)
{
    int pidfd = syscall(SYS_pidfd_open, victim().pid, 0);
    return pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, victim().descriptor, 0);
}

static long of_proc(const char *name, int flags)
{
    char path[96], byte;
    snprintf(path, sizeof path, "/proc/%d/%s", victim().pid, name);
    int file = open(path, flags);
    if (file < 0)
        return -1;
    if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY))
        return read(file, &byte, 1) == 1 ? 1 : -1;
    return 1;
}

static long p_mem(void)
{
    char path[64], byte;
    snprintf(path, sizeof path, "/proc/%d/mem", victim().pid);
    int file = open(path, O_RDWR);
    return file < 0 ? -1 : pread(file, &byte, 1, victim().secret) == 1 ? 1 : -1;
}

static long p_environ(void)
{
    return of_proc("environ", O_RDONLY);
}

static long p_fd(void)
{
    char name[32];
    snprintf(name, sizeof name, "fd/%d", victim().descriptor);
    return of_proc(name, O_RDONLY);
}

static long p_maps(void)
{
    return of_proc("maps", O_RDONLY);
}

static long p_root(void)
{
    return of_proc("root" SECRET, O_RDONLY);
}

static long p_cwd(void)
{
    return of_proc("cwd/.ssh/id_rsa", O_RDONLY);
}

static long p_oom(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", victim().pid);
    int file = open(path, O_WRONLY);
    return file < 0 ? -1 : write(file, "900", 3) == 3 ? 1 : -1;
}

static long p_kcmp(void)
{
    return syscall(SYS_kcmp, getpid(), victim().pid, 2, 0, 0);
}

static long p_prlimit_get(void)
{
    struct rlimit limit;
    return prlimit(victim().pid, RLIMIT_NOFILE, NULL, (void *)&limit);
}

static long p_prlimit(void)
{
    struct rlimit limit = { 999, 999 };
    return prlimit(victim().pid, RLIMIT_NPROC, (void *)&limit, NULL);
}

static long p_affinity(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    return sched_setaffinity(victim().pid, sizeof one, &one);
}

static long p_scheduler(void)
{
    struct sched_param none = { 0 };
    return sched_setscheduler(victim().pid, SCHED_BATCH, &none);
}

static long p_setparam(void)
{
    struct sched_param none = { 0 };
    return sched_setparam(victim().pid, &none);
}

static long p_setattr(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } batch = { 48, SCHED_BATCH, 0, 1, 0, 0, 0, 0 };
    return syscall(SYS_sched_setattr, victim().pid, &batch, 0);
}

static long p_setpriority(void)
{
    return setpriority(PRIO_PROCESS, victim().pid, 3);
}

static long p_setpriority_user(void)
{
    return setpriority(PRIO_USER, getuid(), 4);
}

static long p_setpriority_group(void)
{
    return setpriority(PRIO_PGRP, victim().pid, 5);
}

static long p_ioprio_group(void)
{
    return syscall(SYS_ioprio_set, IOPRIO_WHO_GROUP, victim().pid, IOPRIO_IDLE);
}

static long p_ioprio_user(void)
{
    return syscall(SYS_ioprio_set, IOPRIO_WHO_USER, getuid(), IOPRIO_IDLE);
}

static long p_ioprio(void)
{
    return syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, victim().pid, IOPRIO_IDLE);
}

static long p_shm(void)
{
    int id = shmget(IPC_KEY, 0, 0600);
    if (id < 0)
        return -1;
    char *there = shmat(id, NULL, 0);
    return there == (void *)-1 ? -1 : 1;
}

static long p_shm_by_number(void)
{
    /* The number is all that it takes, and it can be guessed: the first is 0. */
    for (int id = 0; id < 4; id++)
        if (shmat(id, NULL, 0) != (void *)-1)
            return 1;
    return -1;
}

static long p_msg(void)
{
    struct {
        long type;
        char text[8];
    } message = { 1, "x" };
    int id = msgget(IPC_KEY, 0600);
    return id < 0 ? -1 : msgsnd(id, &message, 1, IPC_NOWAIT);
}

static long p_sem(void)
{
    int id = semget(IPC_KEY, 1, 0600);
    return id < 0 ? -1 : semctl(id, 0, SETVAL, 1);
}

static long p_mq(void)
{
    mqd_t queue = mq_open("/host", O_WRONLY | O_NONBLOCK);
    return queue < 0 ? -1 : mq_send(queue, "x", 1, 0);
}

static long k_io_uring(void)
{
    char parameters[256] = "";
    return syscall(425, 1, parameters);
}

static long k_i386(void)
{
    /* getpid of i386; nothing in it is an address. */
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
    if (result < 0)
        return fail(-result);
    return result;
}

static long k_x32(void)
{
    return syscall(X32 | SYS_getpid);
}

static long k_userns(void)
{
    return unshare(CLONE_NEWUSER);
}

static long p_pidfd(void)
{
    return syscall(SYS_pidfd_open, victim().pid, 0);
}

const struct attack process_attacks[] = {
    { "ptrace-attach", p_attach },
    { "ptrace-seize", p_seize },
    { "process-vm-readv", p_readv },
    { "process-vm-writev", p_writev },
    { "pidfd-getfd", p_getfd },
    { "proc-mem", p_mem },
    { "proc-environ", p_environ },
    { "proc-fd", p_fd },
    { "proc-maps", p_maps },
    { "proc-root", p_root },
    { "proc-cwd", p_cwd },
    { "proc-oom-score", p_oom },
    { "kcmp", p_kcmp },
    { "prlimit-get", p_prlimit_get },
    { "prlimit", p_prlimit },
    { "sched-setaffinity", p_affinity },
    { "sched-setscheduler", p_scheduler },
    { "sched-setparam", p_setparam },
    { "sched-setattr", p_setattr },
    { "setpriority", p_setpriority },
    { "setpriority-user", p_setpriority_user },
    { "setpriority-group", p_setpriority_group },
    { "ioprio-set", p_ioprio },
    { "ioprio-set-group", p_ioprio_group },
    { "ioprio-set-user", p_ioprio_user },
    { "sysv-memory", p_shm },
    { "sysv-memory-number", p_shm_by_number },
    { "sysv-messages", p_msg },
    { "sysv-semaphore", p_sem },
    { "posix-messages", p_mq },
    { "io-uring", k_io_uring },
    { "i386", k_i386 },
    { "x32", k_x32 },
    { "user-namespace", k_userns },
    { "pidfd-open", p_pidfd },
    { NULL, NULL },
};
