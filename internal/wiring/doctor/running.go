package doctor

import (
	"cmp"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"outboard.dev/outboard/internal/config/strictyaml"
)

const (
	// securePort is the default of kube-scheduler's flag.
	securePort = 10259
	// backdated is how long before its creation a certificate of a CA may become valid.
	backdated = 10 * time.Minute
	// mostDifferences bounds the text of a finding.
	mostDifferences = 5
)

// running compares the file with what a running kube-scheduler has loaded. kube-scheduler reads the
// file, and the CAs that it names, only when it starts.
func (c *checker) running(s scheduler) {
	what := "what kube-scheduler of " + s.name() + " has loaded"
	started, ok := s.started()
	if !ok {
		c.omit(what, "it is not running")
		return
	}
	loaded, err := c.loaded(s)
	differences := c.differences(loaded)
	switch {
	case err == nil && !c.deployed && !c.sameScheduler(loaded):
		c.omit(what, "it places pods of other schedulers than the file")
		return
	case err != nil && !s.reads(c.File):
		c.omit(what, err.Error())
		return
	case err != nil && !c.changedSince(s, started):
		c.omit(what, err.Error())
	case len(differences) > 0:
		path, _, _ := strings.Cut(differences[0], " ")
		if more := len(differences) - mostDifferences; more > 0 {
			differences = append(differences[:mostDifferences], fmt.Sprintf("and %d more", more))
		}
		c.at(Error, "SchedulerNotRestarted", path, s.name()+" runs with another configuration: "+strings.Join(differences, "; "),
			"kube-scheduler reads the file only when it starts, and calls extenders as the former one says", s.restart())
	}
	files := map[string]bool{}
	for _, e := range c.doc.config.Extenders {
		if e.TLSConfig != nil && e.TLSConfig.CAFile != "" && e.TLSConfig.CAData == "" && !files[e.TLSConfig.CAFile] {
			files[e.TLSConfig.CAFile] = true
			c.authoritiesSince(s, e.TLSConfig.CAFile, started)
		}
	}
}

// sameScheduler reports whether the loaded configuration and the file have a profile for the same
// schedulerName.
func (c *checker) sameScheduler(loaded *configuration) bool {
	theirs := loaded.schedulerNames()
	return slices.ContainsFunc(c.doc.config.schedulerNames(), func(name string) bool { return slices.Contains(theirs, name) })
}

// started returns when the container started. It returns false if it does not run.
func (s scheduler) started() (time.Time, bool) {
	for _, status := range s.pod.Status.ContainerStatuses {
		if status.Name == s.container.Name && status.State.Running != nil {
			return status.State.Running.StartedAt.Time, true
		}
	}
	return time.Time{}, false
}

func (s scheduler) restart() string {
	for _, owner := range s.pod.OwnerReferences {
		if owner.Kind == "ReplicaSet" {
			return fmt.Sprintf("restart it: kubectl -n %s rollout restart deployment/%s", s.pod.Namespace, owner.Name[:max(0, strings.LastIndexByte(owner.Name, '-'))])
		}
	}
	return "restart it"
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
		if one.Kind == "KubeSchedulerConfiguration" {
			return &one, nil
		}
	}
	return nil, fmt.Errorf("/configz has no KubeSchedulerConfiguration")
}

// differences returns how the configuration that kube-scheduler has loaded differs from the file,
// one text for each field, which begins with the path of the field.
func (c *checker) differences(loaded *configuration) []string {
	if loaded == nil {
		return nil
	}
	var file configuration
	_ = c.doc.root.Decode(&file) // errors are reported already
	if theirs, ours := len(loaded.Extenders), len(file.Extenders); theirs != ours {
		return []string{fmt.Sprintf("extenders has length %d, and %d in the file", theirs, ours)}
	}
	var all []string
	for _, d := range strictyaml.Diff("", called(loaded), called(&file)) {
		has := "is " + cmp.Or(strings.Trim(d.Old, `"`), "not set") + ", and " + cmp.Or(strings.Trim(d.New, `"`), "not set") + " in the file"
		if strings.HasSuffix(d.Path, "Data") {
			has = "is not that of the file"
		}
		all = append(all, d.Path+" "+has)
	}
	return all
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

// changedSince reports whether the ConfigMap or Secret with the file of the container has changed
// since it started; this is a finding.
func (c *checker) changedSince(s scheduler, started time.Time) bool {
	name, ok := s.flag("config")
	if !ok {
		return false
	}
	o, ok := mounted(s.pod.Namespace, &s.pod.Spec, s.container, name)
	if !ok {
		return false
	}
	meta, _, err := c.Cluster.read(o)
	if err != nil || !changed(meta).After(started) {
		return false
	}
	c.at(Warning, "SchedulerNotRestarted", "", fmt.Sprintf("%s started at %s, and %s changed at %s", s.name(), instant(started), o.keyRef(), instant(changed(meta))),
		"kube-scheduler reads the file only when it starts, so it may call Outboard as the former one says", s.restart())
	return true
}

// authoritiesSince compares the CAs in a file of the container with the time when it started.
func (c *checker) authoritiesSince(s scheduler, file string, started time.Time) {
	o, ok := mounted(s.pod.Namespace, &s.pod.Spec, s.container, file)
	if !ok {
		c.omit("whether the CA in "+file+" has changed since kube-scheduler of "+s.name()+" started", "the file is on the node")
		return
	}
	meta, _, err := c.Cluster.read(o)
	if err == nil && !changed(meta).After(started) {
		return
	}
	var text []byte
	if err == nil {
		text, err = c.Cluster.content(o)
	}
	if err != nil {
		c.omit("whether the CA in "+o.keyRef()+" has changed since kube-scheduler of "+s.name()+" started", err.Error())
		return
	}
	var former, later []*x509.Certificate
	for _, ca := range certificates(text) {
		if ca.NotBefore.After(started.Add(-backdated)) {
			later = append(later, ca)
		} else {
			former = append(former, ca)
		}
	}
	since := fmt.Sprintf("%s started at %s, and %s changed at %s", s.name(), instant(started), o.keyRef(), instant(changed(meta)))
	if len(later) == 0 {
		c.elsewhere(Note, "SchedulerNotRestarted", o.keyRef(), "", since+": its CAs are older", "if one of them was not in it before, kube-scheduler does not accept the certificates that it signed: restart it", "")
		return
	}
	severity, why := Warning, "kube-scheduler reads CAs only when it starts: when Outboard has a certificate of that CA, every call over a new connection fails"
	if c.Config != nil && c.Config.Serving.TLS != nil {
		if chain := certificates(c.readOrOmit(c.Config.Serving.TLS.CertFile, c.ReadConfigFile)); len(chain) > 0 && !c.unknownTo(later, chain) && (len(former) == 0 || c.unknownTo(former, chain)) {
			severity, why = Error, "it signed the certificate of Outboard, and kube-scheduler reads CAs only when it starts: every call over a new connection fails"
		}
	}
	c.elsewhere(severity, "SchedulerNotRestarted", o.keyRef(), "", since+fmt.Sprintf(": the CA %q is newer than kube-scheduler", later[0].Subject.CommonName), why, s.restart())
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// changed returns when the data of a ConfigMap or Secret last changed: the latest time of those who
// wrote data. A change of labels by one of them counts, too.
func changed(meta *metav1.ObjectMeta) time.Time {
	last := meta.CreationTimestamp.Time
	for _, entry := range meta.ManagedFields {
		var fields map[string]any
		if entry.FieldsV1 == nil || entry.Time == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
			continue
		}
		if (fields["f:data"] != nil || fields["f:binaryData"] != nil) && entry.Time.After(last) {
			last = entry.Time.Time
		}
	}
	return last
}
