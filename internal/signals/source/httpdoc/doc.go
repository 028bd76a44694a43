// Package httpdoc gets a document from a URL and reads numbers from it: see package
// internal/content for documents, and package internal/httpclient for requests. Any status other
// than 200 OK is an error. The time of the numbers is that of the read.
package httpdoc
