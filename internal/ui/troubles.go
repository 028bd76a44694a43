package ui

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// unservedFor is how long calls that no profile serves are a trouble: kube-scheduler may call
// rarely, and a retry can take minutes.
const unservedFor = 10 * time.Minute

const checkCertificate = "Compare tlsConfig in kube-scheduler's configuration with serving.tls of Outboard."

// unserved says what happens to calls that no profile serves, with an example, and what to do, by
// the reason: the values of the label reason of the metrics of package server, and "path".
var unserved = map[string]struct{ what, remedy string }{
	"path":                {"Nothing is served at the path of calls, such as %s", "Correct urlPrefix or the verb in kube-scheduler's configuration; outboard check --cluster finds what is wrong."},
	"plaintext":           {"Calls come without TLS, such as from %s", "Begin urlPrefix in kube-scheduler's configuration with https://."},
	"rejected_by_client":  {"Clients such as %s do not accept Outboard's certificate", "Set caFile in kube-scheduler's configuration to the CA of the certificate, and restart kube-scheduler, which reads it only when it starts."},
	"no_certificate":      {"Callers without a client certificate are refused, such as %s", "Set certFile and keyFile of tlsConfig in kube-scheduler's configuration."},
	"unknown_authority":   {"Callers with a certificate of an unknown CA are refused, such as %s", checkCertificate},
	"expired":             {"Callers with an expired certificate are refused, such as %s", "Renew the client certificate of kube-scheduler."},
	"invalid_certificate": {"Callers with a certificate that is not for clients are refused, such as %s", checkCertificate},
	"name_not_allowed":    {"Callers whose name is not allowed are refused, such as %s", "Add the name to serving.tls.allowedClients."},
}

// Judge sets what is not well, and which replicas have another configuration than most, from the
// rest of the overview.
func (o *Overview) Judge() {
	o.Troubles, o.Problem = []Trouble{}, ""
	o.compareConfigurations()
	up := 0
	for i := range o.Replicas {
		if o.Replicas[i].Error == "" {
			up++
		}
	}
	for i := range o.Replicas {
		o.judge(&o.Replicas[i], up > 1)
	}
	o.judgeUnserved()
	o.sumCalls()
	o.Example = o.example()
	if up == 0 && len(o.Replicas) > 0 {
		first := &o.Replicas[0]
		o.Problem = strings.TrimSpace(fmt.Sprintf("No replica responds. %s: %s. %s", first.Name, first.Error, Advice(first.Error)))
	}
	if slices.ContainsFunc(o.Replicas, func(r Replica) bool { return r.Differs }) {
		o.add(Trouble{Text: "The replicas have different configurations: see Health."})
	}
}

// measuredFor is how long the troubles of a replica use the same metrics: other hosts may ask for
// them as often as they want.
const measuredFor = time.Second

// Troubles returns a function that returns what is not well with the replica, except its checks and
// calls that a profile has served: the lines of /readyz, in the words of the page. It is safe for
// concurrent use.
func Troubles(s Source) func() []string {
	var mu sync.Mutex
	var measured Replica
	return func() (lines []string) {
		mu.Lock()
		if now := s.Now(); measured.Now.IsZero() || now.Sub(measured.Now).Abs() > measuredFor {
			measured = Replica{Now: now}
			measured.readAll(s.Metrics)
		}
		r := measured
		mu.Unlock()
		r.Warnings, r.Certificates = s.Warnings(), slices.Clone(r.Certificates) // Judge changes them
		o := Overview{Replicas: []Replica{r}}
		o.Judge()
		for _, t := range o.Troubles {
			lines = append(lines, strings.TrimSpace(t.Text+" "+t.Remedy))
		}
		return lines
	}
}

// judge adds the troubles of one replica, of which there may be several.
func (o *Overview) judge(r *Replica, several bool) {
	if r.Error != "" {
		o.add(Trouble{Text: fmt.Sprintf("Replica %s does not respond (%s): what only it knows is not shown.", r.Name, r.Error), Incomplete: true, Remedy: Advice(r.Error)})
		return
	}
	for _, c := range r.Checks {
		if c.Error != "" {
			o.add(Trouble{Text: fmt.Sprintf("Replica %s is not ready: %s: %s.", r.Name, c.Name, c.Error), Incomplete: true})
		}
	}
	prefix := ""
	if several {
		prefix = "Replica " + r.Name + ": "
	}
	for _, warning := range r.Warnings {
		o.add(Trouble{Text: prefix + warning})
	}
	for i := range r.Certificates {
		c := &r.Certificates[i]
		name := c.Use
		if c.Subject != "" {
			name += " " + c.Subject
		}
		ends := c.NotAfter.Sub(r.Now)
		left := plural(int64(ends.Hours()/24), "day")
		if ends < 48*time.Hour {
			left = plural(int64(ends.Hours()), "hour")
		}
		c.Left, c.Level = left+" left", ""
		switch {
		case ends < 0:
			c.Left, c.Level = "ended", "bad"
			o.add(Trouble{Text: fmt.Sprintf("%sthe certificate %s ended at %s.", prefix, name, c.NotAfter.UTC().Format(time.RFC3339))})
		case r.Now.After(c.Renewal):
			c.Level = "bad"
			o.add(Trouble{Text: fmt.Sprintf("%sthe certificate %s ends in %s.", prefix, name, left)})
		}
	}
}

// example returns a manifest to begin with, for somebody who tries where a pod would fit.
func (o *Overview) example() string {
	limits := ""
	for _, r := range o.Resources {
		if r.Unit != "" && strings.Contains(r.Resource, "/") {
			limits = "      limits: {" + r.Resource + ": 24}\n"
			break
		}
	}
	return `apiVersion: v1
kind: Pod
metadata: {name: try}
spec:
  containers:
  - name: main
    image: example.com/train
    resources:
      requests: {cpu: 4, memory: 16Gi}
` + limits
}

// Advice returns what somebody can do about an error of the API server, as a sentence; "" if the
// error is another one.
func Advice(problem string) string {
	switch {
	case strings.Contains(problem, " is forbidden: "):
		return "Ask an administrator of the cluster for the permissions to list pods and to create pods/portforward in the namespace of Outboard."
	case strings.Contains(problem, "Unauthorized"), strings.Contains(problem, "provide credentials"):
		return "Log in to the cluster, and start outboard ui again."
	}
	return ""
}

// judgeUnserved adds the calls that no profile serves, of all replicas together: a kube-scheduler
// may call any of them.
func (o *Overview) judgeUnserved() {
	sums, now, ended := map[string]Unserved{}, time.Time{}, false
	for i := range o.Replicas {
		if r := &o.Replicas[i]; now.Before(r.Now) {
			now = r.Now
		}
		for _, c := range o.Replicas[i].Certificates {
			ended = ended || c.Use == serving && c.NotAfter.Before(o.Replicas[i].Now)
		}
		for _, u := range o.Replicas[i].Unserved {
			sum := sums[u.Reason]
			sum.Calls += u.Calls
			if sum.Last.Before(u.Last) {
				sum.Last, sum.Example = u.Last, u.Example
			}
			sums[u.Reason] = sum
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(sums)) {
		u, says := sums[reason], unserved[reason]
		if ended && reason == "rejected_by_client" {
			says.remedy = "Renew Outboard's certificate, which has ended."
		}
		if now.Sub(u.Last) <= unservedFor {
			o.add(Trouble{Text: fmt.Sprintf(says.what+": %s so far.", u.Example, plural(u.Calls, "call")), Last: u.Last, Remedy: says.remedy})
		}
	}
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// add adds a trouble, unless it is known from another replica.
func (o *Overview) add(t Trouble) {
	if !slices.Contains(o.Troubles, t) {
		o.Troubles = append(o.Troubles, t)
	}
}

// compareConfigurations marks the replicas whose configuration is not the most frequent one; of
// several such, that of the first replica counts.
func (o *Overview) compareConfigurations() {
	count, most := map[string]int{}, ""
	for i := range o.Replicas {
		if r := &o.Replicas[i]; r.Error == "" {
			count[r.Configuration]++
		}
	}
	for i := range o.Replicas {
		if r := &o.Replicas[i]; r.Error == "" && (count[most] < count[r.Configuration]) {
			most = r.Configuration
		}
	}
	for i := range o.Replicas {
		r := &o.Replicas[i]
		r.Differs = r.Error == "" && r.Configuration != most
	}
}
