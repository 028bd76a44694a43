package service

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"outboard.dev/outboard/internal/explain"
)

// reloading is a service without a cluster, and its log.
type reloading struct {
	*Service
	t    *testing.T
	file string
	log  bytes.Buffer
}

const alone = header + "clientConnection: {enabled: false}\n"

func newReloading(t *testing.T, text string) *reloading {
	t.Helper()
	r := &reloading{t: t, file: filepath.Join(t.TempDir(), "outboard.yaml")}
	r.Service = newService(t, r.file, text, standardTypes(), Connection{}, &r.log)
	return r
}

// says reloads, and fails the test unless the log then contains the text.
func (r *reloading) says(text, want string) {
	r.t.Helper()
	r.log.Reset()
	r.Reload([]byte(text))
	if !strings.Contains(r.log.String(), want) {
		r.t.Errorf("the log is\n%swant %q", r.log.String(), want)
	}
}

// The service requests a restart for differences from the configuration at the start of the
// process, after any number of reloads.
func TestReloadNamesWhatNeedsARestart(t *testing.T) {
	const policies = "profiles:\n- policies: [{type: ImageLocality}]\n"
	r := newReloading(t, alone+policies)
	const warning = `msg="a configuration change is risky" risk="log.level: no effect until a restart, in a cluster by kubectl --namespace outboard-system rollout restart deployment/outboard"`
	r.says(alone+"log: {level: Debug}\n"+policies, warning)
	r.says(alone+"log: {level: Debug}\n"+policies+"  shortlist: 5\n", warning)
	r.says(alone+policies+"  shortlist: 5\n", "reloaded the configuration")
	if strings.Contains(r.log.String(), warning) {
		t.Errorf("back to the start: %s", r.log.String())
	}
}

func TestReloadSaysWhatChanged(t *testing.T) {
	r := newReloading(t, alone+"profiles:\n- policies: [{type: ImageLocality}]\n")
	changed := alone + "profiles:\n- policies: [{type: ImageLocality, weight: 3}]\n"
	r.says(changed, `msg="the configuration changed" change="profiles[0].policies[0].weight: 1 → 3"`)
	r.says(changed, "changes=0")
}

// Neither the log nor /readyz has what may be a credential, also if the file is not valid.
func TestReloadHidesCredentials(t *testing.T) {
	const end = ", query: up}}]\nprofiles:\n- policies: [{type: ImageLocality}]\n"
	r := newReloading(t, alone+"signals: [{name: x, prometheus: {address: 'http://h/?token=s3cret'"+end)
	r.says(alone+"signals: [{name: x, prometheus: {address: 'http://other/?token=s3cret'"+end, "http://other/?…")
	for _, mistake := range []string{
		"http://joe:s3cret@h', client: {caFile: x}", "https://h:x/?token=s3cret'", "ftp://joe:a s3cret%@h'", "joe:s3cret@h'", "http://joe@h/?x=s3cret'", "http://h', client: Bearer s3cret",
	} {
		r.says(alone+"signals: [{name: x, prometheus: {address: '"+mistake+end, "cannot reload")
		if said := r.log.String() + strings.Join(r.Warnings(), ""); strings.Contains(said, "s3cret") {
			t.Error(said)
		}
	}
}

// A reload says that bind fails for pods of schedulers that the new schedulerNames exclude.
func TestReloadNamesExcludedSchedulers(t *testing.T) {
	const names = alone + "profiles:\n- policies: [{type: ImageLocality}]\n  schedulerNames: "
	r := newReloading(t, names+"[a, b, c, d]\n")
	r.says(names+"[a]\n", `these pods stay pending"`)
	r.says(names+"[a, b, c, d]\n", `changes=1`)
	if strings.Contains(r.log.String(), "risk") {
		t.Errorf("more schedulers: %s", r.log.String())
	}
	r.says(names+"[a, b]\n", `these pods stay pending"`)
}

// Explanations know which profile manages a pod, with the configuration in use.
func TestExplanationsKnowManagedPods(t *testing.T) {
	const any, some = "profiles:\n- policies: [{type: ImageLocality}]\n", "profiles:\n- managedResources: [{name: example.com/a}]\n  policies: [{type: ImageLocality}]\n"
	requests := func(name corev1.ResourceName) *corev1.Pod {
		return &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{name: resource.MustParse("1")}}}}}}
	}
	r := newReloading(t, alone+any)
	manages := r.Source().Manages
	if !manages("/", requests("example.com/b")) {
		t.Error("a profile without managedResources does not manage a pod")
	}
	r.says(alone+some, "reloaded the configuration")
	if manages("/", requests("example.com/b")) || !manages("/", requests("example.com/a")) || manages("/gone", requests("example.com/a")) {
		t.Error("a profile with managedResources does not manage exactly the pods that request one of them")
	}
}

// The metric, the warning and the responses to commands show a failed reload until the file loads again.
func TestFailedReloadShows(t *testing.T) {
	const good = alone + "profiles:\n- policies: [{type: ImageLocality}]\n"
	r := newReloading(t, good)
	shows := func(step string, want float64, warning string) {
		t.Helper()
		if got := testutil.ToFloat64(r.reloads.successful); got != want {
			t.Errorf("%s: successful is %v, want %v", step, got, want)
		}
		if got := strings.Join(r.Warnings(), "\n"); !strings.Contains(got, warning) || (got == "") != (warning == "") {
			t.Errorf("%s: warnings %q, want %q", step, got, warning)
		}
		response := httptest.NewRecorder()
		r.AdminOptions().Handlers["GET "+explain.DecisionsPath].ServeHTTP(response, httptest.NewRequest(http.MethodGet, explain.DecisionsPath, nil))
		sent, _ := utilnet.ParseWarningHeaders(response.Header()["Warning"])
		if (len(sent) == 1) != (warning != "") || len(sent) == 1 && !strings.Contains(sent[0].Text, warning) {
			t.Errorf("%s: a response has the warnings %v, want %q", step, sent, warning)
		}
	}
	shows("at the start", 1, "")
	r.says(strings.Replace(good, "policies", "polices", 1), "cannot reload the configuration")
	shows("broken", 0, `profiles[0].polices: Unknown field: did you mean "policies"?`)
	r.says(good, "reloaded the configuration")
	shows("mended", 1, "")
	for outcome, want := range map[string]float64{"success": 1, "error": 1} {
		if got := testutil.ToFloat64(r.reloads.total.WithLabelValues(outcome)); got != want {
			t.Errorf("%v reloads with outcome %s, want %v", got, outcome, want)
		}
	}
}

// Two configurations have the same digest if they decide alike. The metric has that of the active configuration alone, and says whether a
// restart is required.
func TestDigestOfTheConfiguration(t *testing.T) {
	const policies = "profiles:\n- policies: [{type: ImageLocality}]\n"
	r, other := newReloading(t, alone+policies), newReloading(t, alone+"log: {level: Debug}\nprofiles: # the same\n- {path: /, policies: [{weight: 1, type: ImageLocality}]}\n")
	digest := func(r *reloading) string {
		t.Helper()
		metrics, err := r.options.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range metrics {
			if m.GetName() == "outboard_config_info" && len(m.GetMetric()) == 1 {
				return m.GetMetric()[0].GetLabel()[0].GetValue()
			}
		}
		t.Fatal("there is not one digest")
		return ""
	}
	first := digest(r)
	if len(first) != 12 || digest(other) != first {
		t.Errorf("digests %q and %q", first, digest(other))
	}
	restart := func(step string, want float64) {
		t.Helper()
		if got := testutil.ToFloat64(r.reloads.restart); got != want {
			t.Errorf("%s: restart required: %v, want %v", step, got, want)
		}
	}
	restart("at the start", 0)
	r.says(alone+"log: {level: Debug}\n"+policies+"  shortlist: 5\n", "reloaded the configuration")
	restart("another log level", 1)
	if digest(r) == first {
		t.Error("another shortlist does not change the digest")
	}
	changed := digest(r)
	r.says(alone+"profiles: []\n", "cannot reload the configuration")
	restart("invalid", 1)
	if digest(r) != changed {
		t.Error("an invalid file changes the digest")
	}
	r.says(alone+policies, "reloaded the configuration")
	restart("back to the start", 0)
	if digest(r) != first {
		t.Errorf("back to the start: %q, want %q", digest(r), first)
	}
}

// A process without a cluster cannot start to need one.
func TestReloadCannotConnect(t *testing.T) {
	r := newReloading(t, alone+"profiles:\n- policies: [{type: ImageLocality}]\n")
	for _, text := range []string{
		header + "profiles:\n- policies: [{type: GPUMemory}]\n",
		header + "signals: [{name: a, metrics: {resource: cpu}}]\nprofiles:\n- policies: [{type: ImageLocality}]\n",
	} {
		r.says(text, "started with clientConnection: {enabled: false}: restart it")
	}
}
