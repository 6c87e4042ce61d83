/* Who and where each rank is: one line each, in order of the ranks, from rank 0.
 *
 *   rank R size N host H pid P procid SLURM_PROCID pidns NS ipcns NS userns NS mntns NS netns NS
 *
 * A namespace is its inode number (namespaces(7)), 0 if /proc does not say. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE 512

static unsigned long space(const char *name) {
    char path[64];
    struct stat stat_;
    snprintf(path, sizeof path, "/proc/self/ns/%s", name);
    return stat(path, &stat_) == 0 ? (unsigned long)stat_.st_ino : 0;
}

int main(int argc, char **argv) {
    int rank, size;
    char line[LINE], host[256] = "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    gethostname(host, sizeof host - 1);
    const char *procid = getenv("SLURM_PROCID");
    memset(line, 0, sizeof line);
    snprintf(line, sizeof line, "rank %d size %d host %s pid %ld procid %s pidns %lu ipcns %lu userns %lu mntns %lu netns %lu",
             rank, size, host, (long)getpid(), procid ? procid : "-", space("pid"), space("ipc"), space("user"),
             space("mnt"), space("net"));
    char *all = rank == 0 ? malloc((size_t)size * LINE) : NULL;
    MPI_Gather(line, LINE, MPI_CHAR, all, LINE, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size; i++) {
        puts(all + (size_t)i * LINE);
    }
    MPI_Finalize();
    return 0;
}
