/* Whose a task is: its mark, the trace that the mark names, and whether the task is of that trace's user.
 */
#ifndef AGENT_SANDBOX_MARKS_H
#define AGENT_SANDBOX_MARKS_H

#include "rights.h"

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, TRACES);
	TYPE(key, u32);
	TYPE(value, struct trace);
} traces SEC(".maps");

struct {
	NUMBER(type, MAP_TASK_STORAGE);
	NUMBER(map_flags, MAP_NO_PREALLOC);
	TYPE(key, int);
	TYPE(value, struct mark);
} marks SEC(".maps");

struct {
	NUMBER(type, MAP_HASH);
	NUMBER(max_entries, CGROUPS);
	TYPE(key, u64);
	TYPE(value, u32);
} cgroups SEC(".maps");

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} misses SEC(".maps");

/* `mark.call` of a task that was marked in the middle of a call: no statement on whether its begin was seen. */
#define CALL_ANY (1ull << 32)
/* Of a trace's ancestors as many are looked at. */
#define TRACE_DEPTH 8
/* Cgroups are looked for among the outermost so many of a task's: nothing that a user nests below theirs
 * moves them out of sight. */
#define CGROUP_LEVELS 24

outline void miss(void)
{
	u32 zero = 0;
	u64 *count = map_look_up(&misses, &zero);
	if (count)
		__sync_fetch_and_add(count, 1);
}

inline_ struct mark *mark_of(struct task_struct *task)
{
	struct mark *mark;

	/* Most tasks have no storage of any program's: one look instead of a call, as they all pay for it. */
	if (has_field(task->bpf_storage) && !task->bpf_storage)
		return 0;
	mark = storage_get(&marks, task, 0, 0);
	return mark && mark->trace ? mark : 0;
}

/* The task's trace, if that trace's user has started it; 0 if there is none. A set-user-id program stays in its
 * trace, though nothing is recorded of it: so nobody gets out of one by starting it. */
inline_ u32 own_trace(struct task_struct *task, struct mark *mark)
{
	struct trace *trace;
	u32 id;

	if (!mark)
		return 0;
	id = mark->trace;
	trace = map_look_up(&traces, &id);
	return trace && is_started_by(task, trace->uid) ? id : 0;
}

/* Whether trace `id` is below trace `above`. */
outline int trace_below(u32 id, u32 above)
{
	for (int i = 0; i < TRACE_DEPTH; i++) {
		struct trace *trace = map_look_up(&traces, &id);
		if (!trace)
			return 0;
		id = trace->parent;
		if (!id)
			return 0;
		if (id == above)
			return 1;
	}
	return 0;
}

inline_ u64 cgroup_of(struct task_struct *task)
{
	return task->cgroups->dfl_cgrp->kn->id;
}

/* The id of the cgroup at that level above the task's. 0: there is none. */
inline_ u64 cgroup_at(struct cgroup *cgroup, int level)
{
	u64 id = 0;

	if (has_field(((struct cgroup___pointers *)0)->ancestors)) {
		struct cgroup *above = 0;
		void *first = &((struct cgroup___pointers *)cgroup)->ancestors[0];
		struct kernfs_node *node = 0;

		read_kernel(&above, sizeof(above), first + level * sizeof(above));
		READ(node, above->kn);
		READ(id, node->id);
	} else {
		void *first = &((struct cgroup___numbers *)cgroup)->ancestor_ids[0];

		read_kernel(&id, sizeof(id), first + level * sizeof(id));
	}
	return id;
}

/* The trace of the innermost registered cgroup that the task is in or below; 0 if there is none. */
outline u32 trace_of_cgroup(struct task_struct *task)
{
	struct cgroup *cgroup = task->cgroups->dfl_cgrp;
	int deepest = cgroup->level;
	u32 found = 0;

	for (int level = 0; level < CGROUP_LEVELS; level++) {
		u64 id;
		u32 *trace;

		if (level > deepest)
			break;
		id = cgroup_at(cgroup, level);
		trace = map_look_up(&cgroups, &id);
		if (trace)
			found = *trace;
	}
	return found;
}

outline int is_below_cgroup(struct task_struct *task, u64 wanted)
{
	struct cgroup *cgroup = task->cgroups->dfl_cgrp;
	int deepest = cgroup->level;

	if (cgroup->kn->id == wanted)
		return 1;
	for (int level = 0; level < CGROUP_LEVELS; level++) {
		if (level > deepest)
			break;
		if (cgroup_at(cgroup, level) == wanted)
			return 1;
	}
	return 0;
}

/* Marks a task. What belongs to another user is silent from the start. A task that cannot be marked, for
 * lack of memory, would escape: it is counted. */
inline_ int put_mark(struct task_struct *task, u32 id)
{
	struct trace *trace = map_look_up(&traces, &id);
	struct mark *mark;

	if (!trace)
		return 0;
	mark = storage_get(&marks, task, 0, STORAGE_CREATE);
	if (!mark) {
		__sync_fetch_and_add(&trace->lost, 1);
		miss();
		return 0;
	}
	if (!mark->trace)
		mark->call = CALL_ANY;
	mark->other = !is_of(task, trace->uid);
	mark->trace = id;
	return 1;
}

#endif
