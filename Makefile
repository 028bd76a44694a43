# Plain make prints the targets: the text behind ## on their lines.

GO    ?= go

# One way to compile, so that nothing is compiled twice; only the race detector needs C.
export CGO_ENABLED := 0
TOOLS := $(GO) tool -modfile=go.tools.mod

# Packages also run under the race detector, but for tests of several processes, and placement, in which nothing runs at once.
RACE = $(shell $(GO) list ./... | grep -vE '/(controlplane|examples|test|placement)(/|$$)')

FUZZTIME ?= 10000x

# The trace that placement is measured with, and which of its lists of pods.
OPENB ?= test/openb
PODS ?= openb_pod_list_default.csv

.PHONY: help kubernetes prometheus demo test unit race fuzz chaos bench bench-scheduler bench-placement hostile demo-gpu check format vet lint build control-plane clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: kubernetes ## watch an unmodified kube-scheduler place pods where Outboard says
	@$(GO) build -o bin/outboard ./cmd/outboard
	@$(GO) run ./examples/demo --outboard bin/outboard $(if $(KEEP),--keep)

test: control-plane unit race fuzz ## every test, against a real control plane

# What go test vets is a part of what check does, and would be done once more for each.
unit: ## the tests alone, of a control plane that is built
	$(GO) test -vet=off -timeout 30m ./...
	$(GO) -C kubernetes test -vet=off -timeout 30m ./...

# Not what is allocated, as the detector allocates, too; nor scenarios, in which nothing runs at once; nor the 80 extenders that
# verify must see are broken, with which it does what it does with others.
race: ## the tests under the race detector
	CGO_ENABLED=1 $(GO) test -vet=off -race -skip 'Allocat|Scenarios|EachBrokenExtender' -timeout 30m $(RACE)

fuzz: ## each fuzz target for a while
	./test/fuzz $(FUZZTIME)

chaos: control-plane ## what make test does to a few pods and replicas, to thousands of pods
	$(GO) test -run '^Test(Chaos|Burst)$$' -count 1 -v -timeout 60m ./test/chaos -args -full
	$(GO) test -run '^TestNominatedPodsKeepTheirGPU$$' -count 1 -v -timeout 60m ./test/e2e -args -preemptions 1000

bench: control-plane ## the benchmarks, each beside what it is compared with
	$(GO) run ./test/benchwire
	$(GO) test -run '^$$' -bench . -benchmem ./...

# For example: make bench-scheduler BENCH='-quick', or BENCH='-nodes 5000 -arms stock,outboard-8 -rounds 9'; -help says what there is.
bench-scheduler: kubernetes ## how fast kube-scheduler places pods, with and without extenders (docs/performance.md)
	@$(GO) build -o bin/outboard ./cmd/outboard
	@$(GO) build -o bin/benchscheduler ./test/benchscheduler
	@bin/benchscheduler -outboard bin/outboard $(BENCH)

bench-placement: ## how strategies fill a published trace (docs/which-gpu-policy.md)
	$(GO) run ./test/benchplacement --data $(OPENB) --pods $(PODS)

hostile: ## memory, and how long an honest caller waits, beside hostile ones
	@$(GO) build -o bin/outboard ./cmd/outboard
	$(GO) run ./test/hostile --outboard bin/outboard

demo-gpu: kubernetes ## the trace through an unmodified kube-scheduler, beside the simulated prediction
	@$(GO) build -o bin/outboard ./cmd/outboard
	$(GO) run ./test/demogpu --data $(OPENB) --outboard bin/outboard

check: format vet lint build ## formatting, vet, linter and build

format:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }

vet:
	$(GO) vet ./...
	$(GO) -C kubernetes vet ./...
	$(GO) vet -tags chaos ./service

lint:
	$(TOOLS) staticcheck ./...
	$(GO) -C kubernetes tool -modfile=../go.tools.mod staticcheck ./...

build: ## bin/outboard
	$(GO) build ./...
	$(GO) build -o bin/outboard ./cmd/outboard

# Minutes the first time, nothing afterwards.
control-plane: kubernetes prometheus ## etcd, kube-apiserver, kube-scheduler and kubectl, and Prometheus, for tests

kubernetes prometheus:
	@$(MAKE) --no-print-directory -C $@

clean: ## remove what was built
	rm -rf bin
	$(MAKE) -C kubernetes clean
	$(MAKE) -C prometheus clean
