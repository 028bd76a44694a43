// Package bounds tests that whatever reads the texts of pods, nodes, callers and sources takes memory in proportion to their length.
package bounds

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/internal/config/strictyaml"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/signals/format"
	"outboard.dev/outboard/internal/signals/source/metricsapi"
	"outboard.dev/outboard/internal/signals/source/prometheus"
	"outboard.dev/outboard/policies/cost"
	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policies/hardwarehealth"
	"outboard.dev/outboard/policies/licenses"
	"outboard.dev/outboard/policies/podlimit"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/policy/policytest"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
)

// parser reads texts in production.
type parser struct {
	name string
	// longest is how many bytes production accepts, or the test tries.
	longest int
	// perByte is how many bytes one byte of text may allocate, in addition to a constant.
	perByte int
	read    func(text string)
	// expanded is how many bytes the aliases of a YAML document may allocate, whatever its length.
	expanded int
}

const (
	// constant is what any text may allocate.
	constant = 256 << 10
	// annotation is half of what the API server accepts, to save time.
	annotation = 128 << 10
	// expansion is more than strictyaml's limit for the text that aliases repeat, 4 MiB.
	expansion = 8 << 20
	// document is shorter than the longest document, 32 MiB, to save time.
	document = 128 << 10
)

var limits = signal.Limits{Values: 100_000, Bytes: signal.MaxBytes}

// texts are hostile texts of about a length.
var texts = map[string]func(n int) string{
	"digits":         func(n int) string { return strings.Repeat("9", n) },
	"fraction":       func(n int) string { return "0." + strings.Repeat("3", n) },
	"exponent":       func(int) string { return "1e-999999999" },
	"exponents":      func(n int) string { return strings.Repeat("1e-999999999,", n/13) },
	"commas":         func(n int) string { return strings.Repeat(",", n) },
	"lines":          func(n int) string { return strings.Repeat("\n", n) },
	"short items":    func(n int) string { return strings.Repeat("1,", n/2) },
	"named items":    func(n int) string { return strings.Repeat("a:1,b;", n/6) },
	"white space":    func(n int) string { return strings.Repeat(" \t", n/2) },
	"unicode":        func(n int) string { return strings.Repeat("\u0130\U0001F600", n/6) },
	"invalid UTF-8":  func(n int) string { return strings.Repeat("\xff\xc0", n/2) },
	"zero bytes":     func(n int) string { return strings.Repeat("\x00", n) },
	"quotes":         func(n int) string { return strings.Repeat(`"`, n) },
	"escapes":        func(n int) string { return `"` + strings.Repeat(`\u0041`, n/6) + `"` },
	"deep lists":     func(n int) string { return strings.Repeat("[", n) },
	"deep objects":   func(n int) string { return strings.Repeat(`{"a":`, n/5) },
	"deep YAML":      func(n int) string { return strings.Repeat("- ", n/2) },
	"closed lists":   func(n int) string { return strings.Repeat("[", 9000) + strings.Repeat("]", 9000) },
	"empty objects":  func(n int) string { return "[" + strings.Repeat("{},", n/3) + "{}]" },
	"numbers":        func(n int) string { return "[" + strings.Repeat("1,", n/2) + "1]" },
	"long number":    func(n int) string { return "[" + strings.Repeat("9", n) + "]" },
	"duplicate keys": func(n int) string { return "{" + strings.Repeat(`"a":1,`, n/6) + `"a":1}` },
	"many keys":      manyKeys,
	"aliases":        func(n int) string { return "a: &a [1,1,1,1,1,1,1,1]\n" + aliases(n) },
	"anchors":        func(n int) string { return strings.Repeat("- &a\n", n/5) },
	"license lines": func(n int) string {
		return "Users of f:  (Total of 5 licenses issued;  Total of 1 license in use)\n" + strings.Repeat("    u h /dev/tty (v1) (s/1 1), start Mon 1/1 1:1, 9999999999999999999 licenses\n", n/80)
	},
	"license names": func(n int) string {
		return strings.Repeat("Users of f:  (Total of 5 licenses issued;  Total of 1 license in use)\n", n/70)
	},
	"Prometheus": func(n int) string {
		return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Repeat(`{"metric":{},"value":[1,"1"]},`, n/30) + `{"metric":{},"value":[1,"1"]}]}}`
	},
	"metrics of nodes": func(n int) string {
		return `{"items":[` + strings.Repeat(`{"usage":{"cpu":"1e-999999999"}},`, n/34) + `{}]}`
	},
	"ledger":     func(n int) string { return `{"spec":{"entries":[` + strings.Repeat(`{},`, n/3) + `{}]}}` },
	"indexes":    manyIndexes,
	"allocation": func(n int) string { return `{"c":{` + strings.Repeat(`"0":1,`, n/6) + `"1":1}}` },
}

func manyIndexes(n int) string {
	var b strings.Builder
	for i := 0; b.Len() < n-6; i++ {
		b.WriteString(strconv.Itoa(i%65536) + ",")
	}
	return b.String() + "1"
}

func manyKeys(n int) string {
	var b strings.Builder
	b.WriteString("{")
	for i := 0; b.Len() < n-12; i++ {
		b.WriteString(`"` + strings.Repeat(string(rune('a'+i%26)), 1+i/26%7) + string(rune('0'+i%10)) + string(rune('a'+i/260%26)) + string(rune('a'+i/6760%26)) + `":1,`)
	}
	return b.String() + `"z":1}`
}

// aliases multiplies a list at each level.
func aliases(n int) string {
	var b strings.Builder
	for i := range min(25, n/40) {
		name, before := string(rune('b'+i)), string(rune('a'+i))
		b.WriteString(name + ": &" + name + " [" + strings.TrimSuffix(strings.Repeat("*"+before+",", 8), ",") + "]\n")
	}
	return b.String()
}

// parsers returns all parsers that pods, nodes, callers and sources reach.
func parsers(t *testing.T) []parser {
	all := []parser{
		{"signal.ParseNumber", annotation, 8, func(text string) { _, _ = signal.ParseNumber(text) }, 0},
		{"fields.ParseQuantity", annotation, 1, func(text string) { _, _ = fields.ParseQuantity(text) }, 0},
		{"strictyaml.Parse and Decode", document / 4, 1024, func(text string) {
			if v, err := strictyaml.Parse("document", []byte(text)); err == nil {
				var into any
				_ = v.Decode(&into)
			}
		}, expansion},
	}
	decoder, err := format.New(format.Document{About: new(policy.AboutKeys)})
	if err != nil {
		t.Fatal(err)
	}
	all = append(all, parser{"format.Decode", document / 4, 1024, func(text string) {
		_, _ = decoder.Decode(strings.NewReader(text), limits)
	}, expansion})
	return append(append(append(all, responses(t)...), annotations(t)...), audits())
}

// audits returns the audit with one text in all annotations that it reads, of a pod on a node.
func audits() parser {
	many := corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("8"), "aliyun.com/gpu-count": resource.MustParse("2")}
	return parser{"audit.Audit", annotation, 128, func(text string) {
		read := map[string]string{}
		for _, key := range []string{"scheduler.framework.gpushare.allocation", "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_DEV", "ALIYUN_COM_GPU_MEM_POD", "ALIYUN_COM_GPU_MEM_ASSIGNED", "nvidia.com/container.c.gpu-memory.request"} {
			read[key] = text
		}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}, Status: corev1.NodeStatus{Capacity: many, Allocatable: many}}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p", UID: "p", Annotations: read}, Spec: corev1.PodSpec{NodeName: "n"}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: many, Requests: many}}}
		audit.Audit(audit.Input{Pods: []*corev1.Pod{pod}, Nodes: []*corev1.Node{node}})
	}, 0}
}

// responses returns the parsers of responses over HTTP.
func responses(t *testing.T) []parser {
	var body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	metrics, err := prometheus.New(prometheus.Config{Address: server.URL, Query: "up"})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := metricsapi.New(metricsapi.Config{Resource: "cpu"}, &rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return []parser{
		{"a response of Prometheus", document, 256, func(text string) { body = text; _, _ = metrics.Read(t.Context(), limits) }, 0},
		{"a response of the metrics API", document, 256, func(text string) { body = text; _, _ = nodes.Read(t.Context(), limits) }, 0},
	}
}

// annotations returns policies with one text in all annotations and labels that they read, of the pod, of a pod on the node, and of the node.
func annotations(t *testing.T) []parser {
	var all []parser
	for _, p := range []struct {
		kind        policy.Type
		config      string
		annotations []string
		resource    corev1.ResourceName
	}{
		{podlimit.Type(), `{max: 3, maxFrom: {label: x}, selector: {}}`, nil, ""},
		{podlimit.Type(), `{max: 3, maxFromPod: {annotation: k}, selector: {}}`, []string{"k"}, ""},
		{cost.Type(), `{scoringStrategy: {type: NodeCost}, prices: [{priceFrom: {annotation: x}}]}`, nil, ""},
		{licenses.Type(), `{features: [{name: solver, seats: 5}]}`, []string{"outboard.dev/licenses"}, ""},
		{devices.Type(), `{resource: example.com/d, capacityFrom: {annotation: x}}`, nil, "example.com/d"},
		{devices.Type(), `{resource: example.com/d, units: Named, unitsFrom: {annotation: x}, groupsFrom: {annotation: x}, resultAnnotation: k}`, []string{"k"}, "example.com/d"},
		{gpumemory.Type(), `{sizesFrom: {annotation: x}, modelAnnotation: k, multiGPU: true}`, []string{"k", "scheduler.framework.gpushare.allocation", "ALIYUN_COM_GPU_MEM_IDX", "ALIYUN_COM_GPU_MEM_ASSIGNED"}, "aliyun.com/gpu-mem"},
		{gpumemory.Type(), `{nodeAgent: ContainerToolkit}`, []string{"outboard.dev/gpus", "nvidia.com/container.c.gpu-memory.request"}, ""},
		{hardwarehealth.Type(), `{tolerationAnnotation: k, rules: [{name: kernel, nodeCondition: {type: KernelDeadlock}, reject: true}]}`, []string{"k"}, ""},
	} {
		built := policytest.Build(t, p.kind, p.config)
		all = append(all, parser{"policy " + p.kind.Name + " " + p.config, annotation, 128, func(text string) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n", Annotations: map[string]string{"x": text}, Labels: map[string]string{"x": text}}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "p", UID: "p", Annotations: map[string]string{}, Labels: map[string]string{"aliyun.com/gpu-count": text}}}
			for _, key := range p.annotations {
				pod.Annotations[key] = text
			}
			pod.Spec.Containers = []corev1.Container{{Name: "c"}}
			if p.resource != "" {
				many := corev1.ResourceList{p.resource: resource.MustParse("8"), "aliyun.com/gpu-count": resource.MustParse("2")}
				pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: many, Requests: many}
				node.Status = corev1.NodeStatus{Capacity: many, Allocatable: many}
			}
			other := pod.DeepCopy()
			other.Name, other.UID, other.Spec.NodeName = "q", "q", "n"
			var b snapshot.Builder
			b.SetNode(node)
			b.SetPod(other)
			view := b.View()
			cycle, err := built.Prepare(t.Context(), pod, view)
			if err != nil {
				return
			}
			for n := range view.All() {
				if f, ok := cycle.(policy.Filter); ok {
					f.Filter(n)
				}
				if s, ok := cycle.(policy.Score); ok {
					s.Score(n)
				}
			}
		}, 0})
	}
	return all
}

// What a parser allocates grows in proportion to the length of the text, whatever the text contains.
func TestParsersAllocateInProportion(t *testing.T) {
	for _, p := range parsers(t) {
		t.Run(p.name, func(t *testing.T) {
			worst := 0.0
			for kind, text := range texts {
				for _, n := range []int{4 << 10, p.longest} {
					input := text(n)
					if len(input) > p.longest {
						input = input[:p.longest]
					}
					var before, after runtime.MemStats
					runtime.ReadMemStats(&before)
					p.read(input)
					runtime.ReadMemStats(&after)
					allocated := after.TotalAlloc - before.TotalAlloc
					if allocated > uint64(constant+p.expanded+p.perByte*len(input)) {
						t.Errorf("%s of %d bytes: %d bytes allocated, want at most %d for each byte", kind, len(input), allocated, p.perByte)
					}
					worst = max(worst, (float64(allocated)-constant)/float64(len(input)))
				}
			}
			t.Logf("worst: %.0f bytes for each byte", worst)
		})
	}
}
