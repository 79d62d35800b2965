#include <stddef.h>
#include <stdint.h>

/* All return 0 or an errno. */
int sim_watch_start(int event);
int sim_watch_add(uintptr_t page, size_t length);
int sim_watch_arm(uintptr_t page, size_t length);

/* Passes about a microsecond, leaving the core to others that share it. */
void sim_pause(void);
