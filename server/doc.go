// Package server gives an HTTP handler a place to live: a serving listener with TLS that is reloaded from files, callers
// known by their certificates, limits on connections and on memory, an admin listener with health and metrics, and an
// end that loses no call.
//
// The serving listener is meant for kube-scheduler, which decides most of the defaults: it speaks HTTP/1.1 over two
// idle connections per host, keeps an idle connection for 90 s, never repeats a call, and may send 100 MB in one body.
//
// What the handler needs to know:
//   - Reading r.Body may fail with [ErrBodyTooLarge], [ErrBusy] or [ErrBodyTimeout]. The error's text is meant for
//     the caller, who should get it in a well-formed answer.
//   - Memory for the whole body, by its declared length, counts as held until the handler returns, and so does what the
//     handler adds with [Reserve].
//   - A request that reaches the handler comes from a caller who may call.
//
// Nothing in this package knows what is served.
package server
