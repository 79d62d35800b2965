// Functions: prototypes without names, with a definition, arrays as parameters.
struct list;

int list_len(const struct list *);
struct list *list_new(unsigned long long size, char name[16], const unsigned char (*rows)[4]);
void list_free(struct list *list);
int list_print(const char *format, ...) __attribute__((format(printf, 1, 2)));

static inline int list_is_empty(const struct list *);
static inline int list_is_empty(const struct list *list)
{
	return list_len(list) == 0;
}
