# Plain make prints the targets with the text after ## on their lines, and after that those with ###.

GO ?= go

# One way to compile, so that tests, programs, images and all checkouts share what is compiled. Only the race detector needs C.
# BUILDVCS: the go command stamps the version and the commit, so that the command, the image and the metrics name the same. Outside of a
# repository, and in a worktree, there is no commit. Where git refuses to read the repository, set BUILDVCS=false.
export BUILDVCS ?= auto
export CGO_ENABLED := 0
export GOFLAGS := -trimpath -buildvcs=$(BUILDVCS)

# make check runs the analyzers of go vet, so go test does not. Without what only debuggers read, programs are linked in two thirds of the time.
TEST := test -vet=off -ldflags='-s -w'

# For tests that start programs: the go command does not see when these change, so it must not repeat earlier results.
ONCE := $(TEST) -timeout 60m -count 1

# How many packages are tested at a time: one more than there are cores, because some tests mostly wait.
MORE = $$(($$(getconf _NPROCESSORS_ONLN) + 1))

# The packages of the product: none starts a program.
PRODUCT = $$($(GO) list ./... | grep -vE '/(examples|test)(/|$$)')

# The packages whose tests also run under the race detector: those that use concurrency or test a policy, which is called concurrently,
# except tests of several processes, and those of policies/standard, which call one policy after the other.
RACE = $(shell $(GO) list -f '{{.ImportPath}} {{.Imports}} {{.TestImports}} {{.XTestImports}}' ./... | \
	grep -E '[[ ](sync|sync/atomic|golang.org/x/sync/errgroup|outboard.dev/outboard/policy/policytest)[] ]' | \
	cut -d ' ' -f 1 | grep -vE '/(examples|test)(/|$$)|/placement$$|/policies/standard$$')

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(lastword $(MAKEFILE_LIST)))

help:
	@awk -F ':.*[^#]## ' '/^[a-z-]+:.*[^#]## / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\nParts of make nightly and make release-check, measurements and upkeep:\n'
	@awk -F ':.*### ' '/^[a-z-]+:.*### / {printf "make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build the command, bin/outboard
	@kubernetes/build outboard

# Builds only what it needs, and nothing that is in the folder KUBEBUILDER_ASSETS. For example: make demo EXAMPLE=examples/devices
# With a node of the example that is real and runs its pods, as root: make demo EXAMPLE=examples/gpu-sharing NODE=large
# The program of an EXAMPLE with a go.mod takes the place of Outboard, or that in OUTBOARD.
OWN = $(wildcard $(EXAMPLE:%=%/go.mod))
demo: ## place pods with an unmodified kube-scheduler and Outboard
	@$(MAKE) --no-print-directory -C kubernetes demo $(if $(NODE),KEEP=1)
	@$(if $(NODE),$(MAKE) --no-print-directory real-node)
	@kubernetes/build demo $(if $(OUTBOARD)$(OWN),,outboard)
	@$(if $(OUTBOARD),,$(if $(OWN),$(GO) -C $(EXAMPLE) build -ldflags='-s -w' -o $(CURDIR)/bin/own-outboard .))
	@$(if $(NODE),test/node/enter) bin/demo --outboard $(or $(OUTBOARD),$(if $(OWN),bin/own-outboard,bin/outboard)) $(if $(KEEP),--keep) $(if $(EXAMPLE),--example $(EXAMPLE)) $(if $(NODE),--node $(NODE))

# For example: make cluster SCHEDULER=scheduler.yaml
cluster: ## run etcd and kube-apiserver until Ctrl-C, and kube-scheduler with SCHEDULER
	@$(MAKE) --no-print-directory -C kubernetes demo KEEP=1
	@$(GO) build -o bin/cluster ./test/cluster
	@bin/cluster $(if $(SCHEDULER),--scheduler $(SCHEDULER))

node: control-plane real-node ## run a cluster of one real node until Ctrl-C: with kubelet, containerd and Services, as root
	@$(GO) build -o bin/cluster ./test/cluster
	@test/node/enter bin/cluster -node $(if $(SCHEDULER),-scheduler $(SCHEDULER))

# go test repeats the earlier result of a package whose code and files have not changed, so the packages
# that run git or go are tested each time.
test: ## run the tests of the packages and of the project: no control plane is needed
	@echo 'compiling and running the tests of the packages; the first time, this compiles about a thousand packages that they import'
	$(GO) $(TEST) -timeout 5m -p $(MORE) $(PRODUCT)
	$(GO) $(TEST) -timeout 5m -count 1 ./test/project ./test/bounds ./test/docs ./test/verify

# Longest tests first.
test-cluster: control-plane ## run the tests with a real API server and kube-scheduler
	@echo 'compiling and running the tests with a control plane, which takes some minutes'
	$(GO) $(ONCE) -p $(MORE) ./test/e2e ./test/integration/... ./test/search
	$(GO) $(ONCE) -run '^Test(Chaos|Kinds)$$' ./test/chaos
	$(GO) -C kubernetes $(ONCE) ./wire ./yardstick ./equality ./doctor

check: format lint ## check formatting, and what go vet and staticcheck report

# In this order, because the later ones read what the earlier ones write.
generate: ## write the reference pages, the manifests and the list of the public API from the code
	$(GO) test -vet=off -count 1 -run '^Test(Descriptions|API|Presets|ChartHasTheSchema)$$' ./app ./deploy ./test/project -update
	$(GO) run ./tools/generate
	$(GO) -C tools/render run . -o ../../deploy

# It builds for the platforms of the cluster's nodes. For example: make quickstart REGISTRY=registry.example/team PRESET=placement
PRESET ?= gpu-sharing
quickstart: ## build and push the image to REGISTRY, and install Outboard in the cluster of kubectl, with pods for it
	@mkdir -p bin
	@nodes=$$(kubectl get nodes -o jsonpath='{range .items[*]}linux/{.status.nodeInfo.architecture}{"\n"}{end}') && \
	platforms=$$(echo "$$nodes" | sort -u | paste -sd,) && \
	image=$(or $(REGISTRY),$(error set REGISTRY to a registry that the nodes can pull from))/outboard && \
	$(GO) -C tools/image run . -name $$image:dev -platforms $$platforms && \
	pushed=$$($(GO) -C tools/image tool crane push ../../bin/image $$image:dev) && \
	version=$$(kubectl get --raw /version | sed -n 's/.*"gitVersion": "\([^"]*\)".*/\1/p') && \
	$(GO) -C tools/render run . -quickstart $(PRESET) -kubernetes $$version \
		-set "image.repository=$$image,image.tag=dev@$${pushed#*@}" > bin/quickstart.yaml
	kubectl apply -f bin/quickstart.yaml
	@echo 'kubectl get pods shows the result; kubectl delete --ignore-not-found -f bin/quickstart.yaml removes all of it'

# For example: make image IMAGE=registry.example/outboard:v1
IMAGE ?= outboard:dev
PLATFORMS ?= linux/amd64,linux/arm64

image: ## write the container image for PLATFORMS to bin/image, as an OCI layout
	$(GO) -C tools/image run . -name $(IMAGE) -platforms $(PLATFORMS)

# What make test and make test-cluster leave out. bin/each has the output of each.
nightly: ## run what takes hours: everything that is in neither make check, make test nor make test-cluster
	@test/each lint-others test-nightly chaos test-equality "test-helm HELM=-all" test-pages test-image test-monitoring test-network test-node test-browser \
		test-harness race fuzz cases scale figures next prove

# A release also needs make check, make test and make nightly.
release-check: ### run what only a release needs (other releases of Kubernetes, its own benchmark, reproducible files), and print a table
	@test/each compat reproduce release-dry-run scheduler-perf bench hostile scan

clean: ### remove all build output
	rm -rf bin dist
	$(MAKE) -C kubernetes clean
	$(MAKE) -C test/prometheus clean
	$(MAKE) -C test/node/programs clean

test-nightly: control-plane ### test with a real kube-scheduler what make test-cluster leaves out
	$(GO) $(ONCE) ./test/nightly

chaos: control-plane ### kill replicas with thousands of pods, make ten rolling updates, and preempt a thousand times
	$(GO) $(ONCE) -v ./test/chaos -args -full
	$(GO) $(ONCE) -v -run '^TestNominatedPodsKeepTheirGPU$$' ./test/e2e -args -preemptions 1000

test-equality: ### compare extender, plugin and simulation with kube-scheduler's code more often
	$(GO) -C kubernetes $(ONCE) ./equality -rapid.checks 1500
	$(GO) -C kubernetes $(ONCE) ./yardstick -rapid.checks 2000

# For example, all life cycles: make test-helm HELM=-all
test-helm: control-plane helm ### install, upgrade and remove the chart with Helm 3 and 4
	$(GO) -C tools/render $(ONCE) ./...
	$(GO) $(ONCE) ./test/helm $(if $(HELM),-args $(HELM))

# For example: make test-pages PAGES=README.md,docs/install.md
test-pages: control-plane ### run every command and YAML block of PAGES, all by default
	$(GO) $(ONCE) ./test/pages $(if $(PAGES),-args -pages $(PAGES))

test-image: ### make images and a release for this machine twice, and compare them
	$(GO) -C tools/image $(ONCE) -skip '^TestPublish$$' ./...

test-monitoring: prometheus ### test the alerts with Prometheus
	$(GO) $(ONCE) ./test/monitoring

test-network: control-plane ### place pods while the network has faults that last
	$(GO) -C test/network $(ONCE) -v . -args -full

# Without root: make test-node SUDO="sudo -E env PATH=$PATH"
test-node: control-plane real-node helm ### run pods that share GPUs, other policies, and the chart on a real node, as root
	@$(MAKE) --no-print-directory image IMAGE=outboard:dev PLATFORMS=linux/$$($(GO) env GOARCH)
	$(GO) $(ONCE) -p 1 -v -exec '$(SUDO) $(CURDIR)/test/node/enter' ./test/node/...

test-browser: control-plane ### test the page in Chromium, which must be installed
	$(GO) -C test/browser $(ONCE) ./...

test-harness: control-plane ### test what starts control planes for tests
	$(GO) $(ONCE) ./test/controlplane ./test/stage ./test/compat

# Skipped are tests of what Go allocates, because the detector allocates, too; what the extender and its engine retain, because other tests
# make the same calls; and scenarios, and what rules cost and compute, which have no concurrency.
race: ### run the tests of concurrent packages under the race detector
	@echo 'compiling and running the tests of concurrent packages under the race detector'
	CGO_ENABLED=1 $(GO) test -vet=off -race -skip 'AllocatesNothing|^TestAllocationsDoNotGrow|^TestMemory|Scenarios|CostsTooMuch' -timeout 30m $(RACE)

FUZZTIME ?= 1000000x

fuzz: ### run each fuzz target for FUZZTIME
	./test/fuzz $(FUZZTIME)

cases: ### draw more cases in tests of make test
	$(GO) $(ONCE) -run '^TestPredictionsAreAllocations$$' ./internal/firstfit -args -seeds 510

scale: control-plane ### run tests of make test-cluster again with a thousand pods
	@echo 'running tests with a thousand pods'
	$(GO) test -vet=off -timeout 30m -run '^Test(RequeueOneOfMany|RetriedBindKeepsTheGPU)$$' -count 1 ./test/e2e -args -pods 1000

figures: control-plane ### repeat the published measurements on a small scale
	@echo 'repeating the published measurements on a small scale'
	$(GO) -C bench $(ONCE) ./...

# What pre-releases of Kubernetes require and the proxy does not serve, and what replaces it.
REPLACE ?= sigs.k8s.io/structured-merge-diff/v7=sigs.k8s.io/structured-merge-diff/v7@v7.0.0

next: ### name the packages that do not compile with the newest pre-release of Kubernetes; it never fails
	@test/next $(REPLACE)

# For example, to search for a night: make prove PROVETIME=10h
PROVETIME ?= 100m

prove: ### search all interleavings of the protocols within larger bounds (test/search/README.md)
	$(GO) test -vet=off -run '^TestEvery(Combination|Interleaving)$$' -count 1 -v -timeout 0 ./test/search -args -within $(PROVETIME)

# It builds other releases of Kubernetes the first time. For example:
# make compat COMPAT='-only v1.29.6'
compat: control-plane ### place pods with the kube-schedulers of other Kubernetes versions (docs/compatibility.md)
	@kubernetes/build outboard
	@$(GO) build -o bin/compat ./test/compat
	@REPLACE='$(REPLACE)' test/compat/build $$(bin/compat -needs $(COMPAT))
	@bin/compat -outboard bin/outboard -page docs/compatibility.md $(COMPAT)

reproduce: ### make a release for all platforms twice, and compare and check its files
	$(GO) -C tools/image test -vet=off -run '^TestRelease$$' -count 1 -v -timeout 120m . -args -all

# For example: make scheduler-perf BENCH='-bench SchedulerPerf/misc', or with -large for some workloads in larger sizes.
scheduler-perf: ### run the workloads of kube-scheduler's own benchmark without Outboard, and with it as an extender and as a plugin
	@$(MAKE) --no-print-directory -C kubernetes bin/etcd
	$(GO) -C kubernetes test -vet=off -run '^$$' -bench SchedulerPerf -benchtime 1x -timeout 150m ./schedulerperf $(BENCH)

bench: control-plane ### run the benchmarks, each beside its baseline
	@$(GO) -C bench build -o ../bin/bench/ ./wire
	bin/bench/wire
	$(GO) test -run '^$$' -bench . -benchmem ./...

# For example: make hostile BENCH='-only floods'. BENCH=-help lists the flags.
hostile: ### measure memory use and latency of an honest client beside hostile ones
	@kubernetes/build outboard
	@$(GO) -C bench build -o ../bin/bench/ ./hostile
	bin/bench/hostile --outboard bin/outboard $(BENCH)

# docs/how-it-is-tested.md has the reason for each check of kube-score that is left out, and go.gosec.json for those of gosec.
scan: ### check the manifests in deploy with kube-score, and what a release contains with gosec
	@mkdir -p bin
	@$(GO) tool -modfile=go.kube-score.mod kube-score score --kubernetes-version v1.37 --exit-one-on-warning --output-format ci \
		--ignore-container-cpu-limit --ignore-container-memory-limit \
		--ignore-test container-ephemeral-storage-request-and-limit,container-image-pull-policy,pod-networkpolicy \
		--ignore-test deployment-has-host-podantiaffinity,service-type \
		$(filter-out deploy/kustomization.yaml deploy/test-pods.yaml,$(wildcard deploy/*.yaml)) > bin/kube-score || \
		{ grep -vE '^.(OK|SKIPPED)' bin/kube-score; exit 1; }
	@$(GO) tool -modfile=go.gosec.mod gosec -quiet -conf go.gosec.json \
		$(addprefix ./,$(addsuffix /...,app cmd internal policies policy schedplugin signal snapshot))

# For example: make bench-scheduler BENCH='-quick', or BENCH='-nodes 5000 -arms stock,outboard-8 -rounds 9'. BENCH=-help lists the flags.
bench-scheduler: control-plane ### measure how fast kube-scheduler places pods with and without extenders (docs/performance.md)
	@kubernetes/build outboard
	@$(MAKE) --no-print-directory -C kubernetes bin/ideal-scheduler
	@$(GO) -C bench build -o ../bin/bench/ ./scheduler
	@bin/bench/scheduler -outboard bin/outboard $(BENCH)

OPENB ?= bench/openb
PODS ?= openb_pod_list_default.csv

bench-placement: ### compare GPU strategies on a published trace (docs/which-gpu-policy.md)
	@$(GO) -C bench build -o ../bin/bench/ ./placement
	bin/bench/placement --data $(OPENB) --pods $(PODS)

# For example: make demo-gpu BENCH='-claims -percentage 100'
demo-gpu: ### place the trace with an unmodified kube-scheduler, beside the simulated prediction
	@$(MAKE) --no-print-directory -C kubernetes demo
	@kubernetes/build outboard
	@$(GO) -C bench build -o ../bin/bench/ ./gpu
	bin/bench/gpu --data $(OPENB) --outboard bin/outboard $(BENCH)

bench-page: ### measure the page in Chromium, and what it costs a replica, with 5,000 nodes
	$(GO) -C test/browser test -vet=off -run '^TestLarge$$' -count 1 -v . -args -budgets
	@echo 'one request to a replica, with 30,000 bound pods: at most 10 processor-ms'
	$(GO) test -vet=off -run '^$$' -bench '^BenchmarkRequest$$' -benchtime 50x -count 1 ./internal/ui
	@echo 'a search for what would make a pod fit, with 40,000 pods: at most 50 processor-ms'
	$(GO) test -vet=off -run '^$$' -bench '^BenchmarkFind$$' -benchtime 20x -count 1 ./internal/whatif

# For example: make verify URL=https://127.0.0.1:8443 VERIFY='-ca ca.crt -cert client.crt -key client.key'
verify: ### check whether the extender at URL follows kube-scheduler's contract (test/verify/README.md)
	@$(GO) run ./test/verify $(VERIFY) $(or $(URL),$(error set URL to the urlPrefix of a running extender))

# For example: make upgrade FROM=v0.1.0. The configuration of the test must be valid for that commit.
upgrade: control-plane ### upgrade from commit FROM to this checkout and back, while pods with allocations are bound
	rm -rf bin/from && mkdir -p bin/from/source
	git archive $(or $(FROM),$(error set FROM to a commit)) | tar -x -C bin/from/source
	$(GO) -C bin/from/source build -o ../outboard ./cmd/outboard
	rm -rf bin/from/source
	$(GO) test -run '^TestUpgrade$$' -count 1 -v ./test/chaos -args -from $(CURDIR)/bin/from/outboard

scheduler-image: IMAGE = kube-scheduler-outboard:dev
scheduler-image: ### write the image of kube-scheduler with Outboard as a plugin for PLATFORMS to bin/scheduler-image
	$(GO) -C tools/image run . -scheduler -name $(IMAGE) -platforms $(PLATFORMS) -o ../../bin/scheduler-image

# For example: make release publish VERSION=v0.1.0 REGISTRY=registry.example/team, where VERSION is the tag of the commit.
DOWNLOADS ?= https://outboard.dev/releases

release: ## write all files of the release with the tag VERSION to dist, with the image in REGISTRY (docs/upgrading.md)
	$(GO) -C tools/image run . -release $(or $(VERSION),$(error set VERSION to the tag of the commit)) -downloads $(DOWNLOADS) \
		-registry "$(REGISTRY)" -o ../../dist

# For example, with a key instead of the identity of a workflow: make publish … COSIGN='--key cosign.key'
publish: ## push the image and the chart in dist to REGISTRY, and sign them with cosign
	@tools/image/publish dist $(or $(REGISTRY),$(error set REGISTRY to that of make release)) $(or $(VERSION),$(error set VERSION)) $(COSIGN)

release-dry-run: ### make a release for this machine, publish it to a registry in the test, signed with a key, and verify it
	$(GO) -C tools/image $(ONCE) -run '^TestPublish$$' -v .

screenshots: ### write the screenshots of the page in the documentation
	$(GO) -C test/browser test -vet=off -run '^TestScreenshots$$' -count 1 . -args -update

# The root module has the versions of kubernetes/go.mod, which follow the release of Kubernetes there; the examples have those of the root.
tidy: ### give all modules with code of Outboard the versions of kubernetes/go.mod, and tidy all modules
	$(GO) get $$($(GO) -C kubernetes list -m -f '{{.Path}}@{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' \
		$$($(GO) list -m -f '{{if not (or .Indirect .Main)}}{{.Path}}{{end}}' all))
	for file in $$(git ls-files '*go.mod'); do $(GO) -C $$(dirname $$file) mod tidy || exit 1; done

format:
	@test -z "$$(gofmt -l .)" || { echo "not formatted:"; gofmt -l .; exit 1; }

# The other modules import what no test of each change does, which takes minutes to compile: .ci/changed runs lint-others if they change.
MODULES ?= . bench tools/image examples/own-policy kubernetes
OTHERS := tools/render test/browser test/lint test/network

# bin/lint has the analyzers of go vet, too.
lint:
	$(GO) -C test/lint build -o ../../bin/lint .
	for module in $(MODULES); do (cd $$module && $(CURDIR)/bin/lint ./...) || exit 1; done
	$(GO) -C test/lint tool actionlint -shellcheck= -pyflakes=

lint-others: ### check what go vet and staticcheck report in the modules that make check leaves out
	@$(MAKE) lint MODULES='$(OTHERS)'

# go tool keeps the programs in its cache, where test/helm finds them. To compile them beside tests would slow the control plane down.
helm:
	@echo 'compiling Helm 3 and 4'
	@for version in v3 v4; do $(GO) -C tools/render tool -n helm.sh/helm/$$version/cmd/helm > /dev/null || exit 1; done

control-plane:
	@$(MAKE) --no-print-directory -C kubernetes cluster

real-node:
	@$(MAKE) --no-print-directory -C kubernetes node
	@$(MAKE) --no-print-directory -C test/node/programs

prometheus:
	@$(MAKE) --no-print-directory -C test/prometheus

