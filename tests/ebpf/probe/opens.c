/* Files that are opened in every way, and opens that fail. Each action has a file of its name. */
#include "probe.h"

#include <linux/landlock.h>
#include <linux/openat2.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/mount.h>

/* On aarch64 the library makes openat(2) of them. */
#ifdef SYS_open
#define OPEN(name) syscall(SYS_open, name, O_RDONLY)
#define CREAT(name) syscall(SYS_creat, name, 0600)
#else
#define OPEN(name) open(name, O_RDONLY)
#define CREAT(name) creat(name, 0600)
#endif

#define DEEP_NAME "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"

static int place(void)
{
    return open(PLACE, O_PATH | O_DIRECTORY);
}

static long with_openat2(void)
{
    struct open_how how = { .flags = O_RDONLY, .resolve = RESOLVE_BENEATH };
    return closed(syscall(SYS_openat2, place(), "openat2", &how, sizeof how));
}

/* The 32-bit entry of a 64-bit process: the name has to lie below 4 GiB, as it does in this static program. */
static long with_i386_entry(void)
{
#ifdef __x86_64__
    static const char name[] = PLACE "/i386";
    long result;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(5L), "b"(name), "c"((long)O_RDONLY), "d"(0L) : "memory", "r8", "r9", "r10", "r11");
    return result < 0 ? fail((int)-result) : closed(result);
#else
    return fail(ENOSYS);
#endif
}

static long by_own_descriptor(int descriptor)
{
    char name[64];
    if (descriptor < 0)
        return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", descriptor);
    return closed(open(name, O_RDONLY));
}

static long deleted(void)
{
    int file = open(PLACE "/deleted", O_RDWR | O_CREAT, 0600);
    return file < 0 || unlink(PLACE "/deleted") ? -1 : by_own_descriptor(file);
}

static long in_memory(void)
{
    return by_own_descriptor(memfd_create("memory", 0));
}

static long below_other_mount(void)
{
    if (own_namespaces() || mount(PLACE "/inner", MOUNT, NULL, MS_BIND, NULL))
        return -1;
    return closed(open(MOUNT "/bound", O_RDONLY));
}

static long below_other_root(void)
{
    if (own_namespaces() || chroot(PLACE "/inner") || chdir("/"))
        return -1;
    return closed(open("/rooted", O_RDONLY));
}

/* Directories in each other: more than `PATH_MAX` has room for, or nearly as much. */
static long deep(const char *name, int levels)
{
    if (chdir(PLACE))
        return -1;
    for (int level = 0; level < levels; level++)
        if ((mkdir(DEEP_NAME, 0700) && errno != EEXIST) || chdir(DEEP_NAME))
            return -1;
    return closed(open(name, O_WRONLY | O_CREAT, 0600));
}

static long relative(const char *name)
{
    return chdir(PLACE "/inner") ? -1 : closed(open(name, O_RDONLY));
}

static long with_handle(void)
{
    struct {
        struct file_handle handle;
        unsigned char bytes[MAX_HANDLE_SZ];
    } of = { .handle = { .handle_bytes = MAX_HANDLE_SZ } };
    int mount_id;
    if (name_to_handle_at(AT_FDCWD, PLACE "/handle", &of.handle, &mount_id, 0))
        return -1;
    return closed(open_by_handle_at(open(PLACE, O_RDONLY | O_DIRECTORY), &of.handle, O_RDONLY));
}

static long times(int count, const char *path)
{
    while (count--)
        if (closed(open(path, O_RDONLY)) < 0)
            return -1;
    return 0;
}

A(o_open, closed(OPEN(PLACE "/open")))
A(o_openat, closed(syscall(SYS_openat, place(), "openat", O_RDONLY)))
A(o_creat, closed(CREAT(PLACE "/creat")))
A(o_create, closed(open(PLACE "/create", O_RDWR | O_CREAT | O_EXCL, 0600)))
A(o_truncate, closed(open(PLACE "/truncate", O_WRONLY | O_TRUNC)))
A(o_append, closed(open(PLACE "/append", O_WRONLY | O_APPEND)))
A(o_path, closed(open(PLACE "/path", O_PATH)))
A(o_directory, closed(open(PLACE "/inner", O_RDONLY | O_DIRECTORY)))
A(o_temporary, closed(open(PLACE "/inner", O_TMPFILE | O_RDWR, 0600)))
A(o_relative, relative("relative"))
A(o_dots, relative("../dots"))
A(o_link, closed(open(PLACE "/to-linked", O_RDONLY)))
A(o_descriptor, by_own_descriptor(open(PLACE "/descriptor", O_PATH)))
A(o_strange, closed(open(PLACE "/strange\n\x01\xff\"\\name", O_RDONLY)))
A(o_device, closed(open("/dev/zero", O_RDONLY)))
A(o_deep, deep("deep", 30))
A(o_deeper, deep("deeper", 60))
A(o_often, times(100, PLACE "/often"))

const struct action open_actions[] = {
    { "open", o_open },
    { "openat", o_openat },
    { "openat2", with_openat2 },
    { "creat", o_creat },
    { "create", o_create },
    { "truncate", o_truncate },
    { "append", o_append },
    { "path", o_path },
    { "directory", o_directory },
    { "temporary", o_temporary },
    { "relative", o_relative },
    { "dots", o_dots },
    { "linked", o_link },
    { "descriptor", o_descriptor },
    { "strange", o_strange },
    { "device", o_device },
    { "deep", o_deep },
    { "deeper", o_deeper },
    { "often", o_often },
    { "i386", with_i386_entry },
    { "deleted", deleted },
    { "memory", in_memory },
    { "bound", below_other_mount },
    { "rooted", below_other_root },
    { NULL, NULL },
};

/* Nothing may be read any more, whatever the modes say. */
static long below_landlock(void)
{
    struct landlock_ruleset_attr attr = { .handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE };
    int rules = (int)syscall(SYS_landlock_create_ruleset, &attr, sizeof attr, 0);
    if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_landlock_restrict_self, rules, 0))
        return fail(ENOSYS);
    return closed(open(PLACE "/landlock", O_RDONLY));
}

static long below_seccomp(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        return fail(ENOSYS);
    return closed(open(PLACE "/seccomp", O_RDONLY));
}

A(f_mode, closed(open(PLACE "/mode", O_RDONLY)))
A(f_above, closed(open(PLACE "/closed/above", O_RDONLY)))
A(f_rdonly, closed(open(RDONLY "/rdonly", O_WRONLY)))
A(f_rdonly_create, closed(open(RDONLY "/new", O_WRONLY | O_CREAT, 0600)))
A(f_create, closed(open("/srv/not-mine", O_WRONLY | O_CREAT, 0600)))
A(f_missing, closed(open(PLACE "/missing", O_RDONLY)))
A(f_notdir, closed(open(PLACE "/open/notdir", O_RDONLY)))

const struct action failing_actions[] = {
    { "mode", f_mode },
    { "above", f_above },
    { "rdonly", f_rdonly },
    { "rdonly-create", f_rdonly_create },
    { "not-mine", f_create },
    { "missing", f_missing },
    { "notdir", f_notdir },
    { "landlock", below_landlock },
    { "seccomp", below_seccomp },
    { NULL, NULL },
};

A(root_mount, mkdir("/srv/mounted", 0700) && errno != EEXIST ? -1 : mount("some", "/srv/mounted", "tmpfs", 0, NULL))
A(root_umount, umount2("/srv/mounted", MNT_DETACH))
/* As long as the head of one. */
A(root_module, ({
      static char text[256];
      syscall(SYS_init_module, text, sizeof text, "");
  }))
A(root_module_file, syscall(SYS_finit_module, open(PLACE "/handle", O_RDONLY), "", 0))
A(root_packets, closed(socket(17 /* AF_PACKET */, SOCK_RAW, 0)))
A(root_raw, closed(socket(AF_INET, SOCK_RAW, 1)))
A(root_seteuid, syscall(SYS_setresuid, -1, 1000, -1) ? -1 : closed(open(PLACE "/seteuid", O_RDONLY)))
A(root_setegid, syscall(SYS_setresgid, -1, 1000, -1))
A(root_setuid, syscall(SYS_setresuid, 1001, 1001, 1001) ? -1 : closed(open(PLACE "/setuid", O_RDONLY)))
A(root_chroot, chroot(PLACE) ? -1 : closed(open("/chrooted", O_RDONLY)))
A(root_bpf, syscall(SYS_bpf, 0, NULL, 0))

/* What only root may: in a trace of root's. */
const struct action root_actions[] = {
    { "handle", with_handle },       { "mount", root_mount },      { "umount", root_umount },
    { "module", root_module },       { "module-file", root_module_file }, { "packets", root_packets },
    { "raw", root_raw },             { "seteuid", root_seteuid },  { "setegid", root_setegid },
    { "setuid", root_setuid },       { "chrooted", root_chroot },  { "root-bpf", root_bpf },
    { NULL, NULL },
};
