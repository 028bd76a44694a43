// Package server runs an HTTP handler: it provides a serving listener with TLS that is reloaded
// from files, callers identified by their certificates, limits on connections and memory, an admin
// listener with health and metrics, and a shutdown that completes all calls.
//
// The serving listener is made for kube-scheduler, which determines most of the defaults:
// kube-scheduler speaks HTTP/1.1 over two idle connections for each host, keeps an idle connection
// for 90 s, never repeats a call, and may send 100 MB in one body.
//
// Contract for the handler:
//   - Reading r.Body may fail because of a limit. The error's text is for the caller: send it in a
//     well-formed response.
//   - Memory for a large body, by its declared length, counts until the handler returns, and so
//     does what the handler adds with [ReserveMemory].
//   - Requests of callers that are not allowed do not reach the handler.
//
// The package does not depend on what the handler serves.
package server
