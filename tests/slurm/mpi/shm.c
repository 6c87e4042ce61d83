/* Memory shared between the ranks of a node: POSIX (shm_open(3)), System V (shmget(2)), MPI's own
 * windows, and how large /dev/shm is.
 *
 * Rank 0 of the node makes each, the others add their number to a counter in it. Prints
 * "posix RESULT", "sysv RESULT", "window RESULT" with ok, wrong or the number of the error, and
 * "devshm BYTES". */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/statvfs.h>
#include <unistd.h>

static MPI_Comm node;
static int rank, size;

/* All add to `counter`, or say why they have none; rank 0 prints what came of it. */
static int check(const char *kind, atomic_long *counter, int error) {
    long expected = (long)size * (size + 1) / 2;
    int worst = 0;
    if (counter) {
        atomic_fetch_add(counter, rank + 1);
    }
    MPI_Reduce(&error, &worst, 1, MPI_INT, MPI_MAX, 0, node);
    if (rank != 0) {
        return 0;
    }
    if (worst) {
        printf("%s errno %d\n", kind, worst);
        return 1;
    }
    int right = counter && atomic_load(counter) == expected;
    printf("%s %s\n", kind, right ? "ok" : "wrong");
    return !right;
}

static int posix(void) {
    char name[64];
    atomic_long *counter = NULL;
    int error = 0, file = -1;
    snprintf(name, sizeof name, "/mpi-shm-test-%ld", (long)getpid());
    MPI_Bcast(name, sizeof name, MPI_BYTE, 0, node);
    if (rank == 0) {
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (file < 0 || ftruncate(file, 4096) != 0) {
            error = errno;
        }
    }
    MPI_Barrier(node);
    if (rank != 0) {
        file = shm_open(name, O_RDWR, 0);
        error = file < 0 ? errno : 0;
    }
    if (!error) {
        counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (counter == MAP_FAILED) {
            counter = NULL;
            error = errno;
        }
    }
    MPI_Barrier(node);
    if (rank == 0) {
        shm_unlink(name);
    }
    return check("posix", counter, error);
}

static int sysv(void) {
    atomic_long *counter = NULL;
    int error = 0, id = -1;
    if (rank == 0) {
        id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0600);
        error = id < 0 ? errno : 0;
    }
    MPI_Bcast(&id, 1, MPI_INT, 0, node);
    if (id >= 0) {
        void *at = shmat(id, NULL, 0);
        error = at == (void *)-1 ? errno : 0;
        counter = error ? NULL : at;
    }
    MPI_Barrier(node);
    if (rank == 0 && id >= 0) {
        shmctl(id, IPC_RMID, NULL);
    }
    return check("sysv", counter, error);
}

static int window(void) {
    MPI_Win shared;
    MPI_Aint length = 0;
    void *at = NULL;
    int unit = 1;
    MPI_Win_allocate_shared(rank == 0 ? 4096 : 0, 1, MPI_INFO_NULL, node, &at, &shared);
    MPI_Win_shared_query(shared, 0, &length, &unit, &at);
    if (rank == 0) {
        memset(at, 0, 4096);
    }
    MPI_Barrier(node);
    int bad = check("window", at, 0);
    MPI_Barrier(node);
    MPI_Win_free(&shared);
    return bad;
}

int main(int argc, char **argv) {
    struct statvfs devshm;
    MPI_Init(&argc, &argv);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    int bad = posix();
    bad |= sysv();
    bad |= window();
    if (rank == 0) {
        if (statvfs("/dev/shm", &devshm) != 0) {
            memset(&devshm, 0, sizeof devshm);
        }
        printf("devshm %llu\n", (unsigned long long)devshm.f_blocks * devshm.f_frsize);
    }
    MPI_Finalize();
    return bad;
}
