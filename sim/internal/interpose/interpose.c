//go:build linux && cgo

/* The definitions below would clash with the inline ones of fortified headers. */
#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "interpose.h"

/* Answered by Go: a descriptor or a negative errno; NOT_OURS for others. */
extern int32_t goverbs_sim_open(char *name);
extern int64_t goverbs_sim_rdev(char *name);
extern int32_t goverbs_sim_ioctl(uint64_t id, void *request);
extern void goverbs_sim_closed(uint64_t id, int32_t device);
extern void goverbs_sim_discover(void);
extern void goverbs_sim_mapped(uint64_t id, void *start, uint64_t length, int64_t offset);

/* libc's own read, which its headers don't declare. */
extern ssize_t __read(int fd, void *buf, size_t count);

#define NOT_OURS (-1 << 30)
#define VERBS_IOCTL 0xc0181b01ul
#define DEVICE_DIR "/dev/infiniband/"

/* Set while the Go side is there to answer. */
static int enabled;
/*
 * The process that Go runs in. A child that was forked has none of Go's threads,
 * and one that was vforked has its parent's memory: to both applies what the
 * kernel says.
 */
static pid_t owner;

/*
 * The open files of devices. A slot is taken while its id is not 0. Writers
 * hold a lock in Go; readers see a slot's other members before its id.
 */
static struct file {
	uint64_t id;
	uint64_t ino;
	uint64_t dev;
	uint32_t rdev; /* of a device's file; 0 of an event file */
	int fd;
} files[4096];
static int used; /* slots that were ever taken */

/*
 * Says 1, in children that were forked 0: a page that the kernel wipes for them.
 * Asking for the number of the process would take as long as a verb. One that
 * was vforked, of which this says nothing, closes files at most.
 */
static const int *unforked;

static void watch_forks(void)
{
	int *page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	*page = !madvise(page, sizeof(*page), MADV_WIPEONFORK);
	__atomic_store_n(&unforked, page, __ATOMIC_RELEASE);
}

void sim_enable(int on)
{
	owner = syscall(SYS_getpid);
	if (on && !unforked)
		watch_forks();
	__atomic_store_n(&enabled, on, __ATOMIC_RELEASE);
}

static int is_owner(void)
{
	return syscall(SYS_getpid) == owner;
}

static int is_unforked(void)
{
	return (unforked && *unforked) || is_owner();
}

static int raw_fstat(int fd, struct stat *st)
{
	return syscall(SYS_fstat, fd, st);
}

int sim_add_file(int fd, uint64_t id, uint32_t rdev)
{
	struct stat st;
	int i;

	if (raw_fstat(fd, &st))
		return errno;
	/* A file that had the number was closed by a raw call. */
	for (i = 0; i < used; i++)
		if (files[i].fd == fd)
			__atomic_store_n(&files[i].fd, -1, __ATOMIC_RELAXED);
	for (i = 0; i < used && files[i].id; i++)
		;
	if (i == sizeof(files) / sizeof(files[0]))
		return EMFILE;
	files[i].ino = st.st_ino;
	files[i].dev = st.st_dev;
	files[i].rdev = rdev;
	files[i].fd = fd;
	__atomic_store_n(&files[i].id, id, __ATOMIC_RELEASE);
	if (i == used)
		__atomic_store_n(&used, used + 1, __ATOMIC_RELEASE);
	return 0;
}

void sim_remove_file(uint64_t id)
{
	int i;

	for (i = 0; i < used; i++)
		if (files[i].id == id)
			__atomic_store_n(&files[i].id, 0, __ATOMIC_RELEASE);
}

void sim_move_file(uint64_t id, int fd)
{
	int i;

	for (i = 0; i < used; i++)
		if (files[i].id == id)
			__atomic_store_n(&files[i].fd, fd, __ATOMIC_RELAXED);
}

static const struct file *find(const struct stat *st)
{
	int i, n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);

	for (i = 0; i < n; i++)
		if (__atomic_load_n(&files[i].id, __ATOMIC_ACQUIRE) &&
		    files[i].ino == st->st_ino && files[i].dev == st->st_dev)
			return &files[i];
	return NULL;
}

/* The file that is known by the number, unless a raw call closed it since. */
static const struct file *find_number(int fd)
{
	int i, n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);

	for (i = 0; i < n && fd >= 0; i++)
		if (__atomic_load_n(&files[i].id, __ATOMIC_ACQUIRE) &&
		    __atomic_load_n(&files[i].fd, __ATOMIC_RELAXED) == fd)
			return &files[i];
	return NULL;
}

static const struct file *find_fd(int fd)
{
	struct stat st;
	int saved = errno;

	if (!__atomic_load_n(&used, __ATOMIC_ACQUIRE) || raw_fstat(fd, &st)) {
		errno = saved;
		return NULL;
	}
	return find(&st);
}

/* The part of a path that may name a device of ours. */
static const char *device_name(const char *path)
{
	if (!__atomic_load_n(&enabled, __ATOMIC_ACQUIRE) || !path ||
	    strncmp(path, DEVICE_DIR, sizeof(DEVICE_DIR) - 1) || !is_owner())
		return NULL;
	return path + sizeof(DEVICE_DIR) - 1;
}

/* Why what the thread opened last is a device of ours that did not open. */
static __thread int refusal;

static int do_open(const char *path, int flags, mode_t mode)
{
	const char *name = device_name(path);
	int32_t fd;

	refusal = 0;
	if (name && (fd = goverbs_sim_open((char *)name)) != NOT_OURS) {
		refusal = fd < 0 ? -fd : 0;
		if (fd >= 0)
			return fd;
		errno = refusal;
		return -1;
	}
	return syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

static void make_device(struct stat *st, uint32_t rdev)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = rdev;
	st->st_size = 0;
	st->st_blocks = 0;
}

static int do_stat(const char *path, struct stat *st)
{
	const char *name = device_name(path);
	int64_t rdev;

	if (name && (rdev = goverbs_sim_rdev((char *)name)) != NOT_OURS) {
		if (rdev < 0) {
			errno = -rdev;
			return -1;
		}
		memset(st, 0, sizeof(*st));
		make_device(st, rdev);
		st->st_nlink = 1;
		return 0;
	}
	return syscall(SYS_newfstatat, AT_FDCWD, path, st, 0);
}

static int do_fstat(int fd, struct stat *st)
{
	const struct file *f;
	int ret = raw_fstat(fd, st);

	if (!ret && __atomic_load_n(&used, __ATOMIC_ACQUIRE) && (f = find(st)) && f->rdev &&
	    is_unforked())
		make_device(st, f->rdev);
	return ret;
}

#define MODE_OF(mode, flags, last)                       \
	mode_t mode = 0;                                 \
	if ((flags) & (O_CREAT | __O_TMPFILE)) {         \
		va_list ap;                              \
		va_start(ap, last);                      \
		mode = va_arg(ap, mode_t);               \
		va_end(ap);                              \
	}

int open(const char *path, int flags, ...)
{
	MODE_OF(mode, flags, flags)
	return do_open(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
	MODE_OF(mode, flags, flags)
	return do_open(path, flags, mode);
}

int __open_2(const char *path, int flags)
{
	return do_open(path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
	return do_open(path, flags, 0);
}

/* On 64-bit systems the structures for large files are the usual ones. */
int stat(const char *restrict path, struct stat *restrict st)
{
	return do_stat(path, st);
}

int stat64(const char *restrict path, struct stat64 *restrict st)
{
	return do_stat(path, (struct stat *)st);
}

int fstat(int fd, struct stat *st)
{
	return do_fstat(fd, st);
}

int fstat64(int fd, struct stat64 *st)
{
	return do_fstat(fd, (struct stat *)st);
}

/* What stat and fstat were called before glibc 2.33. */
int __xstat(int version, const char *path, struct stat *st)
{
	(void)version;
	return do_stat(path, st);
}

int __xstat64(int version, const char *path, struct stat64 *st)
{
	(void)version;
	return do_stat(path, (struct stat *)st);
}

int __fxstat(int version, int fd, struct stat *st)
{
	(void)version;
	return do_fstat(fd, st);
}

int __fxstat64(int version, int fd, struct stat64 *st)
{
	(void)version;
	return do_fstat(fd, (struct stat *)st);
}

int ioctl(int fd, unsigned long request, ...)
{
	const struct file *f;
	void *arg;
	va_list ap;
	int32_t err;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (request != VERBS_IOCTL)
		return syscall(SYS_ioctl, fd, request, arg);
	/* The number is enough: no other file would be asked that. A duplicate has another. */
	if ((!(f = find_number(fd)) && !(f = find_fd(fd))) || !is_unforked())
		return syscall(SYS_ioctl, fd, request, arg);
	err = goverbs_sim_ioctl(f->id, arg);
	if (!err)
		return 0;
	errno = err;
	return -1;
}

int close(int fd)
{
	const struct file *f = find_number(fd);

	/* A duplicate may go, or stay; the device is open as long as one of them. */
	if (f && is_owner() && f == find_fd(fd))
		goverbs_sim_closed(f->id, f->rdev ? fd : -1);
	return syscall(SYS_close, fd);
}

/*
 * An event file is a pipe, which ends with its device; the kernel says EIO then.
 * Threads that block here may be cancelled, which libc has to see to.
 */
ssize_t read(int fd, void *buf, size_t count)
{
	const struct file *f;
	ssize_t n = __read(fd, buf, count);

	if (n || !count || !(f = find_fd(fd)) || f->rdev || !is_unforked())
		return n;
	errno = EIO;
	return -1;
}

/*
 * The pages behind a device's file are real. Go is told where they are.
 */
static void *do_mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	void *p = (void *)syscall(SYS_mmap, addr, length, prot, flags, fd, offset);
	const struct file *f;

	if (fd >= 0 && p != MAP_FAILED && (f = find_fd(fd)) && f->rdev && is_owner())
		goverbs_sim_mapped(f->id, p, length, offset);
	return p;
}

void *mmap(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return do_mmap(addr, length, prot, flags, fd, offset);
}

void *mmap64(void *addr, size_t length, int prot, int flags, int fd, off_t offset)
{
	return do_mmap(addr, length, prot, flags, fd, offset);
}

/*
 * A device file that does not open libibverbs expects below /dev/char, and waits
 * some seconds until udev has put it there. Of ours it learns at once why not.
 */
int inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	if (refusal && !strcmp(path, "/dev/char/")) {
		errno = refusal;
		refusal = 0;
		return -1;
	}
	return syscall(SYS_inotify_add_watch, fd, path, mask);
}

/*
 * The kernel is asked for its RDMA devices over netlink before sysfs is read;
 * without an answer sysfs alone counts, where only ours are.
 */
int socket(int domain, int type, int protocol)
{
	if (domain == AF_NETLINK && protocol == NETLINK_RDMA && __atomic_load_n(&enabled, __ATOMIC_ACQUIRE) &&
	    is_owner()) {
		goverbs_sim_discover();
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return syscall(SYS_socket, domain, type, protocol);
}
