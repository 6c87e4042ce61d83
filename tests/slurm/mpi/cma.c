/* Whether ranks of one node may read and write each other's memory (cross-memory attach,
 * process_vm_readv(2), process_vm_writev(2)): what MPI's fast transports within a node do.
 *
 * Rank 0 prints for every other rank on its node "rank R read RESULT write RESULT", where a result is
 * "ok", "wrong" or the number of the error, and at the end "cma ok" if all went well. */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

struct there {
    long pid;
    unsigned long address;
};

static const char *result(ssize_t done, size_t wanted, int right, char *space, size_t size) {
    if (done < 0) {
        snprintf(space, size, "errno %d", errno);
    } else {
        snprintf(space, size, "%s", (size_t)done == wanted && right ? "ok" : "wrong");
    }
    return space;
}

int main(int argc, char **argv) {
    int rank, size, good = 1;
    char page[4096], copy[4096], reading[32], writing[32];
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_rank(node, &rank);
    MPI_Comm_size(node, &size);
    memset(page, rank + 1, sizeof page);
    struct there own = {getpid(), (unsigned long)page}, all[1024];
    if (size > 1024) {
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Gather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, 0, node);
    if (rank == 0) {
        for (int other = 1; other < size; other++) {
            struct iovec here = {copy, sizeof copy};
            struct iovec there = {(void *)all[other].address, sizeof page};
            memset(copy, 0, sizeof copy);
            ssize_t done = process_vm_readv((pid_t)all[other].pid, &here, 1, &there, 1, 0);
            int right = copy[0] == (char)(other + 1) && copy[sizeof copy - 1] == (char)(other + 1);
            result(done, sizeof copy, right, reading, sizeof reading);
            memset(copy, 0x55, sizeof copy);
            done = process_vm_writev((pid_t)all[other].pid, &here, 1, &there, 1, 0);
            result(done, sizeof copy, 1, writing, sizeof writing);
            printf("rank %d read %s write %s\n", other, reading, writing);
            good = good && strcmp(reading, "ok") == 0 && strcmp(writing, "ok") == 0;
        }
    }
    MPI_Barrier(node);
    /* The written page must have arrived there. */
    int arrived = rank == 0 || page[sizeof page - 1] == 0x55, everywhere = 0;
    MPI_Reduce(&arrived, &everywhere, 1, MPI_INT, MPI_LAND, 0, node);
    if (rank == 0) {
        good = good && everywhere;
        printf("cma %s\n", size < 2 ? "untested" : good ? "ok" : "failed");
    }
    MPI_Finalize();
    return rank == 0 && !good;
}
