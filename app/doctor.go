package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"outboard.dev/outboard/atomicfile"
	"outboard.dev/outboard/config"
	"outboard.dev/outboard/service"
	"outboard.dev/outboard/wiring/doctor"
)

type doctorOptions struct {
	config, output, version, certificateDir string
	connection                              config.ClientConnection
	cluster, fix, write                     bool
}

func doctorCommand(types config.Types) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor FILE",
		Short: "Check how kube-scheduler's configuration calls extenders",
		Long: `Read a KubeSchedulerConfiguration, or a manifest with a ConfigMap that holds one, and report what
kube-scheduler rejects, what it silently does otherwise than one expects, and, with --config,
what does not go with the configuration of Outboard. With --cluster or --kubeconfig it also reads
nodes, pods, Services and endpoints of the cluster, and the flags of kube-scheduler's pods. FILE -
is standard input.

--fix prints the file with everything corrected that has one right correction, and what is left
on standard error; with --write it changes the file. The exit status is 1 if there are findings
of severity ERROR.`,
		Example: `  outboard doctor scheduler.yaml --config outboard.yaml
  outboard doctor scheduler.yaml --config outboard.yaml --kubeconfig ~/.kube/config -o json
  outboard doctor scheduler.yaml --fix --write`,
		Args: positional("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			in, err := o.input(cmd.Context(), args[0], cmd.InOrStdin(), types)
			if err != nil {
				return err
			}
			return o.run(in, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "the configuration file of Outboard")
	flags.BoolVar(&o.cluster, "cluster", false, "read the cluster, with the kubeconfig of kubectl, or of the pod this runs in")
	flags.StringVar(&o.connection.Kubeconfig, "kubeconfig", "", "read the cluster, with this kubeconfig")
	flags.StringVar(&o.connection.Context, "context", "", "the context in the kubeconfig")
	flags.StringVar(&o.version, "kubernetes-version", "", "the version of kube-scheduler, such as 1.37 (default that of the cluster, if it is read)")
	flags.StringVar(&o.certificateDir, "certificate-dir", "", "the directory that --fix writes for certificates (default /etc/kubernetes/outboard)")
	flags.BoolVar(&o.fix, "fix", false, "print the corrected file")
	flags.BoolVarP(&o.write, "write", "w", false, "with --fix, write the file instead of printing it")
	flags.StringVarP(&o.output, "output", "o", "text", "text or json")
	return cmd
}

// input reads the files, and the cluster if a flag selects it.
func (o *doctorOptions) input(ctx context.Context, file string, stdin io.Reader, types config.Types) (doctor.Input, error) {
	in := doctor.Input{ConfigFile: o.config, Version: o.version, ReadFile: os.ReadFile, Now: time.Now(), CertificateDir: o.certificateDir}
	if err := oneOf("output", o.output, "text", "json"); err != nil {
		return in, err
	}
	if o.write && (!o.fix || file == "-") {
		return in, errors.New("--write goes with --fix and a file")
	}
	var err error
	if in.File, in.Data, err = readInput(file, stdin); err != nil {
		return in, err
	}
	if o.config != "" {
		if in.Config, err = config.Load(o.config, types); err != nil {
			return in, service.Listed(err)
		}
	}
	if o.cluster || o.connection.Kubeconfig != "" || o.connection.Context != "" {
		in.Cluster, err = o.readCluster(ctx)
	}
	return in, err
}

// readCluster reads the objects of the cluster that the checks use.
func (o *doctorOptions) readCluster(ctx context.Context) (*doctor.Cluster, error) {
	api, err := readingClient(o.connection)
	if err != nil {
		return nil, err
	}
	c := &doctor.Cluster{}
	version, err := api.Discovery().ServerVersionWithContext(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	c.Version = version.GitVersion
	return c, errors.Join(
		eachPage(ctx, "nodes", api.CoreV1().Nodes().List, func(l *corev1.NodeList) { c.Nodes = append(c.Nodes, l.Items...) }),
		eachPage(ctx, "pods", api.CoreV1().Pods("").List, func(l *corev1.PodList) { c.Pods = append(c.Pods, l.Items...) }),
		eachPage(ctx, "Services", api.CoreV1().Services("").List, func(l *corev1.ServiceList) { c.Services = append(c.Services, l.Items...) }),
		eachPage(ctx, "EndpointSlices", api.DiscoveryV1().EndpointSlices("").List, func(l *discoveryv1.EndpointSliceList) {
			c.EndpointSlices = append(c.EndpointSlices, l.Items...)
		}),
	)
}

// run reports to out, or writes the corrected file there and reports to rest.
func (o *doctorOptions) run(in doctor.Input, out, rest io.Writer) error {
	findings, err := doctor.Check(in)
	if o.fix {
		var fixed []byte
		if fixed, findings, err = doctor.Fix(in); err != nil {
			return err
		}
		if o.write {
			err = replace(in.File, fixed)
			rest = out
		} else {
			_, err = out.Write(fixed)
		}
		out = rest
	}
	if err != nil {
		return err
	}
	if o.output == "json" {
		err = writeJSON(out, struct {
			Findings []doctor.Finding `json:"findings"`
		}{append([]doctor.Finding{}, findings...)})
	} else {
		err = diagnosis(out, findings)
	}
	if err == nil && count(findings, doctor.Error) > 0 {
		err = errSilent
	}
	return err
}

// replace replaces the content of the file in one step, and keeps its mode.
func replace(file string, data []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, data, info.Mode())
}

func count(findings []doctor.Finding, severity doctor.Severity) (n int) {
	for _, f := range findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// diagnosis writes the findings as text, and how many there are.
func diagnosis(w io.Writer, findings []doctor.Finding) error {
	var b strings.Builder
	for i := range findings {
		b.WriteString(findings[i].Text())
	}
	fmt.Fprintf(&b, "errors: %d, warnings: %d, notes: %d\n", count(findings, doctor.Error), count(findings, doctor.Warning), count(findings, doctor.Info))
	_, err := io.WriteString(w, b.String())
	return err
}
