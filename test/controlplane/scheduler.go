package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// SchedulerOptions say how to start a kube-scheduler. The zero value is the
// default scheduler.
type SchedulerOptions struct {
	// Config is a KubeSchedulerConfiguration as YAML. clientConnection.kubeconfig
	// and leaderElection.leaderElect (false) are filled in when they are absent.
	// Default: the default configuration of kube-scheduler.
	Config string

	// Verbosity is the log level (-v). Default 0.
	Verbosity int

	// Env has variables to set, as NAME=value. Of the variables of this process
	// a scheduler gets PATH, HOME and TMPDIR only.
	Env []string

	// Args are further arguments.
	Args []string

	// Path is the program to run, one that has been built with plugins of its own.
	// Default: kube-scheduler of Options.BinDir or, if it is not there, of the checkout.
	Path string
}

// Scheduler is a running kube-scheduler.
type Scheduler struct {
	*Process
	config string
	url    string
	client *http.Client
}

// StartScheduler starts a kube-scheduler and returns when it is ready to
// schedule. It runs as the user system:kube-scheduler with nothing but the RBAC
// roles that user has in every cluster. The context bounds the start only.
func (cp *ControlPlane) StartScheduler(ctx context.Context, opts SchedulerOptions) (*Scheduler, error) {
	s, err := cp.startScheduler(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("control plane: %w", err)
	}
	return s, nil
}

func (cp *ControlPlane) startScheduler(ctx context.Context, opts SchedulerOptions) (*Scheduler, error) {
	cp.mu.Lock()
	cp.schedulers++
	name := fmt.Sprintf("kube-scheduler-%d", cp.schedulers)
	cp.mu.Unlock()

	config, err := schedulerConfig(opts, cp.identity.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	configFile := cp.path(name + ".yaml")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		return nil, err
	}
	path := opts.Path
	if path == "" {
		if path, err = cp.SchedulerPath(); err != nil {
			return nil, err
		}
	}
	port, err := cp.holdPort()
	if err != nil {
		return nil, err
	}
	p, err := cp.start(Command{
		Name: name,
		Path: path,
		Env:  opts.Env,
		Args: append([]string{
			"--config=" + configFile,
			"--authentication-kubeconfig=" + cp.identity.Kubeconfig,
			"--authorization-kubeconfig=" + cp.identity.Kubeconfig,
			"--bind-address=" + loopback,
			"--secure-port=" + strconv.Itoa(port.number),
			"--permit-port-sharing",
			"--tls-cert-file=" + cp.path("server.crt"),
			"--tls-private-key-file=" + cp.path("server.key"),
			"-v=" + strconv.Itoa(opts.Verbosity),
		}, opts.Args...),
	})
	if err != nil {
		return nil, err
	}
	s := &Scheduler{Process: p, config: configFile, url: port.url(), client: cp.client}
	if err := p.await(ctx, func(ctx context.Context) error {
		// Its metrics are for known users only, whom it learns a moment after it is ready.
		return errors.Join(s.ready(ctx), getOK(ctx, s.client, s.url+"/metrics"))
	}); err != nil {
		p.Kill()
		return nil, err
	}
	return s, nil
}

// ready returns nil if the scheduler is ready to schedule. Schedulers that lack /readyz, such as that of Kubernetes 1.29, have
// /healthz.
func (s *Scheduler) ready(ctx context.Context) error {
	err := getOK(ctx, s.client, s.url+"/readyz")
	if errors.Is(err, errNotFound) {
		return getOK(ctx, s.client, s.url+"/healthz")
	}
	return err
}

// ConfigFile returns the path of the KubeSchedulerConfiguration, which the scheduler reads when it starts.
func (s *Scheduler) ConfigFile() string { return s.config }

// URL returns the https address of the scheduler's own endpoints, such as /metrics.
func (s *Scheduler) URL() string { return s.url }

// Client returns an HTTP client that the endpoints at URL accept as the
// administrator.
func (s *Scheduler) Client() *http.Client { return s.client }

// schedulerConfig returns the KubeSchedulerConfiguration of opts with the gaps
// filled. Everything else is left to kube-scheduler to judge.
func schedulerConfig(opts SchedulerOptions, kubeconfig string) ([]byte, error) {
	source := cmp.Or(opts.Config, "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n")
	var config map[string]any
	if err := yaml.UnmarshalStrict([]byte(source), &config); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	if config == nil {
		config = map[string]any{}
	}
	for _, gap := range []struct {
		value any
		path  []string
	}{
		{kubeconfig, []string{"clientConnection", "kubeconfig"}},
		{false, []string{"leaderElection", "leaderElect"}},
	} {
		_, found, err := unstructured.NestedFieldNoCopy(config, gap.path...)
		if err == nil && !found {
			err = unstructured.SetNestedField(config, gap.value, gap.path...)
		}
		if err != nil {
			return nil, fmt.Errorf("scheduler configuration: %w", err)
		}
	}
	return yaml.Marshal(config)
}
