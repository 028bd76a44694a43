package app

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/migrate"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/snapshot"
)

type draTemplatesOptions struct {
	pods       []string
	config     string
	unit       string
	connection clusterFlags
	output     outputFlag
	migrate.Options
}

// memoryUnits are the units of memory of gpushare, with those of quantities.
var memoryUnits = map[string]string{string(gpumemory.GiB): "Gi", string(gpumemory.MiB): "Mi"}

func draTemplatesCommand(types config.Types) *cobra.Command {
	types.Unserved = true
	var o draTemplatesOptions
	cmd := &cobra.Command{
		Use:   "dra-templates",
		Short: "Write the ResourceClaimTemplates with which pods that share GPUs use DRA",
		Long: `Read the pods that request aliyun.com/gpu-mem or aliyun.com/gpu-count, and print what they need
to use Dynamic Resource Allocation (DRA) instead: a DeviceClass, a ResourceClaimTemplate for each
size in each namespace, the change of each pod spec, and what has no equivalent there. With
-o yaml, the output is for kubectl apply, and the rest of it is in comments.

The command changes nothing. It reads the pods from the cluster, or from the files of --pods. The
exit status is 1 if there is no template for any pod, and 0 if no pod of the cluster needs one.`,
		Example: `  outboard dra-templates
  outboard dra-templates --config outboard.yaml -o yaml > templates.yaml
  kubectl get pods -A -o yaml > pods.yaml && outboard dra-templates --pods pods.yaml`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.output.check(); err != nil {
				return err
			}
			if err := o.configure(types); err != nil {
				return err
			}
			pods, err := o.read(cmd.Context())
			if err != nil {
				return err
			}
			plan := migrate.Of(pods, o.Options)
			write := func() error { return o.output.write(cmd.OutOrStdout(), plan.WriteJSON, plan.WriteText) }
			if o.output.format == "yaml" { // documents, and not the plan
				write = func() error { return plan.WriteYAML(cmd.OutOrStdout()) }
			}
			if err := write(); err != nil || len(plan.Templates) > 0 || len(o.pods) == 0 && len(plan.Missing) == 0 {
				return err
			}
			return errFindings
		},
	}
	o.connection.register(cmd)
	o.output.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&o.pods, "pods", nil, "files with pods, instead of the cluster")
	flags.StringVar(&o.config, "config", "", "configuration file of Outboard: the command uses unit and modelAnnotation of GPUMemory")
	choice(cmd, &o.unit, "unit", "", "unit in which pods request memory: GiB or MiB", string(gpumemory.GiB), string(gpumemory.MiB))
	flags.StringVar(&o.Class, "device-class", "shared-gpu", "name of the DeviceClass")
	flags.StringVar(&o.Driver, "driver", "gpu.nvidia.com", "driver of the devices")
	flags.StringVar(&o.Capacity, "capacity", "memory", "name of the capacity of the devices that is their memory")
	cmd.MarkFlagsMutuallyExclusive("config", "unit")
	return cmd
}

// configure sets the options that the configuration of GPUMemory determines.
func (o *draTemplatesOptions) configure(types config.Types) error {
	policy := gpumemory.Defaults()
	policy.Unit = gpumemory.Unit(o.unit)
	if o.config != "" {
		c, _, err := readConfig(o.config, types)
		if err != nil {
			return err
		}
		found, err := sharing(c)
		if err != nil {
			return fmt.Errorf("%s: %w", o.config, err)
		}
		policy = *found
	}
	var ok bool
	if o.Unit, ok = memoryUnits[string(policy.Unit)]; !ok {
		return fmt.Errorf("--unit=%s: must be GiB or MiB", policy.Unit)
	}
	o.ModelAnnotation = policy.ModelAnnotation
	return nil
}

// sharing returns the configuration of the first policy GPUMemory.
func sharing(c *config.Config) (*gpumemory.Config, error) {
	for i := range c.Profiles {
		for j := range c.Profiles[i].Policies {
			if p := &c.Profiles[i].Policies[j]; p.Type == gpumemory.Type().Name {
				found := gpumemory.Defaults()
				return &found, p.Config.Decode(&found)
			}
		}
	}
	return nil, errors.New("no profile has the policy GPUMemory")
}

// read reads the pods from the files, or from the cluster.
func (o *draTemplatesOptions) read(ctx context.Context) (pods []*corev1.Pod, err error) {
	if len(o.pods) > 0 && o.connection.given() {
		return nil, errors.New("--pods does not go with --kubeconfig and --context: pods come from the files, or from the cluster")
	}
	for _, name := range o.pods {
		file, err := readNamed(name)
		if err != nil {
			return nil, err
		}
		pods = append(pods, file.Pods...)
	}
	if len(o.pods) > 0 && len(pods) == 0 {
		return nil, fmt.Errorf("%s: there are no pods", strings.Join(o.pods, ", "))
	}
	if len(o.pods) > 0 {
		return pods, nil
	}
	api, err := readingClient(o.connection.ClientConnection)
	if err != nil {
		return nil, err
	}
	err = eachPage(ctx, "pods", api.CoreV1().Pods("").List, func(l *corev1.PodList) {
		for i := range l.Items {
			pods = append(pods, snapshot.TrimmedPod(&l.Items[i]))
		}
	})
	return pods, err
}
