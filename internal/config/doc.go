// Package config reads Outboard's configuration file: types, defaults, strict
// loading, validation, and the policies built from it.
//
// # The file
//
// One YAML (or JSON) document. Only profiles is required; everything else is shown
// with its default, except where a comment says otherwise:
//
//	apiVersion: outboard.dev/v1alpha1
//	kind: OutboardConfiguration
//
//	serving:                        # where kube-scheduler calls Outboard
//	  address: 127.0.0.1:8443       # IP:port, localhost:port or :port
//	  insecure: false               # true: accept callers without authentication on any address
//	  tls:                          # default: none, plain HTTP
//	    certFile: tls.crt           # required
//	    keyFile: tls.key            # required
//	    clientCAFile: ca.crt        # default: none; callers need no certificate
//	    allowedClients:             # default with clientCAFile; []: every caller with a certificate
//	    - system:kube-scheduler
//	  http2: false                  # true needs tls
//	  maxBodyBytes: 128Mi           # maximum length of a request, 1Ki..64Gi
//	  maxInFlightBytes: 256Mi       # all requests longer than 96Ki together, maxBodyBytes..1Ti
//	  shutdownDelay: 10s            # serve, but not ready, after it is stopped; 0s..10m
//	  drainTimeout: 20s             # then complete requests; 1s..10m
//
//	admin:                          # metrics, health, explanations
//	  address: 127.0.0.1:8080
//	  allowRemote: false            # true: accept an address that other hosts can reach
//	  allowRemoteMetrics: false     # true: accept such an address, but only for /metrics, /healthz and /readyz
//	  pprof: false                  # true: /debug/pprof/, on a loopback address only
//
//	clientConnection:               # or None: use only the requests, and no API server
//	  kubeconfig: ""                # "": in-cluster, or else ~/.kube/config
//	  context: ""                   # "": the current context
//	  qps: 100                      # requests to the API server per second, 1..10000
//	  burst: 200                    # in a burst, qps..100000
//
//	requeue:                        # pending pods that Outboard rejected and that fit now
//	  perSecond: 20                 # maximum number of pods, 0..1000; 0: none
//
//	log:
//	  level: info                   # debug, info, warn, error
//	  format: text                  # json, text
//
//	profiles:
//	- path: /                       # POST /filter, /prioritize, /preempt and /bind
//	  managedResources:             # default: none, the profile manages every pod
//	  - name: example.com/gpu-memory
//	    ignoredByScheduler: false   # true: kube-scheduler does not count it itself
//	  schedulerNames:               # default: none, bind pods of any scheduler
//	  - gpu-scheduler
//	  shortlist: 0                  # filter returns only the best nodes, 1..1000; 0: all that fit
//	  scoreRange: Extender          # Extender: 0..10; Total: the weighted sum
//	  policies:
//	  - type: GPUMemory             # required
//	    name: GPUMemory             # default: type; unique in the profile
//	    weight: 5                   # default 1; 0..100, 0: filter only
//	    failurePolicy: Fail         # Ignore: decide without the policy if it fails
//	    config:                     # the configuration of the policy
//	      multiGPU: true
//	  - type: ImageLocality
//	- path: /my_scheduler_extension/my_new_priorities/image_score
//	  verb: prioritize              # default: none; filter, prioritize, preempt, bind: only this verb, at the path itself
//	  policies:
//	  - type: ImageLocality
//
// Relative paths of files are relative to the directory of the configuration file.
// null is the same as an absent field. The types of this package describe the fields;
// package strictyaml describes how text is read.
//
// # Rules across fields
//
//   - An address that other hosts can reach needs serving.tls.clientCAFile, or
//     serving.insecure: true; for admin, admin.allowRemote: true or
//     admin.allowRemoteMetrics: true.
//   - No two profiles may have the same path, serve the same URL, or manage the
//     same resource. A profile may have several policies of the same type, with
//     different names.
//   - managedResources, if there are any, include what the profile's policies allocate.
//   - With verb, path must not be /. shortlist is for filter and scoreRange: Total for
//     prioritize; schedulerNames is for bind; shortlist and verb: prioritize need a policy with a
//     weight. verb: bind and policies that make claims need a cluster. A policy that makes claims
//     cannot have failurePolicy: Ignore, except with verb: prioritize.
//
// # Errors
//
// All errors of a file are reported together, ordered by line, one line each, including
// errors in the configurations of policies:
//
//	config.yaml:14: profiles[0].policies[2].weight: Invalid value: -1: must be between 0 and 100
//	config.yaml:20: serving.tls.clientCaFile: Unknown field: did you mean "clientCAFile"?
//
// [Load] and [Parse] return them as [Errors].
//
// # Schema
//
// [Schema] returns the JSON Schema of the file, for editors. It has the types and defaults of
// the Go types, the rules in the tags of their fields, which package policy/fields checks. It omits rules that depend on other fields.
//
// # Reloading
//
// A file is decoded over the defaults and validated, and its policies are built; the result is
// one immutable [Config]. A reload creates a new one and replaces the old one as a whole; if it
// fails, the old one stays in use. Profiles and signals are replaced while serving. The fields
// of [Process] are read once, and [NeedsRestart] returns those that differ; [Changes] returns all
// changes, and [Risks] the consequences of dangerous ones. [Config.YAML]
// returns the current configuration.
package config
