// Package helm holds tests in which real helm commands install, upgrade and remove the chart in a
// real cluster, and pods are placed by what is then in the cluster.
package helm

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

var all = flag.Bool("all", false, "run all life cycles, and not only those that a change of the chart must pass")

// pool has the clusters of all tests.
var pool = stage.Pool{Bare: true}

// atOnce is how many tests run in parallel unless a flag overrides it. Most of the time they wait
// until Outboard releases allocations.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	if err := pool.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// open gives a user an empty cluster. helm is the major version.
func open(t *testing.T, helm string) *user {
	t.Helper()
	t.Parallel()
	s, err := stage.Set(t.Context(), stage.Options{Pool: &pool})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return newUser(t, s, helm)
}

// step is a command line and what must be true when it has ended.
type step struct {
	line string
	// preset is the one by which pods are placed; "" if nothing places any.
	preset string
	// starts are the Deployments with new pods.
	starts []string
}

var (
	both = []string{scheduler, outboard}
	one  = []string{scheduler} // Outboard reloads its configuration
)

// listen creates what the controllers of a cluster create for the Service of Outboard when a pod is
// ready.
const listen = `kubectl create -f - <<'END'
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: outboard-1, namespace: outboard-system, labels: {kubernetes.io/service-name: outboard}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
ports: [{name: https, port: 8443}, {name: metrics, port: 8081}]
END`

// watches are what Outboard watches by a preset, in addition to nodes, pods and disruption budgets.
// Where that differs, its permissions do, so it starts again.
var watches = map[string]string{"gpu-sharing": "ledgers and ConfigMaps", "gpushare": "ledgers and ConfigMaps", "licenses": "ledgers"}

const install = "helm install outboard deploy/chart --namespace outboard-system --create-namespace --set preset="

// installAndUpgrade returns the installation of the first preset, and the upgrades to the others,
// one after the other.
func installAndUpgrade(presets []string) []step {
	from := presets[0]
	steps := []step{{install + from, from, both}}
	for _, preset := range presets[1:] {
		line := "helm upgrade outboard deploy/chart --namespace outboard-system --reuse-values --set preset=" + preset
		starts := one
		if watches[from] != watches[preset] {
			starts = both
		}
		steps, from = append(steps, step{line, preset, starts}), preset
	}
	return steps
}

// rollBack upgrades, rolls back, uninstalls, and installs again.
var rollBack = []step{
	{install + "gpu-sharing", "gpu-sharing", both},
	{"helm upgrade outboard deploy/chart --namespace outboard-system --reuse-values --set preset=gpu-sharing", "gpu-sharing", nil},
	{"helm upgrade outboard deploy/chart --namespace outboard-system --reuse-values --set preset=utilization", "utilization", both},
	{"helm rollback outboard 1 --namespace outboard-system", "gpu-sharing", both},
	{line: "helm uninstall outboard --namespace outboard-system"},
	{install + "gpu-sharing", "gpu-sharing", both},
}

// overlay installs with kubectl.
var overlay = documented("docs/install.md", "cat > my-outboard/kustomization.yaml")

// ownPolicies adds the files of the user to the overlay.
var ownPolicies = documented("docs/install.md", "cat >> my-outboard/kustomization.yaml")

// lifecycle is what a user does with a release, from an empty cluster on.
type lifecycle struct {
	name, helm string
	steps      []step
}

// ofChange are the life cycles that a change of the chart must pass: with them, both versions of
// Helm and kubectl install, each preset is the former and the next one of an upgrade, and a release
// is rolled back and removed.
var ofChange = []string{"v4 utilization and each preset before", "v3 roll back, uninstall and install again", "v3 the page on installing with kubectl", "v4 the page on installing"}

// everyPair are upgrades from each preset to each other one. Helm 3 merges, and Helm 4 applies.
func everyPair() (found []lifecycle) {
	names := presets()
	for i, name := range names[1:] {
		chain := []string{name}
		for _, other := range names[:i+1] {
			chain = append(chain, other, name)
		}
		for helm := range programs {
			found = append(found, lifecycle{name + " and each preset before", helm, installAndUpgrade(chain)})
		}
	}
	return found
}

var lifecycles = append(everyPair(), []lifecycle{
	{"roll back, uninstall and install again", "v3", rollBack},
	{"roll back, uninstall and install again", "v4", rollBack},
	{"another namespace", "v3", []step{
		{"helm install outboard deploy/chart --namespace gpu-team --create-namespace --set preset=gpu-sharing", "gpu-sharing", both},
		{`helm install second deploy/chart --namespace default 2> refused && exit 1
grep 'the release outboard in the namespace gpu-team serves this cluster' refused`, "gpu-sharing", nil},
		{line: "helm uninstall outboard --namespace gpu-team"},
	}},
	{"another namespace with kubectl", "v3", []step{
		{line: documented("docs/install.md", "--for service --strict > scheduler.yaml")},
		{line: strings.Split(overlay, "kubectl apply")[0]}, {line: strings.Split(ownPolicies, "kubectl apply")[0]},
		{documented("docs/install.md", "kubectl create namespace gpu-team"), "own", both},
	}},
	{"the page on installing with kubectl", "v3", []step{
		{line: overlay, starts: both},
		{"kubectl delete --force -f deploy/test-pods.yaml", "placement", nil},
		{line: documented("docs/install.md", "--for service --strict > scheduler.yaml")},
		{ownPolicies, "own", one},
		{"sed -i 's|/spread|/wide|' my-outboard/outboard.yaml\n" + documented("docs/install.md", "scheduler my-outboard/outboard.yaml"), "own", one},
		{"sed -i '/^configMapGenerator/,$d' my-outboard/kustomization.yaml\necho 'components: [../deploy/presets/gpu-sharing]' >> my-outboard/kustomization.yaml\n" +
			"kubectl apply --server-side --force-conflicts -k my-outboard", "gpu-sharing", one},
		{line: documented("docs/install.md", "kubectl delete --ignore-not-found -k my-outboard")},
		{line: "! kubectl --namespace outboard-system get deployments,services,configmaps --output name | grep outboard | grep -v /outboard-scheduler-checksum-"},
	}},
	{"the plugin in an overlay", "v3", []step{
		{line: overlay, starts: both},
		{"kubectl delete --force -f deploy/test-pods.yaml", "placement", nil},
		{line: documented("docs/extender-or-plugin.md", "cat > scheduler.yaml")},
		{documented("docs/extender-or-plugin.md", "cat > with-plugin/kustomization.yaml"), "plugin", one},
		{documented("docs/extender-or-plugin.md", "--force-conflicts -k my-outboard"), "", one},
		{"true", "placement", nil}, // Outboard had this configuration all the time
	}},
	{"the page on installing", "v4", []step{
		{documented("docs/install.md", "helm install"), "gpu-sharing", both},
		{line: documented("docs/install.md", "--for service --strict > scheduler.yaml")},
		{line: listen}, {line: documented("docs/install.md", "outboard check --cluster")},
		{documented("docs/install.md", "helm upgrade"), "own", both},
		{line: documented("docs/install.md", "outboard check --cluster")},
	}},
	{"the page on upgrading", "v3", []step{
		{documented("docs/install.md", "helm install"), "gpu-sharing", both},
		{documented("docs/upgrading.md", "ledgers.yaml"), "gpu-sharing", nil},
		{documented("docs/upgrading.md", "helm upgrade"), "gpu-sharing", []string{outboard}},
		{documented("docs/upgrading.md", "helm rollback"), "gpu-sharing", []string{outboard}},
		{line: documented("docs/install.md", "helm uninstall")},
	}},
	{"the plugin as the second scheduler", "v3", []step{
		{documented("docs/install.md", "helm install"), "gpu-sharing", both},
		{line: documented("docs/extender-or-plugin.md", "cat > scheduler.yaml")},
		{documented("docs/extender-or-plugin.md", "helm upgrade"), "plugin", one},
		{documented("docs/upgrading.md", "helm rollback"), "plugin", one}, // its pods are the same
	}},
	{"the page on taking Outboard out", "v4", []step{
		{documented("docs/install.md", "helm install"), "gpu-sharing", both},
		{documented("docs/emergency.md", "replicas=0"), "stopped", nil},
		{line: documented("docs/emergency.md", "cat > without-outboard.yaml")},
		{documented("docs/emergency.md", "scheduler.config=without-outboard.yaml"), "alone", one},
		{documented("docs/emergency.md", "replicas=2"), "gpu-sharing", both},
	}},
	{"the page on signals", "v4", []step{
		{documented("docs/install.md", "helm install"), "gpu-sharing", both},
		{line: documented("docs/signals.md", "create configmap temperatures")},
		{documented("docs/signals.md", "--values values.yaml"), "temperature", both},
	}},
	{"the guide to sharing GPUs", "v3", []step{
		{documented("examples/gpu-sharing/README.md", "helm install"), "gpu-sharing", both},
		{line: listen}, {line: documented("examples/gpu-sharing/README.md", "outboard check --cluster")},
	}},
	{"the guide to sharing GPUs with gpushare", "v3", []step{
		{documented("examples/gpushare/README.md", "helm install"), "gpushare", both},
		{line: listen}, {line: documented("examples/gpu-sharing/README.md", "outboard check --cluster")},
	}},
}...)

// withoutSecondScheduler installs Outboard for the cluster's own kube-scheduler.
var withoutSecondScheduler = documented("docs/install.md", "scheduler.enabled=false")

// Each block of each page with a command of Helm is run, as typed.
func TestEveryBlock(t *testing.T) {
	run := []string{withoutSecondScheduler}
	for _, l := range lifecycles {
		for _, s := range l.steps {
			run = append(run, s.line)
		}
	}
	found := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		page, err := os.ReadFile(path)
		for _, m := range commands.FindAllSubmatch(page, -1) {
			if !helmCommand.Match(m[1]) {
				continue
			}
			if found++; !slices.Contains(run, string(m[1])) {
				t.Errorf("%s: no test runs\n%s", path, m[1])
			}
		}
		return err
	})
	if err != nil || found == 0 {
		t.Errorf("%d blocks have a command of Helm: %v", found, err)
	}
}

var (
	commands    = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	helmCommand = regexp.MustCompile(`(?m)^helm `)
)

// documented returns the first commands of the page that contain the text, as typed.
func documented(page, text string) string {
	content, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		panic(err) // the page was renamed
	}
	for _, m := range commands.FindAllSubmatch(content, -1) {
		if strings.Contains(string(m[1]), text) {
			return string(m[1])
		}
	}
	panic(fmt.Sprintf("no commands in %s contain %s", page, text))
}

// After each step, the processes that the cluster describes place pods as the preset says, and
// nothing is allocated twice or leaked.
func TestLifecycles(t *testing.T) {
	ran := 0
	for _, tt := range lifecycles {
		name := tt.helm + " " + tt.name
		if !*all && !slices.Contains(ofChange, name) {
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			u := open(t, tt.helm)
			for i, s := range tt.steps {
				began := time.Now()
				u.types(s.line)
				if got := u.applied(s.preset); !slices.Equal(got, s.starts) {
					t.Errorf("step %d: pods of %v are new, want those of %v", i+1, got, s.starts)
				}
				if s.preset != "" {
					u.places(s.preset, scheduler)
				}
				if strings.Contains(s.line, "helm uninstall") {
					u.removed("customresourcedefinition.apiextensions.k8s.io/ledgers.outboard.dev\n")
				}
				if t.Failed() {
					t.Fatalf("after step %d: %s", i+1, s.line)
				}
				t.Logf("step %d took %v: %s", i+1, time.Since(began).Round(100*time.Millisecond), s.line)
			}
		})
	}
	if ran < len(ofChange) {
		t.Errorf("of %q, only %d exist", ofChange, ran)
	}
}

// The cluster's own kube-scheduler calls Outboard, as docs/install.md describes for kubeadm.
// Neither Helm nor kubectl needs the files of another section of the page.
func TestWithoutSecondScheduler(t *testing.T) {
	for with, install := range map[string]string{"helm": withoutSecondScheduler, "kubectl": documented("docs/install.md", "patches: # no second kube-scheduler")} {
		t.Run(with, func(t *testing.T) { ownScheduler(t, install) })
	}
}

func ownScheduler(t *testing.T, install string) {
	u := open(t, "v4")
	u.types(documented("docs/install.md", "type: GPUMemory"))
	u.types(install)
	if got := u.applied(""); !slices.Equal(got, []string{outboard}) {
		t.Errorf("pods of %v are new, want those of outboard alone", got)
	}
	u.types(documented("docs/install.md", "--for kubeadm"))
	config, err := os.ReadFile(filepath.Join(u.dir, "wiring", "scheduler.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	service, err := u.client.CoreV1().Services("outboard-system").Get(u.ctx, "outboard", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	address, err := services{u.kubelet}.resolve("outboard.outboard-system.svc:443")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.cp.StartScheduler(u.ctx, controlplane.SchedulerOptions{Config: strings.NewReplacer(
		"https://"+service.Spec.ClusterIP, "https://"+address, "/etc/kubernetes/outboard/", filepath.Join(u.dir, "tls")+"/", "/etc/kubernetes/scheduler.conf", u.cp.Kubeconfig(),
	).Replace(string(config))}); err != nil {
		t.Fatal(err)
	}
	u.places("gpushare", "default-scheduler")
}

// presets returns the names of the presets of the chart.
func presets() (names []string) {
	files, err := filepath.Glob(filepath.Join(root, "deploy", "chart", "presets", "*-scheduler.yaml"))
	if err != nil || len(files) == 0 {
		panic(fmt.Sprint("the chart has no presets: ", err))
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), "-scheduler.yaml"))
	}
	return names
}

var emptyLines = regexp.MustCompile(`\n{2,}`)

// Neither Helm has an objection to the chart, and both render it alike.
func TestLint(t *testing.T) {
	chart := filepath.Join(root, "deploy", "chart")
	for _, preset := range presets() {
		rendered := map[string]string{}
		for helm, program := range programs {
			path, err := program()
			if err != nil {
				t.Fatal(err)
			}
			out, err := exec.CommandContext(t.Context(), path, "lint", "--strict", "--set", "preset="+preset, chart).CombinedOutput()
			if err != nil || strings.Contains(string(out), "WARN") {
				t.Errorf("helm %s lint with the preset %s: %v\n%s", helm, preset, err, out)
			}
			out, err = exec.CommandContext(t.Context(), path, "template", "outboard", "--namespace", "outboard-system", "--kube-version", "v1.37.0", "--set", "preset="+preset, chart).Output()
			if err != nil || len(out) == 0 {
				t.Errorf("helm %s template with the preset %s: %v", helm, preset, err)
			}
			rendered[helm] = emptyLines.ReplaceAllString(string(out), "\n") // which the versions write differently between documents
		}
		if rendered["v3"] != rendered["v4"] {
			t.Errorf("the versions of Helm render the preset %s differently (-v3 +v4):\n%s", preset, cmp.Diff(rendered["v3"], rendered["v4"]))
		}
	}
}
