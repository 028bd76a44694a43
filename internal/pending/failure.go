package pending

import (
	"fmt"
	"regexp"
	"strings"
)

// failures are the causes of failed calls, by what kube-scheduler's message contains; the first one
// counts. These are texts of Go's libraries and of kube-scheduler's client for extenders.
var failures = []struct{ contains, cause string }{
	{"certificate has expired", "Outboard's certificate has expired: renew it with outboard setup certs --renew"},
	{"x509: ", "kube-scheduler does not accept Outboard's certificate, by its tlsConfig.caFile"},
	{"remote error: tls: ", "Outboard refuses kube-scheduler's certificate: it has expired, or is of another CA"},
	{"connection refused", "nothing listens there"},
	{"no such host", "kube-scheduler cannot resolve the name"},
	{"deadline exceeded", "no response came within httpTimeout"},
	{"Client.Timeout", "no response came within httpTimeout"},
	{"code 404", "no profile has this path"},
	{"code 400", "urlPrefix begins with http://, and Outboard serves HTTPS"},
	{"gave HTTP response to HTTPS client", "urlPrefix begins with https://, and Outboard serves HTTP"},
}

var anyURL = regexp.MustCompile(`https?://[^\s",]+`)

// failure says why an attempt failed, by kube-scheduler's message.
func failure(message string) string {
	url := anyURL.FindString(message)
	for _, f := range failures {
		if url != "" && strings.Contains(message, f.contains) {
			return fmt.Sprintf("kube-scheduler's call of %s fails: %s; outboard check --cluster finds what to correct",
				strings.TrimRight(url, ":"), f.cause)
		}
	}
	return "kube-scheduler's attempt failed: " + message
}
