package snapshot

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DevicePool is one pool of the devices of a node, as Dynamic Resource Allocation has them. It is
// immutable.
type DevicePool struct {
	Driver, Name string
	// Slices are the trimmed ResourceSlices of the newest generation, in order of name. Their
	// devices have the taints of DeviceTaintRules as well.
	Slices []*resourcev1.ResourceSlice
	// Allocated is what claims have of the devices, in order of the claims' namespaces and names.
	Allocated []DeviceAllocation
}

// DeviceAllocation is one device, or a part of one, that a claim has.
type DeviceAllocation struct {
	Claim  *resourcev1.ResourceClaim
	Result *resourcev1.DeviceRequestAllocationResult
}

// DevicePools returns the pools of the node in the order in which kube-scheduler tries their
// devices: by driver, and then by name. It has the pools that belong to this node alone, and of
// these the ones of which all ResourceSlices of the newest generation are known: kube-scheduler
// allocates nothing from other pools of the node either. The result must not be changed.
func (n *Node) DevicePools() []DevicePool { return n.devices }

// ResourceClaim returns the trimmed claim, or nil.
func (v *View) ResourceClaim(namespace, name string) *resourcev1.ResourceClaim {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	return v.claims.claim(key)
}

// ClaimName returns the name of the pod's claim, or "" if the pod needs none after all; made is
// false if the claim is not created yet.
func ClaimName(pod *corev1.Pod, claim *corev1.PodResourceClaim) (name string, made bool) {
	if claim.ResourceClaimName != nil {
		return *claim.ResourceClaimName, true
	}
	for _, status := range pod.Status.ResourceClaimStatuses {
		if status.Name != claim.Name {
			continue
		}
		if status.ResourceClaimName == nil {
			return "", true
		}
		return *status.ResourceClaimName, true
	}
	return "", false
}

// UnknownClaims returns the names of the pod's claims that the View does not have, although they
// are created.
func (v *View) UnknownClaims(pod *corev1.Pod) []string {
	var unknown []string
	for i := range pod.Spec.ResourceClaims {
		name, _ := ClaimName(pod, &pod.Spec.ResourceClaims[i])
		if name != "" && v.ResourceClaim(pod.Namespace, name) == nil {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// DeviceClass returns the trimmed class, or nil.
func (v *View) DeviceClass(name string) *resourcev1.DeviceClass { return v.classes[name] }

// ServesResource reports whether a DeviceClass serves the extended resource, and whether any class
// is known.
func (v *View) ServesResource(name corev1.ResourceName) (serves, known bool) {
	class, is := strings.CutPrefix(string(name), resourcev1.ResourceDeviceClassPrefix)
	serves = is && v.classes[class] != nil
	for _, c := range v.classes {
		serves = serves || c.Spec.ExtendedResourceName != nil && *c.Spec.ExtendedResourceName == string(name)
	}
	return serves, len(v.classes) > 0
}

// Devices returns the number of devices of all ResourceSlices.
func (v *View) Devices() int { return v.devices }

// SameDeviceClasses reports whether both Views have the same classes.
func (v *View) SameDeviceClasses(other *View) bool { return maps.Equal(v.classes, other.classes) }

// DeviceClassesOnly returns a View that has the classes of this one, and nothing else.
func (v *View) DeviceClassesOnly() *View { return &View{classes: v.classes} }

// claimTable holds claims in shards, so that a View copies only the shards with changed claims. A
// nil claimTable is empty.
type claimTable [256]map[types.NamespacedName]*resourcev1.ResourceClaim

var claimSeed = maphash.MakeSeed()

func shardOf(key types.NamespacedName) uint8 { return uint8(maphash.Comparable(claimSeed, key)) }

func (t *claimTable) claim(key types.NamespacedName) *resourcev1.ResourceClaim {
	if t == nil {
		return nil
	}
	return t[shardOf(key)][key]
}

type poolKey struct{ driver, name string }

func poolOf(s *resourcev1.ResourceSlice) poolKey { return poolKey{s.Spec.Driver, s.Spec.Pool.Name} }

func nodeOf(s *resourcev1.ResourceSlice) string {
	if s.Spec.NodeName == nil {
		return ""
	}
	return *s.Spec.NodeName
}

// devicePool is what a Builder knows of a pool, whether it belongs to one node or not.
type devicePool struct {
	slices map[string]*resourcev1.ResourceSlice               // by name, of all generations
	claims map[types.NamespacedName]*resourcev1.ResourceClaim // those with devices of the pool
}

// devices is the part of a Builder for Dynamic Resource Allocation. The zero value is empty.
type devices struct {
	slices  map[string]*resourcev1.ResourceSlice
	pools   map[poolKey]*devicePool // those with slices or claims
	claims  claimTable
	shared  [len(claimTable{})]bool            // shards of claims that a View has, too
	classes map[string]*resourcev1.DeviceClass // only replaced
	rules   map[string]*resourcev1.DeviceTaintRule
	count   int // of the devices of all slices
}

// SetResourceSlice adds the slice, or replaces the one with the same name.
func (b *Builder) SetResourceSlice(s *resourcev1.ResourceSlice) {
	old := b.devices.slices[s.Name]
	if old != nil {
		if same(old, s) {
			return
		}
		b.removeSlice(old)
	}
	put(&b.devices.slices, s.Name, s)
	b.devices.count, b.othersDirty = b.devices.count+len(s.Spec.Devices), true
	key := poolOf(s)
	put(&b.devices.pool(key).slices, s.Name, s)
	if node := nodeOf(s); node != "" {
		state := b.state(node)
		if state.pools == nil {
			state.pools = map[poolKey]int{}
		}
		state.pools[key]++
	}
	b.touchPool(key)
}

// DeleteResourceSlice removes the slice. It ignores an unknown name.
func (b *Builder) DeleteResourceSlice(name string) {
	if old := b.devices.slices[name]; old != nil {
		b.removeSlice(old)
	}
}

func (b *Builder) removeSlice(s *resourcev1.ResourceSlice) {
	key := poolOf(s)
	b.touchPool(key)
	delete(b.devices.slices, s.Name)
	b.devices.count, b.othersDirty = b.devices.count-len(s.Spec.Devices), true
	delete(b.devices.pools[key].slices, s.Name)
	b.devices.dropIfEmpty(key)
	if node := nodeOf(s); node != "" {
		state := b.nodes[node]
		if state.pools[key]--; state.pools[key] == 0 {
			delete(state.pools, key)
		}
		b.dropIfEmpty(node)
	}
}

// SetResourceClaim adds the claim, or replaces the one with the same namespace and name.
func (b *Builder) SetResourceClaim(c *resourcev1.ResourceClaim) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	if old := b.devices.claims.claim(key); old != nil {
		if same(old, c) {
			return
		}
		b.releaseDevices(key, old)
	}
	b.putClaim(key, c)
	for _, pool := range allocatedPools(c) {
		put(&b.devices.pool(pool).claims, key, c)
		b.touchPool(pool)
	}
}

// DeleteResourceClaim removes the claim. It ignores an unknown namespace and name.
func (b *Builder) DeleteResourceClaim(c *resourcev1.ResourceClaim) {
	key := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
	if old := b.devices.claims.claim(key); old != nil {
		b.releaseDevices(key, old)
		b.putClaim(key, nil)
	}
}

// putClaim replaces the claim; nil: deletes it.
func (b *Builder) putClaim(key types.NamespacedName, c *resourcev1.ResourceClaim) {
	at := shardOf(key)
	shard := &b.devices.claims[at]
	if b.devices.shared[at] {
		*shard, b.devices.shared[at] = maps.Clone(*shard), false
	}
	if c == nil {
		delete(*shard, key)
	} else {
		put(shard, key, c)
	}
	b.claimsDirty = true
}

func (b *Builder) releaseDevices(key types.NamespacedName, c *resourcev1.ResourceClaim) {
	for _, pool := range allocatedPools(c) {
		b.touchPool(pool)
		delete(b.devices.pools[pool].claims, key)
		b.devices.dropIfEmpty(pool)
	}
}

// allocatedPools returns the pools of which the claim has devices, each once.
func allocatedPools(c *resourcev1.ResourceClaim) []poolKey {
	if c.Status.Allocation == nil {
		return nil
	}
	var pools []poolKey
	for i := range c.Status.Allocation.Devices.Results {
		r := &c.Status.Allocation.Devices.Results[i]
		if key := (poolKey{r.Driver, r.Pool}); !slices.Contains(pools, key) {
			pools = append(pools, key)
		}
	}
	return pools
}

// SetDeviceClass adds the class, or replaces the one with the same name.
func (b *Builder) SetDeviceClass(c *resourcev1.DeviceClass) {
	if old := b.devices.classes[c.Name]; old == nil || !same(old, c) {
		b.devices.classes = maps.Clone(b.devices.classes)
		put(&b.devices.classes, c.Name, c)
		b.othersDirty = true
	}
}

// DeleteDeviceClass removes the class. It ignores an unknown name.
func (b *Builder) DeleteDeviceClass(name string) {
	if b.devices.classes[name] != nil {
		b.devices.classes = maps.Clone(b.devices.classes)
		delete(b.devices.classes, name)
		b.othersDirty = true
	}
}

// SetDeviceTaintRule adds the rule, or replaces the one with the same name.
func (b *Builder) SetDeviceTaintRule(r *resourcev1.DeviceTaintRule) {
	old := b.devices.rules[r.Name]
	if old != nil {
		if same(old, r) {
			return
		}
		b.touchTainted(old)
	}
	put(&b.devices.rules, r.Name, r)
	b.touchTainted(r)
}

// DeleteDeviceTaintRule removes the rule. It ignores an unknown name.
func (b *Builder) DeleteDeviceTaintRule(name string) {
	if old := b.devices.rules[name]; old != nil {
		delete(b.devices.rules, name)
		b.touchTainted(old)
	}
}

func (d *devices) pool(key poolKey) *devicePool {
	if d.pools[key] == nil {
		put(&d.pools, key, new(devicePool))
	}
	return d.pools[key]
}

func (d *devices) dropIfEmpty(key poolKey) {
	if p := d.pools[key]; len(p.slices) == 0 && len(p.claims) == 0 {
		delete(d.pools, key)
	}
}

// touchPool makes the next View build the nodes of the pool anew.
func (b *Builder) touchPool(key poolKey) {
	for _, s := range b.devices.pools[key].slices {
		if node := nodeOf(s); node != "" {
			b.nodes[node].devicesDirty = true
			b.touch(node)
		}
	}
}

func (b *Builder) touchTainted(r *resourcev1.DeviceTaintRule) {
	for key := range b.devices.pools {
		if taintsPool(r, key) {
			b.touchPool(key)
		}
	}
}

// taintsPool reports whether the rule may taint devices of the pool.
func taintsPool(r *resourcev1.DeviceTaintRule, key poolKey) bool {
	selector := r.Spec.DeviceSelector
	return selector != nil && (selector.Driver == nil || *selector.Driver == key.driver) && (selector.Pool == nil || *selector.Pool == key.name)
}

// devicePools returns the complete pools of the node: see Node.DevicePools.
func (b *Builder) devicePools(node string) []DevicePool {
	var pools []DevicePool
	for _, key := range slices.SortedFunc(maps.Keys(b.nodes[node].pools), func(a, b poolKey) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.name, b.name))
	}) {
		known := b.devices.pools[key]
		current := known.current(node)
		if current == nil {
			continue
		}
		for i := range current {
			current[i] = b.devices.tainted(current[i])
		}
		pools = append(pools, DevicePool{Driver: key.driver, Name: key.name, Slices: current, Allocated: known.allocated(key)})
	}
	return pools
}

// current returns the slices of the newest generation, in order of name; nil if some of them are
// missing, or belong to another node.
func (p *devicePool) current(node string) []*resourcev1.ResourceSlice {
	var newest []*resourcev1.ResourceSlice
	for _, s := range p.slices {
		switch {
		case len(newest) == 0 || s.Spec.Pool.Generation > newest[0].Spec.Pool.Generation:
			newest = append(newest[:0], s)
		case s.Spec.Pool.Generation == newest[0].Spec.Pool.Generation:
			newest = append(newest, s)
		}
	}
	slices.SortFunc(newest, func(a, b *resourcev1.ResourceSlice) int { return cmp.Compare(a.Name, b.Name) })
	if int64(len(newest)) != newest[0].Spec.Pool.ResourceSliceCount || slices.ContainsFunc(newest, func(s *resourcev1.ResourceSlice) bool { return nodeOf(s) != node }) {
		return nil
	}
	return newest
}

func (p *devicePool) allocated(key poolKey) []DeviceAllocation {
	var allocated []DeviceAllocation
	for _, name := range slices.SortedFunc(maps.Keys(p.claims), func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}) {
		c := p.claims[name]
		for i := range c.Status.Allocation.Devices.Results {
			if r := &c.Status.Allocation.Devices.Results[i]; r.Driver == key.driver && r.Pool == key.name {
				allocated = append(allocated, DeviceAllocation{c, r})
			}
		}
	}
	return allocated
}

// tainted returns the slice with the taints of the rules, in order of the rules' names.
func (d *devices) tainted(s *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	key, patched := poolOf(s), s
	for _, name := range slices.Sorted(maps.Keys(d.rules)) {
		r := d.rules[name]
		if !taintsPool(r, key) {
			continue
		}
		if patched == s {
			patched = new(*s)
			patched.Spec.Devices = slices.Clone(s.Spec.Devices)
		}
		for i := range patched.Spec.Devices {
			device := &patched.Spec.Devices[i]
			if only := r.Spec.DeviceSelector.Device; only == nil || *only == device.Name {
				device.Taints = append(slices.Clip(device.Taints), r.Spec.Taint)
			}
		}
	}
	return patched
}

// put sets the value in a map that may be nil.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}
