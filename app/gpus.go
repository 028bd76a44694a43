package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy/claims"
)

func gpusCommand() *cobra.Command {
	var from serviceFlags
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "gpus [NODE]",
		Short: "Show shared GPUs, and how much of them each pod uses",
		Long: `Show the GPUs of all nodes, or of one: how much memory of each GPU pods use, how much
of that is reserved for pods whose containers have not started, and how much is free.
Unannotated pods have a GPU, but nothing says which one, so they count on none. GPUs belong
to nodes, so there is no flag for a namespace: the pods are those of all namespaces.

The command reads from all replicas through the API server, as kubectl port-forward does, or
from one service with --admin. All replicas read the same claims, so they differ only for a
moment, or if one cannot read the API server: then the command shows what most of them
respond, and names the others. The exit status is 1 if there is no such node, or it shares
no GPUs, and 2 if no replica responds.`,
		Example: `  outboard gpus
  outboard gpus gpu-1 -o json`,
		Args: positional("[NODE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			responses, err := read(cmd, &from, func(ctx context.Context, client *http.Client, admin string) (*gpumemory.Report, error) {
				return fetchGPUs(ctx, client, admin, args)
			})
			if err != nil {
				return err
			}
			report, differing := replicas.MostCommon(responses)
			for _, replica := range differing {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s: replica %s reports other GPUs or pods: it is binding a pod, or cannot read the API server\n", cmd.Root().Name(), replica)
			}
			err = output.write(cmd.OutOrStdout(), inJSON(report), func(w io.Writer) error { return gpuTable(w, report) })
			if err == nil && report.Error != "" {
				return errFindings
			}
			return err
		},
	}
	cmd.ValidArgsFunction = onlyFirst(completeNodes(&from.cluster))
	from.register(cmd)
	output.register(cmd)
	return cmd
}

// fetchGPUs reads the GPUs of the node, or of all nodes in the order of their names.
func fetchGPUs(ctx context.Context, client *http.Client, admin string, node []string) (*gpumemory.Report, error) {
	target, err := url.JoinPath(admin, service.InspectPath, "gpus")
	if err != nil {
		return nil, err
	}
	for _, name := range node {
		target += "/" + url.PathEscape(name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("calling the service: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("calling the service: %w", err)
	}
	if res.StatusCode == http.StatusNotFound {
		return nil, fmt.Errorf("the service at %s shows no GPUs (status 404): no profile has the policy GPUMemory, or --admin is not the admin address of outboard serve", admin)
	}
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the service responded with %s: %s", res.Status, strings.TrimSpace(string(body)))
	}
	report := new(gpumemory.Report)
	if err := json.Unmarshal(body, report); err != nil {
		return nil, fmt.Errorf("reading the response of the service: %w", err)
	}
	slices.SortFunc(report.Nodes, func(a, b gpumemory.NodeReport) int { return strings.Compare(a.Name, b.Name) })
	return report, nil
}

// gpuTable writes one line for each GPU, and the totals, or why there are none.
func gpuTable(w io.Writer, report *gpumemory.Report) error {
	if report.Error != "" {
		_, err := fmt.Fprintln(w, report.Error)
		return err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "NODE\tGPU\tUSED\tRESERVED\tFREE\tOF %s\tPODS\n", report.Unit)
	var used, reserved, free, capacity int64
	for _, n := range report.Nodes {
		for i := range n.GPUs {
			d := &n.GPUs[i]
			left := fmt.Sprint(d.Free())
			switch {
			case d.Capacity == 0:
				left = "gone"
			case !d.Healthy:
				left = "unhealthy"
			case d.Used > d.Capacity:
				left = "overcommitted"
			default:
				free += d.Free()
			}
			used, reserved, capacity = used+d.Used, reserved+d.Reserved, capacity+d.Capacity
			fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%s\t%d\t%s\n", n.Name, d.Index, d.Used, d.Reserved, left, d.Capacity, podList(d.Pods))
		}
		if len(n.Unannotated) > 0 {
			fmt.Fprintf(table, "%s\t?\t\t\tunannotated\t\t%s\n", n.Name, podList(n.Unannotated))
		}
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\t%d\t%d\t\n", used, reserved, free, capacity)
	return table.Flush()
}

func podList(pods []gpumemory.GPUPod) string {
	list := make([]string, len(pods))
	for i, p := range pods {
		list[i] = claims.Held{Holder: p.Holder, Amount: p.Amount}.String()
	}
	return strings.Join(list, ", ")
}
