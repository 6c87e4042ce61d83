/* What the second layer decided, from its programs to those that look at the end of the same call: bits of
 * `mark.call`.
 */
#ifndef AGENT_SANDBOX_VERDICTS_H
#define AGENT_SANDBOX_VERDICTS_H

#include "operations.h"

/* The second layer denied it. */
#define VERDICT_DENIED 1
/* It would have denied it. */
#define VERDICT_WOULD_DENY 2
/* A security module denied that a file comes to be. */
#define VERDICT_REFUSED 4
/* That the open failed is recorded already. */
#define VERDICT_TOLD 8
/* The hook of paths has looked at a link or a rename: that of inodes comes next and need not. */
#define VERDICT_NAMED 16

/* Takes what the second layer left there, whether the event is recorded or not. */
inline_ u64 take_verdict(struct mark *mark)
{
	u64 verdict = mark->call;

	if (verdict & (VERDICT_DENIED | VERDICT_WOULD_DENY))
		mark->call = verdict & ~(u64)(VERDICT_DENIED | VERDICT_WOULD_DENY);
	return verdict;
}

/* Who denied it, from the result of an LSM hook. */
inline_ void judge(struct head *head, u64 verdict, s64 result)
{
	head->result = result;
	if (verdict & VERDICT_WOULD_DENY)
		head->flags |= FLAG_WOULD_DENY;
	if (result < 0)
		head->by = verdict & VERDICT_DENIED ? BY_TRACER : BY_SECURITY_MODULE;
}

#endif
