/* The object for kernels that take trampolines: hooks of security modules and functions of the kernel's are
 * looked at when they return (fexit), so that the verdict is the kernel's final one; the second layer denies
 * from LSM programs.
 */
#include "life.h"
#include "opens.h"
#include "network.h"
#include "names.h"
#include "changes.h"
#include "hooks.h"
#include "entries.h"
#include "second.h"
#include "license.h"
