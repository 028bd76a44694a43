// Package httpclient asks HTTP servers on behalf of sources.
//
// Everything that says who we are and whom we trust is read from its files for each
// request, so that what is rotated is used at once; so each request has a connection
// of its own. Only the context bounds how long it takes. A request is never sent on to
// another host, where credentials would be given away. Errors tell the address without
// its query and never hold a credential, not even if the server says it back.
package httpclient
