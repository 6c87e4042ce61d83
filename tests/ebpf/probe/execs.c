/* Programs that are started, in every way. What is started gets the action's name as its argument. */
#include "probe.h"

#include <pthread.h>

static char *const environment[] = { NULL };

/* Starts it in a child, which answers by its exit code: `busybox true` has 0. */
static long started(long (*start)(char *const *words), const char *name)
{
    char *const words[] = { "true", (char *)name, NULL };
    pid_t child = fork();
    if (child == 0)
        _exit(start(words) == -1 ? errno : 0);
    return joined(child);
}

static long plain(char *const *words)
{
    return execve(BUSYBOX, words, environment);
}

static long by_descriptor(char *const *words)
{
    return syscall(SYS_execveat, open(BUSYBOX, O_PATH | O_CLOEXEC), "", words, environment, AT_EMPTY_PATH);
}

static long by_link(char *const *words)
{
    return execve(PLACE "/to-busybox", words, environment);
}

static long in_memory(char *const *words)
{
    char buffer[65536];
    ssize_t length;
    int from = open(BUSYBOX, O_RDONLY), memory = memfd_create("in-memory", MFD_CLOEXEC);
    while ((length = read(from, buffer, sizeof buffer)) > 0)
        if (write(memory, buffer, (size_t)length) != length)
            return -1;
    return syscall(SYS_execveat, memory, "", words, environment, AT_EMPTY_PATH);
}

static long script(char *const *words)
{
    return execve(PLACE "/script", words, environment);
}

static long without_permission(char *const *words)
{
    return execve(PLACE "/no-program", words, environment);
}

static long absent(char *const *words)
{
    return execve(PLACE "/missing-program", words, environment);
}

static long no_program(char *const *words)
{
    return execve(PLACE "/not-executable", words, environment);
}

static void *from_thread(void *words)
{
    prctl(PR_SET_NAME, "exec-thread");
    execve(BUSYBOX, words, environment);
    _exit(errno);
}

static long thread(char *const *words)
{
    pthread_t other;
    if (pthread_create(&other, NULL, from_thread, (void *)words))
        return fail(EAGAIN);
    pthread_join(other, NULL);
    return fail(ECANCELED);
}

static long vforked(char *const *words)
{
    pid_t child = vfork();
    if (child == 0) {
        execve(BUSYBOX, words, environment);
        _exit(9);
    }
    return joined(child);
}

static long long_arguments(char *const *words)
{
    static char text[100000];
    char *const more[] = { "true", words[1], text, "last", NULL };
    memset(text, 'x', sizeof text - 1);
    return execve(BUSYBOX, more, environment);
}

static long secret_argument(char *const *words)
{
    char *const more[] = { "true", words[1], "--token=hunter2hunter2", NULL };
    return execve(BUSYBOX, more, environment);
}

A(e_plain, started(plain, "exec"))
A(e_descriptor, started(by_descriptor, "exec-fd"))
A(e_link, started(by_link, "exec-link"))
A(e_memory, started(in_memory, "exec-memfd"))
A(e_script, started(script, "exec-script"))
A(e_denied, started(without_permission, "exec-denied"))
A(e_missing, started(absent, "exec-missing"))
A(e_format, started(no_program, "exec-format"))
A(e_thread, started(thread, "exec-thread"))
A(e_vfork, started(vforked, "exec-vfork"))
A(e_long, started(long_arguments, "exec-long"))
A(e_secret, started(secret_argument, "exec-secret"))

const struct action exec_actions[] = {
    { "exec", e_plain },         { "exec-fd", e_descriptor },      { "exec-link", e_link },
    { "exec-memfd", e_memory },  { "exec-script", e_script },      { "exec-denied", e_denied },
    { "exec-missing", e_missing }, { "exec-format", e_format },    { "exec-thread", e_thread },
    { "exec-vfork", e_vfork },   { "exec-long", e_long },          { "exec-secret", e_secret },
    { NULL, NULL },
};
