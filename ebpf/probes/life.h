/* The life of tasks, the same in both objects: they come to be, start programs, move between cgroups, end; and
 * the iterator that marks those that are there already.
 */
#ifndef AGENT_SANDBOX_LIFE_H
#define AGENT_SANDBOX_LIFE_H

#include "operations.h"

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, struct sweep);
} sweep SEC(".maps");

/* A task enters a cgroup: it gets that cgroup's mark if it has none, or if that trace is below its own.
 * Nothing that a user registers takes a task out of a trace. */
inline_ void enter_cgroup(struct task_struct *task, struct mark *mark)
{
	u32 id = trace_of_cgroup(task), has;
	struct trace *trace;

	if (!id)
		return;
	/* Root is on its way to become somebody, as whatever starts a job's programs is. Others than the trace's
	 * user have no business in their cgroup, and get no mark that would be in the way of their own. */
	trace = map_look_up(&traces, &id);
	if (!trace || (task->real_cred->uid.val != 0 && !is_started_by(task, trace->uid)))
		return;
	has = own_trace(task, mark);
	if (has != id && (!has || trace_below(id, has)))
		put_mark(task, id);
}

/* In the parent, before the child runs. Threads and the workers of io_uring come by here, too. */
SEC("tp_btf/task_newtask")
int life_fork(u64 *context)
{
	struct task_struct *task = ARGUMENT(struct task_struct *, 0);
	u64 flags = context[1];
	struct task_struct *parent = current_task();
	struct mark *mark = mark_of(parent), *own;
	struct trace *trace;

	if (!mark) {
		enter_cgroup(task, 0);
		return 0;
	}
	if (!put_mark(task, mark->trace))
		return 0;
	own = mark_of(task);
	if (!own)
		return 0;
	own->other = mark->other;
	/* Not in the middle of a call that matters: this one is no such call. */
	own->call = 0;
	if (task->cgroups != parent->cgroups)
		enter_cgroup(task, own);
	if (flags & CLONE_NEW) {
		struct doing doing = operation_of(parent, mark, OP_UNSHARE, 0);

		if (doing.slot) {
			doing.event->first = flags & CLONE_NEW;
			done(&doing);
		}
	}
	if (flags & CLONE_THREAD)
		return 0;
	trace = recorded(task, own, KIND_FORK);
	if (trace) {
		struct slot *slot = begin(task, trace, own->trace, KIND_FORK);

		if (slot)
			finish(slot, trace, sizeof(struct head));
	}
	return 0;
}

SEC("tp_btf/cgroup_attach_task")
int life_cgroup(u64 *context)
{
	struct task_struct *task = ARGUMENT(struct task_struct *, 2);

	enter_cgroup(task, mark_of(task));
	return 0;
}

/* Which of a process's threads ends last decides its exit. */
SEC("tp_btf/sched_process_exit")
int life_exit(u64 *context)
{
	struct task_struct *task = ARGUMENT(struct task_struct *, 0);
	struct mark *mark = mark_of(task), *first;
	struct trace *trace;
	struct slot *slot;

	if (!mark || task->signal->live.counter != 0)
		return 0;
	/* Threads that end at the same time come by here when all are counted off already. */
	first = mark_of(task->group_leader);
	if (first && __sync_val_compare_and_swap(&first->ended, 0, 1) != 0)
		return 0;
	trace = recorded(task, mark, KIND_EXIT);
	if (!trace)
		return 0;
	slot = begin(task, trace, mark->trace, KIND_EXIT);
	if (!slot)
		return 0;
	BEGIN(slot)->result = task->signal->flags & SIGNAL_GROUP_EXIT
		? task->signal->group_exit_code : task->group_leader->exit_code;
	finish(slot, trace, sizeof(struct head));
	return 0;
}

/* The trace of a task that was the user's when it started the program that gave it another's rights. */
outline struct trace *gained(struct task_struct *task, struct mark *mark)
{
	u32 id = mark->trace;
	struct trace *trace = map_look_up(&traces, &id);

	if (!trace || !(trace->flags & TRACE_RECORD) || mark->other)
		return 0;
	return is_started_by(task, trace->uid) && !is_of(task, trace->uid) ? trace : 0;
}

/* The program runs already, but has not executed an instruction: its arguments are as the kernel wrote them. */
SEC("tp_btf/sched_process_exec")
int life_exec(u64 *context)
{
	struct task_struct *task = ARGUMENT(struct task_struct *, 0);
	struct linux_binprm *program = ARGUMENT(struct linux_binprm *, 2);
	struct mark *mark = mark_of(task);
	struct inode *inode;
	struct trace *trace, *gains;
	struct slot *slot;
	struct exec *event;
	u64 at = sizeof(struct exec), from, length;

	if (!mark)
		return 0;
	/* Who traces the process can make the call's end look like another call's from here on. */
	mark->call = CALL_STARTED;
	inode = program->file->f_inode;
	/* That the user has started it is the user's to know; what it does is not. */
	gains = gained(task, mark);
	if (!gains && inode->i_nlink == 0) {
		struct doing doing = operation_of(task, mark, OP_MEMFD_EXEC, 0);

		if (doing.slot) {
			add_path(&doing, program->file->f_path.dentry, program->file->f_path.mnt);
			done(&doing);
		}
	}
	trace = gains ? gains : recorded(task, mark, KIND_EXEC);
	if (!trace)
		return 0;
	slot = trace->events >> KIND_EXEC & 1 ? begin(task, trace, mark->trace, KIND_EXEC) : 0;
	if (!slot) {
		if (gains)
			tell_other(task, mark, gains);
		return 0;
	}
	event = (struct exec *)slot->bytes;
	if (inode->i_mode & (S_ISUID | S_ISGID))
		event->head.flags |= FLAG_SET_ID;
	event->pad = 0;
	at = append_path(slot, at, program->file->f_path.dentry, program->file->f_path.mnt);
	event->path_bytes = at - sizeof(struct exec);
	from = task->mm->arg_start;
	length = task->mm->arg_end - from;
	event->argument_total = length;
	event->argument_bytes = 0;
	opaque(length);
	opaque(at);
	if (at <= EVENT_BYTES - ARGUMENT_BYTES) {
		long failed;

		if (length > ARGUMENT_BYTES) {
			failed = read_user(slot->bytes + at, ARGUMENT_HEAD, (void *)from);
			from += length - (ARGUMENT_BYTES - ARGUMENT_HEAD);
			failed |= read_user(slot->bytes + at + ARGUMENT_HEAD, ARGUMENT_BYTES - ARGUMENT_HEAD,
					    (void *)from);
			length = ARGUMENT_BYTES;
			event->head.flags |= FLAG_TRUNCATED;
		} else {
			failed = read_user(slot->bytes + at, length, (void *)from);
		}
		if (failed == 0) {
			event->argument_bytes = length;
			at += length;
		} else {
			event->head.flags |= FLAG_TRUNCATED;
		}
	} else {
		event->head.flags |= FLAG_TRUNCATED;
	}
	finish(slot, trace, at);
	if (gains)
		tell_other(task, mark, gains);
	return 0;
}

struct every_task {
	void *meta;
	struct task_struct *task;
};

/* What a descriptor of the reader's is open on. */
outline void identify(struct sweep *order)
{
	struct fdtable *table = current_task()->files->fdt;
	struct file *file = 0;
	struct inode *inode = 0;
	struct super_block *block = 0;
	unsigned long number = 0;
	u64 descriptor = order->target;
	u32 device = 0;

	if (descriptor >= table->max_fds)
		return;
	read_kernel(&file, sizeof(file), table->fd + descriptor);
	if (!file)
		return;
	READ(inode, file->f_inode);
	READ(number, inode->i_ino);
	READ(block, inode->i_sb);
	READ(device, block->s_dev);
	order->inode = number;
	order->device = device;
	order->count = 1;
}

/* Does to a task what `sweep` says. Whoever reads the iterator reads until its end. */
SEC("iter/task")
int sweep_tasks(struct every_task *context)
{
	struct task_struct *task = context->task;
	struct mark *mark;
	struct sweep *order;
	u32 zero = 0, has;
	int wanted = 0;

	order = map_look_up(&sweep, &zero);
	if (!task || !order)
		return 0;
	if (order->what == SWEEP_FILE) {
		if (!order->count)
			identify(order);
		return 0;
	}
	mark = mark_of(task);
	has = mark ? mark->trace : 0;
	if (order->what == SWEEP_COUNT) {
		if (has == order->trace)
			order->count += 1;
		return 0;
	}
	if (order->what == SWEEP_REPLACE) {
		if (!has || has != order->from)
			return 0;
		if (order->trace)
			put_mark(task, order->trace);
		else
			storage_delete(&marks, task);
		order->count += 1;
		return 0;
	}
	/* A mark of another user's trace, or of one that is over, counts as none. */
	if (has)
		has = own_trace(task, mark);
	if (has == order->trace || (order->from != 0xffffffffu && has != order->from))
		return 0;
	if (task->real_cred->uid.val != order->uid)
		return 0;
	if (order->what == SWEEP_PROCESS)
		wanted = (u32)task->tgid == order->target;
	else if (order->what == SWEEP_CGROUP)
		wanted = is_below_cgroup(task, order->target);
	else if (order->what == SWEEP_CHILDREN) {
		struct mark *above = mark_of(task->real_parent);

		wanted = above && above->trace == order->trace;
	}
	if (wanted && put_mark(task, order->trace))
		order->count += 1;
	return 0;
}

#endif
