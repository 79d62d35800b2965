#include <stdint.h>

void sim_enable(int on);
int sim_add_file(int fd, uint64_t id, uint32_t rdev);
void sim_remove_file(uint64_t id);
void sim_move_file(uint64_t id, int fd);
