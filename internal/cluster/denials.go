package cluster

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// The writes, as operators read them in warnings.
const (
	writeBinding = "binding pods"
	writeLedger  = "writing ledgers"
)

// credentialsHint says where the rejected credentials come from.
const credentialsHint = "check the ServiceAccount of the pod, or clientConnection.kubeconfig if it is set"

// denials are the writes that the API server currently denies. The zero value is empty.
type denials struct {
	mu      sync.Mutex
	byWrite map[string]error
}

// observe records the outcome of a write, and returns it, with a hint if the write is denied.
func (d *denials) observe(write string, err error) error {
	switch {
	case apierrors.IsForbidden(err): // the error names the permission and the user
		err = fmt.Errorf("%w; grant it: deploy/outboard.yaml has the permissions that Outboard always needs, and deploy/allocations.yaml those for allocations", err)
	case apierrors.IsUnauthorized(err):
		err = fmt.Errorf("the API server does not accept the credentials: %w; %s", err, credentialsHint)
	case err != nil:
		return err // the next write may succeed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil {
		delete(d.byWrite, write)
		return nil
	}
	if d.byWrite == nil {
		d.byWrite = map[string]error{}
	}
	d.byWrite[write] = err
	return err
}

// lines returns a line for each.
func (d *denials) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var lines []string
	for _, write := range slices.Sorted(maps.Keys(d.byWrite)) {
		lines = append(lines, fmt.Sprintf("cluster: %s fails: %v", write, d.byWrite[write]))
	}
	return lines
}
