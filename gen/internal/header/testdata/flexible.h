// A trailing array adds nothing to the size, in either spelling.
struct names {
	unsigned long count;
	char text[];
};

struct old_names {
	unsigned count;
	unsigned short text[0];
};
