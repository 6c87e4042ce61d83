/* io_uring(7) by its bare system calls: one ring, one entry, one result. */
#include "probe.h"

#include <linux/io_uring.h>

struct ring {
    int descriptor;
    struct io_uring_params how;
    char *submissions, *completions;
    struct io_uring_sqe *entries;
};

static void *mapped(int ring, size_t bytes, off_t at)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, at);
}

static long ring_made(struct ring *ring, int how)
{
    memset(ring, 0, sizeof *ring);
    if (how & RING_SQPOLL) {
        ring->how.flags = IORING_SETUP_SQPOLL;
        ring->how.sq_thread_idle = 1000; /* ms */
    }
    ring->descriptor = (int)syscall(SYS_io_uring_setup, 4, &ring->how);
    if (ring->descriptor < 0)
        return -1;
    struct io_uring_params *p = &ring->how;
    ring->submissions = mapped(ring->descriptor, p->sq_off.array + p->sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
    ring->completions =
        mapped(ring->descriptor, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
    ring->entries = mapped(ring->descriptor, p->sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
    if (ring->submissions == MAP_FAILED || ring->completions == MAP_FAILED || ring->entries == MAP_FAILED)
        return -1;
    return 0;
}

long ring_call(int how, const struct io_uring_sqe *entry)
{
    struct ring ring;
    if (ring_made(&ring, how))
        return -1;
    struct io_uring_params *p = &ring.how;
    unsigned *tail = (unsigned *)(ring.submissions + p->sq_off.tail);
    unsigned *array = (unsigned *)(ring.submissions + p->sq_off.array);
    unsigned *cq_head = (unsigned *)(ring.completions + p->cq_off.head);
    unsigned *cq_tail = (unsigned *)(ring.completions + p->cq_off.tail);
    ring.entries[0] = *entry;
    if (how & RING_ASYNC)
        ring.entries[0].flags |= IOSQE_ASYNC;
    array[0] = 0;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    /* A thread of the kernel's takes it by itself where it polls; else this call has it taken. */
    if (syscall(SYS_io_uring_enter, ring.descriptor, how & RING_SQPOLL ? 0 : 1, how & RING_SQPOLL ? 0 : 1,
                how & RING_SQPOLL ? IORING_ENTER_SQ_WAKEUP : IORING_ENTER_GETEVENTS, NULL, 0) < 0)
        return -1;
    while (__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == *cq_head)
        usleep(1000);
    struct io_uring_cqe *cqes = (struct io_uring_cqe *)(ring.completions + p->cq_off.cqes);
    int result = cqes[*cq_head & (p->cq_entries - 1)].res;
    close(ring.descriptor);
    return result < 0 ? fail(-result) : result;
}

long ring_open(int how, const char *path, int flags)
{
    struct io_uring_sqe entry = { .opcode = IORING_OP_OPENAT,
                                  .fd = AT_FDCWD,
                                  .addr = (uintptr_t)path,
                                  .len = 0600,
                                  .open_flags = (unsigned)flags };
    return ring_call(how, &entry);
}

static long ring_connect(const struct sockaddr *address, socklen_t length)
{
    struct io_uring_sqe entry = { .opcode = IORING_OP_CONNECT,
                                  .fd = socket(address->sa_family, SOCK_STREAM, 0),
                                  .addr = (uintptr_t)address,
                                  .off = length };
    return ring_call(0, &entry);
}

static long keeper_by_ring(void)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = KEEPER_SOCKET };
    return ring_connect((struct sockaddr *)&address, sizeof address);
}

A(r_open, closed(ring_open(0, PLACE "/ring-open", O_RDONLY)))
A(r_async, closed(ring_open(RING_ASYNC, PLACE "/ring-async", O_RDONLY)))
A(r_polled, closed(ring_open(RING_SQPOLL, PLACE "/ring-polled", O_RDONLY)))
A(r_polled_async, closed(ring_open(RING_SQPOLL | RING_ASYNC, PLACE "/ring-both", O_RDONLY)))
A(r_missing, closed(ring_open(0, PLACE "/ring-denied", O_RDONLY)))
A(r_connect, keeper_by_ring())

const struct action ring_actions[] = {
    { "ring-open", r_open },       { "ring-async", r_async },    { "ring-polled", r_polled },
    { "ring-both", r_polled_async }, { "ring-denied", r_missing }, { "ring-connect", r_connect },
    { NULL, NULL },
};
