/* Asks Slurm's PMI-2 server for one more process, as MPI_Comm_spawn would. No MPI library needed.
 *
 *   ask fd PROGRAM ARG…                      by the descriptor that PMI_FD names, as a task
 *   ask port PORT CREDENTIAL PROGRAM ARG…    by srun's own port on 127.0.0.1, with what munge(1) said
 *
 * Prints what is answered: "asked" with the answer, or "no answer". No word may hold ; or =. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* Plugin numbers and messages of Slurm 22.05: auth/munge, TREE_CMD_SPAWN. */
enum { AUTH_MUNGE = 101, SPAWN = 2, ROOM = 1 << 16 };

static char message[ROOM];
static size_t length;

static void add(const void *data, size_t size) {
    if (length + size > sizeof message) {
        exit(2);
    }
    memcpy(message + length, data, size);
    length += size;
}

static void add32(uint32_t number) {
    number = htonl(number);
    add(&number, sizeof number);
}

static void add_text(const char *text) {
    add32((uint32_t)strlen(text) + 1);
    add(text, strlen(text) + 1);
}

/* Reads so many bytes, or up to so many of what comes at once, and prints them. */
static int answered(int fd, size_t wanted, int flags) {
    char answer[1024];
    ssize_t size = recv(fd, answer, wanted < sizeof answer ? wanted : sizeof answer, flags);
    if (size <= 0) {
        printf("no answer: %s\n", size < 0 ? strerror(errno) : "closed");
        return 0;
    }
    printf("asked, %zd bytes: ", size);
    for (ssize_t i = 0; i < size; i++) {
        putchar(answer[i] >= ' ' && answer[i] <= '~' ? answer[i] : '.');
    }
    putchar('\n');
    fflush(stdout);
    return 1;
}

static int by_descriptor(int words, char **word) {
    const char *number = getenv("PMI_FD"), *job = getenv("PMI_JOBID");
    if (!number || !job) {
        puts("no PMI_FD");
        return 1;
    }
    int fd = atoi(number), at;
    char text[ROOM / 2], whole[ROOM];
    struct timeval patience = {5, 0};
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0) {
        printf("no socket in PMI_FD: %s\n", strerror(errno));
        return 1;
    }
    const char *begin = "cmd=init pmi_version=2 pmi_subversion=0\n";
    if (send(fd, begin, strlen(begin), MSG_NOSIGNAL) < 0 || !answered(fd, ROOM, 0)) {
        return 1;
    }
    for (int spawns = 0; spawns < 2; spawns++) {
        if (spawns) {
            at = snprintf(text, sizeof text, "cmd=spawn;ncmds=1;preputcount=0;subcmd=%s;maxprocs=1;argc=%d;", word[0], words - 1);
            for (int i = 1; i < words; i++) {
                at += snprintf(text + at, sizeof text - at, "argv%d=%s;", i - 1, word[i]);
            }
            snprintf(text + at, sizeof text - at, "infokeycount=0;");
        } else {
            snprintf(text, sizeof text, "cmd=fullinit;pmijobid=%s;pmirank=%s;threaded=FALSE;", job, getenv("PMI_RANK"));
        }
        at = snprintf(whole, sizeof whole, "%6zu%s", strlen(text), text);
        if (send(fd, whole, at, MSG_NOSIGNAL) < 0) {
            printf("cannot ask: %s\n", strerror(errno));
            return 1;
        }
        /* Six characters say how long the answer is. */
        char size[7] = "";
        if (recv(fd, size, 6, MSG_WAITALL) != 6 || !answered(fd, strtoul(size, NULL, 10), MSG_WAITALL)) {
            return 1;
        }
    }
    return 0;
}

static int by_port(int port, const char *credential, int words, char **word) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct timeval patience = {5, 0};
    uint16_t command = htons(SPAWN);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (connect(fd, (struct sockaddr *)&there, sizeof there) != 0) {
        printf("cannot connect: %s\n", strerror(errno));
        return 1;
    }
    add(&command, sizeof command);
    add32(AUTH_MUNGE);
    add_text(credential);
    add32(0); /* sequence number */
    add_text("nowhere");
    add32(1); /* commands */
    add32(0); /* values to begin with */
    add_text(word[0]);
    add32(1); /* processes */
    add32((uint32_t)words - 1);
    for (int i = 1; i < words; i++) {
        add_text(word[i]);
    }
    add32(0); /* hints */
    uint32_t size = htonl((uint32_t)length);
    if (send(fd, &size, sizeof size, MSG_NOSIGNAL) < 0 || send(fd, message, length, MSG_NOSIGNAL) < 0) {
        return 1;
    }
    answered(fd, ROOM, 0);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && strcmp(argv[1], "fd") == 0) {
        return by_descriptor(argc - 2, argv + 2);
    }
    if (argc > 4 && strcmp(argv[1], "port") == 0) {
        return by_port(atoi(argv[2]), argv[3], argc - 4, argv + 4);
    }
    return 2;
}
