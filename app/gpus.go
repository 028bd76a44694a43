package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/policies/gpumemory"
)

func gpusCommand() *cobra.Command {
	var admin adminAddress
	var output string
	cmd := &cobra.Command{
		Use:   "gpus [NODE]",
		Short: "Show shared GPUs, and how much of them each pod uses",
		Long: `Show the GPUs of all nodes, or of one: how much memory of each GPU pods use, how much
of that is reserved for pods whose containers have not started, and how much is free.
Unannotated pods have a GPU, but nothing says which one, so they count on none. The
running service answers. The exit status is 1 if there is no such node, or it shares no GPUs.`,
		Example: `  kubectl --namespace outboard-system exec deploy/outboard -- /outboard gpus
  kubectl --namespace outboard-system exec deploy/outboard -- /outboard gpus gpu-1`,
		Args: positional("[NODE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := oneOf("output", output, "text", "json"); err != nil {
				return err
			}
			report, err := fetchGPUs(cmd.Context(), adminClient(), admin.url(), args)
			if err != nil {
				return admin.failure(err)
			}
			if output == "json" {
				err = writeJSON(cmd.OutOrStdout(), report)
			} else {
				err = gpuTable(cmd.OutOrStdout(), report)
			}
			if err == nil && report.Error != "" {
				return errFindings
			}
			return err
		},
	}
	admin.flag(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

func fetchGPUs(ctx context.Context, client *http.Client, admin string, node []string) (*gpumemory.Report, error) {
	target, err := url.JoinPath(admin, append([]string{service.InspectPath, "gpus"}, node...)...)
	if err != nil {
		return nil, err
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
		name := p.Namespace + "/" + p.Name
		if p.Name == "" {
			name = "pod " + string(p.UID)
		}
		list[i] = fmt.Sprintf("%s (%d)", name, p.Amount)
	}
	return strings.Join(list, ", ")
}
