package pending

import (
	"fmt"
	"regexp"
	"strings"
)

// closed is the cause if kube-scheduler's client still writes when Outboard has refused it, so that
// the error of the write hides the TLS alert.
const closed = "Outboard closed the connection: it refuses kube-scheduler's client certificate, or was stopped"

const late = "no response came within httpTimeout (if a policy is slow, Outboard's log names it)"

// failures are the causes of failed calls, by what kube-scheduler's message contains; the first one
// counts. These are texts of Go's libraries and of kube-scheduler's client for extenders.
var failures = []struct{ contains, cause string }{
	{"certificate has expired", "Outboard's certificate has expired: renew it with outboard setup certs --cluster --renew, or for files --dir DIR --renew"},
	{"x509: ", "kube-scheduler does not accept Outboard's certificate, by its tlsConfig.caFile"},
	{"remote error: tls: ", "Outboard refuses kube-scheduler's certificate: it has expired, or is of another CA"},
	{"broken pipe", closed},
	{"connection reset by peer", closed},
	{"use of closed network connection", closed},
	{"connection refused", "nothing listens there"},
	{"no such host", "kube-scheduler cannot resolve the name"},
	{"deadline exceeded", late},
	{"Client.Timeout", late},
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
