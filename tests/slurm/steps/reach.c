// Preloaded into whatever runs: tries to change its program.
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>

__attribute__((constructor)) static void reach(void)
{
    int mode = chmod("/proc/self/exe", 0755);
    int attribute = setxattr("/proc/self/exe", "user.reached", "x", 1, 0);
    fprintf(stderr, "mode %s, attribute %s\n", mode ? "kept" : "CHANGED", attribute ? "kept" : "CHANGED");
}
