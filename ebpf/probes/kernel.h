/* Types of the kernel's, with the fields that the probes read, and the kernel's own names for them. Offsets are
 * set when the object is loaded (CO-RE), so neither order nor completeness matters.
 */
#ifndef AGENT_SANDBOX_KERNEL_H
#define AGENT_SANDBOX_KERNEL_H

#include "bpf.h"

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10
#define AF_NETLINK 16
#define AF_RXRPC 33
#define AF_PACKET 17
#define SOCK_RAW 3

#define EPERM 1
#define ENOENT 2
#define EINTR 4
#define EACCES 13
#define ENOTDIR 20
#define EROFS 30
#define EEXIST 17
#define EISCONN 106
#define EALREADY 114
#define EINPROGRESS 115
/* Within the kernel: the process sees EINTR, or the call is made again. */
#define ERESTARTSYS 512

#define O_WRONLY_TRUNC 01001

#define S_ISUID 04000
#define S_ISGID 02000

#define S_IFMT 0170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000

#define CLONE_THREAD 0x10000
/* CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET, -TIME. */
#define CLONE_NEW 0x7e020080ull

/* task_struct.flags: a worker of io_uring's. */
#define PF_IO_WORKER 0x10
/* dentry.d_flags: what it is the name of is not connected to the root of its file system. */
#define DCACHE_DISCONNECTED 0x20
/* signal_struct.flags: all threads end, with `group_exit_code`. */
#define SIGNAL_GROUP_EXIT 4

typedef struct {
	u32 val;
} kuid_t;

struct qstr {
	u32 len;
	const unsigned char *name;
} RELOCATED;

struct user_namespace {
	struct user_namespace *parent;
	int level;
	kuid_t owner;
} RELOCATED;

struct group_info {
	int ngroups;
	kuid_t gid[1];
} RELOCATED;

struct capabilities {
	u64 val;
} RELOCATED;

struct cred {
	kuid_t uid;
	kuid_t gid;
	kuid_t suid;
	kuid_t sgid;
	kuid_t euid;
	kuid_t egid;
	kuid_t fsuid;
	kuid_t fsgid;
	struct capabilities cap_permitted;
	struct capabilities cap_ambient;
	struct user_namespace *user_ns;
	struct group_info *group_info;
} RELOCATED;

struct file_system_type {
	const char *name;
} RELOCATED;

struct super_block {
	u32 s_dev;
	struct file_system_type *s_type;
	struct dentry *s_root;
} RELOCATED;

struct hlist_node {
	struct hlist_node *next;
} RELOCATED;

struct hlist_head {
	struct hlist_node *first;
} RELOCATED;

struct inode {
	unsigned short i_mode;
	unsigned int i_nlink;
	unsigned long i_ino;
	struct super_block *i_sb;
	struct hlist_head i_dentry;
} RELOCATED;

struct dentry {
	unsigned int d_flags;
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct super_block *d_sb;
	union {
		struct hlist_node d_alias;
	} d_u;
} RELOCATED;

/* The same where the union has no name. */
struct dentry___flat {
	struct hlist_node d_alias;
} RELOCATED;

struct vfsmount {
	struct dentry *mnt_root;
	struct super_block *mnt_sb;
} RELOCATED;

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
} RELOCATED;

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
} RELOCATED;

struct file {
	struct path f_path;
	struct inode *f_inode;
	unsigned int f_flags;
	unsigned int f_mode;
	void *private_data;
} RELOCATED;

struct fs_struct {
	struct path root;
	struct path pwd;
} RELOCATED;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} RELOCATED;

typedef struct {
	int counter;
} atomic_t;

struct files_struct {
	atomic_t count;
	struct fdtable *fdt;
} RELOCATED;

struct filename {
	const char *name;
} RELOCATED;

struct open_flags {
	int open_flag;
} RELOCATED;

struct linux_binprm {
	struct file *file;
	const char *filename;
	struct cred *cred;
	unsigned int per_clear;
} RELOCATED;

struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
} RELOCATED;

struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
} RELOCATED;

struct kernfs_node {
	u64 id;
} RELOCATED;

struct cgroup {
	int level;
	struct kernfs_node *kn;
} RELOCATED;

/* Since Linux 6.1. */
struct cgroup___pointers {
	struct cgroup *ancestors[1];
} RELOCATED;

/* Before. */
struct cgroup___numbers {
	u64 ancestor_ids[1];
} RELOCATED;

struct css_set {
	struct cgroup *dfl_cgrp;
} RELOCATED;

struct thread_info {
	u32 status;
} RELOCATED;

struct task_struct {
	struct thread_info thread_info;
	unsigned int flags;
	unsigned long atomic_flags;
	int pid;
	int tgid;
	int exit_code;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	const struct cred *real_cred;
	char comm[16];
	struct fs_struct *fs;
	struct files_struct *files;
	struct mm_struct *mm;
	struct signal_struct *signal;
	struct css_set *cgroups;
	void *bpf_storage;
} RELOCATED;

struct kernel_siginfo {
	int si_code;
} RELOCATED;

struct in6_addr {
	u8 bytes[16];
};

struct net {
	struct user_namespace *user_ns;
} RELOCATED;

typedef struct {
	struct net *net;
} RELOCATED possible_net_t;

struct sock_common {
	unsigned short skc_family;
	unsigned short skc_num;
	unsigned short skc_dport;
	unsigned char skc_state;
	u32 skc_daddr;
	u32 skc_rcv_saddr;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
	possible_net_t skc_net;
} RELOCATED;

struct sock {
	struct sock_common __sk_common;
	unsigned short sk_type;
	unsigned short sk_protocol;
} RELOCATED;

struct socket {
	short type;
	struct sock *sk;
} RELOCATED;

struct sockaddr {
	unsigned short sa_family;
	char sa_data[14];
};

struct unix_address {
	int len;
} RELOCATED;

struct unix_sock {
	struct unix_address *addr;
	struct sock *peer;
	struct path path;
} RELOCATED;

struct msghdr {
	void *msg_name;
	int msg_namelen;
} RELOCATED;

#endif
