// Pointers to functions: as a field, a parameter, a result, and by a name.
struct device;

typedef void (*event_fn)(struct device *dev, int event, void *arg);

struct device_ops {
	int (*open)(struct device *dev, const char *name);
	void *(*alloc)(unsigned long size);
	int (*log)(const char *format, ...);
	event_fn on_event;
};

int set_handler(struct device *dev, void (*handler)(int), event_fn event);
