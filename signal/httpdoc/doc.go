// Package httpdoc gets a document from a URL and reads numbers from it: see package
// content for documents, and package httpclient for requests. Anything but 200 OK is an
// error. The numbers are true when they are read.
package httpdoc
