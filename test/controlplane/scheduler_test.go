package controlplane_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/measure"
)

// twoProfiles are two profiles, the second of which packs nodes.
const twoProfiles = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: spreading
- schedulerName: packing
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 1}]}
  plugins:
    multiPoint:
      disabled: [{name: "*"}]
      enabled: [{name: PrioritySort}, {name: NodeResourcesFit}, {name: DefaultBinder}]
`

func TestPodIsBound(t *testing.T) {
	cp, ctx := planeOf(t, controlplane.Options{}), within(t)
	client := clientOf(t, cp)
	s := schedulerOf(t, cp, controlplane.SchedulerOptions{})
	err := controlplane.CreateNodes(ctx, client,
		controlplane.NodeSpec{Name: "small", CPU: "1"}.Node(),
		controlplane.NodeSpec{Name: "big", CPU: "16"}.Node(),
	)
	if err != nil {
		t.Fatal(err)
	}
	create := func(spec controlplane.PodSpec) *corev1.Pod {
		t.Helper()
		pod := spec.Pod()
		pod, err := client.CoreV1().Pods(pod.Namespace).Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return pod
	}

	pod := create(controlplane.PodSpec{Name: "fits", CPU: "4", PriorityClass: "system-node-critical", Namespace: "kube-system"})
	bound, err := controlplane.WaitForPodBound(ctx, client, pod)
	if err != nil {
		t.Fatal(err)
	}
	if bound.Spec.NodeName != "big" {
		t.Errorf("bound to %s, want big", bound.Spec.NodeName)
	}
	event, err := controlplane.WaitForPodEvent(ctx, client, pod, "Scheduled")
	if err != nil {
		t.Fatal(err)
	}
	if want := "Successfully assigned kube-system/fits to big"; event.Message != want {
		t.Errorf("the event is %q, want %q", event.Message, want)
	}

	huge := create(controlplane.PodSpec{Name: "huge", CPU: "64"})
	const insufficient = "0/2 nodes are available: 2 Insufficient cpu."
	huge, err = controlplane.WaitForPod(ctx, client, huge, func(p *corev1.Pod) (bool, error) { return len(p.Status.Conditions) > 0, nil })
	if err != nil {
		t.Fatal(err)
	}
	if c := huge.Status.Conditions[0]; c.Reason != corev1.PodReasonUnschedulable || !strings.HasPrefix(c.Message, insufficient) {
		t.Errorf("the condition is %+v, want %q", c, insufficient)
	}
	event, err = controlplane.WaitForPodEvent(ctx, client, huge, "FailedScheduling")
	if err != nil || !strings.HasPrefix(event.Message, insufficient) {
		t.Errorf("its event: %v, %v; want %q", event, err, insufficient)
	}
	limited, cancel := context.WithCancelCause(ctx)
	_, err = controlplane.WaitForPod(limited, client, huge, func(*corev1.Pod) (bool, error) {
		cancel(errors.New("waited long enough"))
		return false, nil
	})
	if err == nil || !strings.Contains(err.Error(), insufficient) || !strings.Contains(err.Error(), "waited long enough") {
		t.Errorf("waiting without success: %v; want the reason why it ended and the scheduler's message", err)
	}

	// A deleted pod frees its resources at once.
	if err := controlplane.DeletePod(ctx, client, bound); err != nil {
		t.Fatal(err)
	}
	if _, err := controlplane.WaitForPodBound(ctx, client, create(controlplane.PodSpec{Name: "next", CPU: "16"})); err != nil {
		t.Error(err)
	}
	// The scheduler needs only the permissions of its bootstrap roles.
	if log := s.Log(); strings.Contains(log, "forbidden") || strings.Contains(log, "Unauthorized") {
		t.Errorf("the scheduler lacks permissions:\n%s", log)
	}
}

func TestWaitEndsWhenThePodIsDeleted(t *testing.T) {
	cp, ctx := plane(t), within(t)
	client := clientOf(t, cp)
	pods := client.CoreV1().Pods("default")
	pod, err := pods.Create(ctx, controlplane.PodSpec{Name: "short-lived", SchedulerName: "nobody"}.Pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan struct{})
	see := sync.OnceFunc(func() { close(seen) })
	result := make(chan error, 1)
	go func() {
		_, err := controlplane.WaitForPod(ctx, client, pod, func(*corev1.Pod) (bool, error) {
			see()
			return false, nil
		})
		result <- err
	}()
	<-seen
	if err := controlplane.DeletePod(ctx, client, pod); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err == nil || !strings.Contains(err.Error(), "default/short-lived: deleted") {
		t.Errorf("error %v; want that the pod does not exist", err)
	}
	// Another pod of the same name is not the requested one.
	again, err := pods.Create(ctx, controlplane.PodSpec{Name: "short-lived", NodeName: "n"}.Pod(), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := controlplane.DeletePod(ctx, client, pod); err == nil {
		t.Error("another pod of the same name is deleted")
	}
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := controlplane.WaitForPodBound(short, client, pod); err == nil {
		t.Error("another pod of the same name counts as the one that was deleted")
	}
	if err := controlplane.DeletePod(ctx, client, again); err != nil {
		t.Error(err)
	}
}

func TestTwoSchedulers(t *testing.T) {
	cp, ctx := planeOf(t, controlplane.Options{}), within(t)
	client := clientOf(t, cp)
	first := schedulerOf(t, cp, controlplane.SchedulerOptions{})
	second := schedulerOf(t, cp, controlplane.SchedulerOptions{Config: twoProfiles})
	if first.Name() == second.Name() || first.URL() == second.URL() {
		t.Errorf("both are %s at %s", first.Name(), first.URL())
	}
	err := controlplane.CreateNodes(ctx, client,
		controlplane.NodeSpec{Name: "used"}.Node(), controlplane.NodeSpec{Name: "idle"}.Node())
	if err != nil {
		t.Fatal(err)
	}
	used := controlplane.PodSpec{Name: "there", CPU: "4", NodeName: "used"}.Pod()
	if _, err := client.CoreV1().Pods("default").Create(ctx, used, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*controlplane.Scheduler{first, second} { // which need not see the nodes and the pod before a later pod
		until(t, s.Name()+" has seen them", func() bool {
			metrics, err := measure.Scrape(ctx, s.Client(), s.URL()+"/metrics")
			if err != nil {
				t.Fatal(err)
			}
			const size = "scheduler_cache_size"
			return metrics.Sum(size, "type", "nodes") == 2 && metrics.Sum(size, "type", "pods") == 1
		})
	}
	for profile, want := range map[string]string{"default-scheduler": "idle", "spreading": "idle", "packing": "used"} {
		// The test creates pods one by one, so that the scheduler finds the nodes as above.
		pod := controlplane.PodSpec{Name: profile, CPU: "1", SchedulerName: profile}.Pod()
		pod, err := client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		bound, err := controlplane.WaitForPodBound(ctx, client, pod)
		if err != nil {
			t.Fatal(err)
		}
		event, err := controlplane.WaitForPodEvent(ctx, client, pod, "Scheduled")
		if err != nil {
			t.Fatal(err)
		}
		if bound.Spec.NodeName != want || event.ReportingController != profile {
			t.Errorf("%s: bound to %s by %s, want %s", profile, bound.Spec.NodeName, event.ReportingController, want)
		}
		if err := controlplane.DeletePod(ctx, client, bound); err != nil {
			t.Fatal(err)
		}
	}
	if err := first.Stop(); err != nil {
		t.Error(err)
	}
	second.Kill()
}

func TestSchedulerEndpointsKnowTheUsers(t *testing.T) {
	cp := plane(t)
	s := schedulerOf(t, cp, controlplane.SchedulerOptions{})
	get := func(client *http.Client) (int, string) {
		t.Helper()
		resp, err := client.Get(s.URL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	if code, body := get(s.Client()); code != http.StatusOK || !strings.Contains(body, "scheduler_pending_pods") {
		t.Errorf("metrics for the administrator: %d %.200s", code, body)
	}
	anybody, err := rest.HTTPClientFor(rest.AnonymousClientConfig(cp.AdminConfig()))
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := get(anybody); code != http.StatusForbidden {
		t.Errorf("metrics without a certificate: %d, want %d", code, http.StatusForbidden)
	}
}

func TestSchedulerEnvironmentAndLog(t *testing.T) {
	cp := plane(t)
	t.Setenv("HTTPS_PROXY", "http://proxy.example.test:3128")
	t.Setenv("https_proxy", "http://proxy.example.test:3128")
	t.Setenv("GODEBUG", "madvdontneed=1")
	// A custom program: here one that shows its environment and becomes kube-scheduler.
	program := filepath.Join(t.TempDir(), "scheduler")
	stock := filepath.Join(filepath.Dir(cp.KubectlPath()), "kube-scheduler")
	script := "#!/bin/sh\necho \"environment: $(export -p)\"\nexec " + stock + " \"$@\"\n"
	if err := os.WriteFile(program, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	s := schedulerOf(t, cp, controlplane.SchedulerOptions{
		Path: program,
		Env:  []string{"NO_PROXY=example.test"},
		Args: []string{"--http2-max-streams-per-connection=7"},
		Log:  &log,

		Verbosity: 2, // shows the arguments
	})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"environment: ", "NO_PROXY", `--http2-max-streams-per-connection="7"`} {
		if !strings.Contains(s.Log(), want) {
			t.Errorf("log lacks %q", want)
		}
	}
	for _, leak := range []string{"proxy.example.test", "madvdontneed"} {
		if strings.Contains(s.Log(), leak) {
			t.Errorf("the scheduler's environment contains %q", leak)
		}
	}
	if log.String() != s.Log() {
		t.Errorf("Options.Log got %d bytes, the log has %d", log.Len(), len(s.Log()))
	}
}

func TestSchedulerErrors(t *testing.T) {
	cp := plane(t)
	tests := []struct {
		name string
		opts controlplane.SchedulerOptions
		want []string
	}{
		{"unknown field", controlplane.SchedulerOptions{Config: strings.ReplaceAll(twoProfiles, "profiles:", "extenderConfig: {}\nprofiles:")},
			[]string{"ended before it was ready", "unknown field", "extenderConfig"}},
		{"not a scheduler configuration", controlplane.SchedulerOptions{Config: "apiVersion: v1\nkind: Pod\n"}, []string{"no kind", "Pod"}},
		{"not YAML", controlplane.SchedulerOptions{Config: "profiles: ["}, []string{"scheduler configuration: "}},
		{"key given twice", controlplane.SchedulerOptions{Config: "kind: A\nkind: B\n"}, []string{`"kind" already set`}},
		{"wrong shape", controlplane.SchedulerOptions{Config: "clientConnection: 3\n"}, []string{"clientConnection"}},
		{"no such program", controlplane.SchedulerOptions{Path: "/no/such/program"}, []string{"/no/such/program"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := cp.StartScheduler(t.Context(), test.opts)
			if err == nil {
				s.Kill()
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cp.StartScheduler(cancelled, controlplane.SchedulerOptions{}); err == nil {
		t.Error("start with a cancelled context succeeds")
	}
}

func TestSchedulerConfigurationIsFilledIn(t *testing.T) {
	cp := plane(t)
	s := schedulerOf(t, cp, controlplane.SchedulerOptions{Config: twoProfiles + "\nclientConnection: {qps: 77}\nleaderElection: {leaseDuration: 30s}\n"})
	data, err := os.ReadFile(filepath.Join(cp.Dir(), s.Name()+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ClientConnection struct {
			Kubeconfig string
			QPS        float64
		}
		LeaderElection struct {
			LeaderElect   *bool
			LeaseDuration string
		}
		Profiles []struct{ SchedulerName string }
	}
	if err := yaml.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.ClientConnection.QPS != 77 || got.LeaderElection.LeaseDuration != "30s" || len(got.Profiles) != 2 {
		t.Errorf("the given fields are missing:\n%s", data)
	}
	if got.ClientConnection.Kubeconfig == "" || got.LeaderElection.LeaderElect == nil || *got.LeaderElection.LeaderElect {
		t.Errorf("the defaults are missing:\n%s", data)
	}

	// Given fields stay: with leader election on, the scheduler needs a lease, which its role
	// permits.
	leader := schedulerOf(t, cp, controlplane.SchedulerOptions{Config: twoProfiles + "\nleaderElection: {leaderElect: true}\n"})
	ctx, client := within(t), clientOf(t, cp)
	until(t, "the lease is taken", func() bool {
		_, err := client.CoordinationV1().Leases("kube-system").Get(ctx, "kube-scheduler", metav1.GetOptions{})
		return err == nil
	})
	if log := leader.Log(); strings.Contains(log, "forbidden") {
		t.Errorf("the scheduler lacks permissions:\n%s", log)
	}
}
