/* How an event gets from a probe into the ring buffer. It is put together in a buffer of the processor's.
 * A task can be preempted in the middle by another one that is traced, too, and interrupts come in: so a
 * processor has several buffers, and each is claimed. What finds none, or no room in the ring, is counted.
 */
#ifndef AGENT_SANDBOX_EMIT_H
#define AGENT_SANDBOX_EMIT_H

#include "marks.h"
#include "shares.h"

/* Buffers of a processor: a task, one that it was preempted by, an interrupt, one to spare. */
#define SLOTS 4
/* One string read beyond the end of an event, at most: a component of a path with its zero. */
#define SLACK 256

/* How far the walk along a path is (paths.h). It is kept in a map, of whose contents the verifier assumes
 * nothing: so each round of the walk looks the same to it, and it needs to look at few. */
struct walk {
	struct dentry *dentry;
	struct dentry *top; /* of the mount */
	struct dentry *root;
	struct vfsmount *mount;
	struct vfsmount *root_mount;
	u64 from;
	u64 at;
	u32 flags;
	u32 pad;
};

struct slot {
	u64 busy;
	struct walk walk;
	u8 bytes[EVENT_BYTES + SLACK];
};

struct {
	NUMBER(type, MAP_PERCPU_ARRAY);
	NUMBER(max_entries, SLOTS);
	TYPE(key, u32);
	TYPE(value, struct slot);
} slots SEC(".maps");

struct {
	NUMBER(type, MAP_RINGBUF);
	NUMBER(max_entries, RING_BYTES);
} events SEC(".maps");

/* `pulse`: when the reader was last woken, in ns. Waking it costs the traced task more than all the rest,
 * so it is done at most each 20 ms, or each ms once the ring fills. The reader looks again by itself. */
struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, u32);
	TYPE(value, u64);
} pulse SEC(".maps");
#define PULSE 20000000ull
#define PULSE_FAST 1000000ull
/* The ring fills, in bytes. */
#define FILLING 262144

#define BEGIN(slot) ((struct head *)(slot)->bytes)

inline_ void lose(struct trace *trace)
{
	__sync_fetch_and_add(&trace->lost, 1);
}

outline struct slot *claim(void)
{
	for (u32 i = 0; i < SLOTS; i++) {
		u32 key = i;
		struct slot *slot = map_look_up(&slots, &key);

		if (!slot)
			return 0;
		if (__sync_val_compare_and_swap(&slot->busy, 0, 1) == 0)
			return slot;
	}
	return 0;
}

inline_ void release(struct slot *slot)
{
	__sync_lock_test_and_set(&slot->busy, 0);
}

/* Claims a buffer and fills in what every event says of its task. */
outline struct slot *begin(struct task_struct *task, struct trace *trace, u32 id, u32 kind)
{
	struct slot *slot = claim();
	struct head *head;

	if (!slot) {
		lose(trace);
		return 0;
	}
	head = BEGIN(slot);
	head->kind = kind;
	head->by = BY_NOBODY;
	head->flags = task->flags & PF_IO_WORKER ? FLAG_WORKER : 0;
	head->time = boot_time();
	head->cgroup = cgroup_of(task);
	head->trace = id;
	head->pid = task->tgid;
	head->tid = task->pid;
	head->ppid = task->real_parent->tgid;
	head->uid = task->real_cred->uid.val;
	head->result = 0;
	read_kernel(head->comm, sizeof(head->comm), &task->comm);
	head->cpu = processor();
	head->pad = 0;
	return slot;
}

/* Sends the event and gives the buffer back. */
outline int finish(struct slot *slot, struct trace *trace, u64 bytes)
{
	struct head *head = BEGIN(slot);
	u64 flags = RING_NO_WAKE, unread = ring_query(&events, RING_AVAILABLE);
	u32 zero = 0;
	u64 *woken = map_look_up(&pulse, &zero);
	int room;

	if (bytes > EVENT_BYTES)
		bytes = EVENT_BYTES;
	head->size = bytes;
	room = has_room(&events, unread, trace->uid, head->time, bytes);
	if (woken && room) {
		u64 since = head->time - *woken;

		if (since > PULSE || (since > PULSE_FAST && unread > FILLING)) {
			*woken = head->time;
			flags = RING_WAKE;
		}
	}
	if (!room || ring_output(&events, slot->bytes, bytes, flags) < 0)
		lose(trace);
	release(slot);
	return 0;
}

/* Tells once that nothing is recorded of a task from here on. */
inline_ int tell_other(struct task_struct *task, struct mark *mark, struct trace *trace)
{
	u64 foreign;
	struct operation *event;
	struct slot *slot;

	if (mark->other)
		return 0;
	mark->other = 1;
	if (!(trace->events >> KIND_OPERATION & 1) || !(trace->operations >> OP_OTHER_USER & 1))
		return 0;
	slot = begin(task, trace, mark->trace, KIND_OPERATION);
	if (!slot)
		return 0;
	foreign = others_rights(task, trace->uid);
	event = (struct operation *)slot->bytes;
	event->what = OP_OTHER_USER;
	event->pad = 0;
	event->first = foreign >> 32;
	event->second = (u32)foreign;
	event->third = 0;
	event->path_bytes = 0;
	event->other_bytes = 0;
	return finish(slot, trace, sizeof(*event));
}

/* The task's trace if its events of this kind are recorded, else 0. A task that has another's rights now is told
 * of once. */
outline struct trace *recorded(struct task_struct *task, struct mark *mark, u32 kind)
{
	u32 id = mark->trace;
	struct trace *trace = map_look_up(&traces, &id);

	if (!trace || !(trace->flags & TRACE_RECORD))
		return 0;
	if (unlikely(!is_of(task, trace->uid))) {
		tell_other(task, mark, trace);
		return 0;
	}
	if (mark->other)
		mark->other = 0;
	return trace->events >> kind & 1 ? trace : 0;
}

#endif
