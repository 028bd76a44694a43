package nightly

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/binder"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/signals/source/metricsapi"
	"outboard.dev/outboard/internal/signals/source/remote"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/signal"
	"outboard.dev/outboard/snapshot"
	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
	"outboard.dev/outboard/test/theater"
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
	"get ledgers":                "allocating after somebody else",
	"list ledgers":               "",
	"watch ledgers":              "following ledgers",
	"create ledgers":             "allocating first, allocating again, allocating after somebody else, deleting a ledger",
	"update ledgers":             "allocating again, allocating after somebody else",
	"delete ledgers":             "deleting a ledger",
	"patch pods/status":          "requeuing a pod, releasing an allocation",
	"list configmaps":            "",
	"watch configmaps":           "following configmaps unhealthy-gpu-* in kube-system",
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
	th := theater.Open(t)
	th.Nodes(controlplane.NodeSpec{Name: "a"})
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
			a := newActor(th, t, fmt.Sprintf("without-%d", i), slices.DeleteFunc(slices.Clone(shipped), func(p permission) bool { return p == without }))
			want := needed[name]
			if got := a.fails(strings.Split(want, ", ")); got != want {
				t.Errorf("without %q this fails: %q, want %q", name, got, want)
			}
		})
	}
}

// actor does what Outboard does, as its own user.
type actor struct {
	*theater.Theater
	name    string
	cluster *cluster.Cluster
	failed  []string
}

func newActor(th *theater.Theater, t *testing.T, name string, may []permission) *actor {
	t.Helper()
	th = th.ForTest(t)
	var rules []rbacv1.PolicyRule
	for _, p := range may {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{p.group}, Resources: []string{p.resource}, Verbs: []string{p.verb}})
	}
	user := grant(th, name, "", rules)
	a := &actor{Theater: th, name: name}
	var err error
	if a.cluster, err = cluster.New(cluster.Options{
		Config: user.Config, Ledgers: true, Devices: true, ConfigMaps: []snapshot.ConfigMapSource{{Namespace: "kube-system", Prefix: "unhealthy-gpu-"}}, Logger: slog.New(slog.DiscardHandler),
	}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(th.Ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = a.cluster.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	// Roles take effect with a delay.
	th.Eventually("the role is in force", func() bool {
		_, err := a.cluster.LivePod(th.Ctx, "default", "no-such-pod", "none")
		return err == nil || !slices.Contains(may, permission{"", "pods", "get"})
	})
	return a
}

// try records a failure because of a missing permission. No other error may occur.
func (a *actor) try(what string, err error) {
	a.T.Helper()
	switch {
	case err == nil:
	case apierrors.IsForbidden(err):
		a.failed = append(a.failed, what)
	default:
		a.T.Errorf("%s: %v", what, err)
	}
}

// fails returns what fails because of missing permissions, in order. It waits for the expected
// failures.
func (a *actor) fails(expected []string) string {
	a.follow(expected)
	pods := make([]*corev1.Pod, 4)
	for i := range pods {
		pods[i] = a.Create(controlplane.PodSpec{Name: fmt.Sprintf("%s-%d", a.name, i), SchedulerName: "nobody"})
	}
	_, err := a.cluster.LivePod(a.Ctx, "default", pods[0].Name, pods[0].UID)
	a.try("looking at a pod", err)
	a.allocation(pods)
	_, err = a.cluster.RetryPod(a.Ctx, "default", pods[0].Name, pods[0].UID)
	a.try("requeuing a pod", err)
	a.takeBack(pods[1])
	a.try("binding", a.bind(pods[3], pods[3].ResourceVersion))
	return strings.Join(a.failed, ", ")
}

// follow records what cannot be listed or watched.
func (a *actor) follow(expected []string) {
	seen := map[string]bool{}
	a.Eventually("what can be read is read", func() bool {
		said := strings.Join(a.cluster.Warnings(), "; ")
		missing := a.cluster.Synced()
		if missing != nil {
			said += missing.Error()
		}
		for _, resource := range []string{"nodes", "pods", "poddisruptionbudgets", "ledgers", "configmaps unhealthy-gpu-* in kube-system", "resourceslices", "resourceclaims", "deviceclasses", "devicetaintrules"} {
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

// allocation makes allocations for the pods, and deletes the ledger.
func (a *actor) allocation(pods []*corev1.Pod) {
	key := snapshot.LedgerKey{Resource: "example.com/" + a.name}
	choose := func(*snapshot.Ledger, time.Time) (policy.Allocation, error) {
		return policy.Allocation{Units: []policy.Capacity{{Unit: "0", Capacity: 10}}, Amounts: []policy.Amount{{Unit: "0", Amount: 1}}}, nil
	}
	first, second := a.keeper(a.cluster), a.keeper(forgetful{a.cluster})
	_, err := first.Allocate(a.Ctx, key, pods[0], "a", choose)
	a.try("allocating first", err)
	_, err = first.Allocate(a.Ctx, key, pods[1], "a", choose)
	a.try("allocating again", err)
	_, err = second.Allocate(a.Ctx, key, pods[2], "a", choose)
	a.try("allocating after somebody else", err)
	o := a.Ledgers()[ledger.Name(key)]
	if o == nil {
		a.failed = append(a.failed, "deleting a ledger")
		return
	}
	a.try("deleting a ledger", a.cluster.DeleteLedger(a.Ctx, o))
}

func (a *actor) keeper(cache ledger.Cache) *ledger.Keeper {
	return ledger.New(ledger.Options{API: a.cluster, Cache: cache, Logger: slog.New(slog.DiscardHandler)})
}

// takeBack changes the pod so that the API server rejects a Binding of the previous version.
func (a *actor) takeBack(pod *corev1.Pod) {
	touched, err := a.cluster.TouchPod(a.Ctx, "default", pod.Name, pod.UID)
	if a.try("releasing an allocation", err); err != nil {
		return
	}
	if touched.ResourceVersion == pod.ResourceVersion || touched.Annotations[cluster.ReleaseAnnotation] == "" {
		a.T.Errorf("the pod has version %s and annotations %v", touched.ResourceVersion, touched.Annotations)
	}
	if err := a.bind(pod, pod.ResourceVersion); err == nil {
		a.T.Errorf("a Binding of the previous version: %v", err)
	}
}

func (a *actor) bind(pod *corev1.Pod, version string) error {
	return a.cluster.Bind(a.Ctx, binder.Binding{Namespace: "default", Name: pod.Name, UID: pod.UID, Node: "a", ResourceVersion: version})
}

// roles returns the Roles and ClusterRoles in a file of deploy/. A Role is a ClusterRole with a
// namespace here.
func roles(t *testing.T, root, file string) (all []rbacv1.ClusterRole) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "deploy", file))
	if err != nil {
		t.Fatal(err)
	}
	for doc := range bytes.SplitSeq(data, []byte("\n---\n")) {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal(doc, &role); err == nil && (role.Kind == "ClusterRole" || role.Kind == "Role") {
			all = append(all, role)
		}
	}
	return all
}

// permissions returns the permissions of the rules.
func permissions(rules []rbacv1.PolicyRule) (all []permission) {
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					all = append(all, permission{group, resource, verb})
				}
			}
		}
	}
	return all
}

// shippedPermissions are the permissions of Outboard's own roles.
func shippedPermissions(t *testing.T, root string) (all []permission) {
	t.Helper()
	for _, file := range stage.Permissions() {
		for _, role := range roles(t, root, file) {
			all = append(all, permissions(role.Rules)...)
		}
	}
	return all
}

// without returns the rules without one permission.
func without(rules []rbacv1.PolicyRule, p permission) (rest []rbacv1.PolicyRule) {
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			one := *rule.DeepCopy()
			one.Resources = []string{resource}
			one.Verbs = slices.DeleteFunc(one.Verbs, func(verb string) bool { return permission{one.APIGroups[0], resource, verb} == p })
			if len(one.Verbs) > 0 {
				rest = append(rest, one)
			}
		}
	}
	return rest
}

// The plugin and the replacement for gpushare run the policy GPUMemory, too, so they need the same permissions as Outboard with it. The
// plugin also has those of kube-scheduler.
func TestRolesForTheSamePolicies(t *testing.T) {
	th := theater.Open(t)
	standard, err := th.Client.RbacV1().ClusterRoles().Get(th.Ctx, "system:kube-scheduler", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	has := permissions(standard.Rules)
	all := func(file string) (all []string) {
		for _, role := range roles(t, th.Root, file) {
			for _, p := range permissions(role.Rules) {
				if file == "plugin.yaml" && slices.Contains(has, p) {
					t.Errorf("kube-scheduler may %s without %s", p, file)
				}
				all = append(all, p.String())
			}
		}
		return all
	}
	var want []string
	for _, file := range stage.Permissions() {
		if file == "devices.yaml" { // for the policy ResourceClaims
			for _, p := range all(file) {
				if !slices.ContainsFunc(has, func(own permission) bool { return own.String() == p }) {
					t.Errorf("kube-scheduler may not %s, which the plugin needs", p)
				}
			}
			continue
		}
		want = append(want, all(file)...)
	}
	plugin := all("plugin.yaml")
	for _, p := range has {
		if slices.Contains(want, p.String()) {
			plugin = append(plugin, p.String())
		}
	}
	for file, got := range map[string][]string{"gpushare.yaml": all("gpushare.yaml"), "plugin.yaml": plugin} {
		slices.Sort(want)
		slices.Sort(got)
		// kube-scheduler's own role has some more verbs for the same resources.
		if missing := slices.DeleteFunc(slices.Clone(want), func(p string) bool { return slices.Contains(got, p) }); len(missing) > 0 {
			t.Errorf("with %s these permissions are missing: %v", file, missing)
		}
		if file == "gpushare.yaml" && !slices.Equal(want, got) {
			t.Errorf("%s grants %v, want %v", file, got, want)
		}
	}
}

// grant creates a user with the rules: in the namespace, or everywhere if it is "".
func grant(th *theater.Theater, name, namespace string, rules []rbacv1.PolicyRule) *controlplane.User {
	th.T.Helper()
	user, err := th.AddUser(name)
	if err != nil {
		th.T.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}}
	rbac := th.Client.RbacV1()
	var errs []error
	if namespace == "" {
		_, err = rbac.ClusterRoles().Create(th.Ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		errs = append(errs, err)
		_, err = rbac.ClusterRoleBindings().Create(th.Ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		}, metav1.CreateOptions{})
	} else {
		_, err = rbac.Roles(namespace).Create(th.Ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
		errs = append(errs, err)
		_, err = rbac.RoleBindings(namespace).Create(th.Ctx, &rbacv1.RoleBinding{
			ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		}, metav1.CreateOptions{})
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		th.T.Fatal(err)
	}
	return user
}

// Without any one rule of the manifests for signals, a read of the signal fails, and names the rule.
func TestEveryRuleForSignalsIsNeeded(t *testing.T) {
	th := theater.Open(t)
	limits := signal.Limits{Values: 100, Bytes: 1 << 20}
	for file, read := range map[string]func(*controlplane.User) error{
		"metrics.yaml": func(user *controlplane.User) error {
			source, err := metricsapi.New(metricsapi.Config{Resource: "cpu"}, user.Config)
			if err == nil {
				_, err = source.Read(th.Ctx, limits)
			}
			if errors.Is(err, metricsapi.ErrNotServed) { // the API server permits it, and has no metrics
				return nil
			}
			return err
		},
		"other-cluster.yaml": func(user *controlplane.User) error {
			source := remote.New(remote.Config{Kubeconfig: user.Kubeconfig})
			for range 2 { // the first read lists, and the next ones watch
				if _, err := source.Read(th.Ctx, limits); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		shipped := roles(t, th.Root, file)
		if len(shipped) != 1 {
			t.Fatalf("%s has %d roles", file, len(shipped))
		}
		for i, p := range append([]permission{{}}, permissions(shipped[0].Rules)...) {
			t.Run(file+" without "+p.String(), func(t *testing.T) {
				th := th.ForTest(t)
				rules := without(shipped[0].Rules, p)
				user := grant(th, strings.ReplaceAll(file, ".yaml", "-")+string(rune('a'+i)), "", rules)
				if p == (permission{}) {
					th.Eventually("it can be read", func() bool { return read(user) == nil })
					return
				}
				want := `cannot ` + p.verb + ` resource "` + p.resource + `"`
				// While the other rules are not in force yet, the error may name one of them.
				th.Eventually("the error names the rule", func() bool {
					err := read(user)
					if err == nil {
						t.Error("it can be read")
					}
					return err == nil || strings.Contains(err.Error(), want)
				})
			})
		}
	}
}
