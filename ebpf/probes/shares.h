/* Whose the room in the ring is. All users of a node share one ring. While no more than three quarters of it
 * are full, whoever comes gets room. Of what is free beyond that, nobody gets more than a small part in each moment: so
 * who makes events faster than they are read loses their own, and others still find room. A user's traces count as one.
 */
#ifndef AGENT_SANDBOX_SHARES_H
#define AGENT_SANDBOX_SHARES_H

#include "bpf.h"

/* The part that a user may take of what is free, within a moment: a sixteenth within 134 ms. When a reader has stood
 * still for five seconds, one such user has left a twelfth of that quarter to others. */
#define SHARE_PART 16
#define MOMENT_SHIFT 27
/* Users are told apart by their ids modulo this: two that are not have one share. */
#define SHARES 4096
/* Less than this is never so much. */
#define SHARED_ABOVE 16384

struct share {
	u64 moment;
	u64 bytes; /* taken in this moment */
};

struct {
	NUMBER(type, MAP_ARRAY);
	NUMBER(max_entries, SHARES);
	TYPE(key, u32);
	TYPE(value, struct share);
} shares SEC(".maps");

/* Whether there is room for a user's event, of so many bytes, in a ring that is so full. Processors
 * can begin the moment at once: one more share is taken then. */
inline_ int takes_share(u32 uid, u64 now, u64 bytes, u64 free)
{
	u32 key = uid % SHARES;
	struct share *share = map_look_up(&shares, &key);
	u64 moment = now >> MOMENT_SHIFT;

	if (!share)
		return 1;
	/* An event that was begun in the moment before can come after one of this: time does not go back. */
	if (share->moment < moment) {
		share->bytes = 0;
		share->moment = moment;
	}
	if (share->bytes + bytes > free / SHARE_PART)
		return 0;
	__sync_fetch_and_add(&share->bytes, bytes);
	return 1;
}

/* The same of any ring: `unread` are in it. */
inline_ int has_room(void *ring, u64 unread, u32 uid, u64 now, u64 bytes)
{
	u64 size;

	if (unread < SHARED_ABOVE)
		return 1;
	size = ring_query(ring, RING_SIZE);
	return unread <= size - size / 4 || unread >= size || takes_share(uid, now, bytes, size - unread);
}

#endif
