package config

import (
	"time"

	"outboard.dev/outboard/policy"
)

// Signal is an outside fact: a source of numbers that is read in the background. It
// has exactly one of Prometheus, Metrics, HTTP, File, ConfigMap, Nodes and Cluster.
type Signal struct {
	// Name is what policies call it: lower-case letters, digits and -, at most 63.
	// Required, and unique.
	Name string `json:"name"`
	// Interval is the time between two readings, 1s..1h. Default 30s.
	Interval time.Duration `json:"interval"`
	// Timeout bounds one reading, 100ms..5m; of a Cluster, 3s..5m. Default 10s.
	Timeout time.Duration `json:"timeout"`
	// MaxAge is how long a number is believed, interval..24h. Default 5m.
	MaxAge time.Duration `json:"maxAge"`
	// MaxValues is how many numbers a reading may have; one with more is refused as
	// a whole. 1..100000. Default 20000.
	MaxValues int `json:"maxValues"`
	// Hysteresis makes states of the numbers; nil (the default) leaves them as they are.
	Hysteresis *Hysteresis `json:"hysteresis"`

	// Prometheus asks a Prometheus server.
	Prometheus *PrometheusSource `json:"prometheus"`
	// Metrics asks the Kubernetes metrics API.
	Metrics *MetricsSource `json:"metrics"`
	// HTTP gets a document.
	HTTP *HTTPSource `json:"http"`
	// File reads a document from a file.
	File *FileSource `json:"file"`
	// ConfigMap reads a document from a ConfigMap.
	ConfigMap *ConfigMapSource `json:"configMap"`
	// Nodes takes numbers from Node objects.
	Nodes *NodesSource `json:"nodes"`
	// Cluster asks another cluster what it has.
	Cluster *ClusterSource `json:"cluster"`
}

// SetDefaults fills in the defaults.
func (s *Signal) SetDefaults() {
	*s = Signal{Interval: 30 * time.Second, Timeout: 10 * time.Second, MaxAge: 5 * time.Minute, MaxValues: 20_000}
}

// Hysteresis makes a state of each number: 1 from when it has gone beyond one threshold
// until it has come back beyond another, and 0 else. So a number that goes up and down
// around a threshold does not change decisions each time. It has exactly one of Above and
// Below. The first number after a start, or of a new key, is judged by that one alone, at
// once.
type Hysteresis struct {
	// Above is what a number must exceed for the state to become 1.
	Above *float64 `json:"above"`
	// ClearBelow is what it must then fall below for the state to become 0, at most
	// Above. Nil (the default) is Above.
	ClearBelow *float64 `json:"clearBelow"`
	// Below and ClearAbove are the same for numbers that are bad when they are low:
	// ClearAbove is at least Below.
	Below      *float64 `json:"below"`
	ClearAbove *float64 `json:"clearAbove"`
	// For is how long all numbers must have been beyond Above or Below, 0s..24h, by the
	// times of the numbers. Default 0s: the first one counts.
	For time.Duration `json:"for"`
	// ClearAfter is the same for ClearBelow or ClearAbove. Default 0s.
	ClearAfter time.Duration `json:"clearAfter"`
}

// Sets says whether the number speaks for the state 1.
func (h *Hysteresis) Sets(number float64) bool {
	if h.Above != nil {
		return number > *h.Above
	}
	return number < *h.Below
}

// Clears says whether the number speaks for the state 0. Between the thresholds a number
// speaks for neither.
func (h *Hysteresis) Clears(number float64) bool {
	switch {
	case h.ClearBelow != nil:
		return number < *h.ClearBelow
	case h.ClearAbove != nil:
		return number > *h.ClearAbove
	}
	return !h.Sets(number)
}

// PrometheusSource is an instant query.
type PrometheusSource struct {
	// Address is the server's URL, http or https, with a path if it has one. Required.
	Address string `json:"address"`
	// Query is in PromQL, and gives a vector or a scalar. Required.
	Query string `json:"query"`
	// NodeLabel is the label with the name of the node. A port at the end of its
	// value is cut off.
	NodeLabel string `json:"nodeLabel"`
	// KeyLabel is the label with the key, for numbers that are not about nodes. At
	// most one of NodeLabel and KeyLabel is given; with neither, the query must give
	// one number.
	KeyLabel string `json:"keyLabel"`
	// Client is how to reach the server.
	Client HTTPClient `json:"client"`
}

// MetricsSource is what nodes use now, by the metrics API (metrics.k8s.io), which
// metrics-server or an adapter serves.
type MetricsSource struct {
	// Resource is cpu (in cores) or memory (in bytes). Required.
	Resource string `json:"resource"`
}

// HTTPSource is a document that is got from a URL.
type HTTPSource struct {
	// URL is http or https. Required.
	URL string `json:"url"`
	// What is in the document.
	Content
	// Client is how to reach the server.
	Client HTTPClient `json:"client"`
}

// FileSource is a document in a file, which is read again as soon as it changes.
type FileSource struct {
	// Path is the file. Required.
	Path string `json:"path"`
	// What is in the document.
	Content
}

// ConfigMapSource is a document in a ConfigMap.
type ConfigMapSource struct {
	// Namespace, Name and Key say where it is. Required.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Key       string `json:"key"`
	// What is in the document.
	Content
}

// NodesSource takes a number from each Node object. Exactly one field is given.
type NodesSource struct {
	// Label is the key of a label with a number.
	Label string `json:"label"`
	// Annotation is the key of an annotation with a number.
	Annotation string `json:"annotation"`
	// Condition is the type of a condition: 1 when it is True, 0 when it is False,
	// and nothing when it is neither.
	Condition string `json:"condition"`
}

// ClusterSource is another cluster: what it has, and has left, of each resource.
type ClusterSource struct {
	// Kubeconfig is a file. Required.
	Kubeconfig string `json:"kubeconfig"`
	// Context is the context in the kubeconfig; "" (the default) is its current one.
	Context string `json:"context"`
}

// HTTPClient is how to reach an HTTP server, and who we are to it.
type HTTPClient struct {
	// CAFile holds the authorities that sign the server's certificate; "" (the
	// default) those of the system.
	CAFile string `json:"caFile"`
	// CertFile and KeyFile are our certificate and its key.
	CertFile string `json:"certFile"`
	KeyFile  string `json:"keyFile"`
	// ServerName is the name expected in the server's certificate; "" (the default)
	// the host of the address.
	ServerName string `json:"serverName"`
	// BearerTokenFile holds a token, which is read for each request.
	BearerTokenFile string `json:"bearerTokenFile"`
	// Username, and the password in PasswordFile, are sent by basic authentication.
	Username     string `json:"username"`
	PasswordFile string `json:"passwordFile"`
}

// Content says what is in a document.
type Content struct {
	// Format is json, yaml, csv or lmstat. Default yaml, of which json is a part.
	Format Format `json:"format"`
	// About says what the numbers are about: nodes (the default) or keys. Not for
	// lmstat, which is about keys.
	About policy.SignalAbout `json:"about"`
	// Items is where the items are, and Key and Value where each has its key and its
	// number: JSONPath such as {.hosts[*]}, {.name} and {.load}. Without Items the
	// document is a mapping of keys to numbers; with Value alone, one number. For
	// json and yaml.
	Items string `json:"items"`
	// For csv, Key and Value are the names of columns.
	Key   string `json:"key"`
	Value string `json:"value"`
	// IgnoreHosts are patterns (*.cluster.example.com) of hosts whose seats are not
	// counted as used. For lmstat.
	IgnoreHosts []string `json:"ignoreHosts"`
}

// SetDefaults fills in the defaults.
func (c *Content) SetDefaults() { *c = Content{Format: YAML} }

// Format is how a document is written.
type Format string

// The formats.
const (
	JSON   Format = "json"
	YAML   Format = "yaml"
	CSV    Format = "csv"
	Lmstat Format = "lmstat"
)

// About is what the signal's numbers are about.
func (s *Signal) About() policy.SignalAbout {
	switch {
	case s.Prometheus != nil && s.Prometheus.NodeLabel == "", s.Cluster != nil:
		return policy.AboutKeys
	case s.HTTP != nil:
		return s.HTTP.Content.about()
	case s.File != nil:
		return s.File.Content.about()
	case s.ConfigMap != nil:
		return s.ConfigMap.Content.about()
	}
	return policy.AboutNodes
}

func (c *Content) about() policy.SignalAbout {
	switch {
	case c.Format == Lmstat, c.Items == "" && c.Value != "" && c.Format != CSV: // licences, or one number
		return policy.AboutKeys
	case c.About == "":
		return policy.AboutNodes
	}
	return c.About
}
