/* Ways to become a process of which a tracer that follows `fork` by parents loses sight. Each opens a file
 * of its name at the end. */
#include "probe.h"

#include <linux/sched.h>
#include <pthread.h>

#define STACK_BYTES 65536
/* Orphans need a moment to open their file; whoever waits for it gives up after this. */
#define WAITS 500
#define WAIT_US 10000

/* A second name of the file says that it was opened. */
static void opened(const char *path)
{
    char done[256];
    closed(open(path, O_RDONLY));
    snprintf(done, sizeof done, "%s.done", path);
    closed(open(done, O_WRONLY | O_CREAT, 0600));
}

static long awaited(const char *path)
{
    char done[256];
    snprintf(done, sizeof done, "%s.done", path);
    for (int i = 0; i < WAITS; i++) {
        if (!access(done, F_OK))
            return 0;
        usleep(WAIT_US);
    }
    return fail(ETIMEDOUT);
}

static long forked_twice(void)
{
    if (fork() == 0) {
        if (fork() == 0) {
            while (getppid() != 1)
                usleep(WAIT_US);
            opened(PLACE "/double-fork");
        }
        _exit(0);
    }
    return awaited(PLACE "/double-fork");
}

static long in_session(void)
{
    if (fork() == 0) {
        setsid();
        opened(PLACE "/setsid");
        _exit(0);
    }
    return awaited(PLACE "/setsid");
}

static long as_daemon(void)
{
    if (fork() == 0) {
        if (!daemon(0, 0))
            opened(PLACE "/daemon");
        _exit(0);
    }
    return awaited(PLACE "/daemon");
}

static void *thread(void *path)
{
    opened(path);
    return NULL;
}

static long by_thread(void)
{
    pthread_t other;
    if (pthread_create(&other, NULL, thread, PLACE "/thread"))
        return fail(EAGAIN);
    pthread_join(other, NULL);
    return awaited(PLACE "/thread");
}

static void *executing(void *path)
{
    char *const words[] = { "probe", "open", path, NULL };
    execv("/usr/bin/probe", words);
    _exit(9);
}

static long by_executing_thread(void)
{
    pid_t child = fork();
    if (child == 0) {
        pthread_t other;
        pthread_create(&other, NULL, executing, PLACE "/thread-exec");
        pause();
    }
    return joined(child);
}

static long by_vfork(void)
{
    pid_t child = vfork();
    if (child == 0) {
        closed(open(PLACE "/vfork", O_RDONLY));
        _exit(0);
    }
    return joined(child);
}

static int sibling(void *path)
{
    opened(path);
    return 0;
}

static long by_sibling(void)
{
    static char stack[STACK_BYTES];
    if (clone(sibling, stack + sizeof stack, CLONE_PARENT | SIGCHLD, PLACE "/sibling") < 0)
        return -1;
    return awaited(PLACE "/sibling");
}

static long by_clone3(void)
{
    struct clone_args how = { .exit_signal = SIGCHLD };
    long child = syscall(SYS_clone3, &how, sizeof how);
    if (child == 0) {
        opened(PLACE "/clone3");
        _exit(0);
    }
    return child < 0 ? -1 : joined((pid_t)child);
}

static long in_pid_namespace(void)
{
    if (unshare(CLONE_NEWUSER | CLONE_NEWPID))
        return -1;
    pid_t child = fork();
    if (child == 0) {
        opened(PLACE "/pid-namespace");
        _exit(0);
    }
    return joined(child);
}

const struct action scope_actions[] = {
    { "double-fork", forked_twice }, { "setsid", in_session },   { "daemon", as_daemon },
    { "thread", by_thread },         { "thread-exec", by_executing_thread }, { "vfork", by_vfork },
    { "sibling", by_sibling },       { "clone3", by_clone3 },    { "pid-namespace", in_pid_namespace },
    { NULL, NULL },
};

/* Waits for a file, then opens another one: what `init` moves into a cgroup and out of it. */
int wait_main(const char *go, const char *path)
{
    for (int i = 0; i < 4 * WAITS && access(go, F_OK); i++)
        usleep(WAIT_US);
    opened(path);
    return 0;
}
