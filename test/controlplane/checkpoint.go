package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// Checkpoint is the state of a control plane at one moment: its objects, and which processes and files
// exist. [ControlPlane.Restore] returns to it, any number of times.
type Checkpoint struct {
	content   content
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
	api, err := cp.api()
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{files: map[string]bool{}}
	if c.content, err = api.read(ctx); err != nil {
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
// Restore kills the processes that were started after the checkpoint, removes the files and directories that
// were created directly in Dir, deletes new objects of every kind, whatever their finalizers, creates deleted
// ones, and resets changed ones, or creates them again if that is impossible. It continues etcd and
// kube-apiserver if they are paused, and starts kube-apiserver if that has ended. It returns when the API
// server's lists and discovery show the state of the checkpoint. It fails if etcd has ended. If ctx ends
// before that, the error names what is still different.
//
// It does not restore status, changed and deleted files, UIDs and resource versions, nor the objects that
// kube-apiserver maintains itself: its own Lease, the APIServices of built-in kinds and custom resources, and
// the IPAddresses of Services. The authorizer of kube-apiserver follows changes of RBAC objects a moment later.
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
	api, err := cp.api()
	if err != nil {
		return err
	}
	for pause := pollInterval; ; pause = min(2*pause, time.Second) {
		different, err := api.restore(ctx, c.content)
		if err == nil && len(different) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%w: still different: %s", context.Cause(ctx), strings.Join(different, ", ")), err)
		case <-time.After(pause):
		}
	}
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

// api returns the administrator's access to objects of every kind.
func (cp *ControlPlane) api() (*api, error) {
	config := cp.AdminConfig()
	config.WarningHandler = rest.NoWarnings{} // of deprecated kinds
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, cp.client)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfigAndClient(config, cp.client)
	if err != nil {
		return nil, err
	}
	return &api{discovery: d, objects: objects}, nil
}
