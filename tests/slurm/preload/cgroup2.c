/* For slurmd and slurmstepd of the test cluster, by LD_PRELOAD: /proc/PID/cgroup as a host has it
 * that knows cgroup v2 alone.
 *
 * Slurm's cgroup/v2 plugin stops at the first line of that file which is not the unified hierarchy's
 * ("0::PATH"). Such lines are there on every host that mounts a v1 hierarchy too, in use or not.
 *
 * Only the opening calls are wrapped, as plain system calls: Slurm reads this file by open(2). */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int is_cgroup_file(const char *path) {
    static const char start[] = "/proc/", end[] = "/cgroup";
    size_t length = path ? strlen(path) : 0;
    return length > strlen(start) + strlen(end) && strncmp(path, start, strlen(start)) == 0 &&
           strcmp(path + length - strlen(end), end) == 0;
}

/* Takes a descriptor of the real file, returns one of a copy that holds the unified line alone. */
static int unified_only(int real) {
    /* A dozen hierarchies, each with a path: far below this. */
    char text[16384];
    size_t length = 0;
    ssize_t got;
    while (length + 1 < sizeof text && (got = read(real, text + length, sizeof text - 1 - length)) > 0)
        length += (size_t)got;
    text[length] = '\0';
    close(real);

    int copy = memfd_create("cgroup", MFD_CLOEXEC);
    if (copy < 0)
        return copy;
    for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
        if (strncmp(line, "0::", 3) != 0)
            continue;
        size_t bytes = strlen(line);
        line[bytes] = '\n';
        if (write(copy, line, bytes + 1) < 0)
            break;
        if (rest == NULL)
            break;
    }
    lseek(copy, 0, SEEK_SET);
    return copy;
}

static int open_checked(const char *path, int flags, mode_t mode) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    return fd >= 0 && is_cgroup_file(path) ? unified_only(fd) : fd;
}

static mode_t mode_of(int flags, va_list rest) {
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return open_checked(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = mode_of(flags, rest);
    va_end(rest);
    return open_checked(path, flags | O_LARGEFILE, mode);
}
