/* What the kernel offers to its programs: helpers by their numbers (bpf-helpers(7), include/uapi/linux/bpf.h),
 * and how sections, maps and relocations are declared. No header of libbpf's or of the kernel's is needed.
 */
#ifndef AGENT_SANDBOX_BPF_H
#define AGENT_SANDBOX_BPF_H

#include "events.h"

#define SEC(name) __attribute__((section(name), used))
#define inline_ static inline __attribute__((always_inline))
#define outline static __attribute__((noinline))
#define likely(condition) __builtin_expect(!!(condition), 1)
/* A function that the verifier looks at by itself, once, whoever calls it. Its arguments are numbers, and pointers
 * that may be null. */
#define separate __attribute__((noinline))
#define unlikely(condition) __builtin_expect(!!(condition), 0)

/* Maps are described to the loader by the types of a variable's fields. */
#define NUMBER(name, value) int (*name)[value]
#define TYPE(name, type) type *name
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_RINGBUF 27
#define MAP_TASK_STORAGE 29
#define MAP_NO_PREALLOC 1

/* Whether this kernel has a field: decided when the object is loaded. */
#define has_field(field) __builtin_preserve_field_info(field, 2)
/* Types of the kernel's: the offsets of their fields are this kernel's own. */
#define RELOCATED __attribute__((preserve_access_index))

struct task_struct;
struct path;

static void *(*const map_look_up)(void *map, const void *key) = (void *)1;
static u32 (*const processor)(void) = (void *)8;
static long (*const read_user)(void *to, u32 bytes, const void *from) = (void *)112;
static long (*const read_kernel)(void *to, u32 bytes, const void *from) = (void *)113;
static long (*const read_user_string)(void *to, u32 bytes, const void *from) = (void *)114;
static long (*const read_kernel_string)(void *to, u32 bytes, const void *from) = (void *)115;
static u64 (*const boot_time)(void) = (void *)125;
static long (*const ring_output)(void *ring, void *data, u64 bytes, u64 flags) = (void *)130;
static u64 (*const ring_query)(void *ring, u64 what) = (void *)134;
static long (*const write_path)(struct path *path, char *to, u32 bytes) = (void *)147;
static void *(*const storage_get)(void *map, struct task_struct *task, void *first, u64 flags) = (void *)156;
static long (*const storage_delete)(void *map, struct task_struct *task) = (void *)157;
static struct task_struct *(*const current_task)(void) = (void *)158;
static long (*const function_result)(void *context, u64 *result) = (void *)184;
static long (*const function_arguments)(void *context) = (void *)185;

#define STORAGE_CREATE 1
#define RING_NO_WAKE 1
#define RING_WAKE 2
#define RING_AVAILABLE 0
#define RING_SIZE 1

/* Reads a field of the kernel's memory into a variable; of what cannot be read it holds zeros. */
#define READ(to, field) read_kernel(&(to), sizeof(to), &(field))

/* The compiler must not know more of a number than the verifier sees. */
#define opaque(number) __asm__ volatile("" : "+r"(number))

/* Argument `n` of the hooked function. The type is the verifier's to check. */
#define ARGUMENT(type, n) ((type)context[n])

#endif
