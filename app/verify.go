package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/extender/verify"
	"outboard.dev/outboard/policy/fields"
)

type verifyOptions struct {
	verify.Options
	paths       map[decision.Verb]*string // of Verbs
	mode, pod   string
	output      outputFlag
	cluster     clusterFlags
	fromCluster bool
	resources   map[string]string
}

// modes are the values of the flag --mode.
var modes = []string{"auto", string(verify.ModeNames), string(verify.ModeNodes), string(verify.ModeBoth)}

func verifyCommand() *cobra.Command {
	o := verifyOptions{paths: map[decision.Verb]*string{}}
	cmd := &cobra.Command{
		Use:   "verify URL",
		Short: "Check whether a running extender follows kube-scheduler's contract",
		Long: `Call any scheduler extender as kube-scheduler would, and report which rules of the
contract pass and fail, with the consequence of each failure in kube-scheduler. URL
is the urlPrefix of kube-scheduler's configuration. The exit status is 1 if a rule
fails whose violation makes kube-scheduler fail or lose pods, and 2 if no connection
to the extender succeeds.

The command binds and changes nothing: the pods in its requests do not exist. An
extender with a cache evaluates only nodes that it knows; --cluster, --kubeconfig and
--context send the nodes of your cluster.`,
		Example: `  outboard verify http://127.0.0.1:8888/scheduler
  outboard verify https://127.0.0.1:8443 --ca ca.crt --cert client.crt --key client.key --cluster
  outboard verify http://127.0.0.1:8888/my_scheduler_extension/my_new_priorities --prioritize image_score`,
		Args: positional("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.URL = args[0]
			if err := o.complete(cmd.Context()); err != nil {
				return err
			}
			report, err := verify.Run(cmd.Context(), o.Options)
			if err != nil {
				return err
			}
			if err := o.output.write(cmd.OutOrStdout(), report.WriteJSON, report.WriteText); err != nil {
				return err
			}
			if report.Connections == 0 && report.Refused {
				return fmt.Errorf("no connection to %s succeeded, so no rule is checked: connection refused: is the extender running, and does it listen at this address (outboard serve: at serving.address)?", report.URL)
			}
			if report.Connections == 0 {
				return fmt.Errorf("no connection to %s succeeded, so no rule is checked: URL must be the urlPrefix of a running extender, with --ca, --cert and --key if its TLS requires them", report.URL)
			}
			if !report.OK() {
				return errFindings
			}
			return nil
		},
	}
	certificateFlags(cmd, &o.TLS.CAFile, &o.TLS.CertFile, &o.TLS.KeyFile, [3]string{})
	o.cluster.register(cmd)
	o.output.register(cmd)
	flags := cmd.Flags()
	for _, v := range decision.Verbs() {
		o.paths[v] = flags.String(string(v), "", v.Field()+"; without any verb, filter and prioritize are checked")
	}
	choice(cmd, &o.mode, "mode", "", "the mode of the requests: auto, names (nodeCacheCapable: true), nodes (false) or both", modes...)
	flags.DurationVar(&o.HTTPTimeout, "timeout", 5*time.Second, "httpTimeout")
	flags.Int64Var(&o.MaxScore, "max-score", 10, "maximum score")
	flags.StringVar(&o.pod, "pod", "", "file with the Pod of the requests")
	flags.StringToStringVar(&o.resources, "resource", nil, "managed resource that the pod requests, as name=quantity")
	flags.StringSliceVar(&o.NodeNames, "node", nil, "names of the nodes of the requests")
	flags.BoolVar(&o.fromCluster, "cluster", false, "send the nodes of the cluster; --kubeconfig and --context imply it")
	return cmd
}

// complete checks the flags, and reads the files and the nodes that they name.
func (o *verifyOptions) complete(ctx context.Context) error {
	if err := o.output.check(); err != nil {
		return err
	}
	if err := oneOf("mode", o.mode, modes...); err != nil {
		return err
	}
	o.Verbs = map[decision.Verb]string{}
	for v, path := range o.paths {
		if *path != "" {
			o.Verbs[v] = *path
		}
	}
	if o.mode != "auto" {
		o.Mode = verify.Mode(o.mode)
	}
	for name, text := range o.resources {
		quantity, err := fields.ParseQuantity(text)
		if err != nil {
			return fmt.Errorf("--resource %s=%s: %w", name, text, err)
		}
		if o.Resources == nil {
			o.Resources = corev1.ResourceList{}
		}
		o.Resources[corev1.ResourceName(name)] = quantity
	}
	if o.pod != "" {
		data, err := os.ReadFile(o.pod)
		if err != nil {
			return fmt.Errorf("--pod: %w", err)
		}
		o.Pod = new(corev1.Pod)
		if err := yaml.UnmarshalStrict(data, o.Pod); err != nil {
			return fmt.Errorf("--pod %s: %w", o.pod, err)
		}
	}
	if o.fromCluster || o.cluster.given() {
		return o.readCluster(ctx)
	}
	return nil
}

func (o *verifyOptions) readCluster(ctx context.Context) error {
	api, err := readingClient(o.cluster.ClientConnection)
	if err != nil {
		return fmt.Errorf("reading the cluster: %w", err)
	}
	o.Pods = []corev1.Pod{} // not nil: the pods on the nodes are known, even if there are none
	onNodes := func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
		opts.FieldSelector = "spec.nodeName!="
		return api.CoreV1().Pods("").List(ctx, opts)
	}
	err = errors.Join(
		eachPage(ctx, "nodes", api.CoreV1().Nodes().List, func(l *corev1.NodeList) { o.Nodes = append(o.Nodes, l.Items...) }),
		eachPage(ctx, "pods", onNodes, func(l *corev1.PodList) { o.Pods = append(o.Pods, l.Items...) }),
	)
	if err != nil {
		return fmt.Errorf("reading the cluster: %w", err)
	}
	if len(o.Nodes) == 0 {
		return errors.New("the cluster has no nodes")
	}
	return nil
}
