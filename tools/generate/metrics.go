package main

import (
	"cmp"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"outboard.dev/outboard/app"
	"outboard.dev/outboard/internal/callmetrics"
	"outboard.dev/outboard/internal/cluster"
	"outboard.dev/outboard/internal/config"
	"outboard.dev/outboard/internal/server"
	"outboard.dev/outboard/internal/service"
	policies "outboard.dev/outboard/policies/standard"
	signals "outboard.dev/outboard/signal/standard"
)

// metrics returns the page about metrics.
func metrics() (string, error) {
	shared, own, plugin := prometheus.NewRegistry(), app.NewRegistry(), prometheus.NewRegistry()
	callmetrics.NewShortlists(plugin)
	if err := register(shared, own); err != nil {
		return "", err
	}
	d := newDocument("Metrics", "the registered metrics")
	d.paragraph("`/metrics` of the admin address has these, and those of Go and the process. [Alerts](../alerts.md) says which to watch. Times are\n" +
		"Unix seconds.")
	for _, part := range []struct {
		heading, text string
		registry      *prometheus.Registry
	}{
		{"Extender and plugin", "", shared},
		{"Extender only", "", own},
		{"Plugin only", "About the [shortlist](../extender-or-plugin.md#let-the-plugin-name-the-shortlist).", plugin},
	} {
		d.line("## %s\n", part.heading)
		if part.text != "" {
			d.paragraph("%s", part.text)
		}
		rows, err := metricRows(part.registry)
		if err != nil {
			return "", err
		}
		d.table([]string{"metric", "labels", "meaning"}, rows)
	}
	return strings.TrimSuffix(d.String(), "\n"), nil
}

// register registers all metrics as serve does, those that only serve has in own.
func register(shared, own *prometheus.Registry) error {
	types := config.Types{Policies: policies.Types(), Signals: signals.Types()}
	c, err := config.Parse("", []byte("apiVersion: "+config.APIVersion+"\nkind: "+config.Kind+"\nserving: {insecure: true}\nprofiles: [{policies: [{type: ImageLocality}]}]\n"), types)
	if err != nil {
		return err
	}
	connection, err := service.Connect(c, cluster.Options{Config: &rest.Config{Host: "127.0.0.1"}}, shared, slog.Default())
	if err != nil {
		return err
	}
	if _, err := service.New(service.Options{Config: c, Types: types, Connection: connection, Registry: shared, Logger: slog.Default()}); err != nil {
		return err
	}
	callmetrics.New(shared)
	callmetrics.NewUnserved(own)
	_, err = server.New(server.Options{Address: c.Serving.Address, Handler: http.NotFoundHandler(), Admin: server.AdminOptions{Address: c.Admin.Address}, Registerer: own})
	return err
}

var describedMetric = regexp.MustCompile(`^Desc\{fqName: ("outboard_[^"]+"), help: ("(?:[^"\\]|\\.)*"),.* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// metricRows returns the rows of the metrics in the registry, in order of name.
func metricRows(registry *prometheus.Registry) (rows [][]string, _ error) {
	all := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(all)
		close(all)
	}()
	for desc := range all {
		m := describedMetric.FindStringSubmatch(desc.String())
		if m == nil {
			continue // a metric of Go or of the process
		}
		name, err := strconv.Unquote(m[1])
		if err != nil {
			return nil, err
		}
		help, err := strconv.Unquote(m[2])
		if err != nil {
			return nil, err
		}
		rows = append(rows, []string{code(name), strings.Join(labels(m[3], m[4]), ", "), plain(help)})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return rows, nil
}

// labels returns the labels of a metric as code. constant has NAME="VALUE" for each label with a
// constant value.
func labels(constant, variable string) []string {
	var all []string
	for _, label := range slices.Concat(strings.Split(constant, ","), strings.Split(variable, ",")) {
		if name, _, _ := strings.Cut(label, "="); name != "" {
			all = append(all, code(name))
		}
	}
	return all
}
