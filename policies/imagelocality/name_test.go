package imagelocality

import (
	"strings"
	"testing"
)

const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestNormalize(t *testing.T) {
	for _, tc := range []struct{ name, want string }{
		// Docker Hub.
		{"nginx", "docker.io/library/nginx:latest"},
		{"nginx:1.27", "docker.io/library/nginx:1.27"},
		{"library/nginx", "docker.io/library/nginx:latest"},
		{"docker.io/nginx", "docker.io/library/nginx:latest"},
		{"docker.io/library/nginx:latest", "docker.io/library/nginx:latest"},
		{"index.docker.io/nginx", "docker.io/library/nginx:latest"},
		{"index.docker.io/library/nginx:1.27", "docker.io/library/nginx:1.27"},
		{"bitnami/redis", "docker.io/bitnami/redis:latest"},
		{"a/b/c", "docker.io/a/b/c:latest"},
		{"localhost", "docker.io/library/localhost:latest"},
		{"index", "docker.io/library/index:latest"},

		// Other registries, with ports.
		{"ghcr.io/org/app", "ghcr.io/org/app:latest"},
		{"registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"},
		{"localhost/app", "localhost/app:latest"},
		{"localhost:5000/app", "localhost:5000/app:latest"},
		{"registry:5000/app", "registry:5000/app:latest"},
		{"registry:5000/app:2", "registry:5000/app:2"},
		{"192.0.2.1:5000/a/b:2", "192.0.2.1:5000/a/b:2"},
		{"[2001:db8::1]:5000/app", "[2001:db8::1]:5000/app:latest"},
		{"registry:5000", "docker.io/library/registry:5000"}, // a tag, because there is no path

		// Digests.
		{"nginx@" + digest, "docker.io/library/nginx@" + digest},
		{"nginx:1.27@" + digest, "docker.io/library/nginx@" + digest},
		{"docker.io/library/nginx@" + digest, "docker.io/library/nginx@" + digest},
		{"registry:5000/app@" + digest, "registry:5000/app@" + digest},
		{"registry:5000/app:2@" + digest, "registry:5000/app@" + digest},
		{"docker.io/x:1234567@" + digest, "docker.io/library/x@" + digest}, // as long as the name itself

		// Case counts everywhere but in hosts.
		{"GHCR.io/org/app:V1", "ghcr.io/org/app:V1"},
		{"Docker.IO/nginx", "docker.io/library/nginx:latest"},
		{"Index.Docker.io/nginx", "docker.io/library/nginx:latest"},
		{"nginx:Latest", "docker.io/library/nginx:Latest"},
		{"Localhost/app", "localhost/app:latest"},
		{"HOST/app", "HOST/app:latest"}, // a host, because accounts have no capitals

		// Names that no registry accepts also have a normal form.
		{"", "docker.io/library/:latest"},
		{"nginx:", "docker.io/library/nginx:latest"},
		{"nginx@", "docker.io/library/nginx:latest"},
		{"@" + digest, "docker.io/library/@" + digest},
		{"/", "docker.io//:latest"},
		{"a@b@c", "docker.io/library/a@b@c"},
		{"a:b:c", "docker.io/library/a:b:c"},
	} {
		if got := normalize(tc.name); got != tc.want {
			t.Errorf("normalize(%q) = %q, want %q", tc.name, got, tc.want)
		}
	}
}

// FuzzNormalize checks what matching relies on: each name has one normal form, which is its own
// normal form, and which differs if tag or digest differ.
func FuzzNormalize(f *testing.F) {
	for _, name := range []string{
		"nginx", "docker.io/x:1234567@" + digest, "registry:5000/app:2", "Index.Docker.io/a", "@", ":", "/", "a@b@c", "::", "::@0", "a:b:c@d", "[::1]/a:", "İ.io/x", "\xff.io/x",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		form := normalize(name)
		if again := normalize(form); again != form {
			t.Errorf("normalize(%q) = %q, whose own form is %q", name, form, again)
		}
		repository, _, hasDigest := strings.Cut(form, "@")
		if !strings.Contains(repository, "/") {
			t.Errorf("normalize(%q) = %q has no registry", name, form)
		}
		if tagged := strings.LastIndexByte(form, ':') > strings.LastIndexByte(form, '/'); !tagged && !hasDigest {
			t.Errorf("normalize(%q) = %q has neither tag nor digest", name, form)
		}
		if with := normalize(name + "@" + digest); !strings.Contains(name, "@") && with != repositoryOf(form)+"@"+digest {
			t.Errorf("normalize(%q) = %q, but with a digest it is %q", name, form, with)
		}
	})
}

func repositoryOf(form string) string {
	path := strings.LastIndexByte(form, '/')
	return form[:path+strings.IndexByte(form[path:], ':')]
}
