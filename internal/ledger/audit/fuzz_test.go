package audit_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/policy"
)

// FuzzAudit audits a ledger, a bound pod and its node with any texts. It finds the same twice, also
// after Confirm.
func FuzzAudit(f *testing.F) {
	const held = `{"spec":{"resource":"aliyun.com/gpu-mem","node":"n","units":[{"name":"0","capacity":8,"allocations":[{"pod":"p","amount":9}]}],"pods":[{"uid":"p","node":"n","annotations":{"k":"0"}}]}}`
	f.Add(held, `{"c":{"0":4}}`, "0", "8,8")
	f.Add(held, `{"c":{"9":1e9}}`, "0,1", "")
	f.Add(`{"spec":{"resource":"example.com/fpga","node":"n"}}`, "", "-1", "x")
	f.Fuzz(func(t *testing.T, ledgerText, allocation, indexes, sizes string) {
		var l ledger.Object
		if json.Unmarshal([]byte(ledgerText), &l) != nil {
			return
		}
		gpus := corev1.ResourceList{"aliyun.com/gpu-mem": resource.MustParse("16"), "aliyun.com/gpu-count": resource.MustParse("2")}
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: gpus, Allocatable: gpus}}
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", UID: "p", Annotations: map[string]string{
			"scheduler.framework.gpushare.allocation": allocation, "ALIYUN_COM_GPU_MEM_IDX": indexes, "k": indexes,
		}}}
		pod.Spec.NodeName = "n"
		pod.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: gpus, Requests: gpus}}}
		in := audit.Input{
			Ledgers: []*ledger.Object{&l}, Pods: []*corev1.Pod{&pod}, Nodes: []*corev1.Node{&node}, Now: time.Unix(1<<31, 0), Grace: time.Minute,
			Units: []policy.UnitList{{Resource: "aliyun.com/gpu-mem", Nodes: []policy.NodeUnits{{Node: "n", Units: []policy.Unit{{Name: sizes, Capacity: 8}}}}}},
		}
		first, second := audit.Audit(in), audit.Audit(in)
		if diff := cmp.Diff(first, second); diff != "" {
			t.Errorf("two audits of the same state differ:\n%s", diff)
		}
		if confirmed := audit.Confirm(first, second); len(confirmed) != len(first) {
			t.Errorf("%d of %d findings are confirmed", len(confirmed), len(first))
		}
		audit.NewReport(in, first)
	})
}
