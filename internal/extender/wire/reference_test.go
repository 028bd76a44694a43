package wire_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"
	"unsafe"

	"outboard.dev/outboard/internal/extender/wire"
)

// asked is the content of a request, decoded by encoding/json: the reference for Decode.
type asked struct {
	mode  wire.Mode
	pod   json.RawMessage
	meta  identity
	names []string
	nodes []json.RawMessage
}

// identity is the part of a Pod or Node that Decode reads.
type identity struct {
	Metadata struct{ Namespace, Name, UID, ResourceVersion string }
}

// readReference decodes with encoding/json what Decode reads. Raw messages make a repeated key replace the whole value; decoding
// into ExtenderArgs would merge the two values.
func readReference(body []byte) (*asked, error) {
	var args struct{ Pod, Nodes, NodeNames json.RawMessage }
	if err := json.Unmarshal(body, &args); err != nil {
		return nil, err
	}
	set := func(raw json.RawMessage) bool { return raw != nil && string(raw) != "null" }
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("null")) {
		return nil, errors.New("null")
	}
	if !set(args.Pod) || set(args.Nodes) == set(args.NodeNames) {
		return nil, errors.New("no Pod, or not one mode")
	}
	a := &asked{pod: args.Pod}
	if err := json.Unmarshal(args.Pod, &a.meta); err != nil {
		return nil, err
	}
	if set(args.NodeNames) {
		a.mode = wire.Names
		var names []*string
		if err := json.Unmarshal(args.NodeNames, &names); err != nil {
			return nil, err
		}
		for _, name := range names {
			if name == nil || *name == "" {
				return nil, errors.New("no name")
			}
			a.names = append(a.names, *name)
		}
	} else {
		a.mode = wire.Nodes
		var list struct{ Items json.RawMessage }
		if err := json.Unmarshal(args.Nodes, &list); err != nil {
			return nil, err
		}
		if set(list.Items) {
			if err := json.Unmarshal(list.Items, &a.nodes); err != nil {
				return nil, err
			}
		}
		for _, raw := range a.nodes {
			var node identity
			if err := json.Unmarshal(raw, &node); err != nil {
				return nil, err
			}
			if node.Metadata.Name == "" {
				return nil, errors.New("no name")
			}
			a.names = append(a.names, node.Metadata.Name)
		}
	}
	if len(a.names) == 0 {
		return nil, errors.New("no nodes")
	}
	m := a.meta.Metadata
	if len(m.Name) > wire.MaxName || len(m.Namespace) > wire.MaxNamespace || len(m.UID) > wire.MaxUID || len(m.ResourceVersion) > wire.MaxResourceVersion ||
		slices.ContainsFunc(a.names, func(name string) bool { return len(name) > wire.MaxName }) {
		return nil, errors.New("too long")
	}
	return a, nil
}

// requireSame compares a decoded request with the reference.
func requireSame(t tester, r *wire.Request, want *asked) {
	t.Helper()
	if r.Mode() != want.mode || r.Len() != len(want.names) {
		t.Fatalf("got mode %v with %d nodes, want %v with %d", r.Mode(), r.Len(), want.mode, len(want.names))
	}
	if !bytes.Equal(r.Pod(), bytes.TrimSpace(want.pod)) {
		t.Fatalf("pod %s\nwant %s", r.Pod(), want.pod)
	}
	for i, name := range want.names {
		if string(r.Name(i)) != name {
			t.Fatalf("name %d is %q, want %q", i, r.Name(i), name)
		}
		if want.mode == wire.Nodes && !bytes.Equal(r.Node(i), bytes.TrimSpace(want.nodes[i])) {
			t.Fatalf("node %d is %s\nwant %s", i, r.Node(i), want.nodes[i])
		}
		if want.mode == wire.Names && r.Node(i) != nil {
			t.Fatalf("node %d is %s in names mode", i, r.Node(i))
		}
	}
	uid, version := r.PodVersion()
	got, meta := [2]string{string(uid), string(version)}, want.meta.Metadata
	if got != [2]string{meta.UID, meta.ResourceVersion} {
		t.Fatalf("the pod has UID and version %q, want %+v", got, meta)
	}
}

// withoutObjects returns the body in which the Pod and the Nodes that Decode found are replaced by what Decode read of the
// Nodes.
func withoutObjects(body []byte, r *wire.Request) []byte {
	type part struct {
		raw         []byte
		replacement []byte
	}
	parts := []part{{r.Pod(), []byte(`{}`)}}
	if r.Mode() == wire.Nodes {
		for i := range r.Len() {
			quoted, _ := json.Marshal(string(r.Name(i)))
			parts = append(parts, part{r.Node(i), fmt.Appendf(nil, `{"metadata":{"name":%s}}`, quoted)})
		}
	}
	if len(parts) > 1 && offset(body, parts[0].raw) > offset(body, parts[1].raw) {
		parts = append(parts[1:], parts[0])
	}
	var out []byte
	at := 0
	for _, p := range parts {
		from := offset(body, p.raw)
		out = append(append(out, body[at:from]...), p.replacement...)
		at = from + len(p.raw)
	}
	return append(out, body[at:]...)
}

// offset returns the index of part in whole; part is a slice of whole.
func offset(whole, part []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(part))) - uintptr(unsafe.Pointer(unsafe.SliceData(whole))))
}

// wellFormed reports whether the text is JSON by RFC 8259. encoding/json is more lenient: it replaces invalid UTF-8.
func wellFormed(body []byte) bool { return json.Valid(body) && utf8.Valid(body) }
