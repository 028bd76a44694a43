package snapshot_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"outboard.dev/outboard/snapshot"
)

// TestNominee follows the state machine in the comment of nominee, step by step.
func TestNominee(t *testing.T) {
	nominated := func(node string) *corev1.Pod {
		p := pod("p", "")
		p.Status.NominatedNodeName = node
		return p
	}
	to := func(names ...string) (nodes []snapshot.NominatedNode) {
		for _, name := range names {
			nodes = append(nodes, snapshot.NominatedNode{Name: name, Victims: []types.UID{types.UID("on-" + name)}})
		}
		return nodes
	}
	type step struct {
		do   string
		want string // the nodes of the nomination, with the victims
	}
	for name, steps := range map[string][]step{
		"only the API server knows":             {{"set a", "a"}, {"set b", "b"}, {"set", ""}},
		"expected, and nominated":               {{"expect a b", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}, {"set b", "b[on-b]"}, {"set", ""}},
		"forgotten":                             {{"expect a b", "a[on-a] b[on-b]"}, {"forget", ""}, {"set a", "a"}},
		"forgotten when it is nominated":        {{"expect a b", "a[on-a] b[on-b]"}, {"set a", "a[on-a]"}, {"forget", "a[on-a]"}},
		"the watch is behind":                   {{"expect a", "a[on-a]"}, {"set", "a[on-a]"}, {"set c", "c a[on-a]"}, {"set a", "a[on-a]"}},
		"nominated elsewhere, and forgotten":    {{"expect a", "a[on-a]"}, {"set c", "c a[on-a]"}, {"forget", "c"}},
		"nominated, and then elsewhere":         {{"expect a", "a[on-a]"}, {"set a", "a[on-a]"}, {"set c", "c"}, {"set a", "a"}},
		"expected where it is nominated":        {{"set a", "a"}, {"expect a", "a[on-a]"}, {"set", "a[on-a]"}, {"set a", "a[on-a]"}, {"set", ""}},
		"expected where it was nominated":       {{"set a", "a"}, {"expect a b c", "a[on-a] b[on-b] c[on-c]"}, {"change", "a[on-a] b[on-b] c[on-c]"}, {"set b", "b[on-b]"}},
		"expected there, and forgotten":         {{"set a", "a"}, {"expect a b", "a[on-a] b[on-b]"}, {"forget", "a"}},
		"expected while the watch is behind":    {{"expect a b", "a[on-a] b[on-b]"}, {"expect b c", "b[on-b] c[on-c]"}, {"expect a c", "a[on-a] c[on-c]"}, {"set b", "b a[on-a] c[on-c]"}, {"set c", "a[on-a] c[on-c]"}, {"set a", "a[on-a]"}},
		"one was shown as another":              {{"expect a b", "a[on-a] b[on-b]"}, {"expect a b", "a[on-a] b[on-b]"}, {"set b", "a[on-a] b[on-b]"}, {"forget", "b"}},
		"the earlier is over":                   {{"expect a b", "a[on-a] b[on-b]"}, {"expect a b", "a[on-a] b[on-b]"}, {"forget first", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"nominated before the first SetPod":     {{"unseen a", ""}, {"expect a b", "a[on-a] b[on-b]"}, {"set", "a[on-a] b[on-b]"}, {"set a", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"nominated, which is not shown yet":     {{"elsewhere a", ""}, {"expect a b", "a[on-a] b[on-b]"}, {"set a", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"nominated, which is never shown":       {{"elsewhere c", ""}, {"expect a b", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"moved, which is not shown yet":         {{"set c", "c"}, {"elsewhere a", "c"}, {"expect a b", "c a[on-a] b[on-b]"}, {"set a", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"nominated after an earlier call":       {{"expect a c", "a[on-a] c[on-c]"}, {"elsewhere a", "a[on-a] c[on-c]"}, {"expect a b", "a[on-a] b[on-b]"}, {"set a", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"nominated there again":                 {{"expect a c", "a[on-a] c[on-c]"}, {"elsewhere a", "a[on-a] c[on-c]"}, {"expect a b", "a[on-a] b[on-b]"}, {"set a", "a[on-a] b[on-b]"}, {"set c", "c a[on-a] b[on-b]"}, {"set a", "a[on-a]"}},
		"nominated after another call":          {{"expect c", "c[on-c]"}, {"elsewhere a", "c[on-c]"}, {"expect a b", "a[on-a] b[on-b]"}, {"set a", "a[on-a] b[on-b]"}, {"set b", "b[on-b]"}},
		"expected anew":                         {{"expect a", "a[on-a]"}, {"expect b", "b[on-b]"}},
		"expected anew, then the first is over": {{"expect a", "a[on-a]"}, {"expect b", "b[on-b]"}, {"forget first", "b[on-b]"}, {"forget", ""}},
		"bound":                                 {{"expect a", "a[on-a]"}, {"bound a", ""}, {"forget", ""}},
		"assumed":                               {{"expect a", "a[on-a]"}, {"assume a", ""}, {"expect b", ""}, {"set a", "a"}},
		"deleted":                               {{"expect a", "a[on-a]"}, {"delete", ""}, {"forget", ""}},
		"being deleted":                         {{"expect a", "a[on-a]"}, {"terminate", ""}},
		"never seen, and forgotten":             {{"unseen a", ""}, {"expect b", "a b[on-b]"}, {"forget unseen", ""}},
		"the first of an unseen pod is over":    {{"unseen a", ""}, {"expect b", "a b[on-b]"}, {"expect c", "a c[on-c]"}, {"forget first unseen", "a c[on-c]"}, {"forget unseen", ""}},
		"expected nowhere":                      {{"expect", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var b snapshot.Builder
			b.SetNode(node("a"))
			b.SetPod(pod("p", ""))
			b.View()
			var forgets []func(seen bool)
			latest, former, unshown := pod("p", ""), "", ""
			for i, step := range steps {
				do, names, _ := strings.Cut(step.do, " ")
				before := b.View()
				switch do {
				case "set":
					latest, unshown = nominated(names), ""
					b.SetPod(latest)
				case "change": // in something else
					latest = latest.DeepCopy()
					latest.Labels = map[string]string{"changed": "yes"}
					b.SetPod(latest)
				case "unseen": // only the API server has the pod
					latest, unshown = nominated(names), names
				case "elsewhere": // SetPod shows this nomination later
					unshown = names
				case "expect":
					forgets = append(forgets, b.Nominate(latest, unshown, to(strings.Fields(names)...)))
				case "forget":
					which, seen := len(forgets)-1, !strings.Contains(names, "unseen")
					if strings.Contains(names, "first") {
						which = 0
					}
					forgets[which](seen)
				case "bound":
					b.SetPod(pod("p", names))
				case "assume":
					b.AssumePod(pod("p", ""), names)
				case "delete":
					b.DeletePod("p")
				case "terminate":
					p := pod("p", "")
					p.DeletionTimestamp = &metav1.Time{}
					b.SetPod(p)
				}
				got := ""
				for _, n := range b.View().Nominated() {
					for _, c := range n.Nodes {
						got += " " + c.Name
						if len(c.Victims) > 0 {
							got += fmt.Sprint(c.Victims)
						}
					}
				}
				if got = strings.TrimSpace(got); got != step.want {
					t.Fatalf("after step %d, %s: %q, want %q", i, step.do, got, step.want)
				}
				makesRoom := b.View().Room() != before.Room()
				switch {
				case do == "expect" && former == "" && makesRoom:
					t.Errorf("step %d, %s, makes room", i, step.do)
				case do == "expect" && former != "" && got != former && !makesRoom:
					t.Errorf("step %d, %s, makes no room where the pod was nominated before", i, step.do)
				}
				former = got
			}
		})
	}
}
