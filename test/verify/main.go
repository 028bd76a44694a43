// Command verify checks whether a running scheduler extender follows kube-scheduler's contract.
// README.md says how to use it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"outboard.dev/outboard/internal/decision"
)

// The exit statuses, other than 0.
const (
	exitViolated = 1 // of a rule of severity error
	exitFailed   = 2 // without a connection, or with an invalid flag, no rule is checked
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	status, err := verify(ctx, Options{}, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "verify: %v\n", err)
	}
	os.Exit(status)
}

// verify runs the command with the options, to which the arguments add, and returns its status.
func verify(ctx context.Context, o Options, args []string, out io.Writer) (status int, err error) {
	flags := flag.NewFlagSet("verify", flag.ContinueOnError)
	flags.Usage = func() {
		fmt.Fprintln(flags.Output(), "usage: go run ./test/verify [flags] URL")
		flags.PrintDefaults()
	}
	verbs := flags.String("verbs", "filter,prioritize",
		"`verbs` to check, each with the last part of its URL if that differs: prioritize=score")
	objects := flags.String("objects", "",
		"`file` with nodes that the extender knows, their pods, and a pending pod to ask about,\n"+
			"as kubectl get nodes,pods -A -o yaml prints them")
	flags.StringVar(&o.TLS.CAFile, "ca", "", "`file` with the CA of the extender's certificate")
	flags.StringVar(&o.TLS.CertFile, "cert", "", "`file` with the client certificate")
	flags.StringVar(&o.TLS.KeyFile, "key", "", "`file` with the key of the client certificate")
	flags.DurationVar(&o.HTTPTimeout, "timeout", 5*time.Second, "httpTimeout")
	if err := flags.Parse(args); err != nil {
		return exitFailed, err
	}
	if flags.NArg() != 1 {
		return exitFailed, errors.New("give one URL, after the flags: " +
			"the urlPrefix of kube-scheduler's configuration")
	}
	o.URL = flags.Arg(0)
	if o.Verbs, err = parseVerbs(*verbs); err != nil {
		return exitFailed, err
	}
	if *objects != "" {
		if err := o.readObjects(*objects); err != nil {
			return exitFailed, fmt.Errorf("--objects %s: %w", *objects, err)
		}
	}
	report, err := Run(ctx, o)
	if err != nil {
		return exitFailed, err
	}
	if err := report.WriteText(out); err != nil {
		return exitFailed, err
	}
	switch {
	case report.Connections == 0:
		return exitFailed, fmt.Errorf("no connection to %s succeeded: URL must be the urlPrefix of "+
			"a running extender, with --ca, --cert and --key if its TLS requires them", report.URL)
	case !report.OK():
		return exitViolated, nil
	}
	return 0, nil
}

func parseVerbs(text string) (map[decision.Verb]string, error) {
	verbs := map[decision.Verb]string{}
	for part := range strings.SplitSeq(text, ",") {
		name, path, _ := strings.Cut(part, "=")
		verb := decision.Verb(name)
		if !slices.Contains(decision.Verbs(), verb) {
			return nil, fmt.Errorf("--verbs: %q is none of %v", name, decision.Verbs())
		}
		verbs[verb] = orDefault(path, name)
	}
	return verbs, nil
}

// readObjects reads the nodes and pods of a file. The first pod that is on no node is the one to
// ask about.
func (o *Options) readObjects(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	o.Pods = []corev1.Pod{} // not nil: the pods on the nodes are known, even if there are none
	for decoder := yaml.NewYAMLOrJSONDecoder(f, 4096); ; {
		var raw json.RawMessage
		if err := decoder.Decode(&raw); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := o.add(raw); err != nil {
			return err
		}
	}
}

// add adds a Node, a Pod, or a list of them. It ignores objects of other kinds.
func (o *Options) add(raw json.RawMessage) error {
	var head struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "List":
		for _, item := range head.Items {
			if err := o.add(item); err != nil {
				return err
			}
		}
	case "Node":
		var node corev1.Node
		if err := json.Unmarshal(raw, &node); err != nil {
			return fmt.Errorf("a Node: %w", err)
		}
		o.Nodes = append(o.Nodes, node)
	case "Pod":
		var pod corev1.Pod
		if err := json.Unmarshal(raw, &pod); err != nil {
			return fmt.Errorf("a Pod: %w", err)
		}
		switch {
		case pod.Spec.NodeName != "":
			o.Pods = append(o.Pods, pod)
		case o.Pod == nil:
			o.Pod = &pod
		}
	}
	return nil
}
