package snapshot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/snapshot"
)

// comer is a pod created in this second, on a node or on none ("").
func comer(name string, second int64, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(second, 0))},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

func tell(h *snapshot.History) string {
	if h == nil {
		return ""
	}
	var words []string
	for _, e := range h.Events {
		if e.Gone {
			words = append(words, "-"+e.Pod.Name)
		} else {
			words = append(words, e.Pod.Name)
		}
	}
	return fmt.Sprintf("%d: %s", h.Came, strings.Join(words, " "))
}

// The History is kept only on request, and begins with the existing pods.
func TestHistoryThatIsNotKept(t *testing.T) {
	var b snapshot.Builder
	b.DropHistory()
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	all := []*corev1.Pod{comer("later", 2, ""), comer("first", 1, "n"), comer("over", 0, "n")}
	all[2].Status.Phase = corev1.PodSucceeded
	for _, pod := range all {
		b.SetPod(pod)
	}
	if h := b.View().History(); h != nil {
		t.Errorf("got a History without a request: %s", tell(h))
	}
	next := func(node string) string {
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}) // makes another View
		return tell(b.View().History())
	}
	b.KeepHistory(slices.Values(all))
	if got := next("a"); got != "2: first later" {
		t.Errorf("the History begins with %s", got)
	}
	b.SetPod(comer("new", 3, ""))
	b.KeepHistory(slices.Values(all)) // is kept already
	b.DeletePod("first")
	if got := next("b"); got != "3: first later new -first" {
		t.Errorf("the History continues with %s", got)
	}
	b.DropHistory()
	if got := next("c"); got != "" {
		t.Errorf("got a History after the end of the request: %s", got)
	}
}

// gated is the pod with a scheduling gate.
func gated(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
	return pod
}

// Any sequence of events results in the History of a simple model: a pod comes once, when it has no gates, and goes if it was on
// a node.
func TestHistoryAgainstModel(t *testing.T) {
	type state struct{ come, placed bool }
	rapid.Check(t, func(t *rapid.T) {
		var b snapshot.Builder
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		b.View() // from here on the order is that of events, not of creation
		pods := map[string]*state{}
		came, events := 0, []string{}
		histories := map[string]*snapshot.History{} // by what they say
		for i := range rapid.IntRange(1, 40).Draw(t, "events") {
			name := rapid.SampledFrom([]string{"p", "q", "r"}).Draw(t, "pod")
			event := rapid.SampledFrom([]string{"gated", "free", "bound", "over", "deleted"}).Draw(t, "event")
			s := pods[name]
			switch event {
			case "gated", "free", "bound":
				pod := comer(name, 1, "")
				if event == "gated" {
					gated(pod)
				}
				if event == "bound" {
					pod.Spec.NodeName = "n"
				}
				b.SetPod(pod)
				if s == nil {
					s = &state{}
					pods[name] = s
				}
				if event != "gated" && !s.come {
					s.come = true
					came++
					events = append(events, name)
				}
				s.placed = s.placed || event == "bound"
			case "over", "deleted":
				if event == "deleted" {
					b.DeletePod(types.UID(name))
				} else {
					over := comer(name, 1, "n")
					over.Status.Phase = corev1.PodFailed
					b.SetPod(over)
				}
				if s != nil && s.come && s.placed {
					events = append(events, "-"+name)
				}
				delete(pods, name)
			}
			b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"v": fmt.Sprint(i)}}}) // makes another View
			want := ""
			if len(events) > 0 {
				want = fmt.Sprintf("%d: %s", came, strings.Join(events, " "))
			}
			histories[want] = b.View().History()
			for want, history := range histories { // also the former ones
				if got := tell(history); got != want {
					t.Fatalf("after %q of %s the History is %q, want %q", event, name, got, want)
				}
			}
		}
	})
}

func TestHistoryIsBounded(t *testing.T) {
	var b snapshot.Builder
	b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
	var starts []*snapshot.HistoryStart
	for i := range 30000 {
		b.SetPod(comer(fmt.Sprint(i), 0, "n"))
		b.DeletePod(types.UID(fmt.Sprint(i)))
		h := b.View().History()
		if h == nil || len(h.Events) > 5000 || h.Came != i+1 {
			t.Fatalf("after %d pods: %d events, %d came", i+1, len(h.Events), h.Came)
		}
		if n := len(starts); n == 0 || starts[n-1] != h.Start {
			starts = append(starts, h.Start)
			if first := h.Events[0]; i > 0 && (first.Gone || first.Pod.Name != fmt.Sprint(h.Start.Came)) && (!first.Gone || first.Pod.Name != fmt.Sprint(h.Start.Came-1)) {
				t.Errorf("after %d pods, got the first event of %s, gone %v", h.Start.Came, first.Pod.Name, first.Gone)
			}
		}
	}
	if n := len(starts); n < 50 || n > 70 { // 60,000 events, 1,000 dropped at a time
		t.Errorf("got %d starts", n)
	}
}

// claiming is the pod with a claim from a template, whose name is known if it is not "".
func claiming(pod *corev1.Pod, claim string) *corev1.Pod {
	pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("template")}}
	if claim != "" {
		pod.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "gpu", ResourceClaimName: &claim}}
	}
	return pod
}

func claimFor(name, class string) *resourcev1.ResourceClaim {
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}}
	c.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}}
	return c
}

// A pod with claims comes, with them, when it changes and they exist.
func TestPodsComeWithTheirClaims(t *testing.T) {
	var b snapshot.Builder
	b.SetDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}})
	views := 0
	next := func(want string) *snapshot.History {
		t.Helper()
		views++
		b.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", views)}}) // makes another View
		h := b.View().History()
		if got := tell(h); got != want {
			t.Errorf("the History is %q, want %q", got, want)
		}
		return h
	}
	b.SetPod(claiming(comer("unnamed", 1, ""), ""))
	b.SetPod(claiming(comer("bound", 2, "n1"), "b"))
	b.SetPod(claiming(comer("waits", 3, ""), "w"))
	b.SetPod(claiming(comer("vanishes", 4, "n1"), "v"))
	b.SetPod(comer("none", 5, ""))
	b.SetResourceClaim(claimFor("b", "gpu"))
	next("2: bound none")
	b.SetResourceClaim(claimFor("w", "gpu"))
	b.SetPod(claiming(comer("waits", 3, "n2"), "w"))
	b.SetPod(claiming(comer("unnamed", 1, ""), "u"))
	b.SetPod(claiming(comer("short", 6, "n1"), "w"))
	b.DeletePod("vanishes") // it never came
	b.DeletePod("short")
	b.SetResourceClaim(claimFor("v", "gpu"))
	next("4: bound none waits short -short")
	b.SetResourceClaim(claimFor("u", "other"))
	b.SetPod(claiming(comer("unnamed", 1, "n1"), "u"))
	b.DeletePod("bound")
	h := next("5: bound none waits short -short unnamed -bound")
	if len(h.Events[1].Claims) != 0 || h.Events[6].Claims[0] != h.Events[0].Claims[0] {
		t.Errorf("the claims are %v", h.Events)
	}
	if got := h.Events[5].Claims[0].Devices.Requests[0].Exactly.DeviceClassName; got != "other" {
		t.Errorf("the last claim is of class %q", got)
	}
}
