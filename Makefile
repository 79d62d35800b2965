# make help lists the targets. Each installs the Debian packages that it needs,
# only if they are missing, and says so in one line.

GO ?= go
# Tests of one package at a time: two cores and a virtual machine share badly.
RXE = $(GO) test -race -p 1 -count=1 -timeout 10m -exec $(CURDIR)/bin/rdmavm

.PHONY: help demo test test-foreign test-debian test-rxe test-vm generate check clean go cgo runtime headers programs vm rdmavm preload

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: rdmavm runtime ## copy a file between two processes by RDMA, on a real device or in a virtual machine
	@$(GO) build -o bin/filecopy ./examples/filecopy
	@bin/rdmavm bin/filecopy demo

test: go cgo runtime ## run every test, on emulated devices where there are no others
	@.ci/test ./...

test-foreign: preload programs ## run rdma-core's programs, its test suite and perftest on emulated devices
	RDMA_TEST_PRELOAD=$(CURDIR)/bin/libsim.so RDMA_TEST_REQUIRE=1 $(GO) test -count=1 -timeout 10m ./sim/internal/foreign

SUITE ?= trixie
test-debian: preload ## run the tests on emulated devices with the rdma-core of another Debian: SUITE=trixie; needs root
	.ci/debian $(SUITE) dpkg-query -W -f 'rdma-core $${Version}\n' libibverbs1
	RDMA_TEST_DEVICE=sim RDMA_TEST_PRELOAD=$(CURDIR)/bin/libsim.so \
	.ci/test -p 1 -count=1 -exec '$(CURDIR)/.ci/debian $(SUITE)' ./sim/... ./rdma/... ./backends/... ./cmd/rdmainfo/

test-rxe: rdmavm runtime ## run the facade's tests on real verbs: a device, or Soft-RoCE in a virtual machine
	$(RXE) ./rdma/ ./rdma/raw/ ./backends/... ./cmd/rdmainfo/ ./examples/...

test-vm: rdmavm ## test the virtual machine's runner itself: panics, hangs, lost guests
	@bin/rdmavm -fetch-kernel
	$(GO) test -race -count=1 ./internal/rdmavm/

generate: go ## refresh zz_generated/ from the snapshots
	$(GO) generate ./...

check: go cgo headers ## formatting, vet, staticcheck, drift, ABI, portability
	@.ci/check

clean: ## remove what the build made
	rm -rf bin

go:
	@.ci/need-go

cgo: go
	@.ci/need "cgo and the race detector need a C compiler" gcc libc6-dev

runtime:
	@.ci/need "rdma-core's libraries, loaded when a program first uses RDMA" libibverbs1 ibverbs-providers librdmacm1

programs:
	@.ci/need "programs that emulated devices are tested with" ibverbs-utils perftest python3-pyverbs

preload: cgo
	@$(GO) build -buildmode=c-shared -o bin/libsim.so ./sim/preload

headers:
	@.ci/need "the bindings are compared with the C headers" libibverbs-dev librdmacm-dev

vm: cgo
	@if ! ls /sys/class/infiniband/* >/dev/null 2>&1; then \
		.ci/need "no RDMA device here: a virtual machine with Soft-RoCE stands in" qemu-system-x86; fi

rdmavm: vm
	@CGO_ENABLED=0 $(GO) build -o bin/rdmavm ./cmd/rdmavm
