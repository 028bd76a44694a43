package wiring

import (
	"encoding/json"

	schedulerv1 "k8s.io/kube-scheduler/config/v1"
)

// legacyPolicy is the file that kube-scheduler 1.22 and earlier reads with --policy-config-file.
// [Migrate] converts only its extenders.
type legacyPolicy struct {
	Kind       string           `json:"kind"`
	APIVersion string           `json:"apiVersion"`
	Extenders  []legacyExtender `json:"extenders"`
	// Extender is another spelling of extenders in some files. kube-scheduler does not read it.
	Extender *legacyExtender `json:"extender,omitempty"`
}

// legacyExtender has enableHttps in another case than later files, and a time in nanoseconds.
type legacyExtender struct {
	URLPrefix        string                                `json:"urlPrefix"`
	FilterVerb       string                                `json:"filterVerb,omitempty"`
	PreemptVerb      string                                `json:"preemptVerb,omitempty"`
	PrioritizeVerb   string                                `json:"prioritizeVerb,omitempty"`
	Weight           int64                                 `json:"weight,omitempty"`
	BindVerb         string                                `json:"bindVerb,omitempty"`
	EnableHTTPS      bool                                  `json:"enableHttps"`
	TLSConfig        *legacyTLS                            `json:"tlsConfig,omitempty"`
	HTTPTimeout      int64                                 `json:"httpTimeout,omitempty"`
	NodeCacheCapable bool                                  `json:"nodeCacheCapable"`
	ManagedResources []schedulerv1.ExtenderManagedResource `json:"managedResources,omitempty"`
	Ignorable        bool                                  `json:"ignorable"`
}

// InAnyCase says that kube-scheduler 1.22 and earlier reads the fields of an extender in any case,
// such as BindVerb and CAFile.
func (*legacyExtender) InAnyCase() {}

// legacyTLS has PEM data in base64, as in the file.
type legacyTLS struct {
	Insecure   bool   `json:"insecure,omitempty"`
	ServerName string `json:"serverName,omitempty"`
	CertFile   string `json:"certFile,omitempty"`
	KeyFile    string `json:"keyFile,omitempty"`
	CAFile     string `json:"caFile,omitempty"`
	CertData   string `json:"certData,omitempty"`
	KeyData    string `json:"keyData,omitempty"`
	CAData     string `json:"caData,omitempty"`
}

// LegacyPolicy returns the extenders as a Policy in JSON, for kube-scheduler 1.22 and earlier. It
// leaves the predicates and priorities to their defaults.
func (w *Wiring) LegacyPolicy() ([]byte, error) {
	p := legacyPolicy{Kind: "Policy", APIVersion: "v1"}
	for _, e := range w.entries {
		var tls *legacyTLS
		if t := e.TLSConfig; t != nil {
			tls = &legacyTLS{ServerName: t.ServerName, CertFile: t.CertFile, KeyFile: t.KeyFile, CAFile: t.CAFile}
		}
		p.Extenders = append(p.Extenders, legacyExtender{
			URLPrefix: e.URLPrefix, FilterVerb: e.FilterVerb, PreemptVerb: e.PreemptVerb, PrioritizeVerb: e.PrioritizeVerb,
			Weight: e.Weight, BindVerb: e.BindVerb, EnableHTTPS: e.EnableHTTPS, TLSConfig: tls,
			HTTPTimeout: int64(e.HTTPTimeout.Duration), NodeCacheCapable: e.NodeCacheCapable,
			ManagedResources: e.ManagedResources, Ignorable: e.Ignorable,
		})
	}
	text, err := json.MarshalIndent(p, "", "  ")
	return append(text, '\n'), err
}
