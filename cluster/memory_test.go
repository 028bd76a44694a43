package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"

	"outboard.dev/outboard/cluster"
)

const (
	memoryNodes = 5000
	memoryPods  = 30000
	// memoryEvents is how many changes follow: every node's heartbeat a few
	// times, and as many changes of pods.
	memoryEvents = 60000
	// memoryChild is set for the process that is measured, to the API server's URL.
	memoryChild = "OUTBOARD_TEST_MEMORY_CHILD"
)

// memoryReport is what the measured process prints; MiB.
type memoryReport struct {
	Synced, Peak, Steady, Returned float64 // resident: after the first reading, at most, after the events, with free memory given back
	Live                           float64 // reachable heap
}

// BenchmarkMemory measures a process that holds a large cluster and nothing else,
// fed by an API server in this process. It prints MiB.
func BenchmarkMemory(b *testing.B) {
	server := httptest.NewUnstartedServer(largeCluster{})
	server.EnableHTTP2 = true
	server.Start()
	defer server.Close()
	for _, gogc := range []string{"100", "50"} {
		b.Run("GOGC="+gogc, func(b *testing.B) {
			for b.Loop() {
				var out bytes.Buffer
				cmd := exec.CommandContext(b.Context(), os.Args[0])
				cmd.Env = append(os.Environ(), memoryChild+"="+server.URL, "GOGC="+gogc)
				cmd.Stdout, cmd.Stderr = &out, os.Stderr
				if err := cmd.Run(); err != nil {
					b.Fatal(err)
				}
				var report memoryReport
				if err := json.Unmarshal(out.Bytes(), &report); err != nil {
					b.Fatalf("%v in %q", err, out.String())
				}
				b.ReportMetric(report.Live, "MiB-live")
				b.ReportMetric(report.Synced, "MiB-resident-synced")
				b.ReportMetric(report.Steady, "MiB-resident-steady")
				b.ReportMetric(report.Returned, "MiB-resident-returned")
				b.ReportMetric(report.Peak, "MiB-resident-peak")
				b.ReportMetric(0, "ns/op")
			}
		})
	}
}

// measureMemory is the measured process.
func measureMemory(url string) error {
	c, err := cluster.New(cluster.Options{Config: &rest.Config{Host: url}, Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	for c.Synced() != nil {
		time.Sleep(10 * time.Millisecond)
	}
	var report memoryReport
	report.Synced = resident("VmRSS")
	// The last event is a node of its own.
	for c.View().Node("last") == nil {
		time.Sleep(10 * time.Millisecond)
	}
	pods := 0
	for n := range c.View().All() {
		pods += len(n.Pods)
	}
	if c.View().Len() != memoryNodes+1 || pods != memoryPods {
		return fmt.Errorf("view has %d nodes and %d pods", c.View().Len(), pods)
	}
	report.Steady, report.Peak = resident("VmRSS"), resident("VmHWM")
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	report.Live = float64(stats.HeapAlloc) / (1 << 20)
	if file := os.Getenv("OUTBOARD_TEST_MEMORY_PROFILE"); file != "" {
		if err := writeHeapProfile(file); err != nil {
			return err
		}
	}
	debug.FreeOSMemory()
	report.Returned = resident("VmRSS")
	runtime.KeepAlive(c)
	cancel()
	if err := <-done; err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(report)
}

// resident returns a field of /proc/self/status in MiB.
func resident(field string) float64 {
	status, err := os.ReadFile("/proc/self/status")
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

// largeCluster is an API server that streams a large cluster, and then changes to
// it, to whoever watches.
type largeCluster struct{}

func (largeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("watch") == "" {
		http.Error(w, "only watches", http.StatusNotImplemented)
		return
	}
	kind := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
	version := corev1.SchemeGroupVersion
	if kind == "poddisruptionbudgets" {
		version = policyv1.SchemeGroupVersion
	}
	send := eventSender(w, version)
	if r.URL.Query().Get("sendInitialEvents") == "" {
		<-r.Context().Done() // a watch that is resumed: nothing more happens
		return
	}
	end := metav1.ObjectMeta{ResourceVersion: "3000000", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	switch kind {
	case "nodes":
		for i := range memoryNodes {
			send(watch.Added, cluster.ExampleNode(i))
		}
		send(watch.Bookmark, &corev1.Node{ObjectMeta: end})
		for i := range memoryEvents / 2 {
			node := cluster.ExampleNode(i % memoryNodes)
			node.ResourceVersion = strconv.Itoa(4000000 + i)
			for j := range node.Status.Conditions {
				node.Status.Conditions[j].LastHeartbeatTime = metav1.NewTime(time.Unix(int64(2000000000+i), 0))
			}
			send(watch.Modified, node)
		}
		time.Sleep(time.Second) // for the pods
		send(watch.Added, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "last", ResourceVersion: "5000000"}})
	case "pods":
		for i := range memoryPods {
			send(watch.Added, podOf(i))
		}
		send(watch.Bookmark, &corev1.Pod{ObjectMeta: end})
		for i := range memoryEvents / 2 {
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
	case "poddisruptionbudgets":
		send(watch.Bookmark, &policyv1.PodDisruptionBudget{ObjectMeta: end})
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
		_ = events.Encode(&watch.Event{Type: kind, Object: object}) // the watcher may be gone
		if kind == watch.Bookmark {
			w.(http.Flusher).Flush()
		}
	}
}

func writeHeapProfile(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return pprof.Lookup("heap").WriteTo(f, 0)
}
