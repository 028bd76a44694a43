package firstfit_test

import (
	"slices"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/firstfit"
	"outboard.dev/outboard/snapshot"
)

// The attributes that a selector reads are known if it names them, and any other use of them counts as all.
func TestReads(t *testing.T) {
	p := firstfit.New()
	for _, tt := range []struct {
		selector string
		want     []string // nil: all
	}{
		{`device.driver == "d" && device.allowMultipleAllocations`, []string{}},
		{`device.capacity["d"].memory.compareTo(quantity("1Gi")) > 0`, []string{}},
		{`device.attributes["d"].model == "A" || device.attributes["e"]["type"] == "B"`, []string{"model", "type"}},
		{`has(device.attributes["d"].model) && device.attributes["d"].model in ["A", "B"]`, []string{"model"}},
		{`device.attributes["d"].version.isGreaterThan(semver("1.0.0"))`, []string{"version"}},
		{`["A", "B"].exists(m, device.attributes["d"].model == m)`, []string{"model"}},
		{`device.attributes["d"].model == device.attributes["d"]["uu" + "id"]`, nil},
		{`device.attributes[device.driver].model == "A"`, nil},
		{`"model" in device.attributes["d"]`, nil},
		{`device.attributes["d"].exists(name, name == "model")`, nil},
		{`cel.bind(all, device.attributes["d"], all.model == "A")`, nil},
		{`[device].exists(d, d.attributes["d"].model == "A")`, nil},
		{`not a selector`, nil},
	} {
		c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}
		c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "class", Selectors: []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: tt.selector}}}}}}
		var b snapshot.Builder
		b.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "class"}})
		b.SetResourceClaim(c)
		r, err := p.Request(podOf(c), b.View())
		if err != nil {
			if tt.want != nil {
				t.Errorf("%s: %v", tt.selector, err)
			}
			continue
		}
		names, ok := r.Reads()
		if ok != (tt.want != nil) || ok && !slices.Equal(names, tt.want) {
			t.Errorf("%s reads %q, %v", tt.selector, names, ok)
		}
	}
}
