package cluster_test

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	restwatch "k8s.io/client-go/rest/watch"

	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/snapshot"
)

const (
	memoryNodes = 5000
	memoryPods  = 30000
	// memoryEvents is the number of changes that follow: several heartbeats of every node, and as many changes of pods.
	memoryEvents = 60000
	// memoryPause is the time without changes after which memory counts as steady: the runtime returns unused memory in the
	// background.
	memoryPause = 10 * time.Second
)

// containerLimit is the memory limit of the container in the manifests, in MiB, and goLimit is the limit of Go's memory there.
const (
	containerLimit = 1024
	goLimit        = "GOMEMLIMIT=921MiB"
)

// BenchmarkMemory measures outboard serve, built and started as by a user, with a large cluster: resident memory when it is
// ready, the maximum during a stream of changes, after memoryPause without changes, and the overall maximum; then the reachable
// heap; and the processor time of everything. Beside it is the limit of the container, for those with that of its Go memory. OUTBOARD_TEST_MEMORY_PROFILE names a file for a heap profile.
func BenchmarkMemory(b *testing.B) {
	outboard := filepath.Join(b.TempDir(), "outboard")
	if out, err := exec.CommandContext(b.Context(), "go", "build", "-o", outboard, "outboard.dev/outboard/cmd/outboard").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, arm := range []struct {
		name, setting string
		cluster       largeCluster
	}{
		{"default", "", largeCluster{events: memoryEvents}}, {"GOGC=100", "GOGC=100", largeCluster{events: memoryEvents}}, {"no changes", "", largeCluster{}},
		{"no devices", "", largeCluster{scoresDevices: true}}, {"devices", "", largeCluster{scoresDevices: true, devices: true}},
		// Every node takes as much as it may, and so does every pod in the cache, or in a call. The limit of Go's memory is that in the
		// container of the manifests.
		{"largest pods in the cache", goLimit, largeCluster{paddedPod: 8 << 10, paddedNode: 32 << 10}},
		{"largest pods in calls", goLimit, largeCluster{paddedPod: snapshot.MaxPod, paddedNode: 32 << 10}},
		// So does everything else that it keeps.
		{"everything", goLimit, largeCluster{paddedPod: 8 << 10, paddedNode: 32 << 10, everything: true}},
	} {
		b.Run(arm.name, func(b *testing.B) {
			server := httptest.NewServer(arm.cluster)
			defer server.Close()
			defer server.CloseClientConnections()
			for b.Loop() {
				measureMemory(b, outboard, server.URL, arm.setting, arm.cluster)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// measureMemory reports what one process takes, in MiB.
func measureMemory(b *testing.B, outboard, url, setting string, cluster largeCluster) {
	admin, address, command := startServe(b, outboard, url, setting, cluster)
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
		b.ReportMetric((command.ProcessState.UserTime() + command.ProcessState.SystemTime()).Seconds(), "CPU-s")
	}()
	pid := command.Process.Pid
	until := func(condition func() bool) {
		for deadline := time.Now().Add(10 * time.Minute); !condition(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				b.Fatal("outboard serve is not ready in time")
			}
		}
	}
	until(func() bool {
		status, _ := ask(admin + "/readyz")
		return status == http.StatusOK
	})
	b.ReportMetric(resident(pid, "VmRSS"), "MiB-ready")
	var changing float64
	until(func() bool {
		changing = max(changing, resident(pid, "VmRSS"))
		_, metrics := ask(admin + "/metrics")
		return strings.Contains(metrics, fmt.Sprintf("\noutboard_cluster_nodes %d\n", memoryNodes+1)) &&
			strings.Contains(metrics, fmt.Sprintf("\noutboard_cluster_pods %d\n", memoryPods+1))
	})
	b.ReportMetric(changing, "MiB-changing")
	if cluster.everything {
		fillQueue(b, address)
		until(func() bool {
			_, metrics := ask(admin + "/metrics")
			return strings.Contains(metrics, fmt.Sprintf("\noutboard_audit_findings{finding=\"unannotated\"} %d\n", memoryPods/2))
		})
		for _, path := range []string{ui.OverviewPath, ui.WaitingPath, ui.HeldPath, ui.SignalsPath} {
			ask(admin + path)
		}
	}
	time.Sleep(memoryPause)
	b.ReportMetric(resident(pid, "VmRSS"), "MiB-steady")
	b.ReportMetric(resident(pid, "VmHWM"), "MiB-peak")
	if setting == goLimit {
		b.ReportMetric(containerLimit, "MiB-container")
	}
	_, profile := ask(admin + "/debug/pprof/heap?gc=1")
	if file := os.Getenv("OUTBOARD_TEST_MEMORY_PROFILE"); file != "" {
		if err := os.WriteFile(file, []byte(profile), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	_, stats := ask(admin + "/debug/pprof/heap?debug=1")
	for line := range strings.Lines(stats) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "# HeapAlloc = "); ok {
			bytes, _ := strconv.ParseFloat(value, 64)
			b.ReportMetric(bytes/(1<<20), "MiB-live")
		}
	}
}

// freeAddress returns an address on which nobody listens.
func freeAddress(b *testing.B) string {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = free.Close() }()
	return free.Addr().String()
}

// startServe starts outboard serve and returns the URLs of its admin listener and of the other one.
func startServe(b *testing.B, outboard, url, setting string, cluster largeCluster) (admin, address string, _ *exec.Cmd) {
	admin, address = freeAddress(b), freeAddress(b)
	profiles := `
profiles:
- policies: [{type: ImageLocality}]
`
	switch {
	case cluster.everything:
		profiles = everything(b)
	case cluster.scoresDevices:
		profiles = strings.Replace(profiles, "ImageLocality", "ResourceClaims", 1)
	}
	kubeconfig := write(b, "kubeconfig", fmt.Sprintf(`
clusters: [{name: c, cluster: {server: %q}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, url))
	config := write(b, "outboard.yaml", fmt.Sprintf(`
apiVersion: outboard.dev/v1alpha1
kind: OutboardConfiguration
serving: {address: %q, insecure: true}
admin: {address: %q, pprof: true}
clientConnection: {kubeconfig: %q}
log: {level: Warn}
%s`, address, admin, kubeconfig, profiles))
	command := exec.CommandContext(b.Context(), outboard, "serve", "--config", config)
	command.Stderr = os.Stderr
	if strings.Contains(setting, "=") {
		command.Env = append(os.Environ(), setting)
	}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	return "http://" + admin, "http://" + address, command
}

func write(b *testing.B, name, text string) string {
	path := filepath.Join(b.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		b.Fatal(err)
	}
	return path
}

// ask returns the status of the response and its body; 0 without a response.
func ask(url string) (int, string) {
	response, err := http.Get(url)
	if err != nil {
		return 0, ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, string(body)
}

// resident returns a field of the process's status in MiB.
func resident(pid int, field string) float64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, field+":"); ok {
			kib, _ := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			return kib / 1024
		}
	}
	return 0
}

// largeCluster is an API server that streams a large cluster, and then changes to it, to every watch.
type largeCluster struct {
	events int
	// paddedPod and paddedNode are the sizes of pods and nodes when they are trimmed; 0: as they are.
	paddedPod, paddedNode int64
	// everything adds GPUs, ledgers, ConfigMaps and disruption budgets, which all take as much as they may.
	everything bool
	// scoresDevices says that the policy is ResourceClaims, and devices adds GPUs in ResourceSlices, and claims.
	scoresDevices, devices bool
}

// pad adds annotations, which no other object has, to an object of this size.
func pad(meta *metav1.ObjectMeta, size, padded int64) {
	const part = 200 // bytes of one annotation
	own := maps.Clone(meta.Annotations)
	for i := int64(0); size+(i+1)*(part+3*32) <= padded; i++ {
		text := fmt.Sprintf("padding-%d-%s", i, meta.UID)
		own[text] = strings.Repeat("x", part-len(text))
	}
	meta.Annotations = own
}

func (c largeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		http.Error(w, "only watches", http.StatusNotImplemented)
		return
	}
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	version := corev1.SchemeGroupVersion
	switch {
	case kind == "poddisruptionbudgets":
		version = policyv1.SchemeGroupVersion
	case strings.HasPrefix(r.URL.Path, "/apis/resource.k8s.io/"):
		version = resourcev1.SchemeGroupVersion
	}
	if kind == "ledgers" {
		serveLedgers(w, r)
		return
	}
	send := eventSender(w, version)
	if r.URL.Query().Get("sendInitialEvents") == "" {
		<-r.Context().Done() // a resumed watch gets no more events
		return
	}
	end := metav1.ObjectMeta{ResourceVersion: "3000000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	switch kind {
	case "nodes":
		for i := range memoryNodes {
			node := cluster.ExampleNode(i)
			if c.everything {
				addGPUs(node)
			}
			if c.paddedNode > 0 {
				pad(&node.ObjectMeta, snapshot.SizeOf(snapshot.TrimmedNode(node)), c.paddedNode)
			}
			send(watch.Added, node)
		}
		send(watch.Bookmark, &corev1.Node{ObjectMeta: end})
		for i := range c.events / 2 {
			node := cluster.ExampleNode(i % memoryNodes)
			node.ResourceVersion = strconv.Itoa(4000000 + i)
			for j := range node.Status.Conditions {
				node.Status.Conditions[j].LastHeartbeatTime = metav1.NewTime(time.Unix(int64(2000000000+i), 0))
			}
			send(watch.Modified, node)
		}
		send(watch.Added, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "last", ResourceVersion: "5000000"}})
	case "pods":
		for i := range memoryPods {
			pod := podOf(i)
			if c.paddedPod > 0 {
				if i%2 == 0 { // pending
					pod.Spec.NodeName = ""
				}
				if c.everything {
					requestGPU(pod)
				}
				pad(&pod.ObjectMeta, snapshot.PodSize(snapshot.TrimmedPod(pod)), c.paddedPod)
			}
			send(watch.Added, pod)
		}
		send(watch.Bookmark, &corev1.Pod{ObjectMeta: end})
		for i := range c.events / 2 {
			pod := podOf((i * 7919) % memoryPods)
			pod.ResourceVersion = strconv.Itoa(4000000 + i)
			pod.Status.ContainerStatuses[0].RestartCount = int32(i)
			if i%3 == 0 { // becomes unready, and ready again
				pod.Status.Conditions[2].Status = corev1.ConditionFalse
				send(watch.Modified, pod)
				pod.Status.Conditions[2].Status = corev1.ConditionTrue
				pod.Status.Conditions[2].LastTransitionTime = metav1.NewTime(time.Unix(int64(2000000000+i), 0))
			}
			send(watch.Modified, pod)
		}
		last := podOf(0)
		last.Name, last.UID, last.Spec.NodeName = "last", "last", ""
		send(watch.Added, last)
	case "poddisruptionbudgets":
		if c.everything {
			sendBudgets(send)
		}
		send(watch.Bookmark, &policyv1.PodDisruptionBudget{ObjectMeta: end})
	case "configmaps":
		sendConfigMaps(send)
		send(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: end})
	default:
		c.sendDevices(kind, end, send)
	}
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func podOf(i int) *corev1.Pod {
	return cluster.ExamplePod(i, fmt.Sprintf("service-%d-7d4b9c6f58-%05x", i%1500, i))
}

// eventSender returns a function that sends an event as the API server does.
func eventSender(w http.ResponseWriter, version schema.GroupVersion) func(watch.EventType, k8sruntime.Object) {
	info, ok := k8sruntime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), k8sruntime.ContentTypeProtobuf)
	if !ok {
		panic("no protobuf")
	}
	w.Header().Set("Content-Type", k8sruntime.ContentTypeProtobuf+";stream=watch")
	stream := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(w), scheme.Codecs.EncoderForVersion(info.StreamSerializer.Serializer, version))
	events := restwatch.NewEncoder(stream, scheme.Codecs.EncoderForVersion(info.Serializer, version))
	return func(kind watch.EventType, object k8sruntime.Object) {
		_ = events.Encode(&watch.Event{Type: kind, Object: object}) // the watch may have ended
		if kind == watch.Bookmark {
			w.(http.Flusher).Flush()
		}
	}
}
