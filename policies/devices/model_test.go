package devices_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"outboard.dev/outboard/policies/devices"
	"outboard.dev/outboard/policy"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/policy/policytest"
)

// model is the expected state of node n, which the test compares with the policy.
type model struct {
	world
	config devices.Config
	policy policy.Policy
	sizes  map[string]int64  // of the units
	groups map[string]string // of some units
	// has is what each pod with an allocation has of each unit; listed is what each other pod requests,
	// and which units its annotation names.
	has    map[types.UID]map[string]int64
	listed map[types.UID]listed
	// waiting are the pods with allocations that are not on the node yet.
	waiting []*corev1.Pod
	next    int
}

type listed struct {
	want  int64
	units []string
}

// free returns what is free of each unit, and what can be allocated in total.
func (m *model) free() (units map[string]int64, all int64) {
	used, unknown := map[string]int64{}, int64(0)
	enter := func(unit string, amount int64) {
		if _, ok := m.sizes[unit]; !ok {
			unknown += amount
		}
		used[unit] += amount
	}
	for _, amounts := range m.has {
		for unit, amount := range amounts {
			enter(unit, amount)
		}
	}
	for _, l := range m.listed {
		known := map[string]bool{}
		for _, unit := range l.units {
			if _, ok := m.sizes[unit]; ok {
				known[unit] = true
			}
		}
		for unit := range known {
			if m.config.AllocationMode == devices.Shares {
				enter(unit, l.want)
			} else {
				enter(unit, 1)
			}
		}
		if m.config.AllocationMode != devices.Shares {
			unknown += max(0, l.want-int64(len(known)))
		} else if len(known) == 0 {
			unknown += l.want
		}
	}
	units = map[string]int64{}
	for unit, size := range m.sizes {
		units[unit] = max(0, size-used[unit])
		all += units[unit]
	}
	return units, max(0, all-unknown)
}

// fits reports whether so much of the units can be allocated.
func (m *model) fits(want int64, units map[string]int64, all int64) bool {
	if want > all {
		return false
	}
	sums := map[string]int64{}
	for unit, free := range units {
		switch group, ok := m.groups[unit]; {
		case m.config.AllocationMode == devices.Shares:
			sums[unit] += free
		case m.config.SameGroup != devices.Required:
			sums[""] += free
		case ok:
			sums[group] += free
		default:
			sums["alone "+unit] += free
		}
	}
	for _, sum := range sums {
		if sum >= want {
			return true
		}
	}
	return false
}

func sum(units map[string]int64) (all int64) {
	for _, n := range units {
		all += n
	}
	return all
}

// ask is one new pod: Filter, Reserve and the model agree, and the pod gets no more than there is.
func (m *model) ask(t *rapid.T, want int64, keep bool) {
	m.next++
	pod := asking(fmt.Sprint("p", m.next), want)
	n := m.snapshot()
	cycle := prepare(t, m.policy, pod)
	filtered := cycle.Filter(n)
	if score := cycle.Score(n); score < 0 || score > policy.MaxScore {
		t.Fatalf("the score is %d", score)
	}
	allocation, reserved := m.reserve(m.policy, pod)
	free, all := m.free()
	fits := m.fits(want, free, all)
	if filtered.Fits() != fits || filtered != reserved {
		t.Fatalf("%d of %v, %d in total: Filter returned %s, Reserve %s, the model %t",
			want, free, all, policytest.Says(filtered), policytest.Says(reserved), fits)
	}
	if !fits {
		// Unresolvable: the pod does not fit even on an empty node.
		if empty := m.fits(want, m.sizes, sum(m.sizes)); filtered.Unresolvable == empty {
			t.Fatalf("%d: %s, but an empty node fits: %t", want, policytest.Says(filtered), empty)
		}
		return
	}
	m.checkAllocation(t, allocation, want, free, all)
	if keep {
		if err := m.write(pod, allocation); err != nil {
			t.Fatal(err)
		}
		m.has[pod.UID] = amounts(allocation)
		m.waiting = append(m.waiting, pod)
	}
}

func (m *model) checkAllocation(t *rapid.T, allocation policy.Allocation, want int64, free map[string]int64, all int64) {
	got := amounts(allocation)
	if len(got) != len(allocation.Amounts) || sum(got) != want {
		t.Fatalf("got %v, want %d", allocation.Amounts, want)
	}
	for unit, amount := range got {
		if amount < 1 || amount > free[unit] {
			t.Fatalf("got %d of unit %q, of which %d are free", amount, unit, free[unit])
		}
	}
	if !m.fits(want, got, want) {
		t.Fatalf("got %v, which are not in one group", got)
	}
	// If one group is only preferred, the pod gets one group if possible.
	strict := *m
	if m.config.GroupsFrom != nil {
		strict.config.SameGroup = devices.Required
	}
	if strict.fits(want, free, all) && !strict.fits(want, got, want) {
		t.Fatalf("got %v of %v in groups %v", got, free, m.groups)
	}
	if told := strings.Split(allocation.Annotations[fpgaKey], ","); m.config.Units != devices.None {
		units := slices.Sorted(maps.Keys(got))
		if slices.Sort(told); !slices.Equal(told, units) {
			t.Fatalf("got %v, and the annotation names %v", units, told)
		}
	}
}

func amounts(allocation policy.Allocation) map[string]int64 {
	got := map[string]int64{}
	for _, a := range allocation.Amounts {
		got[a.Unit] = a.Amount
	}
	return got
}

// again evaluates a pod that already has something.
func (m *model) again(t *rapid.T) {
	pods := slices.DeleteFunc(slices.Concat(m.pods, m.waiting), func(pod *corev1.Pod) bool {
		_, allocations := m.has[pod.UID]
		_, there := m.listed[pod.UID]
		return !allocations && !there // it has ended
	})
	if len(pods) == 0 {
		t.Skip()
	}
	pod := pods[rapid.IntRange(0, len(pods)-1).Draw(t, "pod")]
	n := m.snapshot()
	fits := prepare(t, m.policy, pod).Filter(n)
	if n.Has(pod.UID) {
		if !fits.Fits() {
			t.Fatalf("the pod's own allocation is counted against it: %s", policytest.Says(fits))
		}
		return
	}
	usable := true
	for unit, amount := range m.has[pod.UID] {
		usable = usable && amount <= m.sizes[unit]
	}
	ask := policy.ReserveRequest{Pod: pod, Node: n, Ledger: m.ledger}
	if _, v := m.policy.(policy.AllocationValidator).ValidateAllocation(ask); v.Fits() != usable {
		t.Fatalf("an allocation of %v can be used: %v, of a node with %v", m.has[pod.UID], v.Fits(), m.sizes)
	}
	ask.Ledger = m.ledger.Without(func(u types.UID) bool { return u == pod.UID })
	_, anew := m.policy.(policy.Reserver).Reserve(ask)
	if want := usable || anew.Fits(); fits.Fits() != want {
		t.Fatalf("the allocation can be used: %v, a new allocation: %s, Filter returned %s", usable, policytest.Says(anew), policytest.Says(fits))
	}
}

// hardware replaces the node's units.
func (m *model) hardware(t *rapid.T) {
	m.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Annotations: map[string]string{}}}
	m.sizes, m.groups = map[string]int64{}, map[string]string{}
	count := rapid.Int64Range(0, 8).Draw(t, "count")
	switch m.config.Units {
	case devices.None:
		m.node.Status.Allocatable = list(count)
		m.sizes["*"] = count
	case devices.Numbered:
		m.node.Annotations["example.com/count"] = strconv.FormatInt(count, 10)
		for i := range count / int64(m.config.SharesPerUnit) {
			m.sizes[strconv.FormatInt(i, 10)] = int64(m.config.SharesPerUnit)
		}
	default:
		m.named(t)
	}
	if m.config.GroupsFrom != nil {
		m.group(t)
	}
}

func (m *model) named(t *rapid.T) {
	var entries []string
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom(names), 0, len(names), rapid.ID).Draw(t, "names") {
		size, entry := int64(m.config.SharesPerUnit), name
		if rapid.Bool().Draw(t, "sized") {
			size = rapid.Int64Range(0, 5).Draw(t, "size")
			entry += fmt.Sprint("=", size)
		}
		if m.config.AllocationMode == devices.WholeUnits {
			size = min(size, 1)
		}
		m.sizes[name] = size
		entries = append(entries, entry)
	}
	m.node.Annotations[unitsKey] = strings.Join(entries, ",")
}

func (m *model) group(t *rapid.T) {
	members := map[string][]string{}
	for _, name := range names {
		if group := rapid.SampledFrom([]string{"", "one", "two"}).Draw(t, "group"); group != "" {
			m.groups[name] = group
			members[group] = append(members[group], name)
		}
	}
	m.node.Annotations[groupsKey] = strings.Join(members["one"], ",") + ";" + strings.Join(members["two"], ",")
}

// names are the possible names of units; the first ones are also those of numbered units.
var names = []string{"0", "1", "2", "3", "a", "b", "c"}

func configs() *rapid.Generator[devices.Config] {
	return rapid.Custom(func(t *rapid.T) devices.Config {
		c := devices.Defaults()
		c.Resource = fpga
		c.ScoringStrategy.Type = rapid.SampledFrom([]policy.ScoringStrategyType{policy.BinPack, policy.Spread}).Draw(t, "strategy")
		c.Units = rapid.SampledFrom([]devices.Units{devices.None, devices.Numbered, devices.Named}).Draw(t, "units")
		switch c.Units {
		case devices.None:
			return c
		case devices.Numbered:
			c.CapacityFrom = &fields.From{Annotation: "example.com/count"}
		case devices.Named:
			c.UnitsFrom = &fields.From{Annotation: unitsKey}
		}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			c.AllocationMode, c.SharesPerUnit = devices.Shares, rapid.Int32Range(1, 4).Draw(t, "shares")
		case 1:
			c.GroupsFrom, c.SameGroup = &devices.GroupsFrom{Annotation: groupsKey}, devices.Required
		case 2:
			c.GroupsFrom = &devices.GroupsFrom{Annotation: groupsKey}
		}
		return c
	})
}

// TestAgainstModel: after any sequence of events, allocations of a unit never exceed what it has free,
// and Filter passes a pod exactly if Reserve allocates what it requests.
func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := configs().Draw(t, "config")
		p, err := devices.New(config)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{config: config, policy: p, has: map[types.UID]map[string]int64{}, listed: map[types.UID]listed{}}
		m.hardware(t)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				for want := range int64(6) {
					m.ask(t, want+1, false)
				}
			},
			"allocation": func(t *rapid.T) { m.ask(t, rapid.Int64Range(1, 4).Draw(t, "want"), true) },
			"again":      m.again,
			"hardware":   m.hardware,
			"foreign":    m.foreign,
			"bind": func(t *rapid.T) {
				if len(m.waiting) == 0 {
					t.Skip()
				}
				m.bind(m.waiting[0])
				m.waiting = m.waiting[1:]
			},
			"delete": func(t *rapid.T) {
				if len(m.pods) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(m.pods)-1).Draw(t, "pod")
				m.pods[i] = m.pods[i].DeepCopy()
				m.pods[i].DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
			},
			"go":                  m.leave,
			"lose the allocation": m.loseAllocation,
		})
	})
}

// leave removes a pod that is gone or has ended, with its allocation.
func (m *model) leave(t *rapid.T) {
	uids := slices.Sorted(maps.Keys(m.has))
	if uids = append(uids, slices.Sorted(maps.Keys(m.listed))...); len(uids) == 0 {
		t.Skip()
	}
	uid := rapid.SampledFrom(uids).Draw(t, "pod")
	of := func(pod *corev1.Pod) bool { return pod.UID == uid }
	m.waiting = slices.DeleteFunc(m.waiting, of)
	if i := slices.IndexFunc(m.pods, of); i >= 0 {
		ended := m.pods[i].DeepCopy()
		ended.Status.Phase = rapid.SampledFrom([]corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed, ""}).Draw(t, "phase")
		if m.pods = slices.Delete(m.pods, i, i+1); ended.Status.Phase != "" {
			m.ended(ended)
		}
	}
	m.ledger = m.ledger.Without(func(u types.UID) bool { return u == uid })
	delete(m.has, uid)
	delete(m.listed, uid)
}

// ended keeps the pod in the cluster, where it no longer counts.
func (m *model) ended(pod *corev1.Pod) {
	pod.UID, pod.Name = "ended-"+pod.UID, "ended-"+pod.Name
	if len(m.pods) < 50 {
		m.pods = append(m.pods, pod)
	}
}

// loseAllocation leaves a pod on the node with only its annotation.
func (m *model) loseAllocation(t *rapid.T) {
	for _, pod := range m.pods {
		if has := m.has[pod.UID]; has != nil {
			m.ledger = m.ledger.Without(func(u types.UID) bool { return u == pod.UID })
			delete(m.has, pod.UID)
			m.listed[pod.UID] = listed{sum(has), slices.Collect(maps.Keys(has))}
			if m.config.Units == devices.None {
				m.listed[pod.UID] = listed{want: sum(has)}
			}
			return
		}
	}
	t.Skip()
}

// foreign is a pod that another tool has put on the node, with any overbooking.
func (m *model) foreign(t *rapid.T) {
	m.next++
	want := rapid.Int64Range(1, 3).Draw(t, "want")
	units := rapid.SliceOfN(rapid.SampledFrom(append([]string{"", "?", "*", "9"}, names...)), 0, 3).Draw(t, "units")
	pod := bound(fmt.Sprint("f", m.next), want, strings.Join(units, ","))
	m.pods = append(m.pods, pod)
	if m.config.Units == devices.None {
		units = nil // the policy does not read the annotation
	}
	m.listed[pod.UID] = listed{want, units}
}
