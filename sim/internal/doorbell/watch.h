#include <stddef.h>
#include <stdint.h>

/* All return 0 or an errno. */
int sim_watch_start(int event);
int sim_watch_add(uintptr_t page, size_t length);
int sim_watch_arm(uintptr_t page, size_t length);
