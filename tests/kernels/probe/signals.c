/* Every way to a signal for a process outside. Each uses a signal of its own, by which the victim's
 * log shows what arrived, whatever the call returned. */
#include "probe.h"

#include <sys/ioctl.h>
#include <sys/mman.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#define SYS_pidfd_send_signal 424
#endif
/* Nobody else's, on Linux: `struct f_owner_ex`. */
#define SHORT_PAUSE_US 200000

static siginfo_t queued(int number)
{
    siginfo_t info;
    memset(&info, 0, sizeof info);
    info.si_signo = number;
    info.si_code = SI_QUEUE;
    info.si_pid = getpid();
    info.si_uid = getuid();
    return info;
}

static long s_kill(void)
{
    return kill(victim().pid, SIGNAL_OF(0));
}

static long s_kill_32(void)
{
    /* The kernel takes an `int`: a filter that compares all 64 bits sees another process. */
    return syscall(SYS_kill, (unsigned long)victim().pid | 1UL << 32, (unsigned long)SIGNAL_OF(0) | 1UL << 32);
}

static long s_killpg(void)
{
    return kill(-victim().pid, SIGNAL_OF(1));
}

static long s_tkill(void)
{
    return syscall(SYS_tkill, victim().pid, SIGNAL_OF(2));
}

static long s_tgkill(void)
{
    return syscall(SYS_tgkill, victim().pid, victim().pid, SIGNAL_OF(3));
}

static long s_sigqueue(void)
{
    siginfo_t info = queued(SIGNAL_OF(4));
    return syscall(SYS_rt_sigqueueinfo, victim().pid, SIGNAL_OF(4), &info);
}

static long s_tgsigqueue(void)
{
    siginfo_t info = queued(SIGNAL_OF(5));
    return syscall(SYS_rt_tgsigqueueinfo, victim().pid, victim().pid, SIGNAL_OF(5), &info);
}

static long s_pidfd(void)
{
    int fd = syscall(SYS_pidfd_open, victim().pid, 0);
    return fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGNAL_OF(6), NULL, 0);
}

static long s_procfd(void)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", victim().pid);
    int fd = open(path, O_RDONLY | O_DIRECTORY);
    return fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGNAL_OF(7), NULL, 0);
}

/* Whether something becomes readable is what the owner is told of, by the kernel. */
static long ready(int ends[2], int number)
{
    if (fcntl(ends[0], F_SETSIG, number) || fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK))
        return -1;
    if (write(ends[1], "x", 1) != 1)
        return -1;
    usleep(SHORT_PAUSE_US);
    return 0;
}

static long s_setown(void)
{
    int ends[2];
    if (pipe(ends) || fcntl(ends[0], F_SETOWN, victim().pid))
        return -1;
    return ready(ends, SIGNAL_OF(8));
}

static long s_setown_group(void)
{
    int ends[2];
    if (pipe(ends) || fcntl(ends[0], F_SETOWN, -victim().pid))
        return -1;
    return ready(ends, SIGNAL_OF(9));
}

static long s_setown_ex(void)
{
    struct f_owner_ex owner = { F_OWNER_TID, victim().pid };
    int ends[2];
    if (pipe(ends) || fcntl(ends[0], F_SETOWN_EX, &owner))
        return -1;
    return ready(ends, SIGNAL_OF(10));
}

static long by_ioctl(unsigned long request, int number)
{
    int ends[2], pid = victim().pid;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || ioctl(ends[0], request, &pid))
        return -1;
    return ready(ends, number);
}

static long s_fiosetown(void)
{
    return by_ioctl(FIOSETOWN, SIGNAL_OF(11));
}

static long s_siocspgrp(void)
{
    return by_ioctl(SIOCSPGRP, SIGNAL_OF(12));
}

static long s_exists(void)
{
    return kill(victim().pid, 0);
}

/* The processes above this one hold the jail together. */
static long s_ancestors(void)
{
    int pid = getppid(); /* the probe's own process */
    long reached = -1;
    for (int level = 0; level < 16 && pid > 1; level++) {
        char path[64], line[512], *after;
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "r");
        if (!file)
            break;
        if (!fgets(line, sizeof line, file) || !(after = strrchr(line, ')'))) {
            fclose(file);
            break;
        }
        fclose(file);
        if (level > 0 && !kill(pid, 0))
            reached = pid;
        if (sscanf(after + 1, " %*c %d", &pid) != 1)
            break;
    }
    if (reached < 0)
        errno = EPERM;
    return reached;
}

const struct attack signal_attacks[] = {
    { "signal-exists", s_exists },
    { "signal-kill", s_kill },
    { "signal-kill-high-bits", s_kill_32 },
    { "signal-killpg", s_killpg },
    { "signal-tkill", s_tkill },
    { "signal-tgkill", s_tgkill },
    { "signal-sigqueue", s_sigqueue },
    { "signal-tgsigqueue", s_tgsigqueue },
    { "signal-pidfd", s_pidfd },
    { "signal-proc-fd", s_procfd },
    { "signal-setown", s_setown },
    { "signal-setown-group", s_setown_group },
    { "signal-setown-ex", s_setown_ex },
    { "signal-fiosetown", s_fiosetown },
    { "signal-siocspgrp", s_siocspgrp },
    { "signal-ancestors", s_ancestors },
    { NULL, NULL },
};

/* Signals to everything that may be reached, and to the own process group, which may be the
 * launcher's too. In a stage of its own: without a jail they end what starts the stages. */
int group_main(void)
{
    const int all = SIGNAL_OF(13), group = SIGNAL_OF(14);
    signal(all, SIG_IGN);
    signal(group, SIG_IGN);
    printf("all %s\n", kill(-1, all) ? strerrorname_np(errno) : "ok");
    printf("group %s\n", kill(0, group) ? strerrorname_np(errno) : "ok");
    puts("the end");
    return 0;
}
