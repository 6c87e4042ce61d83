/* What the probes of all machines have in common: how one thing that is tried is reported. */
#ifndef REPORT_H
#define REPORT_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reports `NAME ok` or `NAME ERRNO` of a call that returns -1 with errno, or anything else. In a child of its own, which
 * bears the name, so that nothing changes what the next one finds in the process. What takes longer hangs. */
static inline void report(const char *name, long (*call)(void), unsigned seconds)
{
    int ends[2], error = -1, status = 0;
    if (pipe2(ends, O_CLOEXEC))
        exit(9);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_NAME, name);
        alarm(seconds);
        errno = 0;
        error = call() == -1 ? errno : 0;
        _exit(write(ends[1], &error, sizeof error) == sizeof error ? 0 : 9);
    }
    close(ends[1]);
    if (read(ends[0], &error, sizeof error) != sizeof error)
        error = -1;
    close(ends[0]);
    waitpid(child, &status, 0);
    const char *text = error > 0 ? strerrorname_np(error) : NULL;
    if (error == 0)
        printf("%s ok\n", name);
    else if (text)
        printf("%s %s\n", name, text);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        printf("%s hangs\n", name);
    else
        printf("%s ended-by-%d\n", name, WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    fflush(stdout);
}

#endif
