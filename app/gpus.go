package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/replicas"
	"outboard.dev/outboard/internal/respond"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/ui"
	"outboard.dev/outboard/policies/gpumemory"
	"outboard.dev/outboard/policy/allocations"
)

// gpusReport is what gpus shows: the GPUs of device plugins, and the devices of ResourceClaims.
// Without a profile with GPUMemory, Unit is "". Error is why there are neither.
type gpusReport struct {
	gpumemory.Report
	Drivers []ui.DriverDevices `json:"drivers"`
}

func gpusCommand(types config.Types) *cobra.Command {
	var from serviceFlags
	var auditing bool
	var audit auditOptions
	var output outputFlag
	cmd := &cobra.Command{
		Use:        "gpus [NODE]",
		SuggestFor: []string{"audit"},
		Short:      "Show GPUs and devices of ResourceClaims, and what each pod has of them",
		Long: `Show how much memory of each GPU of all nodes, or of one, pods use, how much of that is
reserved for pods whose containers have not started, and how much is free. Unannotated pods
have a GPU, but nothing says which one. Then show the same of the devices of the drivers that
ResourceClaims name in scoringStrategy.driver.

The command reads from all replicas through the API server, as kubectl port-forward does, or
from one service with --admin. If replicas differ, it shows what most of them respond, and
names the others.

--audit checks instead that nothing is allocated twice, or leaked. It reads ledgers, pods and
nodes from the API server, needs no running Outboard, and changes nothing.

The exit status is 1 if there is no such node, if it has neither GPUs nor devices, or if the
audit has findings other than notes. It is 2 if no replica responds.`,
		Example: `  outboard gpus
  outboard gpus gpu-1 -o json
  outboard gpus --audit --config outboard.yaml`,
		Args: positional("[NODE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.check(); err != nil {
				return err
			}
			node := strings.Join(args, "")
			if auditing {
				if node != "" || cmd.Flags().Changed("admin") {
					return errors.New("--audit reads the API server, and all nodes: leave out NODE and --admin")
				}
				report, err := audit.run(cmd.Context(), from.cluster.ClientConnection, types)
				if err != nil {
					return err
				}
				err = output.write(cmd.OutOrStdout(), report.WriteJSON, report.WriteText)
				if err == nil && !report.OK() {
					return errFindings
				}
				return err
			}
			responses, err := read(cmd, &from, func(ctx context.Context, client *http.Client, admin string) (*gpusReport, error) {
				return fetchGPUs(ctx, client, admin, node)
			})
			if err != nil {
				return err
			}
			report := responses[0].Value
			err = output.write(cmd.OutOrStdout(), inJSON(report), func(w io.Writer) error { return report.text(w) })
			if err == nil && report.Error != "" {
				return errFindings
			}
			return err
		},
	}
	cmd.ValidArgsFunction = onlyFirst(completeNodes(&from.cluster))
	from.register(cmd)
	output.register(cmd)
	cmd.Flags().BoolVar(&auditing, "audit", false, "check that nothing is allocated twice, or leaked")
	audit.register(cmd)
	return cmd
}

// fetchGPUs reads the GPUs and devices of the node, or of all nodes in the order of their names if
// that is "".
func fetchGPUs(ctx context.Context, client *http.Client, admin, node string) (*gpusReport, error) {
	path := service.InspectPath + "/gpus"
	if node != "" {
		path += "/" + url.PathEscape(node)
	}
	report := &gpusReport{Report: gpumemory.Report{Nodes: []gpumemory.NodeReport{}}}
	var devices ui.Devices
	shared, err := readIfFound(ctx, client, admin, path, &report.Report)
	if err != nil {
		return nil, err
	}
	if _, err := readIfFound(ctx, client, admin, ui.DevicesPath+"?node="+url.QueryEscape(node), &devices); err != nil {
		return nil, err
	}
	if !shared && len(devices.Drivers) == 0 {
		return nil, fmt.Errorf("the service at %s shows no GPUs (status 404): no profile has the policy GPUMemory or ResourceClaims, or --admin is not the admin address of outboard serve", admin)
	}
	report.Drivers = append([]ui.DriverDevices{}, devices.Drivers...)
	switch {
	case !shared:
		report.Error = devices.Error
	case report.Error == "" || len(devices.Drivers) == 0 || report.Error == devices.Error:
	case devices.Error == "":
		report.Error = ""
	default:
		report.Error += "; " + devices.Error
	}
	slices.SortFunc(report.Nodes, func(a, b gpumemory.NodeReport) int { return strings.Compare(a.Name, b.Name) })
	return report, nil
}

// readIfFound reads the JSON at the path of the admin address. found is false if nothing is there.
func readIfFound[T any](ctx context.Context, client *http.Client, admin, path string, into *T) (found bool, err error) {
	*into, err = replicas.FetchJSON[T](path)(ctx, client, strings.TrimRight(admin, "/"))
	if refused := (*respond.Refused)(nil); errors.As(err, &refused) && refused.Code == http.StatusNotFound {
		return false, nil
	}
	return err == nil, err
}

// text writes a table of the GPUs, and one for each driver, or why there are none. Of several
// tables, those without nodes are left out.
func (r *gpusReport) text(w io.Writer) error {
	if r.Error != "" {
		_, err := fmt.Fprintln(w, r.Error)
		return err
	}
	type section struct {
		nodes int
		write func(io.Writer) error
	}
	var sections []section
	if r.Unit != "" {
		sections = append(sections, section{len(r.Nodes), func(w io.Writer) error { return gpuTable(w, &r.Report) }})
	}
	for i := range r.Drivers {
		d := &r.Drivers[i]
		sections = append(sections, section{len(d.Nodes), func(w io.Writer) error { return deviceTable(w, d) }})
	}
	if slices.ContainsFunc(sections, func(s section) bool { return s.nodes > 0 }) {
		sections = slices.DeleteFunc(sections, func(s section) bool { return s.nodes == 0 })
	}
	for i, s := range sections {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := s.write(w); err != nil {
			return err
		}
	}
	return nil
}

// gpuTable writes one line for each GPU, and the totals.
func gpuTable(w io.Writer, report *gpumemory.Report) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "NODE\tGPU\tUSED\tRESERVED\tFREE\tOF %s\tPODS\n", report.Unit)
	var used, reserved, free, capacity int64
	for _, n := range report.Nodes {
		if n.Problem != "" {
			fmt.Fprintf(table, "%s\t?\t\t\t%s\t\t%s\n", n.Name, n.Problem, n.Reported)
		}
		for i := range n.GPUs {
			d := &n.GPUs[i]
			left := fmt.Sprint(d.Free())
			switch {
			case n.Problem != "":
				left = "0"
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

// deviceTable writes one line for each device of the driver, and the totals.
func deviceTable(w io.Writer, driver *ui.DriverDevices) error {
	fmt.Fprintf(w, "Devices of %s\n", driver.Driver)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "NODE\tDEVICE\tUSED\tFREE\tOF %s\tPODS\n", driver.Unit)
	var used, free, capacity int64
	for _, n := range driver.Nodes {
		for i := range n.Devices {
			d := &n.Devices[i]
			left := fmt.Sprint(d.Capacity - d.Used)
			switch {
			case !d.Healthy:
				left = "unhealthy"
			case d.Used > d.Capacity:
				left = "overcommitted"
			default:
				free += d.Capacity - d.Used
			}
			used, capacity = used+d.Used, capacity+d.Capacity
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%s\n", n.Name, d.Name, d.Used, left, d.Capacity, claimList(d.Claims))
		}
	}
	fmt.Fprintf(table, "all\t\t%d\t%d\t%d\t\n", used, free, capacity)
	return table.Flush()
}

// claimList returns the pods that have the claims. A claim that no pod on the node uses has its own
// name.
func claimList(all []ui.DeviceClaim) string {
	list := make([]string, len(all))
	for i, c := range all {
		if list[i] = fmt.Sprintf("claim %s/%s (%d)", c.Namespace, c.Name, c.Amount); c.Pod != nil {
			list[i] = allocations.Held{Holder: *c.Pod, Amount: c.Amount}.String()
		}
	}
	return strings.Join(list, ", ")
}

func podList(pods []gpumemory.GPUPod) string {
	list := make([]string, len(pods))
	for i, p := range pods {
		list[i] = allocations.Held{Holder: p.Holder, Amount: p.Amount}.String()
	}
	return strings.Join(list, ", ")
}
