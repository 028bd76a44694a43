package wiring

import (
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
