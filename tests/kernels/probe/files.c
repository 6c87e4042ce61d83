/* Attacks on files: those that are not to be read, and those that are not to be changed. */
#include "probe.h"

#include <dirent.h>
#include <linux/fs.h>
#include <sys/fanotify.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <utime.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

/* An access control list that says what mode 0640 and one named user say: `acl(5)` as the kernel
 * has it, version 2, then (tag, permissions, id) each. tmpfs has no attributes of users before Linux
 * 6.6, but has these. */
static const unsigned char acl[] = {
    2, 0, 0, 0, /* version */
    1, 0, 6, 0, 255, 255, 255, 255, /* the owner */
    2, 0, 4, 0, 1, 0, 0, 0, /* user 1 */
    4, 0, 4, 0, 255, 255, 255, 255, /* the group */
    16, 0, 4, 0, 255, 255, 255, 255, /* the mask */
    32, 0, 0, 0, 255, 255, 255, 255, /* others */
};
#define ACL "system.posix_acl_access"

static long readable(const char *path)
{
    char byte;
    int file = open(path, O_RDONLY);
    if (file < 0)
        return -1;
    return read(file, &byte, 1) == 1 ? 1 : -1;
}

static long listed(const char *path)
{
    DIR *directory = opendir(path);
    if (!directory)
        return -1;
    return readdir(directory) ? 1 : -1;
}

static long opened(const char *path, int flags)
{
    return closed(open(path, flags, 0600));
}

/* A file that is not to be changed, through a descriptor that may read it. */
static int shown_fd(void)
{
    return open(SHOWN "/fd", O_RDONLY);
}

#define A(name, expression)                                                                                           \
    static long name(void)                                                                                            \
    {                                                                                                                 \
        return expression;                                                                                            \
    }

A(secret_open, readable(SECRET))
A(secret_root, readable("/proc/self/root" SECRET))
A(secret_cwd, readable("/proc/self/cwd/../.ssh/id_rsa"))
A(secret_relative, readable("../.ssh/id_rsa"))
A(secret_list, listed(HOST_HOME "/.ssh"))
A(home_list, listed(HOST_HOME))
A(secret_write, opened(HOST_HOME "/.ssh/config", O_WRONLY))
A(secret_create, opened(HOST_HOME "/.ssh/authorized_keys", O_WRONLY | O_CREAT))
A(secret_symlink, symlink(SECRET, PROJECT "/l1") ? -1 : readable(PROJECT "/l1"))
A(secret_symlink_dir, symlink("../.ssh", PROJECT "/l2") ? -1 : readable(PROJECT "/l2/id_rsa"))
A(secret_hardlink, link(HOST_HOME "/.ssh/linked", PROJECT "/l3") ? -1 : readable(PROJECT "/l3"))
A(secret_rename, rename(HOST_HOME "/.ssh/renamed", PROJECT "/l4") ? -1 : readable(PROJECT "/l4"))
A(secret_exchange,
  closed(open(PROJECT "/l5", O_CREAT | O_RDWR, 0600)) < 0 ||
          renameat2(AT_FDCWD, HOST_HOME "/.ssh/exchanged", AT_FDCWD, PROJECT "/l5", RENAME_EXCHANGE)
      ? -1
      : readable(PROJECT "/l5"))
A(secret_dir_rename, rename(HOST_HOME "/.aws", PROJECT "/aws") ? -1 : readable(PROJECT "/aws/credentials"))
A(secret_unlink, unlink(HOST_HOME "/.ssh/unlinked"))
A(secret_truncate, truncate(HOST_HOME "/.ssh/truncated", 0))
A(secret_watch, inotify_add_watch(inotify_init(), HOST_HOME "/.ssh", IN_ALL_EVENTS))
A(secret_fanotify, ({
      int all = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_REPORT_DFID_NAME, 0);
      all < 0 ? -1 : fanotify_mark(all, FAN_MARK_ADD, FAN_OPEN | FAN_CREATE | FAN_ONDIR, AT_FDCWD, HOST_HOME "/.ssh");
  }))
A(home_create, opened(HOST_HOME "/.profile-new", O_WRONLY | O_CREAT))
A(home_rename_project, rename(PROJECT, HOST_HOME "/moved") ? -1 : rename(HOST_HOME "/moved", PROJECT))

A(shown_write, opened(SHOWN "/write", O_WRONLY))
A(shown_append, opened(SHOWN "/write", O_WRONLY | O_APPEND))
A(shown_open_truncating, opened(SHOWN "/open-truncating", O_WRONLY | O_TRUNC))
A(shown_read_truncating, opened(SHOWN "/read-truncating", O_RDONLY | O_TRUNC))
A(shown_path_truncating, opened("/proc/self/root" SHOWN "/read-truncating", O_RDONLY | O_TRUNC))
A(shown_truncate, truncate(SHOWN "/truncate", 0))
A(shown_truncate_link, symlink(SHOWN "/truncate", PROJECT "/t1") ? -1 : truncate(PROJECT "/t1", 0))
A(shown_creat, closed(creat(SHOWN "/creat", 0600)))
A(shown_create, opened(SHOWN "/created", O_WRONLY | O_CREAT | O_EXCL))
A(shown_tmpfile, opened(SHOWN, O_TMPFILE | O_RDWR))
A(shown_mkdir, mkdir(SHOWN "/made", 0700))
A(shown_mknod, mknod(SHOWN "/fifo", S_IFIFO | 0600, 0))
A(shown_symlink, symlink("x", SHOWN "/symlink"))
A(shown_unlink, unlink(SHOWN "/unlink"))
A(shown_rmdir, rmdir(SHOWN "/rmdir"))
A(shown_rename_out, rename(SHOWN "/rename-out", PROJECT "/r1"))
A(shown_rename_in, closed(creat(PROJECT "/r2", 0600)) < 0 ? -1 : rename(PROJECT "/r2", SHOWN "/r2"))
/* The link alone does no harm; that it makes a way to write does. */
A(shown_link_out, link(SHOWN "/link-out", PROJECT "/r3") ? -1 : opened(PROJECT "/r3", O_WRONLY))
A(shown_link_truncate, link(SHOWN "/link-out", PROJECT "/r4") ? -1 : truncate(PROJECT "/r4", 0))
A(shown_link_in, closed(creat(PROJECT "/r6", 0600)) < 0 ? -1 : link(PROJECT "/r6", SHOWN "/r6"))
A(shown_fd_reopen, ({
      char path[64];
      snprintf(path, sizeof path, "/proc/self/fd/%d", shown_fd());
      opened(path, O_WRONLY);
  }))
A(shown_fd_truncate, ({
      char path[64];
      snprintf(path, sizeof path, "/proc/self/fd/%d", shown_fd());
      truncate(path, 0);
  }))

A(shown_chmod, chmod(SHOWN "/mode", 0644))
A(shown_chmod_link, symlink(SHOWN "/mode", PROJECT "/m1") ? -1 : chmod(PROJECT "/m1", 0644))
A(shown_chmod_fd_path, ({
      char path[64];
      snprintf(path, sizeof path, "/proc/self/fd/%d", shown_fd());
      chmod(path, 0644);
  }))
A(shown_fchmod, fchmod(shown_fd(), 0644))
A(shown_fchmodat, fchmodat(open(SHOWN, O_PATH), "mode", 0644, 0))
A(shown_fchmodat2, syscall(SYS_fchmodat2, AT_FDCWD, SHOWN "/mode", 0644, 0))
A(shown_fchmodat2_fd, syscall(SYS_fchmodat2, open(SHOWN "/mode", O_PATH), "", 0644, AT_EMPTY_PATH))
A(shown_chown, chown(SHOWN "/mode", -1, getgid()))
A(shown_lchown, lchown(SHOWN "/mode", -1, getgid()))
A(shown_fchown, fchown(shown_fd(), -1, getgid()))
A(shown_fchownat, fchownat(AT_FDCWD, SHOWN "/mode", -1, getgid(), 0))
A(shown_fchownat_fd, fchownat(open(SHOWN "/mode", O_PATH), "", -1, getgid(), AT_EMPTY_PATH))
A(shown_utime, utime(SHOWN "/mode", &(struct utimbuf){ 1, 1 }))
A(shown_utimes, utimes(SHOWN "/mode", (struct timeval[2]){ { 1, 0 }, { 1, 0 } }))
A(shown_futimesat, syscall(SYS_futimesat, AT_FDCWD, SHOWN "/mode", (struct timeval[2]){ { 1, 0 }, { 1, 0 } }))
A(shown_utimensat, utimensat(AT_FDCWD, SHOWN "/mode", (struct timespec[2]){ { 1, 0 }, { 1, 0 } }, 0))
A(shown_futimens, futimens(shown_fd(), (struct timespec[2]){ { 1, 0 }, { 1, 0 } }))
A(shown_setxattr, setxattr(SHOWN "/mode", ACL, acl, sizeof acl, 0))
A(shown_lsetxattr, lsetxattr(SHOWN "/mode", ACL, acl, sizeof acl, 0))
A(shown_fsetxattr, fsetxattr(shown_fd(), ACL, acl, sizeof acl, 0))
A(shown_removexattr, removexattr(SHOWN "/acl", ACL))
A(shown_lremovexattr, lremovexattr(SHOWN "/acl", ACL))
A(shown_fremovexattr, fremovexattr(open(SHOWN "/acl", O_RDONLY), ACL))
A(shown_setflags, ({
      long flags = 0;
      int file = shown_fd();
      if (ioctl(file, FS_IOC_GETFLAGS, &flags))
          flags = 0;
      flags |= FS_NODUMP_FL;
      ioctl(file, FS_IOC_SETFLAGS, &flags);
  }))

A(mine_open, readable(MINE "/file"))
A(mine_truncate, truncate(MINE "/file", 1))
A(mine_chmod, chmod(MINE "/file", 0644))
A(mine_chmod_dir, chmod(MINE, 0777))
A(mine_utimensat, utimensat(AT_FDCWD, MINE "/file", NULL, 0))
A(mine_setxattr, setxattr(MINE "/file", ACL, acl, sizeof acl, 0))
A(secret_chmod, chmod(SECRET, 0644))
A(secret_dir_chmod, chmod(HOST_HOME "/.ssh", 0755))
A(home_chmod, chmod(HOST_HOME, 0755))

A(tmp_read, readable("/tmp/host"))
A(tmp_write, opened("/tmp/host", O_WRONLY))
A(tmp_unlink, unlink("/tmp/unlink"))
A(tmp_create, opened("/tmp/created", O_WRONLY | O_CREAT))
A(run_read, readable(RUNTIME "/host"))
A(shm_read, readable("/dev/shm/host"))
A(shm_write, opened("/dev/shm/host", O_WRONLY))
A(shm_truncate, truncate("/dev/shm/host", 0))
A(shm_chmod, chmod("/dev/shm/host", 0644))
A(shm_link, link("/dev/shm/host", "/dev/shm/linked") ? -1 : readable("/dev/shm/linked"))
A(shm_rename, rename("/dev/shm/rename", "/dev/shm/renamed") ? -1 : readable("/dev/shm/renamed"))
A(shm_rename_over, closed(open("/dev/shm/over", O_CREAT | O_RDWR, 0600)) < 0 ? -1 : rename("/dev/shm/over", "/dev/shm/host2"))
A(shm_unlink, unlink("/dev/shm/unlink"))

const struct attack file_attacks[] = {
    { "secret-open", secret_open },
    { "secret-proc-root", secret_root },
    { "secret-proc-cwd", secret_cwd },
    { "secret-relative", secret_relative },
    { "secret-list", secret_list },
    { "secret-write", secret_write },
    { "secret-create", secret_create },
    { "secret-symlink", secret_symlink },
    { "secret-symlink-dir", secret_symlink_dir },
    { "secret-hardlink", secret_hardlink },
    { "secret-rename", secret_rename },
    { "secret-exchange", secret_exchange },
    { "secret-dir-rename", secret_dir_rename },
    { "secret-unlink", secret_unlink },
    { "secret-truncate", secret_truncate },
    { "secret-chmod", secret_chmod },
    { "secret-dir-chmod", secret_dir_chmod },
    { "secret-watch", secret_watch },
    { "secret-fanotify", secret_fanotify },
    { "home-list", home_list },
    { "home-create", home_create },
    { "home-chmod", home_chmod },
    { "home-rename-project", home_rename_project },
    { "shown-write", shown_write },
    { "shown-append", shown_append },
    { "shown-open-truncating", shown_open_truncating },
    { "shown-read-truncating", shown_read_truncating },
    { "shown-path-truncating", shown_path_truncating },
    { "shown-truncate", shown_truncate },
    { "shown-truncate-link", shown_truncate_link },
    { "shown-creat", shown_creat },
    { "shown-create", shown_create },
    { "shown-tmpfile", shown_tmpfile },
    { "shown-mkdir", shown_mkdir },
    { "shown-mknod", shown_mknod },
    { "shown-symlink", shown_symlink },
    { "shown-unlink", shown_unlink },
    { "shown-rmdir", shown_rmdir },
    { "shown-rename-out", shown_rename_out },
    { "shown-rename-in", shown_rename_in },
    { "shown-link-out", shown_link_out },
    { "shown-link-truncate", shown_link_truncate },
    { "shown-link-in", shown_link_in },
    { "shown-fd-reopen", shown_fd_reopen },
    { "shown-fd-truncate", shown_fd_truncate },
    { "shown-chmod", shown_chmod },
    { "shown-chmod-link", shown_chmod_link },
    { "shown-chmod-fd-path", shown_chmod_fd_path },
    { "shown-fchmod", shown_fchmod },
    { "shown-fchmodat", shown_fchmodat },
    { "shown-fchmodat2", shown_fchmodat2 },
    { "shown-fchmodat2-fd", shown_fchmodat2_fd },
    { "shown-chown", shown_chown },
    { "shown-lchown", shown_lchown },
    { "shown-fchown", shown_fchown },
    { "shown-fchownat", shown_fchownat },
    { "shown-fchownat-fd", shown_fchownat_fd },
    { "shown-utime", shown_utime },
    { "shown-utimes", shown_utimes },
    { "shown-futimesat", shown_futimesat },
    { "shown-utimensat", shown_utimensat },
    { "shown-futimens", shown_futimens },
    { "shown-setxattr", shown_setxattr },
    { "shown-lsetxattr", shown_lsetxattr },
    { "shown-fsetxattr", shown_fsetxattr },
    { "shown-removexattr", shown_removexattr },
    { "shown-lremovexattr", shown_lremovexattr },
    { "shown-fremovexattr", shown_fremovexattr },
    { "shown-setflags", shown_setflags },
    { "mine-open", mine_open },
    { "mine-truncate", mine_truncate },
    { "mine-chmod", mine_chmod },
    { "mine-chmod-dir", mine_chmod_dir },
    { "mine-utimensat", mine_utimensat },
    { "mine-setxattr", mine_setxattr },
    { "tmp-read", tmp_read },
    { "tmp-write", tmp_write },
    { "tmp-unlink", tmp_unlink },
    { "tmp-create", tmp_create },
    { "run-read", run_read },
    { "shm-read", shm_read },
    { "shm-write", shm_write },
    { "shm-truncate", shm_truncate },
    { "shm-chmod", shm_chmod },
    { "shm-link", shm_link },
    { "shm-rename", shm_rename },
    { "shm-rename-over", shm_rename_over },
    { "shm-unlink", shm_unlink },
    { NULL, NULL },
};

/* The project's own git directory: its configuration and its hooks run programs outside. */
#define GIT PROJECT "/.git"
A(git_config_write, opened(GIT "/config", O_WRONLY))
A(git_config_truncating, opened(GIT "/config", O_RDONLY | O_TRUNC))
A(git_config_truncate, truncate(GIT "/config", 0))
A(git_config_chmod, chmod(GIT "/config", 0666))
A(git_config_relative, opened(".git/config", O_WRONLY))
A(git_config_dotdot, opened(".git/objects/../config", O_WRONLY))
A(git_config_procfd, ({
      char path[64];
      snprintf(path, sizeof path, "/proc/self/fd/%d", open(GIT "/config", O_RDONLY));
      opened(path, O_WRONLY);
  }))
A(git_config_link, link(GIT "/config", PROJECT "/g1") ? -1 : opened(PROJECT "/g1", O_WRONLY))
A(git_config_symlink, symlink(".git/config", PROJECT "/g2") ? -1 : opened(PROJECT "/g2", O_WRONLY))
A(git_hooks_create, opened(GIT "/hooks/post-checkout", O_WRONLY | O_CREAT))
A(git_hooks_mkdir, mkdir(GIT "/hooks/x", 0700))
A(git_hooks_link, closed(creat(PROJECT "/g3", 0700)) < 0 ? -1 : link(PROJECT "/g3", GIT "/hooks/pre-commit"))
A(git_hooks_rename_in, closed(creat(PROJECT "/g4", 0700)) < 0 ? -1 : rename(PROJECT "/g4", GIT "/hooks/pre-push"))
A(git_dir_symlinked, symlink(".git", PROJECT "/g5") ? -1 : opened(PROJECT "/g5/config", O_WRONLY))
/* Each of these puts back what it took, so that the next finds it. */
A(git_config_rename_over,
  closed(creat(GIT "/config.lock", 0600)) < 0 ? -1 : rename(GIT "/config.lock", GIT "/config"))
A(git_config_exchange, closed(creat(GIT "/other", 0600)) < 0
                           ? -1
                           : renameat2(AT_FDCWD, GIT "/other", AT_FDCWD, GIT "/config", RENAME_EXCHANGE))
A(git_config_rename_away, rename(GIT "/config", GIT "/c") ? -1 : rename(GIT "/c", GIT "/config"))
A(git_hooks_rename_away, rename(GIT "/hooks", GIT "/h") ? -1 : rename(GIT "/h", GIT "/hooks"))
A(git_dir_rename_away, rename(GIT, PROJECT "/g6") ? -1 : rename(PROJECT "/g6", GIT))
A(git_dir_exchange,
  mkdir(PROJECT "/g7", 0700) || renameat2(AT_FDCWD, PROJECT "/g7", AT_FDCWD, GIT, RENAME_EXCHANGE)
      ? -1
      : renameat2(AT_FDCWD, PROJECT "/g7", AT_FDCWD, GIT, RENAME_EXCHANGE))
A(git_config_unlink, unlink(GIT "/config"))

const struct attack git_attacks[] = {
    { "git-config-write", git_config_write },
    { "git-config-truncating", git_config_truncating },
    { "git-config-truncate", git_config_truncate },
    { "git-config-chmod", git_config_chmod },
    { "git-config-relative", git_config_relative },
    { "git-config-dotdot", git_config_dotdot },
    { "git-config-proc-fd", git_config_procfd },
    { "git-config-link", git_config_link },
    { "git-config-symlink", git_config_symlink },
    { "git-hooks-create", git_hooks_create },
    { "git-hooks-mkdir", git_hooks_mkdir },
    { "git-hooks-link", git_hooks_link },
    { "git-hooks-rename-in", git_hooks_rename_in },
    { "git-dir-symlinked", git_dir_symlinked },
    { "git-config-rename-over", git_config_rename_over },
    { "git-config-exchange", git_config_exchange },
    { "git-config-rename-away", git_config_rename_away },
    { "git-hooks-rename-away", git_hooks_rename_away },
    { "git-dir-rename-away", git_dir_rename_away },
    { "git-dir-exchange", git_dir_exchange },
    { "git-config-unlink", git_config_unlink },
    { NULL, NULL },
};
