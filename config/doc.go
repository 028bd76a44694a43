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
//	serving:                        # where kube-scheduler calls us
//	  address: 127.0.0.1:8443       # IP:port, localhost:port or :port
//	  insecure: false               # true: accept callers that do not prove who they are on any address
//	  tls:                          # default: none, plain HTTP
//	    certFile: tls.crt           # required
//	    keyFile: tls.key            # required
//	    clientCAFile: ca.crt        # default: none; callers are not asked for a certificate
//	    allowedClients:             # default with clientCAFile; []: whoever has a certificate
//	    - system:kube-scheduler
//	  http2: false                  # true needs tls
//	  maxBodyBytes: 128Mi           # the longest request, 1Ki..64Gi
//	  maxInFlightBytes: 256Mi       # all requests longer than 96Ki together, maxBodyBytes..1Ti
//	  shutdownDelay: 10s                 # serve, but not ready, when asked to stop; 0s..10m
//	  drainTimeout: 20s             # then finish requests; 1s..10m
//
//	admin:                          # metrics, health, explanations
//	  address: 127.0.0.1:8080
//	  allowRemote: false            # true: accept an address that other hosts can reach
//	  pprof: false                  # true: /debug/pprof/, on a loopback address only
//
//	clientConnection:                        # or the word none: judge from the requests alone
//	  kubeconfig: ""                # "": in-cluster, or else ~/.kube/config
//	  context: ""                   # "": the current one
//	  qps: 100                      # requests to the API server per second, 1..10000
//	  burst: 200                    # and at once, qps..100000
//
//	requeue:                         # pods that wait because of us, and need not any more
//	  perSecond: 20                 # wake so many at most, 0..1000; 0: none
//
//	log:
//	  level: info                   # debug, info, warn, error
//	  format: text                  # json, text
//
//	profiles:
//	- path: /                       # POST /filter, /prioritize, /preempt and /bind
//	  managedResources:             # default: none, every pod is ours
//	  - name: example.com/gpu-memory
//	    ignoredByScheduler: false   # true: kube-scheduler does not count it itself
//	  schedulerNames:               # default: none, bind pods of any scheduler
//	  - gpu-scheduler
//	  shortlist: 0                  # filter returns the best so many, 1..1000; 0: all that fit
//	  scoreRange: Extender            # fine: scores beyond 0..10
//	  policies:
//	  - type: GPUMemory             # required
//	    name: GPUMemory               # default: name; unique in the profile
//	    weight: 5                   # default 1; 0..100, 0: filter only
//	    failurePolicy: Fail               # skip: go on without the policy
//	    config:                     # the policy's own
//	      multiGPU: true
//	  - type: ImageLocality
//	- path: /my_scheduler_extension/my_new_priorities/image_score
//	  verb: prioritize             # default: none; filter, prioritize, preempt, bind: this verb alone, at the path itself
//	  policies:
//	  - type: ImageLocality
//
// Relative paths of files are relative to the directory of the configuration file.
// A null is the same as a field that is not there. The fields are described with
// the types of this package; how text is read, with package strictyaml.
//
// # What goes together
//
// Beyond the ranges of single fields:
//
//   - An address that other hosts can reach needs serving.tls.clientCAFile, or
//     serving.insecure: true; for admin, admin.allowRemote: true.
//   - No two profiles may have the same path, serve at the same URL, or manage the
//     same resource. The same policy may be in a profile more than once, each time
//     as another name.
//   - managedResources, if there are any, list what the profile's policies allocate.
//   - With serve, path is not /. shortlist is for filter and scoreRange: Total for
//     prioritize; schedulerNames is for bind; shortlist and verb: prioritize need a policy with a weight.
//     verb: bind needs a cluster, and so do policies that claim what they give to pods.
//
// # Errors
//
// All errors of a file are found at once and ordered by line, one line each, also
// those of the policies' own configurations:
//
//	config.yaml:14: profiles[0].policies[2].weight: Invalid value: -1: must be between 0 and 100
//	config.yaml:20: serving.tls.clientCaFile: Unknown field: did you mean "clientCAFile"?
//
// [Load] and [Parse] return them as [Errors].
//
// # Schema
//
// [Schema] returns the JSON Schema of the file, for editors. It has the types and defaults of
// the Go types, and what their validation says when asked: the words of a field if it reports
// others with field.NotSupported, limits if it reports what is beyond them with "must be between
// 1 and 5", "at least 1" or "at most 5", and required fields if it reports an error for a field
// that is missing. What depends on other fields is left out.
//
// # Life of a configuration
//
// A file is decoded over the defaults, validated, and its policies are built; the
// result is one [Config] that is never changed. A reload makes a new one and swaps
// the whole; if that fails the old one stays. Profiles and signals are swapped while
// serving; the fields of [Process] are read once, and [NeedsRestart] names those that
// differ. [Config.YAML] shows what is in force.
package config
