# make help lists the targets. Each installs the Debian packages that it needs,
# only if they are missing, and says so in one line.

GO ?= go
# Tests of one package at a time: two cores and a virtual machine share badly.
RXE = $(GO) test -race -p 1 -count=1 -timeout 10m -exec $(CURDIR)/bin/rdmavm

.PHONY: help demo demo-device demo-sim demo-rxe test test-foreign test-debian test-rxe test-vm generate check clean go rdmavm preload

# A device of this machine that programs may open and that has a link, if any.
DEVICE = $(and $(wildcard /dev/infiniband/uverbs*),$(shell grep -s ACTIVE /sys/class/infiniband/*/ports/*/state))

# Debian packages, and what they are for.
COMPILER = gcc libc6-dev
RUNTIME = libibverbs1 ibverbs-providers librdmacm1
HEADERS = libibverbs-dev librdmacm-dev
PROGRAMS = ibverbs-utils perftest python3-pyverbs
MACHINE = qemu-system-x86
need = @.ci/need
export GO

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

demo: $(if $(DEVICE),demo-device,demo-sim) ## copy a file between two processes by RDMA, on emulated devices where there are no others

demo-device: go
	$(need) "a C compiler and rdma-core" $(COMPILER) $(RUNTIME)
	@$(GO) build -o bin/filecopy ./examples/filecopy
	@bin/filecopy demo

demo-sim: go ## the same on emulated devices, below the unmodified rdma-core
	$(need) "a C compiler and rdma-core" $(COMPILER) $(RUNTIME)
	@$(GO) build -tags sim -o bin/filecopy-sim ./examples/filecopy
	@echo "on emulated devices, below the unmodified rdma-core:"
	@bin/filecopy-sim demo

demo-rxe: go ## the same on a real kernel's verbs: Soft-RoCE in a virtual machine
	$(need) "a C compiler, rdma-core and a virtual machine" $(COMPILER) $(RUNTIME) $(MACHINE)
	@$(MAKE) -s rdmavm
	@$(GO) build -o bin/filecopy ./examples/filecopy
	@echo "on a real kernel's verbs, Soft-RoCE in a virtual machine, which is slow where the CPU is emulated:"
	@bin/rdmavm -mode vm bin/filecopy demo

test: go ## run every test, on emulated devices where there are no others
	$(need) "a C compiler for cgo and the race detector, and rdma-core" $(COMPILER) $(RUNTIME)
	@.ci/test ./...
	@RDMA_TEST_BACKEND=verbs .ci/test ./rdma/ # the vendors' devices by standard verbs
	@RDMA_TEST_DEVICE=sim:infiniband,sim:efa .ci/test ./rdma/ # on each

test-foreign: go ## run rdma-core's programs, its test suite and perftest on emulated devices
	$(need) "programs to run on emulated devices" $(COMPILER) $(RUNTIME) $(HEADERS) $(PROGRAMS)
	@$(MAKE) -s preload
	@RDMA_TEST_PRELOAD=$(CURDIR)/bin/libsim.so .ci/test -count=1 ./sim/internal/foreign

SUITE ?= trixie
THERE = .ci/test -p 1 -count=1 -exec '$(CURDIR)/.ci/debian $(SUITE)'
test-debian: go ## run the tests on emulated devices with the rdma-core of another Debian: SUITE=trixie; needs root
	$(need) "a C compiler for cgo and the race detector" $(COMPILER)
	@$(MAKE) -s preload
	.ci/debian $(SUITE) dpkg-query -W -f 'rdma-core $${Version}\n' libibverbs1
	RDMA_TEST_DEVICE=sim RDMA_TEST_PRELOAD=$(CURDIR)/bin/libsim.so $(THERE) ./sim/... ./rdma/... ./backends/... ./cmd/rdmainfo/ ./examples/...
	RDMA_TEST_DEVICE=sim RDMA_TEST_BACKEND=verbs $(THERE) ./rdma/
	RDMA_TEST_DEVICE=sim:infiniband,sim:efa $(THERE) ./rdma/
	@$(GO) build -tags sim -o bin/filecopy-sim ./examples/filecopy
	.ci/debian $(SUITE) bin/filecopy-sim demo -size 1

test-rxe: go ## run the facade's tests on real verbs: a device, or Soft-RoCE in a virtual machine
	$(need) "a C compiler, rdma-core, and without an RDMA device a virtual machine" $(COMPILER) $(RUNTIME) $(if $(DEVICE),,$(MACHINE))
	@$(MAKE) -s rdmavm
	$(RXE) ./rdma/ ./rdma/raw/ ./backends/... ./cmd/rdmainfo/ ./examples/...
	$(RXE) -run '^(TestMachineHasDevicesToo|TestDisable)$$' ./sim/

test-vm: go ## test the virtual machine's runner itself: panics, hangs, lost guests
	$(need) "a C compiler and the virtual machine that is tested" $(COMPILER) $(MACHINE)
	@$(MAKE) -s rdmavm
	@bin/rdmavm -fetch-kernel
	$(GO) test -race -count=1 ./internal/rdmavm/

generate: go ## refresh zz_generated/ from the snapshots
	$(GO) generate ./...

check: go ## formatting, vet, staticcheck, drift, ABI, portability
	$(need) "a C compiler, rdma-core, and its headers to compare the bindings with" $(COMPILER) $(RUNTIME) $(HEADERS)
	@.ci/check

clean: ## remove what the build made
	rm -rf bin

go:
	@.ci/need-go

preload:
	@$(GO) build -buildmode=c-shared -o bin/libsim.so ./sim/preload

rdmavm:
	@CGO_ENABLED=0 $(GO) build -o bin/rdmavm ./cmd/rdmavm
