package resourceclaims

import (
	"encoding/binary"
	"slices"
	"strings"
	"sync"
	"weak"

	resourcev1 "k8s.io/api/resource/v1"

	"outboard.dev/outboard/snapshot"
)

const (
	// keptSets is how many sets of attributes are kept with a node: what the selectors of claims in the cluster read, which is few.
	keptSets = 8
	// maxNodeTypes is how many different node types are kept for one set of attributes. A cluster has about as many as it has types of
	// nodes. Nodes beyond that are predicted one by one.
	maxNodeTypes = 256
)

// kind is what a claim can depend on of a device, except what is allocated of it, and of the counters that it uses.
type kind struct {
	key     string
	driver  string
	device  *resourcev1.Device
	counted bool // it uses counters
}

// nodeType is the kinds of the devices of a node, in the order in which they are allocated. Nodes share it. It is immutable.
type nodeType []*kind

// attributeSet is a set of attributes, and the types of nodes of whose devices nothing but these attributes is known: they are the same for all nodes
// of a type, although each device has, for example, a serial number.
type attributeSet struct {
	names []string
	slot  int

	mu        sync.Mutex
	nodeTypes map[string]weak.Pointer[nodeType]
}

// attributeSets are the sets of attributes that were needed last. It is safe for concurrent use.
type attributeSets struct {
	mu   sync.Mutex
	kept [keptSets]*attributeSet // the latest first
}

// of returns the set with the attributes.
func (as *attributeSets) of(names []string) *attributeSet {
	as.mu.Lock()
	defer as.mu.Unlock()
	at := slices.IndexFunc(as.kept[:], func(a *attributeSet) bool { return a == nil || slices.Equal(a.names, names) })
	if at < 0 {
		at = keptSets - 1
	}
	found := as.kept[at]
	if found == nil || !slices.Equal(found.names, names) {
		slot := at
		if found != nil {
			slot = found.slot
		}
		found = &attributeSet{names: names, slot: slot, nodeTypes: map[string]weak.Pointer[nodeType]{}}
	}
	copy(as.kept[1:at+1], as.kept[:at])
	as.kept[0] = found
	return found
}

// all returns the sets that are kept.
func (as *attributeSets) all() []*attributeSet {
	as.mu.Lock()
	defer as.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(as.kept[:]), func(a *attributeSet) bool { return a == nil })
}

// kept is the node type of a node for a set.
type kept struct {
	of       *attributeSet
	nodeType *nodeType // nil: there are too many
}

// nodeTypeOf returns the type of the node for the set, or nil.
func (d *nodeDevices) nodeTypeOf(a *attributeSet, n *snapshot.Node) *nodeType {
	slot := &d.nodeTypes[a.slot]
	if k := slot.Load(); k != nil && k.of == a {
		return k.nodeType
	}
	k := &kept{a, a.nodeTypeOf(n.DevicePools())}
	slot.Store(k)
	return k.nodeType
}

func (a *attributeSet) nodeTypeOf(pools []snapshot.DevicePool) *nodeType {
	var all nodeType
	var key, buffer []byte
	for i := range pools {
		for _, s := range pools[i].Slices {
			for j := range s.Spec.Devices {
				device := &s.Spec.Devices[j]
				buffer = a.appendKey(buffer[:0], pools[i].Driver, device)
				if last := len(all) - 1; last >= 0 && all[last].key == string(buffer) {
					all, key = append(all, all[last]), append(key, 0)
					continue
				}
				all = append(all, &kind{string(buffer), pools[i].Driver, device, len(device.ConsumesCounters) > 0})
				key = append(binary.AppendUvarint(append(key, 1), uint64(len(buffer))), buffer...)
			}
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if known := a.nodeTypes[string(key)].Value(); known != nil {
		return known
	}
	if len(a.nodeTypes) >= maxNodeTypes {
		for key, nt := range a.nodeTypes {
			if nt.Value() == nil {
				delete(a.nodeTypes, key)
			}
		}
		if len(a.nodeTypes) >= maxNodeTypes {
			return nil
		}
	}
	own := map[*kind]*kind{}
	for i, k := range all {
		if own[k] == nil {
			own[k] = &kind{k.key, k.driver, a.without(k.device), k.counted}
		}
		all[i] = own[k]
	}
	a.nodeTypes[string(key)] = weak.Make(&all)
	return &all
}

// appendKey appends what the allocation of the device alone depends on. Attributes that no selector reads count only if they may be
// invalid: the allocator parses versions, and rejects values that it does not know.
func (a *attributeSet) appendKey(key []byte, driver string, d *resourcev1.Device) []byte {
	key = appendText(key, driver)
	shared, counted := byte(0), byte(0)
	if isShared(d) {
		shared = 1
	}
	if len(d.ConsumesCounters) > 0 {
		counted = 1
	}
	key = append(key, shared, counted)
	var few [8]resourcev1.QualifiedName
	names := few[:0]
	for name, is := range d.Attributes {
		if a.counts(name, &is) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	key = binary.AppendUvarint(key, uint64(len(names)))
	for _, name := range names {
		is := d.Attributes[name]
		key = appendText(key, string(name))
		if is.StringValue != nil && is.IntValue == nil && is.BoolValue == nil && isPlain(&is) {
			key = appendText(append(key, 's'), *is.StringValue)
		} else if is.VersionValue != nil && isVersion(&is) {
			key = appendText(append(key, 'v'), *is.VersionValue)
		} else {
			key = appendMessage(append(key, 'm'), &is)
		}
	}
	names = few[:0]
	for name := range d.Capacity {
		names = append(names, name)
	}
	slices.Sort(names)
	key = binary.AppendUvarint(key, uint64(len(names)))
	for _, name := range names {
		c := d.Capacity[name]
		key = appendText(key, string(name))
		if value, ok := c.Value.AsInt64(); ok && c.RequestPolicy == nil {
			key = binary.AppendVarint(append(key, 'i'), value)
		} else {
			key = appendMessage(append(key, 'm'), &c)
		}
	}
	key = binary.AppendUvarint(key, uint64(len(d.Taints)))
	for i := range d.Taints {
		t := &d.Taints[i]
		key = appendText(appendText(appendText(key, t.Key), t.Value), string(t.Effect))
	}
	return key
}

// counts reports whether an allocation may depend on the attribute.
func (a *attributeSet) counts(name resourcev1.QualifiedName, is *resourcev1.DeviceAttribute) bool {
	return !isPlain(is) || slices.Contains(a.names, string(name[strings.LastIndexByte(string(name), '/')+1:]))
}

// without returns a copy of the device with only the attributes that count, and without counters. It keeps no other device in memory.
func (a *attributeSet) without(d *resourcev1.Device) *resourcev1.Device {
	own := *d
	own.ConsumesCounters = nil
	own.Attributes = map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	for name, is := range d.Attributes {
		if a.counts(name, &is) {
			own.Attributes[name] = is
		}
	}
	return &own
}

// isPlain reports whether the attribute has a value that is always valid, and no other.
func isPlain(a *resourcev1.DeviceAttribute) bool {
	return !hasList(a) && a.VersionValue == nil && (a.StringValue != nil || a.IntValue != nil || a.BoolValue != nil)
}

func isVersion(a *resourcev1.DeviceAttribute) bool {
	return !hasList(a) && a.VersionValue != nil && a.StringValue == nil && a.IntValue == nil && a.BoolValue == nil
}

func hasList(a *resourcev1.DeviceAttribute) bool {
	return a.IntValues != nil || a.BoolValues != nil || a.StringValues != nil || a.VersionValues != nil
}

func appendText(key []byte, text string) []byte {
	return append(binary.AppendUvarint(key, uint64(len(text))), text...)
}

func appendMessage(key []byte, m interface{ Marshal() ([]byte, error) }) []byte {
	data, _ := m.Marshal() // it fails for invalid text only, which the API server does not have
	return appendText(key, string(data))
}
