package app

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"outboard.dev/outboard/internal/clustermetrics"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/ledger"
	"outboard.dev/outboard/internal/ledger/audit"
	"outboard.dev/outboard/snapshot"
)

// auditGrace is how long a pod may hold an allocation without being bound, without --config.
const auditGrace = 10 * time.Minute

type auditOptions struct {
	config  string
	recheck time.Duration
}

func (o *auditOptions) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "with --audit: the configuration file of Outboard: sizes of GPUs that nodes do not report, and reclaimAfter")
	flags.DurationVar(&o.recheck, "recheck", 20*time.Second, "with --audit: audit again after this time, and report only what both audits found; 0: audit once")
}

// run audits once, or, if there are findings, twice.
func (o *auditOptions) run(ctx context.Context, cluster config.ClientConnection, types config.Types) (*audit.Report, error) {
	if o.recheck < 0 {
		return nil, fmt.Errorf("--recheck=%s: must not be negative", o.recheck)
	}
	in := audit.Input{Grace: auditGrace}
	var c *config.Config
	if o.config != "" {
		types.Unserved = true // it may be that of the plugin
		var err error
		if c, err = readConfig(o.config, nil, types); err != nil {
			return nil, err
		}
		in.Grace = 2 * c.Ledgers.ReclaimAfter
	}
	api, err := readingClient(cluster)
	if err != nil {
		return nil, err
	}
	if err := readForAudit(ctx, api, c, &in); err != nil {
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
	if err := readForAudit(ctx, api, c, &in); err != nil {
		return nil, err
	}
	return audit.NewReport(in, audit.Confirm(findings, audit.Audit(in))), nil
}

// readForAudit lists the objects: allocations before the pods that hold them. Each list is of the
// moment at which it was read. The configuration may be nil.
func readForAudit(ctx context.Context, api kubernetes.Interface, c *config.Config, in *audit.Input) error {
	in.Ledgers, in.Pods, in.Nodes = nil, nil, nil
	listLedgers := func(ctx context.Context, opts metav1.ListOptions) (*ledger.ObjectList, error) {
		return listLedgers(ctx, api, opts)
	}
	err := eachPage(ctx, "ledgers", listLedgers, func(l *ledger.ObjectList) {
		for i := range l.Items {
			in.Ledgers = append(in.Ledgers, &l.Items[i])
		}
	})
	if err != nil && !apierrors.IsNotFound(err) { // without the Ledger CRD, there are no allocations in ledgers
		return err
	}
	in.Now = time.Now()
	err = eachPage(ctx, "pods", api.CoreV1().Pods("").List, func(l *corev1.PodList) {
		for i := range l.Items {
			snapshot.TrimPod(&l.Items[i])
			in.Pods = append(in.Pods, &l.Items[i])
		}
	})
	if err != nil {
		return err
	}
	var builder snapshot.Builder
	err = eachPage(ctx, "nodes", api.CoreV1().Nodes().List, func(l *corev1.NodeList) {
		for i := range l.Items {
			snapshot.TrimNode(&l.Items[i])
			in.Nodes = append(in.Nodes, &l.Items[i])
			builder.SetNode(&l.Items[i])
		}
	})
	if c != nil {
		in.Units = clustermetrics.GPUs(c, builder.View())
	}
	return err
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
