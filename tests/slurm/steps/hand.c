/* Hands descriptors from one room of a job to another, over a socket that has a path, and tries what
 * they are good for there.
 *
 *   hand give PATH DIR COUNT  listens at PATH; whoever comes, COUNT of them, gets a socket of each
 *                             type, and DIR twice: to read, and as a place alone (O_PATH)
 *   hand take PATH NAME       gets them; says of each socket what connecting it to the abstract
 *                             socket NAME answers, and of the directories what making a file in
 *                             them does: "WHAT ERRNO", a line each */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { SOCKETS = 3, HANDED = SOCKETS + 2 };

static const int types[SOCKETS] = {SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM};
static const char *const kinds[HANDED] = {"stream", "seqpacket", "dgram", "directory", "place"};

static struct sockaddr_un at(const char *name, int is_abstract, socklen_t *length) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t used = strlen(name);
    if (used + 1 >= sizeof address.sun_path) {
        exit(3);
    }
    memcpy(address.sun_path + is_abstract, name, used);
    *length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + used + 1);
    return address;
}

/* The room for one message with all of them. */
union room {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(HANDED * sizeof(int))];
};

static int give(const char *path, const char *directory, int count) {
    socklen_t length;
    struct sockaddr_un address = at(path, 0, &length);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) < 0 || listen(listener, 8) < 0) {
        perror("listen");
        return 1;
    }
    alarm(50);
    while (count-- > 0) {
        int guest = accept(listener, NULL, NULL), all[HANDED];
        for (int i = 0; i < SOCKETS; i++) {
            all[i] = socket(AF_UNIX, types[i] | SOCK_CLOEXEC, 0);
        }
        all[SOCKETS] = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        all[SOCKETS + 1] = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        char byte = 'x';
        struct iovec part = {&byte, 1};
        union room room = {0};
        struct msghdr message = {
            .msg_iov = &part, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
        room.head.cmsg_level = SOL_SOCKET;
        room.head.cmsg_type = SCM_RIGHTS;
        room.head.cmsg_len = CMSG_LEN(sizeof all);
        memcpy(CMSG_DATA(&room.head), all, sizeof all);
        if (sendmsg(guest, &message, 0) != 1) {
            perror("give");
            return 1;
        }
        for (int i = 0; i < HANDED; i++) {
            close(all[i]);
        }
        close(guest);
    }
    return 0;
}

static int take(const char *path, const char *name) {
    socklen_t length;
    struct sockaddr_un address = at(path, 0, &length);
    int giver = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), all[HANDED];
    for (int i = 0; i < 600 && connect(giver, (struct sockaddr *)&address, length) < 0; i++) {
        usleep(50000);
    }
    char byte;
    struct iovec part = {&byte, 1};
    union room room = {0};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    if (recvmsg(giver, &message, MSG_CMSG_CLOEXEC) != 1 || room.head.cmsg_len != CMSG_LEN(sizeof all)) {
        perror("take");
        return 1;
    }
    memcpy(all, CMSG_DATA(&room.head), sizeof all);
    address = at(name, 1, &length);
    for (int i = 0; i < SOCKETS; i++) {
        printf("%s %d\n", kinds[i], connect(all[i], (struct sockaddr *)&address, length) < 0 ? errno : 0);
    }
    for (int i = SOCKETS; i < HANDED; i++) {
        int file = openat(all[i], kinds[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        printf("%s %d\n", kinds[i], file < 0 ? errno : 0);
        close(file);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 5 && !strcmp(argv[1], "give")) {
        return give(argv[2], argv[3], atoi(argv[4]));
    }
    return argc == 4 && !strcmp(argv[1], "take") ? take(argv[2], argv[3]) : 2;
}
