package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/service"
	"outboard.dev/outboard/internal/wiring/doctor"
)

type doctorOptions struct {
	config, namespace, version, explain string
	output                              outputFlag
	connection                          clusterFlags
	cluster                             bool
}

func doctorCommand(types config.Types) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [FILE]",
		Short: "Check how kube-scheduler's configuration calls extenders",
		Long: `Read a KubeSchedulerConfiguration, or a manifest with a ConfigMap that holds one, and report what
kube-scheduler rejects, what it silently does otherwise than one expects, and, with --config,
what does not go with the configuration of Outboard. With --cluster or --kubeconfig it also reads
nodes, pods, ResourceSlices, Services and endpoints of the cluster, and the flags of kube-scheduler's pods. With
--outboard-namespace it reads both configurations and their certificates from the cluster, too: from the
ConfigMaps and Secrets that the Deployments in the namespace mount. It ends with how many findings
there are, with the codes of notes that every such file has, and with what it did not check. FILE -
is standard input.

It changes no file: each finding says what to write, and outboard scheduler-config prints a whole
file. The exit status is 1 if there are findings of severity ERROR. --explain prints what the documentation says
about the code of a finding, and checks nothing; --explain list prints all codes.`,
		Example: `  outboard doctor --outboard-namespace outboard-system
  outboard doctor scheduler.yaml --config outboard.yaml
  outboard doctor scheduler.yaml --config outboard.yaml --kubeconfig ~/.kube/config -o json
  outboard doctor --explain IgnorableBinder`,
		Args: positional("[FILE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.explain != "" {
				text, err := explainCode(o.explain)
				if err != nil {
					return err
				}
				_, err = io.WriteString(cmd.OutOrStdout(), text)
				return err
			}
			in, err := o.input(cmd.Context(), strings.Join(args, ""), cmd.InOrStdin(), types)
			if err != nil {
				return err
			}
			return o.run(in, cmd.OutOrStdout())
		},
	}
	o.connection.register(cmd)
	o.output.register(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.config, "config", "", "the configuration file of Outboard")
	outboardNamespaceFlag(cmd, &o.namespace, "", ": read the cluster, and what FILE and --config do not name from the ConfigMaps of the Deployments there")
	flags.BoolVar(&o.cluster, "cluster", false, "read the cluster; --kubeconfig, --context and --outboard-namespace imply it")
	flags.StringVar(&o.version, "kubernetes-version", "", "the version of kube-scheduler, such as 1.37 (default that of the cluster, if it is read)")
	flags.StringVar(&o.explain, "explain", "", "print what a code of findings means, and check nothing; "+allCodes+" prints all codes")
	complete(cmd, "explain", func(_ *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return startingWith(typed, append(codes(), allCodes)), cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

// input reads the files, and the cluster if a flag selects it. file may be "".
func (o *doctorOptions) input(ctx context.Context, file string, stdin io.Reader, types config.Types) (doctor.Input, error) {
	in := doctor.Input{Types: types, ConfigFile: o.config, Version: o.version, ReadFile: os.ReadFile, ReadConfigFile: os.ReadFile, Now: time.Now()}
	if err := o.output.check(); err != nil {
		return in, err
	}
	if file == "" && o.namespace == "" {
		return in, errors.New("FILE is missing: name kube-scheduler's configuration, or --outboard-namespace")
	}
	var err error
	if file != "" {
		if in.File, in.Data, err = readInput(file, stdin); err != nil {
			return in, err
		}
	}
	var outboard []byte
	if o.config != "" {
		types.Unserved = types.Unserved || file != "" && in.PluginOnly()
		if in.Config, outboard, err = readConfig(o.config, types); err != nil {
			return in, err
		}
	}
	in.FromManifests(outboard)
	if o.cluster || o.namespace != "" || o.connection.given() {
		if in.Cluster, err = readForDoctor(ctx, o.connection.ClientConnection, o.namespace); err != nil {
			return in, err
		}
	}
	if o.namespace != "" {
		err = service.Listed(in.FromNamespace(o.namespace, types))
	}
	return in, err
}

// run reports to out.
func (o *doctorOptions) run(in doctor.Input, out io.Writer) error {
	findings, err := doctor.Check(in)
	if err != nil {
		return err
	}
	omissions, err := doctor.Omissions(in)
	if err != nil {
		return err
	}
	err = o.output.write(out, inJSON(struct {
		Findings   []doctor.Finding  `json:"findings"`
		NotChecked []doctor.Omission `json:"notChecked"`
	}{append([]doctor.Finding{}, findings...), append([]doctor.Omission{}, omissions...)}),
		func(w io.Writer) error { return diagnosis(w, findings, omissions) })
	if err == nil && count(findings, doctor.Error) > 0 {
		err = errFindings
	}
	return err
}

func count(findings []doctor.Finding, severity doctor.Severity) (n int) {
	for _, f := range findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// diagnosis writes the findings as text, how many there are, and what is not checked. Inherent
// ones, which a right file has too, have no line.
func diagnosis(w io.Writer, findings []doctor.Finding, omissions []doctor.Omission) error {
	var b strings.Builder
	var inherent []string
	for i := range findings {
		if f := &findings[i]; f.Inherent() {
			inherent = append(inherent, f.Code)
		} else {
			b.WriteString(f.Text())
		}
	}
	fmt.Fprintf(&b, "errors: %d, warnings: %d, notes: %d", count(findings, doctor.Error), count(findings, doctor.Warning), count(findings, doctor.Note))
	if len(inherent) > 0 {
		slices.Sort(inherent)
		fmt.Fprintf(&b, " (%s: outboard doctor --explain CODE)", strings.Join(slices.Compact(inherent), ", "))
	}
	b.WriteString("\n")
	b.WriteString(doctor.OmissionsText(omissions))
	_, err := io.WriteString(w, b.String())
	return err
}
