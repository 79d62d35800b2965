//go:build linux && cgo

/*
 * Signals of a program that Go is a guest in. Whoever calls sigaction by its name
 * comes here, Go too.
 *
 * All handlers get SA_ONSTACK. Go gives each thread that it runs on a stack for
 * signals, since a goroutine's may not even have room for what the kernel puts
 * there.
 *
 * SIGSEGV and SIGBUS have two handlers: Go's, which makes errors of faults in its
 * own code, and the program's, for all else. The kernel has on_fault, with the
 * program's flags and mask, so that it blocks and restarts what it would have.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* libc's own sigaction, which its headers don't declare. */
extern int __sigaction(int sig, const struct sigaction *act, struct sigaction *old);

/* Where the library begins and where its code ends, by the linker. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char etext[] __attribute__((visibility("hidden")));

static int is_ours(uintptr_t code)
{
	return code >= (uintptr_t)__ehdr_start && code < (uintptr_t)etext;
}

static uintptr_t interrupted(const void *context)
{
#if defined(__x86_64__)
	return ((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
	return ((const ucontext_t *)context)->uc_mcontext.pc;
#else
	return (uintptr_t)__ehdr_start; /* Go's, until it says that one isn't */
#endif
}

/* What was installed. on_fault reads it while others change it. */
static struct fault {
	struct sigaction program;
	struct sigaction go;
	int known; /* what the program had when it was started */
} segv, bus;

static struct fault *fault_of(int sig)
{
	return sig == SIGSEGV ? &segv : sig == SIGBUS ? &bus : NULL;
}

/*
 * The process that Go runs in. Its children install handlers of their own, some
 * of them while they share its memory.
 */
static pid_t owner;

__attribute__((constructor)) static void set_owner(void)
{
	owner = syscall(SYS_getpid);
}

/* Other libraries' constructors may run first. */
static int is_owner(void)
{
	return !owner || syscall(SYS_getpid) == owner;
}

/* Every signal: libc would leave out those that it cancels threads by. */
static const uint64_t all = ~0ull;

/* Handlers may install handlers: no signal comes while this is held. */
static char locked;

static uint64_t lock(void)
{
	uint64_t mask = 0;

	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, sizeof(mask));
	while (__atomic_test_and_set(&locked, __ATOMIC_ACQUIRE))
		sched_yield();
	return mask;
}

static void unlock(uint64_t mask)
{
	__atomic_clear(&locked, __ATOMIC_RELEASE);
	syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof(mask));
}

/* Has the signal end the process when its handler returns. */
static void die(int sig, siginfo_t *info)
{
	struct sigaction act = {.sa_handler = SIG_DFL};

	__sigaction(sig, &act, NULL);
	syscall(SYS_rt_tgsigqueueinfo, syscall(SYS_getpid), syscall(SYS_gettid), sig, info);
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	struct fault *f = fault_of(sig);
	sighandler_t expected, handler = __atomic_load_n(&f->go.sa_handler, __ATOMIC_ACQUIRE);
	int was_sent = info->si_code <= 0; /* by a process */

	if (!was_sent && handler != SIG_DFL && is_ours(interrupted(context))) {
		/* As Go asked for. */
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof(all));
	} else {
		handler = __atomic_load_n(&f->program.sa_handler, __ATOMIC_ACQUIRE);
		if (handler == SIG_IGN && was_sent)
			return;
		if (handler == SIG_DFL || handler == SIG_IGN) {
			die(sig, info);
			return;
		}
		expected = handler;
		if (f->program.sa_flags & SA_RESETHAND)
			__atomic_compare_exchange_n(&f->program.sa_handler, &expected, SIG_DFL, 0,
						    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	}
	/* The kernel, too, passes all three to handlers of one argument. */
	((void (*)(int, siginfo_t *, void *))handler)(sig, info, context);
}

/* Sets what on_fault calls; whose is the program's or Go's. */
static void install(int sig, struct sigaction *whose, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction was, next;
	struct fault *f = fault_of(sig);
	uint64_t mask = lock();

	if (!f->known)
		f->known = !__sigaction(sig, NULL, &f->program);
	was = *whose;
	next = act ? *act : was;
	if (act) {
		whose->sa_mask = next.sa_mask;
		whose->sa_flags = next.sa_flags;
		__atomic_store_n(&whose->sa_handler, next.sa_handler, __ATOMIC_RELEASE);
		next = f->program;
		next.sa_sigaction = on_fault;
		next.sa_flags = (next.sa_flags & ~SA_RESETHAND) | SA_SIGINFO | SA_ONSTACK;
		__sigaction(sig, &next, NULL);
	}
	unlock(mask);
	if (old)
		*old = was;
}

/*
 * Sets of signals: those for which the program did not ask for SA_ONSTACK, and
 * those that siginterrupt made interrupt calls.
 */
static uint64_t unstacked, interrupting;

static void put(uint64_t *set, int sig, int in)
{
	uint64_t bit = 1ull << ((sig - 1) & 63);

	if (in)
		__atomic_fetch_or(set, bit, __ATOMIC_RELAXED);
	else
		__atomic_fetch_and(set, ~bit, __ATOMIC_RELAXED);
}

static int is_in(const uint64_t *set, int sig)
{
	return __atomic_load_n(set, __ATOMIC_RELAXED) >> ((sig - 1) & 63) & 1;
}

/* What the program calls, and is told. */
static int program_sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct fault *f = fault_of(sig);
	struct sigaction next, was;

	if (f && is_owner()) {
		install(sig, &f->program, act, old);
		return 0;
	}
	if (act) {
		next = *act;
		next.sa_flags |= SA_ONSTACK;
	}
	if (__sigaction(sig, act ? &next : NULL, &was))
		return -1;
	if (f && was.sa_sigaction == on_fault)
		was = f->program;
	else if (is_ours((uintptr_t)was.sa_handler))
		memset(&was, 0, sizeof(was)); /* Go's: the program has none */
	else if (is_in(&unstacked, sig))
		was.sa_flags &= ~SA_ONSTACK;
	if (act)
		put(&unstacked, sig, !(act->sa_flags & SA_ONSTACK));
	if (old)
		*old = was;
	return 0;
}

int sigaction(int sig, const struct sigaction *restrict act, struct sigaction *restrict old)
{
	struct fault *f = fault_of(sig);
	struct sigaction was;

	if (!is_ours((uintptr_t)__builtin_return_address(0)))
		return program_sigaction(sig, act, old);
	if (f) {
		install(sig, &f->go, act, old);
		return 0;
	}
	/* What the program was started to ignore stays so: Go can do without. */
	if (act && !__sigaction(sig, NULL, &was) && was.sa_handler == SIG_IGN) {
		if (old)
			*old = was;
		return 0;
	}
	return __sigaction(sig, act, old);
}

/* What else libc has that installs handlers. */
static sighandler_t set_handler(int sig, sighandler_t handler, int flags)
{
	struct sigaction old, act = {.sa_handler = handler, .sa_flags = flags};

	if (handler == SIG_ERR || (!(flags & SA_NODEFER) && sigaddset(&act.sa_mask, sig))) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return program_sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

sighandler_t signal(int sig, sighandler_t handler)
{
	return set_handler(sig, handler, is_in(&interrupting, sig) ? 0 : SA_RESTART);
}

sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return set_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

int siginterrupt(int sig, int interrupt)
{
	struct sigaction act;

	if (program_sigaction(sig, NULL, &act))
		return -1;
	put(&interrupting, sig, interrupt);
	act.sa_flags = interrupt ? act.sa_flags & ~SA_RESTART : act.sa_flags | SA_RESTART;
	return program_sigaction(sig, &act, NULL);
}

sighandler_t sigset(int sig, sighandler_t handler)
{
	struct sigaction old, act = {.sa_handler = handler};
	int hold = handler == SIG_HOLD;
	sigset_t set, mask;

	sigemptyset(&set);
	if (handler == SIG_ERR || sigaddset(&set, sig)) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (program_sigaction(sig, hold ? NULL : &act, &old) ||
	    sigprocmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &set, &mask))
		return SIG_ERR;
	return sigismember(&mask, sig) ? SIG_HOLD : old.sa_handler;
}

sighandler_t bsd_signal(int sig, sighandler_t handler) __attribute__((alias("signal")));
sighandler_t ssignal(int sig, sighandler_t handler) __attribute__((alias("signal")));
sighandler_t __sysv_signal(int sig, sighandler_t handler) __attribute__((alias("sysv_signal")));
