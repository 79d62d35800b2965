/*
 * A program with signal handlers of its own. Its argument says what it does:
 * see main.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REQUIRE(what)                                                                    \
	do {                                                                             \
		if (!(what)) {                                                           \
			printf("line %d: %s: errno %d\n", __LINE__, #what, errno);       \
			exit(1);                                                         \
		}                                                                        \
	} while (0)

#define SIZE 65536

static struct ibv_pd *pd;
static struct ibv_cq *cq;
static struct ibv_qp *qp; /* connected with itself */

static void *map(int prot)
{
	void *p = mmap(NULL, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	REQUIRE(p != MAP_FAILED);
	return p;
}

static void connect_qp(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context;
	union ibv_gid gid;
	int i;

	REQUIRE(list);
	for (i = 0; list[i] && strcmp(ibv_get_device_name(list[i]), "sim_mlx5_0"); i++)
		;
	REQUIRE(list[i] && (context = ibv_open_device(list[i])));
	REQUIRE(pd = ibv_alloc_pd(context));
	REQUIRE(cq = ibv_create_cq(context, 64, NULL, NULL, 0));
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .cap = {32, 32, 1, 1}, .qp_type = IBV_QPT_RC,
	};
	REQUIRE(qp = ibv_create_qp(pd, &init));
	REQUIRE(!ibv_query_gid(context, 1, 3, &gid));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 16, .min_rnr_timer = 1,
		.ah_attr = {.is_global = 1, .port_num = 1,
			    .grh = {.dgid = gid, .sgid_index = 3, .hop_limit = 64}},
	};
	REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
					  IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 16,
	};
	REQUIRE(!ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
					  IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Writes the first half of a region to the second. */
static void post(const struct ibv_mr *mr)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, SIZE / 2, mr->lkey};
	struct ibv_send_wr *bad, wr = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = {(uintptr_t)mr->addr + SIZE / 2, mr->rkey},
	};

	REQUIRE(!ibv_post_send(qp, &wr, &bad));
}

static enum ibv_wc_status completed(void)
{
	struct ibv_wc wc;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		;
	REQUIRE(n == 1);
	return wc.status;
}

static struct sigaction installed(int sig)
{
	struct sigaction act;

	REQUIRE(!sigaction(sig, NULL, &act));
	return act;
}

static void install(int sig, void *handler, int flags)
{
	struct sigaction act = {.sa_handler = handler, .sa_flags = flags};

	REQUIRE(!sigaction(sig, &act, NULL));
}

static volatile long ticks, misplaced;

static void tick(int sig)
{
	char frame[8192];
	stack_t stack;

	/* A thread that has a stack for signals may be on one of Go's otherwise. */
	if (!sigaltstack(NULL, &stack) && !stack.ss_flags)
		misplaced++;
	memset(frame, sig, sizeof(frame));
	__asm__ volatile("" : : "r"(frame) : "memory");
	ticks++;
}

/* A timer's handler is called throughout. */
static void handlers(sighandler_t (*set_handler)(int, sighandler_t), int sig, int on_go_threads)
{
	const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = sig};
	struct itimerspec often = {{0, 500000}, {0, 500000}};
	timer_t timer;
	time_t end = time(NULL) + 2;
	struct ibv_mr *mr, *other;
	sigset_t set;
	void *p = map(PROT_READ | PROT_WRITE);
	int i;

	set_handler(sig, tick);
	REQUIRE(installed(sig).sa_handler == tick);
	REQUIRE(!(installed(sig).sa_flags & SA_ONSTACK));
	if (on_go_threads) {
		sigemptyset(&set);
		sigaddset(&set, sig);
		REQUIRE(!pthread_sigmask(SIG_BLOCK, &set, NULL));
	}
	REQUIRE(!timer_create(CLOCK_MONOTONIC, &event, &timer));
	REQUIRE(!timer_settime(timer, 0, &often, NULL));
	connect_qp();
	REQUIRE(mr = ibv_reg_mr(pd, p, SIZE, access));
	while (time(NULL) < end) {
		for (i = 0; i < 16; i++)
			post(mr);
		for (i = 0; i < 16; i++) {
			REQUIRE(completed() == IBV_WC_SUCCESS);
			REQUIRE(other = ibv_reg_mr(pd, p, 4096, access));
			REQUIRE(!ibv_dereg_mr(other));
		}
	}
	REQUIRE(ticks > 100 && !misplaced);
}

static sigjmp_buf out;
static siginfo_t last;
static sigset_t during; /* what was blocked in the handler */
static volatile int faults;

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	last = *info;
	faults++;
	sigprocmask(SIG_BLOCK, NULL, &during);
	if (info->si_code > 0)
		siglongjmp(out, sig);
}

static int fault_at(char *p)
{
	int sig = sigsetjmp(out, 1);

	if (!sig)
		*(volatile char *)p = 1;
	return sig;
}

/* Faults in the library's code are its own, all others the program's. */
static void own_faults(void)
{
	char *gone = map(PROT_READ | PROT_WRITE), *constant = map(PROT_READ);
	struct sigaction old, act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	struct ibv_mr *mr;
	FILE *empty;
	char *beyond;
	int status;

	/* Go has handlers for these. */
	REQUIRE(installed(SIGSEGV).sa_handler == SIG_DFL);
	REQUIRE(installed(SIGBUS).sa_handler == SIG_DFL);
	REQUIRE(installed(SIGPIPE).sa_handler == SIG_DFL);
	REQUIRE(installed(SIGURG).sa_handler == SIG_DFL);

	sigaddset(&act.sa_mask, SIGUSR1);
	REQUIRE(!sigaction(SIGSEGV, &act, &old) && old.sa_handler == SIG_DFL);
	install(SIGBUS, on_fault, SA_SIGINFO);
	connect_qp();
	REQUIRE(!ibv_reg_mr(pd, (void *)0x10000, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	REQUIRE(!ibv_reg_mr(pd, constant, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);
	REQUIRE(mr = ibv_reg_mr(pd, gone, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	REQUIRE(!munmap(gone, SIZE));
	post(mr);
	REQUIRE(completed() != IBV_WC_SUCCESS);
	REQUIRE(!faults);

	old = installed(SIGSEGV);
	REQUIRE(old.sa_sigaction == on_fault && old.sa_flags == SA_SIGINFO);
	REQUIRE(sigismember(&old.sa_mask, SIGUSR1) && !sigismember(&old.sa_mask, SIGUSR2));

	REQUIRE(fault_at(gone + 100) == SIGSEGV && faults == 1);
	REQUIRE(last.si_signo == SIGSEGV && last.si_code == SEGV_MAPERR && last.si_addr == gone + 100);
	REQUIRE(sigismember(&during, SIGUSR1) && sigismember(&during, SIGSEGV) && !sigismember(&during, SIGUSR2));
	REQUIRE(fault_at(constant) == SIGSEGV && last.si_code == SEGV_ACCERR);
	REQUIRE(empty = tmpfile());
	beyond = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(empty), 0);
	REQUIRE(fault_at(beyond) == SIGBUS && last.si_signo == SIGBUS && last.si_addr == beyond);
	REQUIRE(!ibv_reg_mr(pd, beyond, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT && faults == 3);

	REQUIRE(!raise(SIGSEGV) && faults == 4 && last.si_code == SI_TKILL && last.si_pid == getpid());

	install(SIGSEGV, on_fault, SA_SIGINFO | SA_NODEFER);
	REQUIRE(fault_at(gone) && faults == 5 && !sigismember(&during, SIGSEGV));
	install(SIGSEGV, on_fault, SA_SIGINFO | SA_RESETHAND);
	REQUIRE(fault_at(gone) && faults == 6 && installed(SIGSEGV).sa_handler == SIG_DFL);

	REQUIRE(signal(SIGSEGV, SIG_IGN) == SIG_DFL);
	REQUIRE(!raise(SIGSEGV) && faults == 6);
	REQUIRE(!ibv_reg_mr(pd, gone, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT);

	/* Of children it is the child's, although one kind has this memory. */
	install(SIGSEGV, on_fault, SA_SIGINFO);
	if (!vfork()) {
		signal(SIGSEGV, SIG_DFL);
		_exit(0);
	}
	REQUIRE(installed(SIGSEGV).sa_sigaction == on_fault);
	if (!fork()) {
		REQUIRE(installed(SIGSEGV).sa_sigaction == on_fault);
		REQUIRE(fault_at(gone) == SIGSEGV);
		REQUIRE(signal(SIGSEGV, SIG_DFL) == (void *)on_fault);
		REQUIRE(!fault_at(gone));
	}
	REQUIRE(wait(&status) > 0 && !status);
	REQUIRE(wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	REQUIRE(!ibv_reg_mr(pd, gone, 4096, IBV_ACCESS_LOCAL_WRITE) && errno == EFAULT && faults == 6);
}

/* The library's definitions behave as libc's do. */
static void names(void)
{
	REQUIRE(signal(SIGUSR1, tick) == SIG_DFL && installed(SIGUSR1).sa_flags & SA_RESTART);
	REQUIRE(!siginterrupt(SIGUSR1, 1) && !(installed(SIGUSR1).sa_flags & SA_RESTART));
	REQUIRE(signal(SIGUSR1, tick) == tick && !(installed(SIGUSR1).sa_flags & SA_RESTART));
	REQUIRE(!siginterrupt(SIGUSR1, 0) && installed(SIGUSR1).sa_flags & SA_RESTART);
	REQUIRE(sysv_signal(SIGUSR1, tick) == tick);
	REQUIRE(!raise(SIGUSR1) && ticks == 1 && installed(SIGUSR1).sa_handler == SIG_DFL);
	REQUIRE(sigset(SIGUSR1, tick) == SIG_DFL);
	REQUIRE(sigset(SIGUSR1, SIG_HOLD) == tick && !raise(SIGUSR1) && ticks == 1);
	REQUIRE(sigset(SIGUSR1, SIG_IGN) == SIG_HOLD && installed(SIGUSR1).sa_handler == SIG_IGN && ticks == 1);
	REQUIRE(signal(SIGKILL, tick) == SIG_ERR && errno == EINVAL);
	REQUIRE(signal(0, tick) == SIG_ERR && signal(65, tick) == SIG_ERR && signal(SIGUSR1, SIG_ERR) == SIG_ERR);
	REQUIRE(sigaction(-1, NULL, NULL) == -1 && errno == EINVAL);
}

static void on_exit_signal(int sig)
{
	signal(sig, SIG_DFL);
	raise(sig);
}

/* What a program was started to ignore it ignores. */
static void ignored(void)
{
	int end[2];

	REQUIRE(installed(SIGPIPE).sa_handler == SIG_IGN);
	REQUIRE(installed(SIGSEGV).sa_handler == SIG_IGN);
	connect_qp();
	REQUIRE(!kill(getpid(), SIGSEGV));
	REQUIRE(!pipe(end) && !close(end[0]));
	REQUIRE(write(end[1], "", 1) < 0 && errno == EPIPE);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "handlers"))
		handlers(signal, SIGALRM, 0);
	else if (!strcmp(what, "handlers on Go's threads"))
		handlers(signal, SIGALRM, 1);
	else if (!strcmp(what, "handlers by sigset"))
		handlers(sigset, SIGALRM, 0);
	else if (!strcmp(what, "handlers of signals that faults have"))
		handlers(signal, SIGSEGV, 0);
	else if (!strcmp(what, "own faults"))
		own_faults();
	else if (!strcmp(what, "names"))
		names();
	else if (!strcmp(what, "ignored"))
		ignored();
	else if (!strcmp(what, "die of a fault"))
		fault_at(map(PROT_NONE));
	else if (!strcmp(what, "die of a fault that is ignored"))
		signal(SIGSEGV, SIG_IGN), fault_at(map(PROT_NONE));
	else if (!strcmp(what, "die in a handler"))
		signal(SIGSEGV, on_exit_signal), fault_at(map(PROT_NONE));
	else if (!strcmp(what, "die of a signal"))
		raise(SIGSEGV);
	else
		REQUIRE(!"known");
	return 0;
}
