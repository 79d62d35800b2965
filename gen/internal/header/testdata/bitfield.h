// Fields narrower than their type share its bytes; a blank one only fills.
struct bits {
	unsigned kind : 3;
	unsigned : 5;
	unsigned value : 20;
	unsigned next : 12;
	unsigned char flag : 1;
	unsigned char rest;
};
