/* The object for kernels that refuse trampolines: BTF tracepoints alone. It sees system calls by their numbers,
 * at their begin and end, and so nothing of what io_uring does. It denies nothing.
 */
#include "life.h"
#include "ended.h"
#include "license.h"

#define AT_EMPTY_PATH 0x1000
#define O_CREAT_WRONLY_TRUNC 01101

/* The socket calls of 32-bit programs: the arguments lie in memory. */
outline int ended_socketcall(struct ended *ended)
{
	u32 with[6] = {};
	u32 which = ended->with.a;

	read_user(with, sizeof(with), (void *)ended->with.b);
	ended->with.a = with[0];
	ended->with.b = with[1];
	ended->with.c = with[2];
	ended->with.d = with[3];
	switch (which) {
	case 1: return CALL_socket;
	case 2: return CALL_bind;
	case 3: return CALL_connect;
	case 4: return CALL_listen;
	case 11:
		ended->with.e = with[4];
		ended->with.f = with[5];
		return CALL_sendto;
	case 16: return CALL_sendmsg;
	case 20: return CALL_sendmmsg;
	default: return 0;
	}
}

/* Not in `call_begin`: most calls have none. */
outline int begun_address(struct pt_regs *registers, u32 call, int narrow)
{
	struct ended begun = { .call = call };

	call_arguments(registers, narrow, &begun.with);
	if (call == CALL_socketcall)
		begun.call = ended_socketcall(&begun);
	if (begun.call == CALL_connect || begun.call == CALL_sendto || begun.call == CALL_sendmsg)
		begin_address(&begun);
	return 0;
}

/* Only who gets here has passed seccomp: a call whose end is seen without its begin has not. */
SEC("tp_btf/sys_enter")
int call_begin(u64 *context)
{
	struct task_struct *task = current_task();
	struct pt_regs *registers = ARGUMENT(struct pt_regs *, 0);
	int narrow;
	u32 call = call_number(task, registers, context[1], &narrow);
	struct mark *mark;

	if (!call)
		return 0;
	mark = mark_of(task);
	if (!mark)
		return 0;
	mark->call = call;
	mark->first = first_argument(registers);
	mark->aside = (u64)task->real_cred->egid.val << 32 | task->real_cred->euid.val;
	if (call == CALL_connect || call == CALL_sendto || call == CALL_sendmsg || call == CALL_socketcall)
		return begun_address(registers, call, narrow);
	return 0;
}

outline int ended_file(struct ended *ended)
{
	u64 flags = 0;

	switch (ended->call) {
	case CALL_open: return ended_open(ended, ended->with.a, (u32)ended->with.b);
	case CALL_creat: return ended_open(ended, ended->with.a, O_CREAT_WRONLY_TRUNC);
	case CALL_openat: return ended_open(ended, ended->with.b, (u32)ended->with.c);
	case CALL_openat2:
		/* struct open_how begins with the flags. */
		read_user(&flags, sizeof(flags), (void *)ended->with.c);
		return ended_open(ended, ended->with.b, flags);
	case CALL_open_by_handle_at: return ended_open(ended, 0, (u32)ended->with.c);
	case CALL_truncate: return ended_truncate(ended);
	case CALL_execve: return ended_exec(ended, ended->with.a);
	case CALL_execveat: return ended_exec(ended, ended->with.b);
	}
	return 0;
}

outline int ended_socket(struct ended *ended)
{
	u32 family, type;

	switch (ended->call) {
	case CALL_connect: return ended_address(ended, ended->with.b, ended->with.c);
	case CALL_sendto: return ended_address(ended, ended->with.e, ended->with.f);
	case CALL_sendmsg: return ended_message(ended, ended->with.b);
	case CALL_sendmmsg: return ended_messages(ended);
	case CALL_listen: return ended_listen(ended);
	case CALL_bind: return ended_bind(ended);
	case CALL_socket:
		family = ended->with.a;
		type = ended->with.b & 0xf;
		if (family == AF_PACKET || (type == SOCK_RAW && family != AF_NETLINK))
			return ended_numbers(ended, OP_RAW_SOCKET, family, type, (u32)ended->with.c);
	}
	return 0;
}

/* PTRACE_TRACEME, PTRACE_ATTACH, PTRACE_SEIZE: the other requests need one of them before. */
outline int ended_ptrace(struct ended *ended)
{
	u32 request = ended->with.a;

	if (request == 0)
		return ended_numbers(ended, OP_PTRACE, current_task()->real_parent->tgid, 2, 0);
	if (request == 16 || request == 0x4206)
		return ended_numbers(ended, OP_PTRACE, (u32)ended->with.b, 2, 0);
	return 0;
}

/* LSM_SETID_*: 1 id, 2 re, 4 res, 8 fs. What a task has become the kernel says; what was asked for in vain is as the
 * caller's user namespace numbers it. */
outline int ended_ids(struct ended *ended)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	u64 before = mark ? mark->aside : 0;
	u32 old = before, group = before >> 32, what = OP_SETUID, how = 1;
	u64 asked = (u32)ended->with.a;
	int done = ended->result >= 0 && !ended->by;
	const struct cred *now = task->real_cred;

	switch (ended->call) {
	case CALL_setreuid: case CALL_setregid: how = 2; asked = (u32)ended->with.b; break;
	case CALL_setresuid: case CALL_setresgid: how = 4; asked = (u32)ended->with.b; break;
	case CALL_setfsuid: case CALL_setfsgid: how = 8;
	}
	switch (ended->call) {
	case CALL_setgid: case CALL_setregid: case CALL_setresgid: case CALL_setfsgid:
		what = OP_SETGID;
		old = group;
		if (done)
			asked = how == 8 ? now->fsgid.val : now->egid.val;
		break;
	default:
		if (done)
			asked = how == 8 ? now->fsuid.val : now->euid.val;
	}
	/* Nobody saw what it was before. */
	if (ended->by || ended->flags)
		old = what == OP_SETUID ? now->euid.val : now->egid.val;
	return ended_numbers(ended, what, asked, old, how);
}

/* Only those that could not be sent: `signal_sent` tells of the others. The process is as the caller numbers it. */
outline int ended_signal(struct ended *ended)
{
	u64 to = ended->with.a;
	u32 signal = ended->with.b;

	if (ended->call == CALL_tgkill || ended->call == CALL_rt_tgsigqueueinfo)
		signal = ended->with.c;
	if (!signal || ended->result != -EPERM)
		return 0;
	if (ended->call == CALL_pidfd_send_signal)
		to = 0;
	return ended_numbers(ended, OP_KILL, (u32)to, signal, 0);
}

/* siginfo.si_code of signals that a process has sent: SI_USER, SI_QUEUE, SI_TKILL. */
#define SENT(code) ((code) == 0 || (code) == -1 || (code) == -6)

SEC("tp_btf/signal_generate")
int signal_sent(u64 *context)
{
	u32 signal = context[0];
	u64 about = context[1];
	struct task_struct *other = ARGUMENT(struct task_struct *, 2);
	struct mark *mark = mark_of(current_task()), *theirs;
	int code = 0;

	/* 0 and 1 stand for the kernel's own. */
	if (!mark || about < 2)
		return 0;
	READ(code, ((struct kernel_siginfo *)about)->si_code);
	if (!SENT(code))
		return 0;
	theirs = mark_of(other);
	if (theirs && theirs->trace == mark->trace)
		return 0;
	simple_operation(OP_KILL, 0, other->tgid, signal, 0);
	return 0;
}

outline int ended_mount(struct ended *ended)
{
	switch (ended->call) {
	case CALL_mount:
		return ended_names(ended, OP_MOUNT, ended->with.d, ended->with.b,
				   ended->with.c ? ended->with.c : ended->with.a);
	case CALL_umount2: return ended_names(ended, OP_UMOUNT, (u32)ended->with.b, ended->with.a, 0);
	case CALL_move_mount: return ended_names(ended, OP_MOUNT, 0, ended->with.d, ended->with.b);
	case CALL_pivot_root: return ended_numbers(ended, OP_PIVOT_ROOT, 0, 0, 0);
	case CALL_unshare: return ended_numbers(ended, OP_UNSHARE, ended->with.a & CLONE_NEW, 0, 0);
	case CALL_setns: return ended_numbers(ended, OP_SETNS, (u32)ended->with.a, ended->with.b & CLONE_NEW, 0);
	}
	return 0;
}

outline int ended_name(struct ended *ended)
{
	switch (ended->call) {
	case CALL_link: return ended_names(ended, OP_LINK, 0, ended->with.a, ended->with.b);
	case CALL_linkat: return ended_names(ended, OP_LINK, 0, ended->with.b, ended->with.d);
	case CALL_rename: return ended_names(ended, OP_RENAME, 0, ended->with.a, ended->with.b);
	case CALL_renameat: return ended_names(ended, OP_RENAME, 0, ended->with.b, ended->with.d);
	case CALL_renameat2: return ended_names(ended, OP_RENAME, (u32)ended->with.e, ended->with.b, ended->with.d);
	}
	return 0;
}

/* unlinkat(2): rmdir(2). */
#define AT_REMOVEDIR 0x200

outline int ended_changed(struct ended *ended)
{
	struct arguments *with = &ended->with;
	struct changed changed = { .path = with->a, .first = (u32)with->b, .directory = AT_FDCWD };

	switch (ended->call) {
	case CALL_unlinkat: case CALL_mkdirat: case CALL_mknodat:
		changed.directory = with->a;
		changed.path = with->b;
		changed.first = (u32)with->c;
		break;
	case CALL_symlinkat:
		changed.directory = with->b;
		changed.path = with->c;
		changed.other = with->a;
		break;
	case CALL_symlink:
		changed.path = with->b;
		changed.other = with->a;
	}
	switch (ended->call) {
	case CALL_unlink: changed.what = OP_UNLINK; break;
	case CALL_rmdir: changed.what = OP_RMDIR; break;
	case CALL_unlinkat: changed.what = changed.first & AT_REMOVEDIR ? OP_RMDIR : OP_UNLINK; break;
	case CALL_mkdir: case CALL_mkdirat: changed.what = OP_MKDIR; break;
	case CALL_mknod: changed.what = OP_MKNOD; changed.second = (u32)with->c; break;
	case CALL_mknodat: changed.what = OP_MKNOD; changed.second = (u32)with->d; break;
	default: changed.what = OP_SYMLINK;
	}
	if (changed.what != OP_MKDIR && changed.what != OP_MKNOD)
		changed.first = 0;
	return ended_change(ended, &changed);
}

outline int ended_chmod(struct ended *ended)
{
	u64 path = ended->with.a, mode = ended->with.b;

	if (ended->call == CALL_fchmod)
		path = 0;
	else if (ended->call != CALL_chmod) {
		path = ended->with.b;
		mode = ended->with.c;
	}
	if (!(mode & (S_ISUID | S_ISGID)))
		return 0;
	return ended_names(ended, OP_CHMOD, mode & 07777, path, 0);
}

outline int ended_other(struct ended *ended)
{
	u64 flags = 0;

	switch (ended->call) {
	case CALL_init_module:
	case CALL_finit_module: return ended_numbers(ended, OP_MODULE_LOAD, 2, 0, 0);
	case CALL_kexec_load:
	case CALL_kexec_file_load: return ended_numbers(ended, OP_MODULE_LOAD, 3, 0, 0);
	case CALL_bpf: return ended_numbers(ended, OP_BPF, (u32)ended->with.a, 0, 0);
	case CALL_keyctl: return ended_numbers(ended, OP_KEYCTL, ended->call, (u32)ended->with.a, 0);
	case CALL_add_key:
	case CALL_request_key: return ended_numbers(ended, OP_KEYCTL, ended->call, 0, 0);
	case CALL_process_vm_readv:
	case CALL_process_vm_writev:
		return ended_numbers(ended, OP_PROCESS_VM, (u32)ended->with.a, ended->call, 0);
	case CALL_userfaultfd: return ended_numbers(ended, OP_USERFAULTFD, (u32)ended->with.a, 0, 0);
	case CALL_io_uring_setup:
		/* struct io_uring_params: the flags are its third number. */
		read_user(&flags, sizeof(u32), (void *)(ended->with.b + 8));
		return ended_numbers(ended, OP_IO_URING, (u32)ended->with.a, flags, 0);
	}
	return 0;
}

SEC("tp_btf/sys_exit")
int call_end(u64 *context)
{
	struct pt_regs *registers = ARGUMENT(struct pt_regs *, 0);
	struct task_struct *task = current_task();
	int narrow;
	u32 call = call_number(task, registers, ended_number(registers), &narrow);
	struct ended ended = {};
	struct mark *mark;
	u64 begun;

	if (!call)
		return 0;
	mark = mark_of(task);
	if (!mark)
		return 0;
	begun = mark->call;
	mark->call = 0;
	if (begun == CALL_STARTED)
		return 0;
	ended.result = (s64)context[1];
	if (begun == CALL_ANY)
		ended.flags = FLAG_BEGUN_BEFORE;
	else if (begun != call)
		ended.by = BY_SECCOMP;
	ended_arguments(registers, narrow, mark, begun == call, &ended.with);
	if (call == CALL_socketcall)
		call = ended_socketcall(&ended);
	ended.call = call;
	switch (call) {
	case CALL_open: case CALL_creat: case CALL_openat: case CALL_openat2: case CALL_open_by_handle_at:
	case CALL_execve: case CALL_execveat: case CALL_truncate:
		return ended_file(&ended);
	case CALL_connect: case CALL_sendto: case CALL_sendmsg: case CALL_sendmmsg: case CALL_listen:
	case CALL_socket: case CALL_bind:
		return ended_socket(&ended);
	case CALL_ptrace:
		return ended_ptrace(&ended);
	case CALL_setuid: case CALL_setgid: case CALL_setreuid: case CALL_setregid: case CALL_setresuid:
	case CALL_setresgid: case CALL_setfsuid: case CALL_setfsgid:
		return ended_ids(&ended);
	case CALL_kill: case CALL_tkill: case CALL_tgkill: case CALL_rt_sigqueueinfo: case CALL_rt_tgsigqueueinfo:
	case CALL_pidfd_send_signal:
		return ended_signal(&ended);
	case CALL_mount: case CALL_umount2: case CALL_move_mount: case CALL_pivot_root: case CALL_unshare:
	case CALL_setns:
		return ended_mount(&ended);
	case CALL_link: case CALL_linkat: case CALL_rename: case CALL_renameat: case CALL_renameat2:
		return ended_name(&ended);
	case CALL_unlink: case CALL_unlinkat: case CALL_rmdir: case CALL_mkdir: case CALL_mkdirat: case CALL_mknod:
	case CALL_mknodat: case CALL_symlink: case CALL_symlinkat:
		return ended_changed(&ended);
	case CALL_chmod: case CALL_fchmod: case CALL_fchmodat: case CALL_fchmodat2:
		return ended_chmod(&ended);
	default:
		return ended_other(&ended);
	}
}
