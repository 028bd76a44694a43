package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/decision"
	"outboard.dev/outboard/internal/explain"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/ui"
)

type explainOptions struct {
	service    serviceFlags
	namespaces namespaceFlags
	output     outputFlag
	file, node string
	latest     bool
	limit      int
}

func explainCommand() *cobra.Command {
	o := explainOptions{limit: explain.DefaultNodes}
	cmd := &cobra.Command{
		Use:        "explain [[NAMESPACE/]POD]",
		SuggestFor: []string{"waiting", "status"},
		Short:      "Explain why pods wait, and where they would fit",
		Long: `Without POD, list the pods of a namespace that wait for a node and that a profile places,
grouped by owner, those that wait longest first, with the reason. With --latest, list the latest
decisions instead.

With POD, show the latest decisions about the pod and, while it is pending, the result of every
policy for every node now. If it fits on no node, the smallest changes are shown with which it
would fit. For a pod on a node, the smallest changes of weights are shown with which another
node would be better.

With --file, the pod need not exist: the command shows where each pod of the manifest, also of
a workload's template, would fit by itself, and what it would get. Nothing is created.

The command reads from all replicas through the API server, as kubectl port-forward does, or
from one service with --admin. If a replica does not respond, the command says why, and shows
what the others know.

The exit status is 1 if no replica knows the pod, if there is no node --node, or if a pod of
--file fits nowhere or is refused. It is 2 if no replica responds: then the command shows
POD's latest event FailedScheduling, if it can read events.`,
		Example: `  outboard explain --all-namespaces
  outboard explain web-1
  outboard explain team/web-1 --node gpu-1 --output json
  outboard explain --file pod.yaml
  outboard explain --latest --limit 100`,
		Args: positional("[POD]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(args); err != nil {
				return err
			}
			switch {
			case o.file != "":
				return o.try(cmd)
			case len(args) > 0:
				return o.pod(cmd, args[0])
			case o.latest:
				return o.decisions(cmd)
			}
			return o.waiting(cmd)
		},
	}
	cmd.ValidArgsFunction = completePods(&o.service.cluster, &o.namespaces)
	o.service.register(cmd)
	o.namespaces.register(cmd, &o.service.cluster)
	o.output.register(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&o.file, "file", "f", "", "show where the pods of this manifest would fit; - is standard input")
	flags.BoolVar(&o.latest, "latest", false, "list the latest decisions about pods, latest first")
	flags.StringVar(&o.node, "node", "", "with POD: show only this node")
	complete(cmd, "node", completeNodes(&o.service.cluster))
	flags.Var(number{&o.limit, 1, explain.MaxLimit}, "limit", "maximum number of owners, decisions, or nodes of a pod to show")
	return cmd
}

// check returns an error if flags and arguments do not go together.
func (o *explainOptions) check(args []string) error {
	switch {
	case o.file != "" && len(args) > 0:
		return errors.New("--file names the pod, so POD must not be given")
	case o.latest && len(args)+len(o.file) > 0:
		return errors.New("--latest lists decisions about all pods: leave it out with POD, which shows those about one")
	case o.node != "" && len(args) == 0:
		return errors.New("--node needs POD")
	case o.namespaces.all && len(args) > 0:
		return errors.New("--all-namespaces lists pods: name one as NAMESPACE/POD")
	}
	return o.output.check()
}

// pod explains the pod that is named as POD or NAMESPACE/POD.
func (o *explainOptions) pod(cmd *cobra.Command, arg string) error {
	namespace, pod, err := podOf(arg, &o.namespaces, &o.service.cluster)
	if err != nil {
		return err
	}
	query := url.Values{"namespace": {namespace}, "pod": {pod}, "node": {o.node}, "nodes": {strconv.Itoa(o.limit)}}
	responses, err := read(cmd, &o.service, func(ctx context.Context, client *http.Client, admin string) (*explain.Document, error) {
		return explain.Fetch(ctx, client, admin, query)
	})
	if errors.Is(err, replicas.ErrNoResponse) {
		return errors.Join(err, o.event(cmd.Context(), namespace, pod))
	}
	if err != nil {
		return err
	}
	doc := responses[0].Value
	if responses[0].Replica != "" {
		doc = replicas.Explanation(responses, explain.DefaultDecisions)
	}
	if err := o.output.write(cmd.OutOrStdout(), inJSON(doc), doc.Text); err != nil {
		return err
	}
	if !doc.Known || doc.Error != "" {
		return errFindings
	}
	return nil
}

// event returns the latest event FailedScheduling of the pod as an error; nil if it cannot be read.
func (o *explainOptions) event(ctx context.Context, namespace, pod string) error {
	api, err := readingClient(o.service.cluster.ClientConnection)
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	events, err := api.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod,involvedObject.name=" + pod + ",reason=FailedScheduling"})
	if err != nil || len(events.Items) == 0 {
		return nil
	}
	at := func(e corev1.Event) time.Time {
		return cmp.Or(e.Series, &corev1.EventSeries{LastObservedTime: e.EventTime}).LastObservedTime.Time
	}
	latest := slices.MaxFunc(events.Items, func(a, b corev1.Event) int { return at(a).Compare(at(b)) })
	return fmt.Errorf("the latest event of kube-scheduler about pod %s/%s, %s: %s", namespace, pod, at(latest).UTC().Format(time.RFC3339), latest.Message)
}

// podOf returns the namespace and the name of the pod that is named as POD or NAMESPACE/POD, or as
// pod/POD, as kubectl does.
func podOf(arg string, namespaces *namespaceFlags, cluster *clusterFlags) (namespace, pod string, err error) {
	before, after, qualified := strings.Cut(arg, "/")
	if !qualified {
		before, after = "pod", arg
	}
	switch {
	case strings.Contains(after, "/"):
		return "", "", fmt.Errorf("%q: must be [NAMESPACE/]POD", arg)
	case before == "pod" || before == "pods":
		namespace, err = namespaces.in(cluster)
		return namespace, after, err
	case namespaces.namespace != "" && namespaces.namespace != before:
		return "", "", fmt.Errorf("--namespace=%s does not go with %s", namespaces.namespace, arg)
	}
	return before, after, nil
}

// try shows where the pods of a manifest would fit.
func (o *explainOptions) try(cmd *cobra.Command) error {
	_, manifest, err := readInput(o.file, cmd.InOrStdin())
	if err != nil {
		return err
	}
	query := url.Values{"nodes": {strconv.Itoa(o.limit)}}
	responses, err := read(cmd, &o.service, func(ctx context.Context, client *http.Client, admin string) (*explain.Tried, error) {
		return explain.Try(ctx, client, admin, manifest, query)
	})
	if err != nil {
		return err
	}
	tried := responses[0].Value
	if err := o.output.write(cmd.OutOrStdout(), inJSON(tried), tried.Text); err != nil {
		return err
	}
	if !tried.Fits() {
		return errFindings
	}
	return nil
}

// decisions lists the latest decisions.
func (o *explainOptions) decisions(cmd *cobra.Command) error {
	namespace, err := o.namespaces.in(&o.service.cluster)
	if err != nil {
		return err
	}
	query := url.Values{"namespace": {namespace}, "limit": {strconv.Itoa(o.limit)}}
	responses, err := read(cmd, &o.service, replicas.FetchJSON[[]*decision.Record](explain.DecisionsPath+"?"+query.Encode()))
	if err != nil {
		return err
	}
	records := replicas.Decisions(responses, o.limit)
	if len(records) == 0 {
		none(cmd.ErrOrStderr(), "No decisions found", namespace)
	}
	return o.output.write(cmd.OutOrStdout(), inJSON(records), func(w io.Writer) error { return decision.List(w, records) })
}

// waiting lists the pods that wait.
func (o *explainOptions) waiting(cmd *cobra.Command) error {
	namespace, err := o.namespaces.in(&o.service.cluster)
	if err != nil {
		return err
	}
	responses, err := read(cmd, &o.service, replicas.FetchJSON[[]*ui.WaitingRow](ui.WaitingPodsPath))
	if err != nil {
		return err
	}
	waiting := replicas.Waiting(responses, ui.Query{Namespace: namespace, Limit: o.limit})
	if waiting.Shown == 0 {
		none(cmd.ErrOrStderr(), "No pod waits", namespace)
	}
	return o.output.write(cmd.OutOrStdout(), inJSON(waiting), func(w io.Writer) error { return waitingTable(w, &waiting, time.Now()) })
}

// none says where nothing was found, as kubectl get does.
func none(w io.Writer, what, namespace string) {
	if namespace == "" {
		fmt.Fprintf(w, "%s.\n", what)
		return
	}
	fmt.Fprintf(w, "%s in the namespace %s: --all-namespaces lists those of all namespaces.\n", what, namespace)
}

// waitingTable writes one line for each owner; nothing if no pod waits.
func waitingTable(w io.Writer, waiting *ui.Waiting, now time.Time) error {
	if waiting.Shown == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "OWNER\tPODS\tWAITS\tREASON\tPOD\tWHY")
	shown := 0
	for i := range waiting.Rows {
		r := &waiting.Rows[i]
		why := decision.Plain(r.Text)
		if r.Nearest != nil && r.Nearest.Want > 0 { // others have no numbers
			why = strings.TrimRight(fmt.Sprintf("%s has %d, needs %d %s", r.Nearest.Node, r.Nearest.Have, r.Nearest.Want, r.Unit), " ")
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%s\t%s\n", r.Owner, r.Pods, now.Sub(r.Since).Truncate(time.Second), r.Reason, r.Pod, why)
		shown += r.Pods
	}
	if err := table.Flush(); err != nil || shown == waiting.Shown {
		return err
	}
	_, err := fmt.Fprintf(w, "%d of %d pods are shown; --limit shows more.\n", shown, waiting.Shown)
	return err
}
