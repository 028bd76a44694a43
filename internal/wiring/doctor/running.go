package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"outboard.dev/outboard/internal/config/strictyaml"
)

const (
	// securePort is the default of kube-scheduler's flag.
	securePort = 10259
	// mostDifferences bounds the text of a finding.
	mostDifferences = 5
)

// running compares the file with what a running kube-scheduler has loaded. kube-scheduler reads the
// file only when it starts.
func (c *checker) running(s scheduler) {
	what := "what kube-scheduler of " + s.name() + " has loaded"
	if !s.isRunning() {
		c.omit(what, "it is not running")
		return
	}
	loaded, err := c.loaded(s)
	switch {
	case err != nil:
		c.omit(what, err.Error())
	case !c.deployed && !c.sameScheduler(loaded):
		c.omit(what, "it places pods of other schedulers than the file")
	default:
		c.compare(s, loaded)
	}
}

// compare reports how the configuration that kube-scheduler has loaded differs from the file.
func (c *checker) compare(s scheduler, loaded *configuration) {
	var file configuration
	_ = c.doc.root.Decode(&file) // errors are reported already
	var differences []string
	for _, d := range strictyaml.Diff("", called(loaded), called(&file)) {
		has := "is " + cmp.Or(strings.Trim(d.Old, `"`), "not set") + ", and " + cmp.Or(strings.Trim(d.New, `"`), "not set") + " in the file"
		if strings.HasSuffix(d.Path, "Data") {
			has = "is not that of the file"
		}
		differences = append(differences, d.Path+" "+has)
	}
	if len(differences) == 0 {
		return
	}
	path, _, _ := strings.Cut(differences[0], " ")
	if more := len(differences) - mostDifferences; more > 0 {
		differences = append(differences[:mostDifferences], fmt.Sprintf("and %d more", more))
	}
	c.at(Error, "SchedulerNotRestarted", path, s.name()+" runs with another configuration: "+strings.Join(differences, "; "),
		"kube-scheduler reads the file only when it starts, and calls extenders as the former one says", "restart it")
}

// sameScheduler reports whether the loaded configuration and the file have a profile for the same
// schedulerName.
func (c *checker) sameScheduler(loaded *configuration) bool {
	theirs := loaded.schedulerNames()
	return slices.ContainsFunc(c.doc.config.schedulerNames(), func(name string) bool { return slices.Contains(theirs, name) })
}

func (s scheduler) isRunning() bool {
	for _, status := range s.pod.Status.ContainerStatuses {
		if status.Name == s.container.Name && status.State.Running != nil {
			return true
		}
	}
	return false
}

// loaded returns the configuration that kube-scheduler has loaded.
func (c *checker) loaded(s scheduler) (*configuration, error) {
	if c.Cluster.Configz == nil {
		return nil, fmt.Errorf("/configz is not read")
	}
	port := securePort
	if text, ok := s.flag("secure-port"); ok {
		var err error
		if port, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("--secure-port: %w", err)
		}
	}
	text, err := c.Cluster.Configz(s.pod.Namespace, s.pod.Name, port)
	if err != nil {
		return nil, err
	}
	var all map[string]configuration
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("/configz: %w", err)
	}
	for _, one := range all {
		if one.Kind == ofScheduler {
			return &one, nil
		}
	}
	return nil, fmt.Errorf("/configz has no %s", ofScheduler)
}

// called returns the fields with which kube-scheduler calls extenders, without keys.
func called(conf *configuration) strictyaml.Value {
	extenders := slices.Clone(conf.Extenders)
	for i := range extenders {
		var t tlsConfig
		if extenders[i].TLSConfig != nil {
			t = *extenders[i].TLSConfig
		}
		t.KeyData = ""
		for _, data := range []*string{&t.CAData, &t.CertData} {
			*data = strings.Join(strings.Fields(*data), "") // base64 may have line breaks
		}
		extenders[i].TLSConfig = &t
	}
	value, _ := strictyaml.Encode(struct {
		Extenders []extender `json:"extenders"`
		Profiles  []string   `json:"profiles"`
	}{extenders, conf.schedulerNames()}) // all types can be encoded
	return value
}
