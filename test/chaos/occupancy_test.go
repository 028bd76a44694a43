package chaos

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/snapshot"
)

// The resources that pods request.
const (
	memoryResource = "aliyun.com/gpu-mem"   // of one GPU
	countResource  = "aliyun.com/gpu-count" // whole GPUs
	seatResource   = "example.com/tool"     // seats of a license
	deviceResource = "example.com/fpga"     // whole devices
)

// allSeats is how many seats the license has.
const allSeats = 6

// request is what a pod requests. If memory is negative, it is unknown how much.
type request struct{ memory, whole, seats, devices int64 }

func (r request) gpus() bool { return r.memory != 0 || r.whole != 0 }

// allocations reports whether the pod must have an allocation in the ledger when it is bound to the node.
func (r request) allocations(l *snapshot.Ledger, node string) bool {
	switch {
	case l.Node == "":
		return r.seats > 0
	case l.Resource == deviceResource:
		return l.Node == node && r.devices > 0
	}
	return l.Node == node && r.gpus()
}

// requestOf returns what the pod requests; of one whose creation is not recorded, nothing is known but that it requests memory of a GPU.
func requestOf(all map[string]request, pod string) request {
	if r, ok := all[pod]; ok {
		return r
	}
	return request{memory: -1}
}

// requests returns what each pod requests, as it was created.
func requests(records []*record) map[string]request {
	all := map[string]request{}
	for _, r := range records {
		var pod corev1.Pod
		if r.ObjectRef.Resource != "pods" || r.ObjectRef.Subresource != "" || r.Verb != "create" || json.Unmarshal(r.RequestObject, &pod) != nil {
			continue
		}
		var sum request
		for _, c := range pod.Spec.Containers {
			limit := func(name corev1.ResourceName) int64 { q := c.Resources.Limits[name]; return q.Value() }
			sum.memory, sum.whole = sum.memory+limit(memoryResource), sum.whole+limit(countResource)
			sum.seats, sum.devices = sum.seats+limit(seatResource), sum.devices+limit(deviceResource)
		}
		all[r.pod()] = sum
	}
	return all
}

// modelOf returns the model of the ledger.
func modelOf(l *snapshot.Ledger) porcupine.Model {
	switch {
	case l.Node == "":
		return model(allSeats)
	case l.Resource == deviceResource:
		return model(1)
	}
	return model(cardSize)
}

// license is the unit of all pods with seats; those with devices and GPUs have the name of the node before this.
const (
	license = "the license"
	device  = " device "
)

// capacity returns how much there is of the unit.
func capacity(unit string) int64 {
	switch {
	case unit == license:
		return allSeats
	case strings.Contains(unit, device):
		return 1
	}
	return cardSize
}

// deviceAnnotation has the devices of a pod.
const deviceAnnotation = "outboard.dev/example.com.fpga"

// holds returns how much of each unit the pod of the Binding has from then on.
func (r request) holds(b *corev1.Binding) (map[string]int64, error) {
	held := map[string]int64{}
	if r.seats > 0 {
		held[license] = r.seats
	}
	if r.devices > 0 {
		for _, name := range strings.Split(b.Annotations[deviceAnnotation], ",") {
			held[b.Target.Name+device+name] = 1
		}
		if int64(len(held)) != r.devices+min(r.seats, 1) {
			return nil, fmt.Errorf("requests %+v, and is bound with %v", r, b.Annotations)
		}
	}
	if !r.gpus() {
		return held, nil
	}
	gpus := strings.Split(b.Annotations["ALIYUN_COM_GPU_MEM_IDX"], ",")
	total, err := strconv.ParseInt(b.Annotations["ALIYUN_COM_GPU_MEM_POD"], 10, 64)
	switch {
	case err != nil:
		return nil, fmt.Errorf("is bound without a GPU: %v", b.Annotations)
	case r.memory >= 0 && (total != r.memory+r.whole*cardSize || int64(len(gpus)) != max(1, r.whole)):
		return nil, fmt.Errorf("requests %+v, and is bound with %v", r, b.Annotations)
	}
	for _, gpu := range gpus {
		held[b.Target.Name+" GPU "+gpu] += total / int64(len(gpus))
	}
	return held, nil
}

// occupancy counts the pods that were bound, and returns an error for each GPU that ever had more of them than it has memory, for each device
// that ever had two, and for the license if pods ever had more seats. It reads Bindings, and the creation and the ends of pods, and no ledger. A pod counts from the
// response to its Binding until the first request that may end it.
func occupancy(records []*record) (placed int, err error) {
	ended, requested := map[string]int64{}, requests(records)
	for _, r := range records {
		if r.ends() {
			ended[r.pod()] = cmp.Or(ended[r.pod()], r.RequestReceivedTimestamp.UnixMicro())
		}
	}
	type change struct {
		at     int64
		unit   string
		amount int64
	}
	var changes []change
	for _, r := range records {
		b := r.binding()
		if b == nil || r.unknown() {
			continue
		}
		held, err := requestOf(requested, r.pod()).holds(b)
		if err != nil {
			return 0, fmt.Errorf("pod %s %w", r.pod(), err)
		}
		placed++
		from, until := r.StageTimestamp.UnixMicro(), ended[r.pod()]
		if until != 0 && until <= from {
			continue
		}
		for unit, amount := range held {
			changes = append(changes, change{from, unit, amount})
			if until != 0 {
				changes = append(changes, change{until, unit, -amount})
			}
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.amount, b.amount)) })
	used, above := map[string]int64{}, map[string]error{}
	for _, c := range changes {
		has := capacity(c.unit)
		if used[c.unit] += c.amount; used[c.unit] > has && above[c.unit] == nil {
			above[c.unit] = fmt.Errorf("%s has %d, and pods with %d", c.unit, has, used[c.unit])
			err = errors.Join(err, above[c.unit])
		}
	}
	return placed, err
}

// pod adds the creation of a pod.
func (s *script) pod(name string, resource corev1.ResourceName, amount string) {
	s.t.Helper()
	s.request("create", map[string]any{"resource": "pods", "namespace": "default", "name": name}, 201, map[string]any{
		"spec": map[string]any{"containers": []any{map[string]any{"resources": map[string]any{"limits": map[string]any{string(resource): amount}}}}},
	}, nil)
}

// Pods that share a GPU with more memory than it has, a license with more seats, or a device, are found without any ledger.
func TestOccupancy(t *testing.T) {
	onDevice := map[string]string{deviceAnnotation: "1"}
	for wrong, play := range map[string]func(s *script){
		"node-00 GPU 1 has 16, and pods with 20": func(s *script) { // an evicted pod still runs
			s.bind("a", onGPU("1"))
			s.deletePod("a", 30)
			s.bind("b", onGPU("1"))
			s.deletePod("a", 0)
		},
		"the license has 6, and pods with 7": func(s *script) {
			s.pod("a", seatResource, "4")
			s.pod("b", seatResource, "3")
			s.bind("a", nil)
			s.bind("b", nil)
		},
		"node-00 device 1 has 1, and pods with 2": func(s *script) {
			s.pod("a", deviceResource, "1")
			s.pod("b", deviceResource, "1")
			s.bind("a", onDevice)
			s.bind("b", onDevice)
		},
	} {
		s := &script{t: t, now: time.Now().Add(-time.Hour)}
		play(s)
		if _, err := occupancy(s.records()); err == nil || !strings.Contains(err.Error(), wrong) {
			t.Errorf("got %v, want %q", err, wrong)
		}
	}
}
