# make demo    watch an unmodified kube-scheduler place pods where Outboard says
# make test    every test, against a real control plane
# make chaos   what make test does to a few pods and replicas, to thousands of pods
# make bench   the benchmarks, each beside what it is compared with
# make bench-placement  how strategies fill a published trace
#              (docs/which-gpu-policy.md)
# make hostile  memory, and how long an honest caller waits, beside hostile ones
# make demo-gpu  the same trace through an unmodified kube-scheduler, beside what is foretold

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

.PHONY: demo test unit race fuzz chaos bench bench-placement hostile demo-gpu check format vet lint build control-plane clean

demo: control-plane
	@$(GO) build -o bin/outboard ./cmd/outboard
	@$(GO) run ./examples/demo --outboard bin/outboard $(if $(KEEP),--keep)

test: control-plane unit race fuzz

# What go test vets is a part of what check does, and would be done once more for each.
unit:
	$(GO) test -vet=off -timeout 30m ./...

# Not what is allocated, as the detector allocates, too; nor scenarios, in which nothing runs at once; nor the 80 extenders that
# verify must see are broken, with which it does what it does with others.
race:
	CGO_ENABLED=1 $(GO) test -vet=off -race -skip 'Allocat|Scenarios|EachBrokenExtender' -timeout 30m $(RACE)

fuzz:
	./test/fuzz $(FUZZTIME)

chaos: control-plane
	$(GO) test -run '^Test(Chaos|Burst)$$' -count 1 -v -timeout 60m ./test/chaos -args -full
	$(GO) test -run '^TestNominatedPodsKeepTheirGPU$$' -count 1 -v -timeout 60m ./test/e2e -args -preemptions 1000

bench: control-plane
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-placement:
	$(GO) run ./test/benchplacement --data $(OPENB) --pods $(PODS)

hostile:
	@$(GO) build -o bin/outboard ./cmd/outboard
	$(GO) run ./test/hostile --outboard bin/outboard

demo-gpu: control-plane
	@$(GO) build -o bin/outboard ./cmd/outboard
	$(GO) run ./test/demogpu --data $(OPENB) --outboard bin/outboard

check: format vet lint build

format:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }

vet:
	$(GO) vet ./...

lint:
	$(TOOLS) staticcheck ./...

build: control-plane
	$(GO) build ./...
	$(GO) build -o bin/outboard ./cmd/outboard

# etcd, kube-apiserver, kube-scheduler and kubectl, and Prometheus: minutes the first
# time, nothing afterwards.
control-plane:
	@$(MAKE) --no-print-directory -C kubernetes
	@$(MAKE) --no-print-directory -C prometheus

clean:
	rm -rf bin
	$(MAKE) -C kubernetes clean
	$(MAKE) -C prometheus clean
