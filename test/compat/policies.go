package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"outboard.dev/outboard/test/controlplane"
	"outboard.dev/outboard/test/stage"
)

// tutorials are the examples with the files of others.
const tutorials = "examples/from-the-tutorials"

// policyScenario is what a kube-scheduler that reads a Policy does together with Outboard, in a new
// cluster. It returns its outcome.
type policyScenario struct {
	name string
	play func(*policyScene, context.Context) (string, error)
}

// policyScenarios are the columns of the table of Policies.
var policyScenarios = []policyScenario{
	{"Policy alone", (*policyScene).alone},
	{"image score", func(s *policyScene, ctx context.Context) (string, error) { return s.example(ctx, "image-score", nil) }},
	{"gpushare", func(s *policyScene, ctx context.Context) (string, error) { return s.example(ctx, "gpushare", nil) }},
	{"design of 1.4", (*policyScene).design},
}

// policyScene is a cluster for a kube-scheduler that reads a Policy.
type policyScene struct {
	*stage.Stage
	tested pair
}

// The outcomes of kube-scheduler with a Policy and no configuration file.
const (
	runs = "runs"
	ends = "ends"
)

// alone starts kube-scheduler with a Policy that names no priorities, and no other configuration.
func (s *policyScene) alone(ctx context.Context) (string, error) {
	if err := controlplane.CreateNodes(ctx, s.Client, controlplane.NodeSpec{Name: "a"}.Node()); err != nil {
		return "", err
	}
	scheduler, err := s.schedule(policyRun{file: filepath.Join(s.Root, tutorials, "gpushare", "original", "policy.json"), alone: true})
	if err != nil {
		return "", err
	}
	placed := make(chan error, 1)
	go func() {
		_, err := s.Place(ctx, controlplane.PodSpec{Name: "plain"}.Pod())
		placed <- err
	}()
	select {
	case err := <-placed:
		return runs, err
	case <-scheduler.Done():
		const reason = `no kind "NodeResourcesLeastAllocatedArgs" is registered`
		if !strings.Contains(scheduler.Log(), reason) {
			return "", fmt.Errorf("kube-scheduler ended, and not because %s: %s", reason, scheduler.Log())
		}
		return ends, nil
	}
}

// example places the pods of an example with the Policy of its document, which kube-scheduler reads
// from the original file unless another one is given. Each pod must be where the README says.
func (s *policyScene) example(ctx context.Context, folder string, policy []byte) (string, error) {
	dir := filepath.Join(s.Root, tutorials, folder)
	example, err := stage.ReadExample(dir)
	if err != nil {
		return "", err
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		return "", err
	}
	results, err := stage.ReadResults(string(readme))
	if err != nil {
		return "", err
	}
	if err := controlplane.CreateNodes(ctx, s.Client, example.Nodes...); err != nil {
		return "", err
	}
	address, err := example.Address()
	if err != nil {
		return "", err
	}
	if _, err := s.StartOutboardAt(ctx, example.Outboard, address); err != nil {
		return "", err
	}
	file := filepath.Join(dir, "original", "policy.json")
	if policy != nil {
		if file, err = s.write("changed-policy.json", policy); err != nil {
			return "", err
		}
	}
	if _, err := s.schedule(policyRun{file: file, schedulerName: example.Pods[0].Spec.SchedulerName, alone: s.tested.policyAlone()}); err != nil {
		return "", err
	}
	var errs []error
	for _, pod := range example.Pods {
		if !s.tested.policyAlone() {
			pod.Spec.SchedulerName = "" // a Policy replaces the profiles, and with them their names
		}
		placed, err := s.Place(ctx, pod)
		if err != nil {
			return "", err
		}
		errs = append(errs, results[pod.Name].Check(placed))
	}
	return passed, errors.Join(errs...)
}

// design plays the example of the design document. kube-scheduler refuses the document's Policy,
// because it has no kind.
func (s *policyScene) design(ctx context.Context) (string, error) {
	const folder = "design-1.4"
	file := filepath.Join(s.Root, tutorials, folder, "original", "policy.json")
	refuses, err := s.schedule(policyRun{file: file, alone: s.tested.policyAlone()})
	if err != nil {
		return "", err
	}
	select {
	case <-refuses.Done():
	case <-ctx.Done():
		return "", fmt.Errorf("kube-scheduler reads a Policy without kind: %w", context.Cause(ctx))
	}
	if !strings.Contains(refuses.Log(), "invalid policy: strict decoder error") {
		return "", fmt.Errorf("kube-scheduler ended, and not because it refuses the Policy: %s", refuses.Log())
	}
	original, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var policy map[string]any
	if err := json.Unmarshal(original, &policy); err != nil {
		return "", err
	}
	policy["kind"], policy["apiVersion"] = "Policy", "v1"
	changed, err := json.Marshal(policy)
	if err != nil {
		return "", err
	}
	return s.example(ctx, folder, changed)
}

// policyRun is how kube-scheduler runs with a Policy.
type policyRun struct {
	file string
	// alone is without a configuration file.
	alone bool
	// schedulerName selects the pods, if the Policy is alone. Default: default-scheduler.
	schedulerName string
}

// schedule starts kube-scheduler.
func (s *policyScene) schedule(run policyRun) (*controlplane.Process, error) {
	user, err := s.AddUser("system:kube-scheduler")
	if err != nil {
		return nil, err
	}
	args := []string{
		"--policy-config-file=" + run.file, "--leader-elect=false", "--port=0", "--secure-port=0", "-v=2",
		"--feature-gates=CSIStorageCapacity=false", // kube-apiserver no longer serves the version of its API
	}
	if run.alone {
		args = append(args, "--kubeconfig="+user.Kubeconfig)
		if run.schedulerName != "" {
			args = append(args, "--scheduler-name="+run.schedulerName)
		}
	} else {
		config, err := s.write("beside-policy.yaml", fmt.Appendf(nil, besidePolicy, user.Kubeconfig))
		if err != nil {
			return nil, err
		}
		args = append(args, "--config="+config)
	}
	return s.StartProcess(controlplane.Command{Name: "kube-scheduler-with-policy", Path: s.tested.schedulerPath, Args: args})
}

// besidePolicy is the configuration file that kube-scheduler 1.22 needs in addition to a Policy,
// with a kubeconfig file.
const besidePolicy = `
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %s}
leaderElection: {leaderElect: false}
`

func (s *policyScene) write(name string, data []byte) (string, error) {
	path := filepath.Join(s.Dir(), name)
	return path, os.WriteFile(path, data, 0o600)
}

// playPolicies runs all scenarios with a kube-scheduler that reads a Policy. What fails in a
// scenario is in the row.
func (o *options) playPolicies(ctx context.Context, p pair, progress io.Writer) (result row, _ error) {
	result = row{pair: p}
	dir, err := os.MkdirTemp("", "compat-")
	if err != nil {
		return result, err
	}
	defer os.RemoveAll(dir)
	if err := o.link(dir, p); err != nil {
		return result, err
	}
	options := stage.Options{Outboard: o.outboard, ControlPlane: controlplane.Options{BinDir: dir}}
	for _, sc := range policyScenarios {
		o.record(&result, sc.name, progress, func() (string, error) {
			return playPolicy(ctx, options, p, sc)
		})
	}
	return result, nil
}

// playPolicy runs one scenario in a new cluster.
func playPolicy(ctx context.Context, options stage.Options, p pair, sc policyScenario) (outcome string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	set, err := stage.Set(ctx, options)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, set.Stop()) }()
	return sc.play(&policyScene{Stage: set, tested: p}, ctx)
}
