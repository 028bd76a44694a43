package imagelocality

import "strings"

const (
	hub      = "docker.io"
	hubAlias = "index.docker.io"
)

// normalize returns the spelling of an image name that all names of the same image share: with the
// registry, with the "library/" of Docker Hub's own images, with a digest, or else with a tag
// ("latest" by default). A digest overrides a tag, as in the container runtime. Host names are in
// lower case; repositories and tags are unchanged, because they are case-sensitive.
//
//	nginx                             docker.io/library/nginx:latest
//	ghcr.io/a/b:1@sha256:0123…        ghcr.io/a/b@sha256:0123…
//
// Every string has a normal form, whose normal form is itself. Invalid names are not detected: no
// node reports them.
//
// The package has its own parser because it runs for every name of every node (100 by default)
// whenever the pods on the node change: splitting is tens of times faster than the regular
// expressions of github.com/distribution/reference, and does not allocate for names as nodes report
// them.
func normalize(name string) string {
	rest, digest, _ := strings.Cut(name, "@")
	if digest != "" {
		digest = name[len(rest):]
	}
	tag := ""
	last := strings.LastIndexByte(rest, '/') + 1
	if i := strings.IndexByte(rest[last:], ':'); i >= 0 {
		rest, tag = rest[:last+i], rest[last+i:]
	}
	host, path, found := strings.Cut(rest, "/")
	switch {
	case !found || !isHost(host):
		host, path = hub, rest
	default:
		if lower := strings.ToLower(host); isHost(lower) {
			host = lower
		}
	}
	if host == hubAlias {
		host = hub
	}
	if host == hub && !strings.Contains(path, "/") {
		path = "library/" + path
	}
	suffix := tag
	switch {
	case digest != "":
		suffix = digest
	case len(tag) < len(":x"):
		suffix = ":latest"
	}
	if after, ok := strings.CutPrefix(name, host); ok && len(after) == len("/")+len(path)+len(suffix) &&
		after[0] == '/' && strings.HasPrefix(after[1:], path) && strings.HasSuffix(after, suffix) {
		return name
	}
	return host + "/" + path + suffix
}

// isHost reports whether the first component of a name is a registry, and not an account on Docker
// Hub, whose names have no dots, colons or capitals.
func isHost(component string) bool {
	for _, c := range []byte(component) {
		if c == '.' || c == ':' || 'A' <= c && c <= 'Z' {
			return true
		}
	}
	return component == "localhost"
}
