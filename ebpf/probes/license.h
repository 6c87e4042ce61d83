/* The kernel offers some helpers to programs under the GPL only. */
#ifndef AGENT_SANDBOX_LICENSE_H
#define AGENT_SANDBOX_LICENSE_H

char _license[] __attribute__((section("license"), used)) = "Dual MIT/GPL";

#endif
