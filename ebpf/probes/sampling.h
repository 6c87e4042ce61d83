/* `every`: of the opens that were allowed most are left out, and counted.
 */
#ifndef AGENT_SANDBOX_SAMPLING_H
#define AGENT_SANDBOX_SAMPLING_H

#include "marks.h"

inline_ int sampled_out(struct trace *trace)
{
	u32 every = trace->every;

	if (every <= 1)
		return 0;
	if (__sync_fetch_and_add(&trace->opens, 1) % every == 0)
		return 0;
	__sync_fetch_and_add(&trace->skipped, 1);
	return 1;
}

#endif
