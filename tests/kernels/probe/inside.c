/* What has to work in the jail as it does without one. */
#include "probe.h"

#include <dirent.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define A(name, expression)                                                                                           \
    static long name(void)                                                                                            \
    {                                                                                                                 \
        return expression;                                                                                            \
    }

static int filled(const char *path)
{
    int file = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);
    if (file < 0 || write(file, "text", 4) != 4)
        return -1;
    return file;
}

static long size_of(const char *path)
{
    struct stat found;
    return stat(path, &found) ? -1 : found.st_size;
}

static long mode_of(const char *path)
{
    struct stat found;
    return stat(path, &found) ? -1 : (long)(found.st_mode & 07777);
}

static long time_of(const char *path)
{
    struct stat found;
    return stat(path, &found) ? -1 : (long)found.st_mtime;
}

/* A call that answers well and does nothing is a failure too. */
static long is(long found, long wanted)
{
    return found == wanted ? 0 : found == -1 ? -1 : fail(ENODATA);
}

static int reaped(pid_t child)
{
    int status;
    return waitpid(child, &status, 0) == child ? status : -1;
}

A(i_read, closed(open(PROJECT "/README", O_RDONLY)))
A(i_shown, closed(open(SHOWN "/file", O_RDONLY)))
A(i_shown_list, closed(open(SHOWN, O_RDONLY | O_DIRECTORY)))
A(i_create, closed(filled(PROJECT "/new")))
A(i_create_below, mkdir(PROJECT "/dir", 0755) || mkdir(PROJECT "/dir/dir", 0755) ? -1 : closed(filled(PROJECT "/dir/dir/new")))
A(i_existing, closed(open(PROJECT "/src/a.c", O_WRONLY)))
A(i_truncate, filled(PROJECT "/t") < 0 || truncate(PROJECT "/t", 1) ? -1 : is(size_of(PROJECT "/t"), 1))
A(i_truncate_existing, truncate(PROJECT "/src/b.c", 2) ? -1 : is(size_of(PROJECT "/src/b.c"), 2))
A(i_truncating, filled(PROJECT "/u") < 0 || open(PROJECT "/u", O_RDONLY | O_TRUNC) < 0 ? -1 : is(size_of(PROJECT "/u"), 0))
A(i_ftruncate, ftruncate(filled(PROJECT "/v"), 3) ? -1 : is(size_of(PROJECT "/v"), 3))
A(i_rename, filled(PROJECT "/n1") < 0 ? -1 : rename(PROJECT "/n1", PROJECT "/n2"))
A(i_rename_across, filled(PROJECT "/n3") < 0 ? -1 : rename(PROJECT "/n3", PROJECT "/src/n3"))
A(i_exchange, filled(PROJECT "/x1") < 0 || filled(PROJECT "/src/x2") < 0
                  ? -1
                  : renameat2(AT_FDCWD, PROJECT "/x1", AT_FDCWD, PROJECT "/src/x2", RENAME_EXCHANGE))
A(i_link, filled(PROJECT "/k1") < 0 ? -1 : link(PROJECT "/k1", PROJECT "/src/k2"))
A(i_symlink, symlink("README", PROJECT "/s1") ? -1 : closed(open(PROJECT "/s1", O_RDONLY)))
A(i_unlink, filled(PROJECT "/w") < 0 ? -1 : unlink(PROJECT "/w"))
A(i_rmdir, mkdir(PROJECT "/z", 0700) ? -1 : rmdir(PROJECT "/z"))
A(i_fifo, mkfifo(PROJECT "/fifo", 0600))
A(i_tmpfile, closed(open(PROJECT "/src", O_TMPFILE | O_RDWR, 0600)))
A(i_list, closed(open(PROJECT, O_RDONLY | O_DIRECTORY)))
A(i_execute, ({
      pid_t child = fork();
      if (child == 0) {
          close(2);
          execl("/usr/bin/probe", "probe", (char *)NULL);
          _exit(99);
      }
      is(WEXITSTATUS(reaped(child)), 2);
  }))
A(i_git_index, filled(PROJECT "/.git/index.lock") < 0 ? -1 : rename(PROJECT "/.git/index.lock", PROJECT "/.git/index"))
A(i_git_object, mkdir(PROJECT "/.git/objects/ab", 0755) ? -1 : closed(filled(PROJECT "/.git/objects/ab/c")))
A(i_git_ref, closed(filled(PROJECT "/.git/refs/heads/new")))
A(i_git_head, filled(PROJECT "/.git/HEAD.lock") < 0 ? -1 : rename(PROJECT "/.git/HEAD.lock", PROJECT "/.git/HEAD"))
A(i_git_config, closed(open(PROJECT "/.git/config", O_RDONLY)))

A(i_chmod, filled(PROJECT "/m") < 0 || chmod(PROJECT "/m", 0755) ? -1 : is(mode_of(PROJECT "/m"), 0755))
A(i_chmod_existing, chmod(PROJECT "/src/a.c", 0700) ? -1 : is(mode_of(PROJECT "/src/a.c"), 0700))
A(i_fchmod, fchmod(filled(PROJECT "/m2"), 0711) ? -1 : is(mode_of(PROJECT "/m2"), 0711))
A(i_chown, filled(PROJECT "/m3") < 0 ? -1 : chown(PROJECT "/m3", -1, getgid()))
A(i_utimensat, filled(PROJECT "/m4") < 0 || utimensat(AT_FDCWD, PROJECT "/m4", (struct timespec[2]){ { 7, 0 }, { 7, 0 } }, 0)
                   ? -1
                   : is(time_of(PROJECT "/m4"), 7))
A(i_futimens, futimens(filled(PROJECT "/m5"), (struct timespec[2]){ { 8, 0 }, { 8, 0 } }) ? -1 : is(time_of(PROJECT "/m5"), 8))
A(i_setxattr, ({
      static const unsigned char acl[] = { 2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 1, 0, 0, 0, 4, 0,
                                           4, 0, 255, 255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0,
                                           255, 255, 255, 255 };
      filled(PROJECT "/m6") < 0 ||
              setxattr(PROJECT "/m6", "system.posix_acl_access", acl, sizeof acl, 0)
          ? -1
          : removexattr(PROJECT "/m6", "system.posix_acl_access");
  }))
A(i_umask, ({
      umask(027);
      int file = open(PROJECT "/m7", O_CREAT | O_RDWR, 0666);
      file < 0 ? -1 : is(mode_of(PROJECT "/m7"), 0640);
  }))

A(i_home, closed(filled(in_variable("HOME", "new"))))
A(i_tmp, closed(filled(in_variable("TMPDIR", "new"))))
A(i_runtime, closed(filled(in_variable("XDG_RUNTIME_DIR", "new"))))
A(i_null, closed(open("/dev/null", O_RDWR)))
A(i_urandom, closed(open("/dev/urandom", O_RDONLY)))
A(i_shm, filled("/dev/shm/probe-own") < 0 || truncate("/dev/shm/probe-own", 1) ||
                 rename("/dev/shm/probe-own", "/dev/shm/probe-renamed")
             ? -1
             : unlink("/dev/shm/probe-renamed"))

/* As openpty(3) does it. */
A(i_terminal, ({
      char byte;
      int master = posix_openpt(O_RDWR | O_NOCTTY), slave = -1;
      if (master >= 0 && !unlockpt(master))
          slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
      slave < 0 || write(slave, "x\n", 2) != 2 ? -1 : is(read(master, &byte, 1), 1);
  }))

static long talks(int type, const char *path)
{
    struct sockaddr_un address;
    socklen_t length;
    char byte = 0;
    int server = listening(type, path);
    if (server < 0)
        return -1;
    pid_t child = fork();
    if (child == 0) {
        int client = socket(AF_UNIX, type, 0);
        unix_address(&address, path, &length);
        if (client < 0 || connect(client, (void *)&address, length))
            _exit(errno);
        _exit(write(client, "y", 1) == 1 ? 0 : 99);
    }
    int error = WEXITSTATUS(reaped(child));
    if (error)
        return fail(error);
    int peer = accept(server, NULL, NULL);
    return peer < 0 || read(peer, &byte, 1) != 1 ? -1 : is(byte, 'y');
}

A(i_socket, talks(SOCK_STREAM, PROJECT "/sock"))
A(i_socket_below, talks(SOCK_STREAM, PROJECT "/src/sock"))
A(i_socket_tmp, talks(SOCK_STREAM, in_variable("TMPDIR", "sock")))
A(i_seqpacket, talks(SOCK_SEQPACKET, PROJECT "/seq"))
A(i_abstract, talks(SOCK_STREAM, "@inside"))
A(i_pair, ({
      int ends[2];
      char byte;
      socketpair(AF_UNIX, SOCK_STREAM, 0, ends) || write(ends[0], "x", 1) != 1 ? -1 : read(ends[1], &byte, 1);
  }))

static pid_t waiting(void)
{
    pid_t child = fork();
    if (child == 0)
        for (;;)
            pause();
    return child;
}

A(i_kill, ({
      pid_t child = waiting();
      kill(child, SIGTERM) ? -1 : is(WTERMSIG(reaped(child)), SIGTERM);
  }))
A(i_killpg, ({
      pid_t child = waiting();
      setpgid(child, child);
      kill(-child, SIGKILL) ? -1 : is(WTERMSIG(reaped(child)), SIGKILL);
  }))
A(i_orphan, ({
      /* A process whose parent has gone is still one of the jail's. */
      int ends[2];
      pid_t grandchild = 0, child = pipe(ends) ? -1 : fork();
      if (child == 0) {
          grandchild = waiting();
          _exit(write(ends[1], &grandchild, sizeof grandchild) < 0);
      }
      reaped(child);
      read(ends[0], &grandchild, sizeof grandchild) != sizeof grandchild ? -1 : kill(grandchild, SIGKILL);
  }))
A(i_raise, ({
      pid_t child = fork();
      if (child == 0) {
          raise(SIGUSR1);
          _exit(0);
      }
      is(WTERMSIG(reaped(child)), SIGUSR1);
  }))
static volatile sig_atomic_t told;
static void tell(int number)
{
    told = number;
}
A(i_setown, ({
      int ends[2];
      signal(SIGIO, tell);
      pipe(ends) || fcntl(ends[0], F_SETOWN, getpid()) || fcntl(ends[0], F_SETFL, O_ASYNC | O_NONBLOCK) ||
              write(ends[1], "x", 1) != 1
          ? -1
          : is(told, SIGIO);
  }))
A(i_ptrace, ({
      pid_t child = fork();
      if (child == 0) {
          ptrace(PTRACE_TRACEME, 0, 0, 0);
          raise(SIGSTOP);
          _exit(0);
      }
      int status = 0;
      waitpid(child, &status, WUNTRACED);
      long found = ptrace(PTRACE_PEEKUSER, child, 0, 0);
      kill(child, SIGKILL);
      found == -1 && errno ? -1 : 0;
  }))
A(i_prlimit, ({
      struct rlimit limit = { 500, 500 };
      setrlimit(RLIMIT_NOFILE, &limit);
  }))
A(i_nice, setpriority(PRIO_PROCESS, 0, 5))
A(i_affinity, ({
      cpu_set_t set;
      sched_getaffinity(0, sizeof set, &set) ? -1 : sched_setaffinity(0, sizeof set, &set);
  }))
A(i_thread_exec, ({
      /* A program that a child starts has its own /proc/self. */
      pid_t child = fork();
      if (child == 0)
          _exit(open("/proc/self/status", O_RDONLY) < 0);
      is(reaped(child), 0);
  }))

const struct attack inside_calls[] = {
    { "in-read", i_read },
    { "in-shown", i_shown },
    { "in-shown-list", i_shown_list },
    { "in-create", i_create },
    { "in-create-below", i_create_below },
    { "in-existing", i_existing },
    { "in-truncate", i_truncate },
    { "in-truncate-existing", i_truncate_existing },
    { "in-truncating", i_truncating },
    { "in-ftruncate", i_ftruncate },
    { "in-rename", i_rename },
    { "in-rename-across", i_rename_across },
    { "in-exchange", i_exchange },
    { "in-link", i_link },
    { "in-symlink", i_symlink },
    { "in-unlink", i_unlink },
    { "in-rmdir", i_rmdir },
    { "in-fifo", i_fifo },
    { "in-tmpfile", i_tmpfile },
    { "in-list", i_list },
    { "in-execute", i_execute },
    { "in-git-index", i_git_index },
    { "in-git-object", i_git_object },
    { "in-git-ref", i_git_ref },
    { "in-git-head", i_git_head },
    { "in-git-config", i_git_config },
    { "in-chmod", i_chmod },
    { "in-chmod-existing", i_chmod_existing },
    { "in-fchmod", i_fchmod },
    { "in-chown", i_chown },
    { "in-utimensat", i_utimensat },
    { "in-futimens", i_futimens },
    { "in-setxattr", i_setxattr },
    { "in-umask", i_umask },
    { "in-home", i_home },
    { "in-tmp", i_tmp },
    { "in-runtime", i_runtime },
    { "in-null", i_null },
    { "in-urandom", i_urandom },
    { "in-shm", i_shm },
    { "in-terminal", i_terminal },
    { "in-socket", i_socket },
    { "in-socket-below", i_socket_below },
    { "in-socket-tmp", i_socket_tmp },
    { "in-seqpacket", i_seqpacket },
    { "in-abstract", i_abstract },
    { "in-pair", i_pair },
    { "in-kill", i_kill },
    { "in-killpg", i_killpg },
    { "in-orphan", i_orphan },
    { "in-raise", i_raise },
    { "in-setown", i_setown },
    { "in-ptrace", i_ptrace },
    { "in-setrlimit", i_prlimit },
    { "in-nice", i_nice },
    { "in-affinity", i_affinity },
    { "in-proc-self", i_thread_exec },
    { NULL, NULL },
};
