/* Operations: events that need little more than numbers.
 */
#ifndef AGENT_SANDBOX_OPERATIONS_H
#define AGENT_SANDBOX_OPERATIONS_H

#include "paths.h"

/* An operation that is being put together. */
struct doing {
	struct trace *trace;
	struct slot *slot; /* 0: it is not recorded */
	struct operation *event;
	u64 at;            /* where the next string begins */
};

inline_ struct doing operation_of(struct task_struct *task, struct mark *mark, u32 what, s64 result)
{
	struct doing doing = {};

	doing.trace = recorded(task, mark, KIND_OPERATION);
	if (!doing.trace || !(doing.trace->operations >> what & 1))
		return doing;
	doing.slot = begin(task, doing.trace, mark->trace, KIND_OPERATION);
	if (!doing.slot)
		return doing;
	doing.event = (struct operation *)doing.slot->bytes;
	doing.event->head.result = result;
	doing.event->what = what;
	doing.event->pad = 0;
	doing.event->first = 0;
	doing.event->second = 0;
	doing.event->third = 0;
	doing.event->path_bytes = 0;
	doing.event->other_bytes = 0;
	doing.at = sizeof(struct operation);
	return doing;
}

/* The same for the task that runs, if it is marked. */
inline_ struct doing operation(u32 what, s64 result)
{
	struct task_struct *task = current_task();
	struct mark *mark = mark_of(task);
	struct doing none = {};

	return mark ? operation_of(task, mark, what, result) : none;
}

inline_ void done(struct doing *doing)
{
	finish(doing->slot, doing->trace, doing->at);
}

inline_ void add_path(struct doing *doing, struct dentry *dentry, struct vfsmount *mount)
{
	u64 from = doing->at;

	doing->at = append_path(doing->slot, from, dentry, mount);
	doing->event->path_bytes = doing->at - from;
}

inline_ void add_other_path(struct doing *doing, struct dentry *dentry, struct vfsmount *mount)
{
	u64 from = doing->at;

	doing->at = append_path(doing->slot, from, dentry, mount);
	doing->event->other_bytes = doing->at - from;
}

/* A string of at most `SLACK` bytes behind a path. */
inline_ void add_other(struct doing *doing, const char *text)
{
	u64 at = doing->at;
	long length;

	opaque(at);
	if (at > LAST || !text)
		return;
	length = read_kernel_string(doing->slot->bytes + at, SLACK, text);
	if (length <= 0)
		return;
	doing->event->other_bytes = length;
	doing->at = at + length;
}

/* An operation of which numbers are all there is to say. */
inline_ void simple_operation(u32 what, s64 result, u64 first, u64 second, u64 third)
{
	struct doing doing = operation(what, result);

	if (!doing.slot)
		return;
	doing.event->first = first;
	doing.event->second = second;
	doing.event->third = third;
	done(&doing);
}

#endif
