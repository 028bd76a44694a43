package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy/allocations"
)

func TestGPUTable(t *testing.T) {
	pod := func(name string, amount int64) gpumemory.GPUPod {
		return gpumemory.GPUPod{Holder: allocations.Holder{Namespace: "ml", Name: name, UID: "u"}, Amount: amount}
	}
	ending := pod("ends", 6)
	ending.TerminatingUntil = &metav1.Time{Time: time.Date(2026, 3, 1, 12, 0, 30, 0, time.UTC)}
	node := func(name string, devices ...gpumemory.GPU) gpumemory.NodeReport {
		return gpumemory.NodeReport{Name: name, GPUs: devices}
	}
	for _, tt := range []struct {
		name   string
		report gpumemory.Report
		want   string
	}{
		{"no node", gpumemory.Report{Unit: gpumemory.GiB}, `
NODE  GPU  USED  RESERVED  FREE  OF GiB  PODS
all        0     0         0     0
`},
		{"shares", gpumemory.Report{Unit: gpumemory.MiB, Nodes: []gpumemory.NodeReport{
			node("n1",
				gpumemory.GPU{Index: 0, Capacity: 16000, Used: 9000, Reserved: 4000, Healthy: true, Pods: []gpumemory.GPUPod{pod("a", 5000), pod("b", 4000)}},
				gpumemory.GPU{Index: 1, Capacity: 16000, Healthy: true}),
			node("n2", gpumemory.GPU{Index: 0, Capacity: 24000, Used: 24000, Healthy: true, Pods: []gpumemory.GPUPod{pod("c", 24000)}}),
		}}, `
NODE  GPU  USED   RESERVED  FREE   OF MiB  PODS
n1    0    9000   4000      7000   16000   ml/a (5000), ml/b (4000)
n1    1    0      0         16000  16000
n2    0    24000  0         0      24000   ml/c (24000)
all        33000  4000      23000  56000
`},
		{"terminating", gpumemory.Report{Unit: gpumemory.GiB, Nodes: []gpumemory.NodeReport{node("n",
			gpumemory.GPU{Index: 0, Capacity: 16, Used: 6, Healthy: true, Pods: []gpumemory.GPUPod{ending}},
		)}}, `
NODE  GPU  USED  RESERVED  FREE  OF GiB  PODS
n     0    6     0         10    16      ml/ends (6, terminating until 2026-03-01T12:00:30Z)
all        6     0         10    16
`},
		// The sum of free memory does not include memory that cannot be allocated.
		{"of no use", gpumemory.Report{Unit: gpumemory.GiB, Nodes: []gpumemory.NodeReport{node("n",
			gpumemory.GPU{Index: 0, Capacity: 16, Used: 6, Healthy: false, Pods: []gpumemory.GPUPod{pod("a", 6)}},
			gpumemory.GPU{Index: 1, Capacity: 8, Used: 12, Healthy: true, Pods: []gpumemory.GPUPod{pod("b", 12)}},
			gpumemory.GPU{Index: 2, Capacity: 16, Used: 1, Healthy: true, Pods: []gpumemory.GPUPod{pod("c", 1)}},
			gpumemory.GPU{Index: 7, Capacity: 0, Used: 4, Healthy: true, Pods: []gpumemory.GPUPod{pod("d", 4)}},
		)}}, `
NODE  GPU  USED  RESERVED  FREE           OF GiB  PODS
n     0    6     0         unhealthy      16      ml/a (6)
n     1    12    0         overcommitted  8       ml/b (12)
n     2    1     0         15             16      ml/c (1)
n     7    4     0         gone           0       ml/d (4)
all        23    0         15             40
`},
		{"gone comes before unhealthy", gpumemory.Report{Unit: gpumemory.GiB, Nodes: []gpumemory.NodeReport{node("n",
			gpumemory.GPU{Index: 0, Used: 4, Pods: []gpumemory.GPUPod{pod("a", 4)}},
		)}}, `
NODE  GPU  USED  RESERVED  FREE  OF GiB  PODS
n     0    4     0         gone  0       ml/a (4)
all        4     0         0     0
`},
		{"of problems", gpumemory.Report{Unit: gpumemory.GiB, Nodes: []gpumemory.NodeReport{
			{Name: "down", Problem: "DevicePluginDown", Reported: "allocatable 0 of 16 aliyun.com/gpu-mem", GPUs: []gpumemory.GPU{
				{Index: 0, Capacity: 16, Used: 4, Healthy: true, Pods: []gpumemory.GPUPod{pod("a", 4)}},
			}},
			{Name: "odd", Problem: "InvalidGPUs", Reported: "has aliyun.com/gpu-count 65"},
		}}, `
NODE  GPU  USED  RESERVED  FREE              OF GiB  PODS
down  ?                    DevicePluginDown          allocatable 0 of 16 aliyun.com/gpu-mem
down  0    4     0         0                 16      ml/a (4)
odd   ?                    InvalidGPUs               has aliyun.com/gpu-count 65
all        4     0         0                 16
`},
		{"a pod known by its allocation alone", gpumemory.Report{Unit: gpumemory.GiB, Nodes: []gpumemory.NodeReport{node("n",
			gpumemory.GPU{Index: 0, Capacity: 16, Used: 4, Reserved: 4, Healthy: true, Pods: []gpumemory.GPUPod{
				{Holder: allocations.Holder{UID: "6f1d"}, Amount: 4, Reserved: true},
			}},
		)}}, `
NODE  GPU  USED  RESERVED  FREE  OF GiB  PODS
n     0    4     4         12    16      pod 6f1d (4)
all        4     4         12    16
`},
		{"nothing says which GPU a pod has", gpumemory.Report{Unit: gpumemory.GiB, Nodes: []gpumemory.NodeReport{{
			Name: "n", GPUs: []gpumemory.GPU{{Index: 0, Capacity: 16, Healthy: true}}, Unannotated: []gpumemory.GPUPod{pod("a", 4), pod("b", 8)},
		}}}, `
NODE  GPU  USED  RESERVED  FREE         OF GiB  PODS
n     0    0     0         16           16
n     ?                    unannotated          ml/a (4), ml/b (8)
all        0     0         16           16
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := gpuTable(&out, &tt.report); err != nil {
				t.Fatal(err)
			}
			// An empty last column is padded.
			got := "\n"
			for line := range strings.Lines(out.String()) {
				got += strings.TrimRight(line, " \n") + "\n"
			}
			if got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// gpusOf serves these responses as an admin address does, of which "" is none.
func gpusOf(t *testing.T, gpus, devices string) string {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := devices
		if strings.HasPrefix(r.URL.Path, service.InspectPath) {
			body = gpus
		}
		if body == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, body)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// The GPUs of device plugins and the devices of ResourceClaims are shown together, in each format.
func TestGPUsAndDevices(t *testing.T) {
	const (
		gpus    = `{"unit":"GiB","nodes":[{"name":"n","gpus":[{"index":0,"capacity":16,"used":4,"reserved":0,"healthy":true,"pods":[{"namespace":"ml","name":"a","uid":"u","amount":4}]}]}]}`
		noGPUs  = `{"unit":"GiB","nodes":[]}`
		devices = `{"drivers":[{"driver":"gpu.example.com","unit":"GiB","nodes":[{"name":"m","devices":[` +
			`{"name":"gpu-0","capacity":40,"used":15,"healthy":true,"claims":[{"namespace":"ml","name":"c","pod":{"namespace":"ml","name":"b","uid":"v","terminatingUntil":"2026-03-01T12:00:30Z"},"amount":10},{"namespace":"ml","name":"left","amount":5}]},` +
			`{"name":"gpu-1","capacity":40,"used":40,"healthy":false,"claims":[]},{"name":"gpu-2","capacity":20,"used":40,"healthy":true,"claims":[]}]}]}]}`
		noDevices = `{"drivers":[{"driver":"gpu.example.com","unit":"GiB","nodes":[]}]}`
		noDriver  = `{"drivers":[]}`

		gpuText = `NODE  GPU  USED  RESERVED  FREE  OF GiB  PODS
n     0    4     0         12    16      ml/a (4)
all        4     0         12    16
`
		deviceText = `Devices of gpu.example.com
NODE  DEVICE  USED  FREE           OF GiB  PODS
m     gpu-0   15    25             40      ml/b (10, terminating until 2026-03-01T12:00:30Z), claim ml/left (5)
m     gpu-1   40    unhealthy      40
m     gpu-2   40    overcommitted  20
all           95    25             100
`
	)
	for _, tt := range []struct{ name, gpus, devices, want string }{
		{"GPUs", gpus, noDriver, gpuText},
		{"devices", "", devices, deviceText},
		{"both", gpus, devices, gpuText + "\n" + deviceText},
		{"no devices", gpus, noDevices, gpuText},
		{"no GPUs", noGPUs, devices, deviceText},
		{"neither", noGPUs, noDevices, "NODE  GPU  USED  RESERVED  FREE  OF GiB  PODS\nall        0     0         0     0\n\nDevices of gpu.example.com\nNODE  DEVICE  USED  FREE  OF GiB  PODS\nall           0     0     0\n"},
		{"a node with devices", `{"unit":"GiB","nodes":[],"error":"node \"m\" shares no GPUs"}`, devices, deviceText},
		{"a node with GPUs", gpus, strings.TrimSuffix(noDevices, "}") + `,"error":"no devices"}`, gpuText},
		{"a node with neither", `{"unit":"GiB","nodes":[],"error":"no GPUs"}`, strings.TrimSuffix(noDevices, "}") + `,"error":"no devices"}`, "no GPUs; no devices\n"},
		{"no such node", `{"unit":"GiB","nodes":[],"error":"not found"}`, strings.TrimSuffix(noDevices, "}") + `,"error":"not found"}`, "not found\n"},
		{"no such node, with devices only", "", strings.TrimSuffix(noDevices, "}") + `,"error":"not found"}`, "not found\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text, err := execute(t, "gpus", "--admin", gpusOf(t, tt.gpus, tt.devices))
			got := ""
			for line := range strings.Lines(text) {
				got += strings.TrimRight(line, " \n") + "\n"
			}
			if failed := !strings.HasPrefix(tt.want, "N") && !strings.HasPrefix(tt.want, "D"); got != tt.want || errors.Is(err, errFindings) != failed || !failed && err != nil {
				t.Errorf("%v\n%s\nwant\n%s", err, got, tt.want)
			}
		})
	}
	asJSON, err := execute(t, "gpus", "--admin", gpusOf(t, gpus, devices), "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := execute(t, "gpus", "--admin", gpusOf(t, gpus, devices), "-o", "yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSuffix(gpus, "}") + "," + strings.TrimPrefix(devices, "{")
	for _, text := range []string{asJSON, asYAML} {
		got, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(got, &a), json.Unmarshal([]byte(want), &b)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, a); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// The service reads the name of the node as it was given, whatever it contains: it reports that there is no such node.
func TestGPUsOfANodeThatCannotExist(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"drivers":[{}],"error":%q}`, r.URL.Path+r.URL.Query().Get("node"))
	}))
	defer srv.Close()
	for _, name := range []string{"n", "a/b", "../../replicas", "a%2", "a?b", "a&b"} {
		report, err := fetchGPUs(t.Context(), srv.Client(), srv.URL+"/", name)
		if err != nil || report.Error != "/inspect/gpus/"+name+"; "+ui.DevicesPath+name {
			t.Errorf("node %q: got %+v, error %v", name, report, err)
		}
	}
}
