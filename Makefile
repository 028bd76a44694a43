# Plain make prints the targets with the text after ## on their lines.

GO    ?= go

# The go command stamps the version and the commit, so that the command, the image and the metrics name the same. Outside of a
# repository, and in a worktree, there is no commit. Where git refuses to read the repository, set BUILDVCS=false.
export BUILDVCS ?= auto

# One way to compile, that of kubernetes/build, so that nothing is compiled twice, in no checkout. Only the race detector needs C.
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=$(BUILDVCS)

# The packages whose tests also run under the race detector: those that use concurrency or test a policy, which is called concurrently,
# except tests of several processes, and those of policies/standard, which call one policy after the other.
RACE = $(shell $(GO) list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... | \
	grep -E '[[ ](sync|sync/atomic|golang.org/x/sync/errgroup|outboard.dev/outboard/policy/policytest)[] ]' | \
	cut -d ' ' -f 1 | grep -vE '/(examples|test)(/|$$)|/placement$$|/policies/standard$$')

FUZZTIME ?= 10000x

# The packages whose tests repeat published measurements on a small scale.
FIGURES = /test/(benchplacement|benchscheduler|demogpu)$$

# make check runs the analyzers of go vet, so go test need not repeat them for each package. Without what only debuggers read, programs
# are linked in two thirds of the time. Without -count 1, go test repeats earlier results although a program that a test builds and runs,
# or a file outside the module, has changed.
TESTFLAGS := -vet=off -ldflags='-s -w' -count 1

# The trace for placement measurements, and its list of pods.
OPENB ?= test/openb
PODS ?= openb_pod_list_default.csv

# Compiles the command with lines that say how far it is: the first time takes minutes.
OUTBOARD = kubernetes/build outboard

.PHONY: help docs kubernetes prometheus helm demo cluster test test-all test-browser bench-page screenshots unit race fuzz cases figures scale chaos prove mutants upgrade bench bench-layers bench-scheduler scheduler-perf bench-placement hostile demo-gpu compat image scheduler-image release reproduce manifests api tidy check format lint scan compile build control-plane clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Builds only what it needs: no Prometheus, kubectl with KEEP=1, and nothing that is in the folder KUBEBUILDER_ASSETS. For example:
# make demo EXAMPLE=examples/devices
demo: ## place pods with an unmodified kube-scheduler and Outboard
	@$(MAKE) --no-print-directory -C kubernetes demo
	@kubernetes/build outboard demo
	@bin/demo --outboard bin/outboard $(if $(KEEP),--keep) $(if $(EXAMPLE),--example $(EXAMPLE))

# For example: make cluster SCHEDULER=scheduler.yaml
cluster: ## run etcd and kube-apiserver until Ctrl-C, and kube-scheduler with the configuration SCHEDULER
	@$(MAKE) --no-print-directory -C kubernetes demo KEEP=1
	@$(GO) build -o bin/cluster ./examples/cluster
	@bin/cluster $(if $(SCHEDULER),--scheduler $(SCHEDULER))

test: control-plane unit ## run everything that must hold, against a real control plane

test-all: test race fuzz scale figures test-browser ## run everything: make test, race, fuzz, scale, figures and test-browser

# The longest tests are first. More packages run at a time than there are cores, because some wait most of the time.
unit: ## run the tests of make test, with a control plane that is already built
	@echo 'compiling and running the tests of Outboard; the packages with the longest tests come first, and go test prints each after those before it'
	$(GO) test $(TESTFLAGS) -timeout 60m -p 4 ./test/e2e ./test/chaos ./test/docs ./test/helm $$($(GO) list ./... | grep -vE '$(FIGURES)')
	@echo 'compiling and running the tests of the modules kubernetes, deploy/image, deploy/render and test/network'
	$(GO) -C kubernetes test $(TESTFLAGS) -timeout 30m ./...
	$(GO) -C deploy/image test $(TESTFLAGS) -timeout 30m ./...
	$(GO) -C deploy/render test $(TESTFLAGS) -timeout 30m ./...
	$(GO) -C test/network test $(TESTFLAGS) -timeout 30m ./...

test-browser: control-plane ## test the page in Chromium, which must be installed
	@echo 'testing the page in Chromium'
	$(GO) -C test/browser test $(TESTFLAGS) -timeout 30m ./...

bench-page: ## measure the page in Chromium, and what it costs a replica, with 5,000 nodes
	$(GO) -C test/browser test -vet=off -run '^TestLarge$$' -count 1 -v . -args -budgets
	@echo 'one request to a replica, with 30,000 bound pods, or claims of DRA devices: at most 10 processor-ms'
	$(GO) test -vet=off -run '^$$' -bench '^Benchmark(Request|ClaimsHeld)$$' -benchtime 50x -count 1 ./internal/ui
	@echo 'a search for what would make a pod fit, with 40,000 pods: at most 50 processor-ms'
	$(GO) test -vet=off -run '^$$' -bench '^BenchmarkFind$$' -benchtime 20x -count 1 ./internal/remedy

screenshots: ## write the screenshots of the page in the documentation
	$(GO) -C test/browser test -vet=off -run '^TestScreenshots$$' -count 1 . -args -update

scale: control-plane ## run tests of make test again with a thousand pods
	@echo 'running tests with a thousand pods'
	$(GO) test -vet=off -timeout 30m -run '^Test(RequeueOneOfMany|RetriedBindKeepsTheGPU)$$' -count 1 ./test/e2e -args -pods 1000

figures: control-plane ## repeat the published measurements on a small scale
	@echo 'repeating the published measurements on a small scale'
	$(GO) test $(TESTFLAGS) -timeout 30m $$($(GO) list ./... | grep -E '$(FIGURES)')

# Skipped are tests of allocations, because the detector allocates, too; what the extender and its engine retain, because other tests
# make the same calls; scenarios, and what rules cost and compute, which have no concurrency; and the 80 broken extenders of verify, which
# run the same code as other extenders.
race: ## run the tests of concurrent packages under the race detector
	@echo 'compiling and running the tests of concurrent packages under the race detector'
	CGO_ENABLED=1 $(GO) test -vet=off -race -skip 'Allocat|NothingOutlivesItsRequest|MemoryOfCachesIsLimited|EveryFunctionIsBounded|Scenarios|CostsTooMuch|ShareABudget|SharesAreBounded|IsThatOfCEL|EachBrokenExtender' -timeout 30m $(RACE)

fuzz: ## run each fuzz target for FUZZTIME
	./test/fuzz $(FUZZTIME)

cases: ## compare the JSON Schema with the loader for 100,000 generated configuration files
	$(GO) test -vet=off -run '^TestSchema$$' -count 1 -timeout 60m ./internal/config -args -cases 100000

chaos: control-plane ## run the chaos tests of make test with thousands of pods, ten rolling updates, and network faults that last longer
	$(GO) test -run '^Test(Chaos|Kinds|Burst|RollingUpdate)$$' -count 1 -v -timeout 60m ./test/chaos -args -full
	$(GO) test -run '^TestNominatedPodsKeepTheirGPU$$' -count 1 -v -timeout 60m ./test/e2e -args -preemptions 1000
	$(GO) -C test/network test -run '^TestNetworkFaults$$' -count 1 -v -timeout 60m . -args -full

# What was searched is not searched again by the same code: stop it at any time, and run it again. For example, to search for a night:
# make prove PROVETIME=10h
PROVETIME ?= 100m

prove: ## search all interleavings of the protocols within larger bounds (test/search/README.md), and predict more devices
	@mkdir -p bin
	$(GO) test -vet=off -run '^TestPredictionsAreAllocations$$' -count 1 -v ./internal/firstfit -args -seeds 510 -finished $(CURDIR)/bin/predicted
	$(GO) test -vet=off -run '^TestEvery(Combination|Interleaving)$$' -count 1 -v -timeout 0 ./test/search -args -within $(PROVETIME) -finished $(CURDIR)/bin/searched

# What was killed by the same tests is not run again: stop it at any time, and run it again. For example:
# make mutants MUTANTS='-seed 2 -sample 100'
MUTANTS ?= -sample 400

mutants: control-plane ## change the code in one place at a time, and report what no test notices (test/mutants/README.md)
	@$(GO) build -o bin/mutate ./test/mutants
	bin/mutate
	bin/mutate $(MUTANTS)

# For example: make upgrade FROM=v0.1.0. The configuration of the test must be valid for that commit.
upgrade: control-plane ## upgrade from commit FROM to this checkout and back, while pods with claims are bound
	rm -rf bin/from && mkdir -p bin/from/source
	git archive $(or $(FROM),$(error set FROM to a commit)) | tar -x -C bin/from/source
	$(GO) -C bin/from/source build -o ../outboard ./cmd/outboard
	rm -rf bin/from/source
	$(GO) test -run '^TestUpgrade$$' -count 1 -v ./test/chaos -args -from $(CURDIR)/bin/from/outboard

bench: control-plane ## run the benchmarks, each beside its baseline
	$(GO) run ./test/benchwire
	$(GO) test -run '^$$' -bench . -benchmem ./...

# For example: make bench-layers BENCH='-rounds 2 -only plugin'. BENCH=-help lists the flags.
bench-layers: ## measure what each part that exists for speed alone saves (test/benchwire/README.md)
	@$(GO) build -o bin/benchwire ./test/benchwire
	@bin/benchwire -layers $(BENCH)

# For example: make bench-scheduler BENCH='-quick', or BENCH='-nodes 5000 -arms stock,outboard-8 -rounds 9'. BENCH=-help lists the flags.
bench-scheduler: kubernetes ## measure how fast kube-scheduler places pods with and without extenders (docs/performance.md)
	@$(OUTBOARD)
	@$(MAKE) --no-print-directory -C kubernetes bin/ideal-scheduler
	@$(GO) build -o bin/benchscheduler ./test/benchscheduler
	@bin/benchscheduler -outboard bin/outboard $(BENCH)

# For example: make scheduler-perf BENCH='-bench SchedulerPerf/misc', or with -large for some workloads in larger sizes.
scheduler-perf: ## run the workloads of kube-scheduler's own benchmark without Outboard, and with it as an extender and as a plugin
	@$(MAKE) --no-print-directory -C kubernetes bin/etcd
	$(GO) -C kubernetes test -vet=off -run '^$$' -bench SchedulerPerf -benchtime 1x -timeout 150m ./schedulerperf $(BENCH)

bench-placement: ## compare GPU strategies on a published trace (docs/which-gpu-policy.md)
	$(GO) run ./test/benchplacement --data $(OPENB) --pods $(PODS)

# For example: make hostile BENCH='-only floods'. BENCH=-help lists the flags.
hostile: ## measure memory use and latency of an honest client beside hostile ones
	@$(OUTBOARD)
	$(GO) run ./test/hostile --outboard bin/outboard $(BENCH)

# For example: make demo-gpu BENCH='-claims -percentage 100'
demo-gpu: ## place the trace with an unmodified kube-scheduler, beside the simulated prediction
	@$(MAKE) --no-print-directory -C kubernetes demo
	@$(OUTBOARD)
	$(GO) run ./test/demogpu --data $(OPENB) --outboard bin/outboard $(BENCH)

# No part of make test: it builds other releases of Kubernetes the first time. For example:
# make compat COMPAT='-only v1.29.6'
compat: kubernetes ## place pods with the kube-schedulers of other Kubernetes versions (docs/compatibility.md)
	@$(OUTBOARD)
	@$(GO) build -o bin/compat ./test/compat
	@test/compat/build $$(bin/compat -needs $(COMPAT))
	@bin/compat -outboard bin/outboard -page docs/compatibility.md $(COMPAT)

# For example: make image IMAGE=registry.example/outboard:v1
IMAGE ?= outboard:dev
PLATFORMS ?= linux/amd64,linux/arm64

image: ## write the container image for PLATFORMS to bin/image, as an OCI layout
	$(GO) -C deploy/image run . -name $(IMAGE) -platforms $(PLATFORMS)

scheduler-image: IMAGE = kube-scheduler-outboard:dev
scheduler-image: ## write the image of kube-scheduler with Outboard as a plugin for PLATFORMS to bin/scheduler-image
	$(GO) -C deploy/image run . -scheduler -name $(IMAGE) -platforms $(PLATFORMS) -o ../../bin/scheduler-image

# For example: make release VERSION=v0.1.0, where that is the tag of the commit.
DOWNLOADS ?= https://outboard.dev/releases

release: ## write all files of the release with the tag VERSION to dist (docs/releasing.md)
	$(GO) -C deploy/image run . -release $(or $(VERSION),$(error set VERSION to the tag of the commit)) -downloads $(DOWNLOADS) -o ../../dist

reproduce: ## make a release for all platforms twice, and compare and check its files
	$(GO) -C deploy/image test -vet=off -run '^TestRelease$$' -count 1 -v -timeout 120m . -args -all

manifests: ## render deploy/chart into the manifests of deploy/
	$(GO) test -run '^Test(Presets|ChartHasTheSchema)$$' ./deploy -update
	$(GO) -C deploy/render run . -o ..

docs: ## write the reference pages in docs/reference from the code
	$(GO) test -run '^TestDescriptions$$' -count 1 ./app -update
	$(GO) run ./docs/generate

api: ## write test/project/api.txt, the list of what other modules can use
	$(GO) test -vet=off -run '^TestAPI$$' -count 1 ./test/project -update

# The root module has the versions of kubernetes/go.mod, which follow the release of Kubernetes there; the examples have those of the root.
tidy: ## give all modules with code of Outboard the versions of kubernetes/go.mod, and tidy all modules
	$(GO) get $$($(GO) -C kubernetes list -m -f '{{.Path}}@{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' \
		$$($(GO) list -m -f '{{if not (or .Indirect .Main)}}{{.Path}}{{end}}' all))
	for file in $$(git ls-files '*go.mod'); do $(GO) -C $$(dirname $$file) mod tidy || exit 1; done

check: format lint compile build ## check formatting, what go vet and staticcheck report, and that everything compiles

format:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }

# bin/lint has the analyzers of go vet, too.
lint:
	$(GO) -C test/lint build -o ../../bin/lint .
	bin/lint ./...
	cd kubernetes && ../bin/lint ./...
	cd deploy/image && ../../bin/lint ./...
	cd deploy/render && ../../bin/lint ./...
	cd examples/own-policy && ../../bin/lint ./...
	cd test/browser && ../../bin/lint ./...
	cd test/lint && ../../bin/lint ./...
	cd test/network && ../../bin/lint ./...
	$(GO) -C test/lint tool actionlint -shellcheck= -pyflakes=

# docs/how-it-is-tested.md has the reason for each check of kube-score that is left out, and go.gosec.json for those of gosec.
scan: ## check the manifests in deploy with kube-score, and what a release contains with gosec
	@mkdir -p bin
	@$(GO) tool -modfile=go.kube-score.mod kube-score score --kubernetes-version v1.37 --exit-one-on-warning --output-format ci \
		--ignore-container-cpu-limit --ignore-container-memory-limit \
		--ignore-test container-ephemeral-storage-request-and-limit,container-image-pull-policy,pod-networkpolicy \
		--ignore-test deployment-has-host-podantiaffinity,service-type \
		$(filter-out deploy/kustomization.yaml deploy/test-pods.yaml,$(wildcard deploy/*.yaml)) > bin/kube-score || \
		{ grep -vE '^.(OK|SKIPPED)' bin/kube-score; exit 1; }
	@$(GO) tool -modfile=go.gosec.mod gosec -quiet -conf go.gosec.json \
		$(addprefix ./,$(addsuffix /...,app cmd internal policies policy schedplugin signal snapshot))

compile:
	$(GO) build ./...

build: ## build the command, bin/outboard
	@$(OUTBOARD)

# Minutes the first time, nothing afterwards.
control-plane: kubernetes prometheus helm ## build etcd, kube-apiserver, kube-scheduler, kubectl, Prometheus and Helm, for tests

# go tool keeps the programs in its cache, where test/helm finds them. To compile them beside tests would slow the control plane down.
helm:
	@echo 'compiling Helm 3 and 4'
	@for version in v3 v4; do $(GO) -C deploy/render tool -n helm.sh/helm/$$version/cmd/helm > /dev/null || exit 1; done

kubernetes:
	@$(MAKE) --no-print-directory -C kubernetes

prometheus:
	@$(MAKE) --no-print-directory -C test/prometheus

clean: ## remove all build output
	rm -rf bin dist
	$(MAKE) -C kubernetes clean
	$(MAKE) -C test/prometheus clean
