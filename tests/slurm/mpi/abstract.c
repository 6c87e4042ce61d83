/* Abstract Unix sockets (unix(7)), by which NCCL and others find each other on a node. No MPI.
 *
 *   abstract serve NAME        listens, says "serving", and answers whoever connects, for a minute
 *   abstract call NAME         connects: "reached", or "not reached: ERRNO"
 *   abstract pair NAME         task 0 listens, the others connect and send their number; task 0 prints
 *                              the sum: "pair SUM of TASKS" */
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t length;

static void name(const char *text) {
    if (strlen(text) + 1 > sizeof address.sun_path) {
        exit(2);
    }
    memcpy(address.sun_path + 1, text, strlen(text));
    length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(text));
}

static int fail(const char *what) {
    printf("%s: %s\n", what, strerror(errno));
    return 1;
}

static int reach(int kind) {
    int fd = socket(AF_UNIX, kind, 0);
    if (fd < 0) {
        return fail("socket");
    }
    int done = connect(fd, (struct sockaddr *)&address, length);
    if (done == 0) {
        puts("reached");
    } else {
        printf("not reached: %s\n", strerror(errno));
    }
    return done != 0;
}

static int task(const char *variable) {
    const char *text = getenv(variable);
    return text ? atoi(text) : 0;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        return 2;
    }
    name(argv[2]);
    alarm(60);
    if (strcmp(argv[1], "call") == 0) {
        return reach(SOCK_STREAM);
    }
    int serve = strcmp(argv[1], "serve") == 0;
    int number = serve ? 0 : task("SLURM_PROCID"), tasks = task("SLURM_NTASKS");
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0) {
        return fail("socket");
    }
    if (number > 0) {
        for (int i = 0; i < 500; i++) {
            if (connect(fd, (struct sockaddr *)&address, length) == 0) {
                return write(fd, &number, sizeof number) != sizeof number;
            }
            usleep(20 * 1000);
        }
        return fail("connect");
    }
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 128) != 0) {
        return fail("bind");
    }
    if (serve) {
        puts("serving");
        fflush(stdout);
        for (;;) {
            close(accept(fd, NULL, NULL));
        }
    }
    int sum = 0;
    for (int i = 1; i < tasks; i++) {
        int other = accept(fd, NULL, NULL);
        if (other < 0 || read(other, &number, sizeof number) != sizeof number) {
            return fail("accept");
        }
        sum += number;
    }
    printf("pair %d of %d\n", sum, tasks);
    return 0;
}
