package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
)

// permission is one verb on one resource.
type permission struct{ group, resource, verb string }

func (p permission) String() string { return p.verb + " " + p.resource }

// needed maps each permission to what fails without it.
var needed = map[string]string{
	"":                           "",
	"list nodes":                 "",
	"watch nodes":                "following nodes",
	"get pods":                   "looking at a pod",
	"list pods":                  "",
	"watch pods":                 "following pods",
	"list poddisruptionbudgets":  "",
	"watch poddisruptionbudgets": "following poddisruptionbudgets",
	"create pods/binding":        "binding",
	"get ledgers":                "claiming after somebody else",
	"list ledgers":               "",
	"watch ledgers":              "following ledgers",
	"create ledgers":             "claiming first, claiming again, claiming after somebody else, deleting a ledger",
	"update ledgers":             "claiming again, claiming after somebody else",
	"delete ledgers":             "deleting a ledger",
	"patch pods/status":          "requeuing a pod, releasing a claim",
	"list configmaps":            "",
	"watch configmaps":           "following configmaps in kube-system",
	"list resourceslices":        "",
	"watch resourceslices":       "following resourceslices",
	"list resourceclaims":        "",
	"watch resourceclaims":       "following resourceclaims",
	"list deviceclasses":         "",
	"watch deviceclasses":        "following deviceclasses",
	"list devicetaintrules":      "",
	"watch devicetaintrules":     "following devicetaintrules",
}

// The shipped roles have exactly the needed permissions: without any one of them something fails,
// and with all of them everything works. An API server that streams lists requires only watch for
// everything that Outboard lists, so list is not needed there; it is needed before 1.34.
func TestEveryPermissionIsNeeded(t *testing.T) {
	th := open(t)
	th.nodes(controlplane.NodeSpec{Name: "a"})
	shipped := shippedPermissions(t, th.Root)
	cases := []permission{{}}
	for _, p := range shipped {
		if _, known := needed[p.String()]; !known {
			t.Errorf("the test does not know what needs the permission to %s", p)
		}
		cases = append(cases, p)
	}
	for i, without := range cases {
		name := strings.TrimSpace(without.String())
		t.Run(strings.ReplaceAll("without "+name, " ", "-"), func(t *testing.T) {
			a := th.actor(t, fmt.Sprintf("without-%d", i), slices.DeleteFunc(slices.Clone(shipped), func(p permission) bool { return p == without }))
			want := needed[name]
			if got := a.fails(strings.Split(want, ", ")); got != want {
				t.Errorf("without %q this fails: %q, want %q", name, got, want)
			}
		})
	}
}

// actor does what Outboard does, as its own user.
type actor struct {
	*theater
	name    string
	cluster *cluster.Cluster
	failed  []string
}

func (th *theater) actor(t *testing.T, name string, may []permission) *actor {
	t.Helper()
	th = th.forTest(t)
	var rules []rbacv1.PolicyRule
	for _, p := range may {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{p.group}, Resources: []string{p.resource}, Verbs: []string{p.verb}})
	}
	user := th.grant(name, "", rules)
	a := &actor{theater: th, name: name}
	var err error
	if a.cluster, err = cluster.New(cluster.Options{
		Config: user.Config, Ledgers: true, Devices: true, ConfigMaps: []snapshot.ConfigMapSource{{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}}, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(th.ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = a.cluster.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	// Roles take effect with a delay.
	th.eventually("the role is in force", func() bool {
		_, err := a.cluster.LivePod(th.ctx, "default", "no-such-pod", "none")
		return err == nil || !slices.Contains(may, permission{"", "pods", "get"})
	})
	return a
}

// try records a failure because of a missing permission. No other error may occur.
func (a *actor) try(what string, err error) {
	a.t.Helper()
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		a.failed = append(a.failed, what)
	default:
		a.t.Errorf("%s: %v", what, err)
	}
}

// fails returns what fails because of missing permissions, in order. It waits for the expected
// failures.
func (a *actor) fails(expected []string) string {
	a.follow(expected)
	pods := make([]*corev1.Pod, 4)
	for i := range pods {
		pods[i] = a.create(controlplane.PodSpec{Name: fmt.Sprintf("%s-%d", a.name, i), SchedulerName: "nobody"})
	}
	_, err := a.cluster.LivePod(a.ctx, "default", pods[0].Name, pods[0].UID)
	a.try("looking at a pod", err)
	a.claim(pods)
	_, err = a.cluster.RetryPod(a.ctx, "default", pods[0].Name, pods[0].UID)
	a.try("requeuing a pod", err)
	a.takeBack(pods[1])
	a.try("binding", a.bind(pods[3], pods[3].ResourceVersion))
	return strings.Join(a.failed, ", ")
}

// follow records what cannot be listed or watched.
func (a *actor) follow(expected []string) {
	seen := map[string]bool{}
	a.eventually("what can be read is read", func() bool {
		said := strings.Join(a.cluster.Warnings(), "; ")
		missing := a.cluster.Synced()
		if missing != nil {
			said += missing.Error()
		}
		for _, resource := range []string{"nodes", "pods", "poddisruptionbudgets", "ledgers", "configmaps in kube-system", "resourceslices", "resourceclaims", "deviceclasses", "devicetaintrules"} {
			if strings.Contains(said, " "+resource+" (the API server denies") {
				seen["following "+resource] = true
			}
		}
		for _, what := range expected {
			if strings.HasPrefix(what, "following ") {
				return seen[what]
			}
		}
		return missing == nil
	})
	for what := range seen {
		a.failed = append(a.failed, what)
	}
}

// forgetful is a cache without any ledger.
type forgetful struct{ *cluster.Cluster }

func (forgetful) Ledger(string) *ledger.Object { return nil }

// claim makes claims for the pods, and deletes the ledger.
func (a *actor) claim(pods []*corev1.Pod) {
	key := snapshot.LedgerKey{Resource: "example.com/" + a.name}
	choose := func(*snapshot.Ledger, time.Time) (policy.Claim, error) {
		return policy.Claim{Units: []policy.Capacity{{Unit: "0", Capacity: 10}}, Amounts: []policy.Amount{{Unit: "0", Amount: 1}}}, nil
	}
	first, second := a.keeper(a.cluster), a.keeper(forgetful{a.cluster})
	_, err := first.Claim(a.ctx, key, pods[0], "a", choose)
	a.try("claiming first", err)
	_, err = first.Claim(a.ctx, key, pods[1], "a", choose)
	a.try("claiming again", err)
	_, err = second.Claim(a.ctx, key, pods[2], "a", choose)
	a.try("claiming after somebody else", err)
	o := a.ledgers()[ledger.Name(key)]
	if o == nil {
		a.failed = append(a.failed, "deleting a ledger")
		return
	}
	a.try("deleting a ledger", a.cluster.DeleteLedger(a.ctx, o))
}

func (a *actor) keeper(cache ledger.Cache) *ledger.Keeper {
	k, err := ledger.New(ledger.Options{API: a.cluster, Cache: cache, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		a.t.Fatal(err)
	}
	return k
}

// takeBack changes the pod so that the API server rejects a Binding of the previous version.
func (a *actor) takeBack(pod *corev1.Pod) {
	touched, err := a.cluster.TouchPod(a.ctx, "default", pod.Name, pod.UID)
	if a.try("releasing a claim", err); err != nil {
		return
	}
	if touched.ResourceVersion == pod.ResourceVersion || touched.Annotations[cluster.ReleaseAnnotation] == "" {
		a.t.Errorf("the pod has version %s and annotations %v", touched.ResourceVersion, touched.Annotations)
	}
	if err := a.bind(pod, pod.ResourceVersion); err == nil {
		a.t.Errorf("a Binding of the previous version: %v", err)
	}
}

func (a *actor) bind(pod *corev1.Pod, version string) error {
	return a.cluster.Bind(a.ctx, binder.Binding{Namespace: "default", Name: pod.Name, UID: pod.UID, Node: "a", ResourceVersion: version})
}
