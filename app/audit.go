package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/internal/survey"
	"outboard.dev/outboard/policy/fields"
	"outboard.dev/outboard/snapshot"
)

type auditOptions struct {
	cluster        clusterFlags
	grace, recheck time.Duration
	sizesFrom      string
	config         string
	output         outputFlag
}

func auditCommand(types config.Types) *cobra.Command {
	var o auditOptions
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Check that nothing is allocated twice, or leaked",
		Long: `Read ledgers, pods and nodes from the API server, and report units of which more
is allocated than there is, allocations that no pod needs, and bound pods that lack the
annotations of their allocations. GPUs are counted twice: by the allocations in ledgers, and by
the annotations of gpushare on bound pods. The audit changes nothing, and does not
need a running Outboard. Without the Ledger CRD, it has only the annotations.

The exit status is 1 if there are findings other than notes.`,
		Example: `  outboard audit
  kubectl --namespace outboard-system exec deploy/outboard -- /outboard audit --recheck 1m`,
		Args: positional(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := o.run(cmd.Context(), types)
			if err != nil {
				return err
			}
			if err := o.output.write(cmd.OutOrStdout(), report.WriteJSON, report.WriteText); err != nil {
				return err
			}
			if !report.OK() {
				return errFindings
			}
			return nil
		},
	}
	o.cluster.register(cmd)
	o.output.register(cmd)
	flags := cmd.Flags()
	flags.DurationVar(&o.grace, "grace", 10*time.Minute, "how long a pod may hold an allocation without being bound; use more than ledgers.reclaimAfter")
	flags.DurationVar(&o.recheck, "recheck", 20*time.Second, "audit again after this time, and report only what both audits found; 0: audit once")
	flags.StringVar(&o.config, "config", "", "the configuration file of Outboard, with sizesFrom of GPUMemory")
	flags.StringVar(&o.sizesFrom, "sizes-from", "", "without --config: where a node declares the memory of each GPU, as sizesFrom of GPUMemory: annotation=KEY or label=KEY")
	complete(cmd, "sizes-from", cobra.FixedCompletions([]cobra.Completion{"annotation=", "label="}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// run audits once, or, if there are findings, twice.
func (o *auditOptions) run(ctx context.Context, types config.Types) (*audit.Report, error) {
	if err := o.output.check(); err != nil {
		return nil, err
	}
	if o.grace < 0 || o.recheck < 0 {
		return nil, fmt.Errorf("--grace and --recheck must not be negative")
	}
	sizesFrom, err := o.from(types)
	if err != nil {
		return nil, err
	}
	api, err := readingClient(o.cluster.ClientConnection)
	if err != nil {
		return nil, err
	}
	in, err := o.read(ctx, api, sizesFrom)
	if err != nil {
		return nil, err
	}
	findings := audit.Audit(in)
	if len(findings) == 0 || o.recheck == 0 {
		return audit.NewReport(in, findings), nil
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-time.After(o.recheck):
	}
	if in, err = o.read(ctx, api, sizesFrom); err != nil {
		return nil, err
	}
	return audit.NewReport(in, audit.Confirm(findings, audit.Audit(in))), nil
}

// from returns where --config or --sizes-from says that nodes declare the memory of their GPUs;
// nil: nowhere.
func (o *auditOptions) from(types config.Types) (*fields.From, error) {
	kind, key, _ := strings.Cut(o.sizesFrom, "=")
	switch {
	case o.config != "" && o.sizesFrom != "":
		return nil, errors.New("--config and --sizes-from exclude each other")
	case o.config != "":
		types.Unserved = true // it may be that of the plugin
		c, _, err := readConfig(o.config, types)
		if err != nil {
			return nil, err
		}
		return survey.SizesFrom(c), nil
	case o.sizesFrom == "":
		return nil, nil
	case kind == "annotation" && key != "":
		return &fields.From{Annotation: key}, nil
	case kind == "label" && key != "":
		return &fields.From{Label: key}, nil
	}
	return nil, fmt.Errorf("--sizes-from=%q: must be annotation=KEY or label=KEY", o.sizesFrom)
}

// read lists the objects: allocations before the pods that hold them. Each list is of the moment at
// which it was read.
func (o *auditOptions) read(ctx context.Context, api kubernetes.Interface, sizesFrom *fields.From) (audit.Input, error) {
	in := audit.Input{Grace: o.grace, SizesFrom: sizesFrom}
	listLedgers := func(ctx context.Context, opts metav1.ListOptions) (*ledger.ObjectList, error) {
		return listLedgers(ctx, api, opts)
	}
	err := eachPage(ctx, "ledgers", listLedgers, func(l *ledger.ObjectList) {
		for i := range l.Items {
			in.Ledgers = append(in.Ledgers, &l.Items[i])
		}
	})
	if err != nil && !apierrors.IsNotFound(err) { // without the Ledger CRD, there are no allocations in ledgers
		return in, err
	}
	in.Now = time.Now()
	err = eachPage(ctx, "pods", api.CoreV1().Pods("").List, func(l *corev1.PodList) {
		for i := range l.Items {
			snapshot.TrimPod(&l.Items[i])
			in.Pods = append(in.Pods, &l.Items[i])
		}
	})
	if err != nil {
		return in, err
	}
	return in, eachPage(ctx, "nodes", api.CoreV1().Nodes().List, func(l *corev1.NodeList) {
		for i := range l.Items {
			snapshot.TrimNode(&l.Items[i])
			in.Nodes = append(in.Nodes, &l.Items[i])
		}
	})
}

// requestTimeout bounds each request of a command that reads the cluster once, such as a page of a
// list.
const requestTimeout = 30 * time.Second

// readingClient returns a client for a command that reads the cluster once.
func readingClient(c config.ClientConnection) (kubernetes.Interface, error) {
	client, err := clientConfig(c)
	if err != nil {
		return nil, fmt.Errorf("%w (set --kubeconfig)", err)
	}
	client.QPS = -1 // only a few lists
	client.Timeout = requestTimeout
	api, err := kubernetes.NewForConfig(client)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	return api, nil
}

// eachPage reads a list page by page. Without a resourceVersion, the API server reads the latest
// state, and all pages are of the same moment.
func eachPage[L interface{ GetContinue() string }](ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), add func(L)) error {
	opts := metav1.ListOptions{Limit: 500}
	for {
		page, err := list(ctx, opts)
		if err != nil {
			return fmt.Errorf("listing %s: %w", what, err)
		}
		add(page)
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

func listLedgers(ctx context.Context, api kubernetes.Interface, opts metav1.ListOptions) (*ledger.ObjectList, error) {
	data, err := api.Discovery().RESTClient().Get().AbsPath("/apis", ledger.GroupVersion.String(), ledger.Resource.Resource).
		VersionedParams(&opts, metav1.ParameterCodec).DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	list := new(ledger.ObjectList)
	return list, json.Unmarshal(data, list)
}
