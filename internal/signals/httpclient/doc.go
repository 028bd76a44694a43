// Package httpclient sends requests to HTTP servers for sources.
//
// Credentials and CAs are read from their files for each request, so that rotated ones are used
// immediately; therefore each request has its own connection. Only the context bounds the time of a
// request. A request is never redirected to another host, which would get the credentials. Errors
// contain the address without its query and never contain a credential, even if the server returns
// it.
package httpclient
