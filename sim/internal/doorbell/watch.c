//go:build linux && cgo

/*
 * Pages of doorbells are write-protected while the engine sleeps. The first
 * write to one stops in the kernel until this thread has lifted the protection
 * and woken the engine. It is not Go's: the thread that stopped may be one that
 * Go's collector waits for.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/ioctl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "watch.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1
#endif
#ifndef UFFD_FEATURE_WP_HUGETLBFS_SHMEM
#define UFFD_FEATURE_WP_HUGETLBFS_SHMEM (1 << 12)
#endif

#define PAGE 4096ull

static int faults = -1; /* the userfaultfd */
static int wake;        /* the engine's eventfd */

/* The functions of libc are ours, and call Go if they must: not from here. */
static long fault_ioctl(unsigned long request, void *arg)
{
	return syscall(SYS_ioctl, faults, request, arg);
}

static int protect(uint64_t start, uint64_t length, uint64_t mode)
{
	struct uffdio_writeprotect wp = {
		.range = { .start = start, .len = length },
		.mode = mode,
	};

	while (fault_ioctl(UFFDIO_WRITEPROTECT, &wp))
		if (errno != EAGAIN && errno != EINTR)
			return errno;
	return 0;
}

static void *watch(void *unused)
{
	struct pollfd p = { .fd = faults, .events = POLLIN };
	const uint64_t one = 1;
	struct uffd_msg msg;
	long n;

	(void)unused;
	for (;;) {
		if (poll(&p, 1, -1) < 0 && errno != EINTR)
			return NULL;
		while ((n = syscall(SYS_read, faults, &msg, sizeof(msg))) == sizeof(msg)) {
			if (msg.event != UFFD_EVENT_PAGEFAULT)
				continue;
			protect(msg.arg.pagefault.address & ~(PAGE - 1), PAGE, 0);
			/* Fails only if the count is full, when the engine wakes anyway. */
			n = syscall(SYS_write, wake, &one, sizeof(one));
		}
	}
}

static int start_thread(void)
{
	sigset_t all, old;
	pthread_t thread;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(&thread, NULL, watch, NULL);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!err)
		pthread_detach(thread);
	return err;
}

int sim_watch_start(int event)
{
	struct uffdio_api api = {
		.api = UFFD_API,
		.features = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_HUGETLBFS_SHMEM,
	};
	int err;

	wake = event;
	faults = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (faults < 0)
		return errno;
	err = fault_ioctl(UFFDIO_API, &api) ? errno : start_thread();
	if (err) {
		syscall(SYS_close, faults);
		faults = -1;
	}
	return err;
}

int sim_watch_add(uintptr_t page, size_t length)
{
	struct uffdio_register reg = {
		.range = { .start = page, .len = length },
		.mode = UFFDIO_REGISTER_MODE_WP,
	};

	return fault_ioctl(UFFDIO_REGISTER, &reg) ? errno : 0;
}

int sim_watch_arm(uintptr_t page, size_t length)
{
	return protect(page, length, UFFDIO_WRITEPROTECT_MODE_WP);
}

void sim_pause(void)
{
	for (int i = 0; i < 40; i++)
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("isb");
#else
		__asm__ volatile("" ::: "memory");
#endif
}
