package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// Checkpoint is the state of a control plane at one moment: its objects, and which processes and files
// exist. [ControlPlane.Restore] returns to it, any number of times.
type Checkpoint struct {
	objects   map[string][]byte // what etcd stores, by key, without what kube-apiserver maintains
	discovery []byte
	processes []*Process
	ports     []*port
	files     map[string]bool // names of the entries of the work directory
	// schedulers and users are the counters of the control plane.
	schedulers, users int
}

// Checkpoint records the state of the control plane, for [ControlPlane.Restore]. No other method may be
// called at the same time, and nobody may change objects.
func (cp *ControlPlane) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	c, err := cp.checkpoint(ctx)
	if err != nil {
		return nil, fmt.Errorf("control plane: checkpoint: %w", err)
	}
	return c, nil
}

func (cp *ControlPlane) checkpoint(ctx context.Context) (*Checkpoint, error) {
	c := &Checkpoint{files: map[string]bool{}}
	var err error
	if c.objects, err = cp.stored(ctx); err != nil {
		return nil, err
	}
	if c.discovery, err = cp.discovery(ctx); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(cp.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		c.files[e.Name()] = true
	}
	cp.mu.Lock()
	defer cp.mu.Unlock()
	c.processes, c.ports = slices.Clone(cp.processes), slices.Clone(cp.ports)
	c.schedulers, c.users = cp.schedulers, cp.users
	return c, nil
}

// Restore returns the control plane to the state of the checkpoint, in a fraction of the time that another
// start takes. So tests can use one control plane one after the other.
//
// Restore kills the processes that were started after the checkpoint, and removes the files and directories that
// were created directly in Dir. It continues etcd and kube-apiserver if they are paused, and starts kube-apiserver
// if that has ended. It then writes the objects of the checkpoint to etcd and deletes the others there, so neither
// finalizers nor fields that cannot be changed stand in the way. It returns when the discovery of the API server
// shows the kinds of the checkpoint. It fails if etcd has ended. If ctx ends before that, the error names what is
// still different.
//
// It does not restore changed and deleted files, nor the objects that kube-apiserver maintains itself: its own
// Lease, and the APIServices of built-in kinds and custom resources. kube-apiserver may report later, in an Event,
// that it repairs the address of a Service, and until then it refuses a dry run with a node port that a Service had
// before Restore. Its authorizer follows changes of RBAC objects a moment later.
//
// No other method may be called at the same time.
func (cp *ControlPlane) Restore(ctx context.Context, c *Checkpoint) error {
	if err := cp.restore(ctx, c); err != nil {
		return fmt.Errorf("control plane: restore: %w", err)
	}
	return nil
}

func (cp *ControlPlane) restore(ctx context.Context, c *Checkpoint) error {
	cp.endSince(c)
	if err := cp.removeFilesSince(c); err != nil {
		return err
	}
	if err := cp.etcd.Continue(); err != nil { // first: kube-apiserver does not start without etcd
		return err
	}
	if cp.APIServer().hasEnded() {
		if err := cp.startAPIServer(ctx); err != nil {
			return err
		}
	}
	if err := cp.APIServer().Continue(); err != nil {
		return err
	}
	pause := pollInterval
	for attempt := 0; ; attempt++ {
		different, err := cp.writeBack(ctx, c, attempt < 2)
		if err == nil && len(different) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: still different: %s", context.Cause(ctx), strings.Join(different, ", ")), err)
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
		}
	}
}

// writeBack writes the objects of the checkpoint to etcd, deletes the others, and returns what was different before that. Requests that
// were under way may still change objects, so another call follows until nothing is different. With reverts, it also writes objects that
// have changed: not without end, because kube-apiserver updates the status of some of them again.
func (cp *ControlPlane) writeBack(ctx context.Context, c *Checkpoint, reverts bool) (different []string, err error) {
	found, err := cp.stored(ctx)
	if err != nil {
		return nil, err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(maxRequests)
	request := func(method string, kv keyValue) {
		different = append(different, string(kv.Key))
		group.Go(func() error { return cp.callEtcd(groupCtx, method, kv, nil) })
	}
	for key, value := range c.objects {
		if now, exists := found[key]; !exists || reverts && !bytes.Equal(now, value) {
			request("put", keyValue{Key: []byte(key), Value: value})
		}
	}
	for key := range found {
		if _, wanted := c.objects[key]; !wanted {
			request("deleterange", keyValue{Key: []byte(key)})
		}
	}
	if err := group.Wait(); err != nil || len(different) > 0 {
		return different, err
	}
	now, err := cp.discovery(ctx)
	if err == nil && !bytes.Equal(now, c.discovery) {
		different = []string{"the kinds that the API server serves"}
	}
	return different, err
}

// endSince kills the processes that were started after the checkpoint, and releases their ports.
func (cp *ControlPlane) endSince(c *Checkpoint) {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	kept := append(slices.Clone(c.processes), cp.apiserver)
	cp.processes = slices.DeleteFunc(cp.processes, func(p *Process) bool {
		if slices.Contains(kept, p) {
			return false
		}
		// It fails if the process has ended.
		_ = p.signal(syscall.SIGKILL)
		<-p.done
		return true
	})
	cp.ports = slices.DeleteFunc(cp.ports, func(p *port) bool {
		if slices.Contains(c.ports, p) {
			return false
		}
		p.release()
		return true
	})
	cp.schedulers, cp.users = c.schedulers, c.users
}

func (cp *ControlPlane) removeFilesSince(c *Checkpoint) error {
	entries, err := os.ReadDir(cp.dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		if !c.files[e.Name()] {
			errs = append(errs, os.RemoveAll(cp.path(e.Name())))
		}
	}
	return errors.Join(errs...)
}
