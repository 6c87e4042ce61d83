/* For slurmctld, slurmdbd and the fixture's own sacctmgr, by LD_PRELOAD: what Slurm does at a walking
 * pace for the sake of large clusters is done at once, and on the loopback interface alone.
 *
 *  - slurmctld starts batch jobs in a loop that sleeps ten times 100 ms a round. These sleeps become
 *    short ones, so that a job starts tens of milliseconds after its submission and not after a second.
 *  - The slurmctld thread "dbinx" sends new jobs to slurmdbd every 5 s. Until then sacct does not list
 *    a job. It looks more often here.
 *  - slurmdbd 22.05 listens on every address, whatever its configuration says.
 *  - Messages are written in two parts. Without TCP_NODELAY the second waits 40 ms for the kernel's
 *    delayed acknowledgement of the first. Accepted sockets have the option from the listening one. */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    MICROSECOND = 1000,   /* in nanoseconds */
    SECOND = 1000000000,  /* in nanoseconds */
    SLOW_STEP = 100000,   /* microseconds: the sleep in slurmctld's loop */
    QUICK_STEP = 4000,    /* microseconds: what becomes of it; a round is then 40 ms */
    SEND_JOBS = 100000000 /* nanoseconds between two looks of "dbinx" */
};

int usleep(useconds_t us) {
    if (us == SLOW_STEP)
        us = QUICK_STEP;
    struct timespec pause = {us / 1000000, (long)(us % 1000000) * MICROSECOND};
    return nanosleep(&pause, NULL);
}

typedef int timedwait_fn(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);

int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static timedwait_fn *next;
    if (!next) {
        /* x86-64 has an older one too, for another layout of pthread_cond_t: ask for this one. */
        next = (timedwait_fn *)dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
        if (!next)
            next = (timedwait_fn *)dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    }
    char thread[16] = "";
    prctl(PR_GET_NAME, thread);
    if (strcmp(thread, "dbinx") != 0)
        return next(cond, mutex, until);
    struct timespec soon;
    clock_gettime(CLOCK_REALTIME, &soon);
    soon.tv_nsec += SEND_JOBS;
    if (soon.tv_nsec >= SECOND) {
        soon.tv_nsec -= SECOND;
        soon.tv_sec += 1;
    }
    return next(cond, mutex, &soon);
}

int socket(int domain, int type, int protocol) {
    int fd = (int)syscall(SYS_socket, domain, type, protocol);
    if (fd >= 0 && (domain == AF_INET || domain == AF_INET6)) {
        int on = 1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    }
    return fd;
}

int bind(int fd, __CONST_SOCKADDR_ARG address, socklen_t length) {
    const struct sockaddr *given = address.__sockaddr__;
    struct sockaddr_in local;
    if (given && given->sa_family == AF_INET && length >= sizeof local) {
        memcpy(&local, given, sizeof local);
        if (local.sin_addr.s_addr == htonl(INADDR_ANY)) {
            local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            return (int)syscall(SYS_bind, fd, &local, (socklen_t)sizeof local);
        }
    }
    return (int)syscall(SYS_bind, fd, given, length);
}
