package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/wiring"
)

type schedulerConfigOptions struct {
	wiring.Options
	file, topology, dir string
}

func setupSchedulerCommand(types config.Types) *cobra.Command {
	var o schedulerConfigOptions
	cmd := &cobra.Command{
		Use:   "scheduler FILE",
		Short: "Print kube-scheduler's configuration for a configuration file",
		Long: `Print the KubeSchedulerConfiguration by which kube-scheduler calls the profiles of the
configuration FILE, with comments; - is standard input. Profiles with managed resources, and profiles whose policies
allocate resources, get a strict extender: their pods stay pending while Outboard does not
respond. All others get a soft one, which is ignorable.

--for says where kube-scheduler runs:
  kubeadm   the cluster's own, a static pod: writes the configuration and a directory of
            patches for kubeadm to --dir
  sidecar   a second one, in the pod of Outboard
  service   a second one, in a pod that calls the Service of Outboard
  nodeport  one on the network of its host that calls a NodePort of Outboard
Without it, kube-scheduler calls serving.address.

--scheduler-name makes the file one for a second scheduler with that name and a lease of its
own in --outboard-namespace, wherever it runs.`,
		Example: `  outboard setup scheduler outboard.yaml
  outboard setup scheduler outboard.yaml --for kubeadm --url https://10.96.0.20 --dir wiring`,
		Args: positional("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.file = args[0]
			return o.print(cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), types)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.topology, "for", "", "where kube-scheduler runs: kubeadm, sidecar, service or nodeport")
	complete(cmd, "for", cobra.FixedCompletions(topologies(), cobra.ShellCompDirectiveNoFileComp))
	flags.StringVar(&o.URL, "url", "", "where kube-scheduler reaches Outboard, as http://HOST:PORT or https://HOST:PORT (default by --for and serving.address)")
	outboardNamespaceFlag(cmd, &o.Namespace)
	flags.StringVar(&o.CertificateDir, "certificate-dir", "", "where kube-scheduler finds the certificates (default "+wiring.Directory+")")
	flags.StringVar(&o.SchedulerKubeconfig, "scheduler-kubeconfig", "", "the kubeconfig of kube-scheduler (default with --for kubeadm: /etc/kubernetes/scheduler.conf; otherwise none, for a scheduler in a pod)")
	flags.StringVar(&o.SchedulerName, "scheduler-name", "", "the name of a second scheduler (default with --for service and sidecar: what a profile lists in schedulerNames, or outboard-scheduler)")
	flags.StringSliceVar(&o.Profiles, "profile", nil, "the paths of the profiles to call (default all)")
	flags.BoolVar(&o.Strict, "strict", false, "make every extender strict, with bind")
	flags.StringVar(&o.dir, "dir", "", "write the files to this directory instead of printing them")
	return cmd
}

// topologies returns the values of the flag --for.
func topologies() (words []string) {
	for _, t := range wiring.Topologies() {
		words = append(words, string(t))
	}
	return words
}

// print writes the configuration for kube-scheduler to out, or to the directory, and to notes what
// the user still has to do.
func (o *schedulerConfigOptions) print(in io.Reader, out, notes io.Writer, types config.Types) error {
	if o.topology != "" {
		if err := oneOf("for", o.topology, topologies()...); err != nil {
			return err
		}
	}
	o.For = wiring.Topology(o.topology)
	if o.For == wiring.Kubeadm && o.dir == "" {
		return errors.New("--for kubeadm writes several files: give a directory with --dir")
	}
	c, err := readConfig(o.file, in, types)
	if err != nil {
		return err
	}
	w, err := wiring.New(c, o.Options)
	if err != nil {
		return err
	}
	if note := w.Note(); note != "" {
		if _, err := fmt.Fprintln(notes, "note: "+note); err != nil {
			return err
		}
	}
	switch {
	case o.dir == "":
		_, err = out.Write(w.YAML())
		return err
	case o.For == wiring.Kubeadm:
		return o.write(out, w.Kubeadm())
	}
	return o.write(out, []wiring.File{{Name: "scheduler.yaml", Data: w.YAML()}})
}

// write writes the files, and their names to out.
func (o *schedulerConfigOptions) write(out io.Writer, files []wiring.File) error {
	for _, f := range files {
		path := filepath.Join(o.dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(out, path); err != nil {
			return err
		}
	}
	return nil
}
