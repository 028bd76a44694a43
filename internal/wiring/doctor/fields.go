package doctor

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"outboard.dev/outboard/internal/config/manifest"
	"outboard.dev/outboard/internal/config/strictyaml"
)

// renamed are fields with other spellings, often those of other versions or programs.
var renamed = map[string]string{
	"enableHttps": "enableHTTPS", "enableHTTPs": "enableHTTPS", "enableTLS": "enableHTTPS", "ignoreable": "ignorable", "url": "urlPrefix",
	"timeout": "httpTimeout", "trustedCaFile": "caFile", "trustedCAFile": "caFile", "caCertFile": "caFile", "caCert": "caFile", "caBundle": "caData",
	"insecureSkipVerify": "insecure", "insecureSkipTLSVerify": "insecure",
	"lockObjectName": "resourceName", "lockObjectNamespace": "resourceNamespace",
}

// nested are fields of extenders, profiles and their parts, and what they belong to.
var nested = map[string]string{
	"urlPrefix": anExtender, "filterVerb": anExtender, "prioritizeVerb": anExtender, "preemptVerb": anExtender, "bindVerb": anExtender, "weight": anExtender,
	"enableHTTPS": anExtender, "enableHttps": anExtender, "tlsConfig": anExtender, "nodeCacheCapable": anExtender, "managedResources": anExtender,
	"ignorable": anExtender, "httpTimeout": anExtender, "caFile": "tlsConfig of " + anExtender, "certFile": "tlsConfig of " + anExtender,
	"keyFile": "tlsConfig of " + anExtender, "insecure": "tlsConfig of " + anExtender, "ignoredByScheduler": "managedResources of " + anExtender,
	"schedulerName": aProfile, "plugins": aProfile, "pluginConfig": aProfile, "multiPoint": "plugins of " + aProfile, "preFilter": "plugins of " + aProfile,
	"filter": "plugins of " + aProfile, "score": "plugins of " + aProfile, "bind": "plugins of " + aProfile, "enabled": "plugins of " + aProfile,
	"disabled": "plugins of " + aProfile, "args": "pluginConfig of " + aProfile, "name": "a list",
}

const (
	anExtender = "an extender"
	aProfile   = "a profile"
)

// fieldAtTop is a field of the file as a whole, as YAML is usually written.
var fieldAtTop = regexp.MustCompile(`(?m)^([A-Za-z]+)[ \t]*:`)

// unindented reports whether the file has lost its indentation, as texts copied from pages do. Such
// a text need not be valid YAML.
func (c *checker) unindented() bool {
	text := c.doc.source.Data
	var lost []string
	fields, first := 0, 0
	for _, m := range fieldAtTop.FindAllSubmatchIndex(text, -1) {
		name := string(text[m[2]:m[3]])
		if nested[name] == "" {
			continue
		}
		if fields++; fields == 1 {
			first = c.doc.source.Line(1 + bytes.Count(text[:m[0]], []byte("\n")))
		}
		if !slices.Contains(lost, name) {
			lost = append(lost, name)
		}
	}
	if c.doc.refusal == nil || fields < 2 {
		return false
	}
	which := strings.Join(lost[:min(3, len(lost))], ", ")
	if len(lost) > 3 {
		which += " and other fields"
	}
	c.refuse("Indentation", lost[0], "not indented: "+which, "these are fields of profiles or extenders, and without indentation fields of the file as a whole",
		"indent the lines as outboard setup scheduler prints them")
	c.findings[len(c.findings)-1].Line = first
	return true
}

// spelling decodes the configuration, corrects what is misspelled or misplaced, and returns the
// errors that are left.
func (c *checker) spelling() (errs strictyaml.Errors) {
	if v := c.doc.config.APIVersion; v != apiVersion && c.doc.former.IsZero() {
		c.otherVersion(v)
	}
	for range 500 { // a correction may reveal other errors
		var err error
		if c.doc.root, err = strictyaml.FromNode(c.File, c.doc.tree); err != nil {
			return errorsOf(err)
		}
		errs = c.decode()
		if !slices.ContainsFunc(errs, c.corrected) {
			break
		}
	}
	return errs
}

// decode decodes the configuration and the arguments of plugins.
func (c *checker) decode() strictyaml.Errors {
	c.doc.config = configuration{}
	errs := errorsOf(c.doc.root.Decode(&c.doc.config))
	for i := range c.doc.config.Profiles {
		for j := range c.doc.config.Profiles[i].PluginConfig {
			p := &c.doc.config.Profiles[i].PluginConfig[j]
			if p.args = argsOf(p.Name); p.args != nil {
				errs = append(errs, errorsOf(p.Args.Decode(p.args))...)
			}
		}
	}
	return errs
}

func (c *checker) otherVersion(v string) {
	why, fix := "kube-scheduler 1.29 and later reads "+apiVersion+" only", "set "+apiVersion
	if !c.doc.root.At("algorithmSource").IsZero() {
		c.refuse("APIVersion", "apiVersion", fmt.Sprintf("apiVersion is %q, of kube-scheduler 1.18 and earlier", v), why, "outboard setup scheduler --from converts the Policy that algorithmSource names")
		return
	}
	c.refuse("APIVersion", "apiVersion", fmt.Sprintf("apiVersion is %q", v), why, fix)
}

// fields reports fields that kube-scheduler does not know or cannot decode.
func (c *checker) fields(errs strictyaml.Errors) {
	if c.doc.config.APIVersion == apiVersion && !c.since(25) {
		c.refuse("APIVersion", "apiVersion", fmt.Sprintf("kube-scheduler 1.%d does not read %s", c.minor, apiVersion), "only 1.25 and later reads it",
			"use kube-scheduler 1.25 or later, or outboard setup scheduler --legacy-policy with 1.22 and earlier")
	}
	if c.doc.refusal == nil {
		return // whatever strictyaml does not read
	}
	var unknown []string
	for _, e := range errs {
		fix := ""
		switch {
		case e.Kind == "Unknown field" && (e.Path == "metadata" || e.Path == "status"):
			c.refuse("APIObject", e.Path, "a KubeSchedulerConfiguration has no "+e.Path, noObject, "remove it, and give the file to kube-scheduler with --config")
		case e.Kind == "Unknown field" && (e.Path == "spec" || e.Path == "data"):
			c.refuse("APIObject", e.Path, "a KubeSchedulerConfiguration has no "+e.Path, noObject, "move its fields to the top, and give the file to kube-scheduler with --config")
		case e.Kind == "Unknown field" && (e.Path == "healthzBindAddress" || e.Path == "metricsBindAddress"):
			c.refuse("UnknownField", e.Path, "kube-scheduler 1.25 and later does not know this field", "", "remove it: the flags --bind-address and --secure-port replace it")
		case e.Kind == "Unknown field" && e.Path == "algorithmSource":
			c.refuse("UnknownField", e.Path, "kube-scheduler 1.19 and later has no such field", "", "outboard setup scheduler --from converts the Policy that it names")
		case e.Kind == "Unknown field":
			if owner := nested[e.Path]; owner != "" {
				fix = "indent it, as a field of " + owner
			} else if near := nearest(e); strings.HasPrefix(e.Rule, "did you mean") {
				if fix = "write " + near; !c.doc.root.At(strings.TrimSuffix(e.Path, lastOf(e.Path)) + near).IsZero() {
					fix = "remove it: " + near + " is set, too"
				}
			}
			c.refuse("UnknownField", e.Path, "kube-scheduler does not know this field", "", cmp.Or(fix, e.Rule))
		case lastOf(e.Path) == "httpTimeout":
			c.refuse("TimeoutFormat", e.Path, "httpTimeout is "+e.Value, timeoutFormat, "write "+cmp.Or(rightValue(e), "a duration, such as 3s"))
		default:
			parts := slices.DeleteFunc([]string{strings.TrimSpace(e.Kind + " " + e.Value), e.Rule}, func(s string) bool { return s == "" })
			if right := rightValue(e); right != "" {
				fix = "write " + right
			}
			c.refuse("InvalidValue", e.Path, strings.Join(parts, ": "), "", fix)
		}
		if n := len(c.findings); n > 0 && e.Line > 0 && c.findings[n-1].Field == e.Path && c.doc.former.IsZero() {
			c.findings[n-1].Line = c.doc.source.Line(e.Line)
		}
		unknown = append(unknown, e.Path)
	}
	c.broken = append(c.broken, unknown...)
}

var (
	unknownField = regexp.MustCompile(`(?:(profiles\[\d+\]\.pluginConfig\[\d+\]): strict decoding error: (?:decoding args for plugin \S+ strict decoding error: )?)?unknown field "((?:[^"\\]|\\.)+)"`)
	setTwice     = regexp.MustCompile(`line (\d+): key "?([^"\n]*)"? already set in map`)
	nestedObject = regexp.MustCompile(`profiles\[\d+\]\.pluginConfig\[\d+\]`)
)

// decoded reports what kube-scheduler's own decoder refuses, and no other finding names.
func (c *checker) decoded() {
	err := c.doc.refusal
	if err == nil || !c.doc.former.IsZero() {
		return
	}
	c.broken = nil
	named := func(known func(f Finding) bool) bool {
		return slices.ContainsFunc(c.findings, func(f Finding) bool { return f.refused && known(f) })
	}
	var syntax *json.SyntaxError
	if manifest.IsJSON(c.doc.source.whole.Data) && errors.As(json.Unmarshal(c.doc.source.whole.Data, new(any)), &syntax) {
		c.refuse("Syntax", "", "not valid JSON, as which kube-scheduler reads a file that begins with {: "+syntax.Error(), "", "")
		c.findings[len(c.findings)-1].Line = c.doc.source.whole.Line(1 + bytes.Count(c.doc.source.whole.Data[:syntax.Offset], []byte("\n")))
	}
	for _, m := range setTwice.FindAllStringSubmatch(err.Error(), -1) {
		line, _ := strconv.Atoi(m[1])
		line = c.doc.source.whole.Line(line)
		if !named(func(f Finding) bool {
			return f.Line == line && (lastOf(f.Field) == m[2] || f.Code == "Syntax") || f.Code == "Indentation"
		}) {
			c.refuse("InvalidValue", "", m[2]+" is set twice", "a merge key (<<) sets it, too", "remove one of the two")
			c.findings[len(c.findings)-1].Line = line
		}
	}
	nested := ""
	for _, m := range unknownField.FindAllStringSubmatch(err.Error(), -1) {
		path := m[2]
		if nested = cmp.Or(m[1], nested); nested != "" {
			path = nested + ".args." + path
		}
		if !named(func(f Finding) bool { return letters(f.Field) == letters(path) || f.Code == "Indentation" }) {
			c.refuse("UnknownField", path, "kube-scheduler does not know this field", "", "")
		}
	}
	path := nestedObject.FindString(err.Error())
	if path == "" && strings.Contains(err.Error(), "'Kind' is missing") {
		if !named(func(f Finding) bool { return f.Field == "" || f.Field == "kind" || f.Code == "Indentation" }) {
			c.refuse("IgnoredDocument", "kind", "the first document of the file is empty", "kube-scheduler reads the first one only", "remove the first of the two lines ---")
		}
		return
	}
	if named(func(f Finding) bool { return strings.HasPrefix(f.Field, path) }) {
		return
	}
	if path == "" && strings.Contains(err.Error(), "no kind ") {
		path = "kind"
	}
	message, _, _ := strings.Cut(err.Error(), "\n") // some have the whole text
	c.refuse("InvalidValue", path, "kube-scheduler does not read the file: "+message, "", "")
}

// letters returns a path without the characters that surround unusual names.
func letters(path string) string { return strings.NewReplacer("[", "", "]", "", ".", "").Replace(path) }

func lastOf(path string) string { return path[strings.LastIndexByte(path, '.')+1:] }

// nearest returns the known field that an unknown one resembles; "" if there is none.
func nearest(e *strictyaml.Error) string {
	near := ""
	if known, ok := renamed[lastOf(e.Path)]; ok && (strings.Contains(e.Rule, known+",") || strings.HasSuffix(e.Rule, known) || strings.Contains(e.Rule, `"`+known+`"`)) {
		return known
	}
	_, _ = fmt.Sscanf(e.Rule, "did you mean %q?", &near) // without it there is none
	if strings.Contains(near, ".") {
		return ""
	}
	return near
}

// editable is a path that a correction can have: one without names that have a dot or another
// special character.
var editable = regexp.MustCompile(`^[\w.\[\]-]+$`)

// corrected reports whether an unknown field has only one correction, and makes it.
func (c *checker) corrected(e *strictyaml.Error) bool {
	if c.doc.refusal == nil || e.Kind != "Unknown field" || !editable.MatchString(e.Path) || strings.HasSuffix(e.Path, "]") {
		return false
	}
	n := len(c.findings)
	c.misnamed(e, lastOf(e.Path))
	return len(c.findings) > n
}

// misnamed corrects the name or the parent of a field.
func (c *checker) misnamed(e *strictyaml.Error, name string) {
	lower := strings.ToLower(name)
	near := nearest(e)
	parent := strings.TrimSuffix(e.Path, name)
	there, _ := locate(c.doc.tree, parent+near)
	switch {
	case e.Path != extendersPath && (lower == "extenderconfig" || lower == "extenderconfigs" || lower == "extender" || lower == "extenders"):
		c.meant("MisplacedExtenders", e.Path, name+" is not a field here",
			"extenders are for all profiles, and kube-scheduler reads them in the list \"extenders\" at the top only",
			"move it to the list \"extenders\" at the top", move(e.Path, extendersPath, ""))
	case e.Path == "schedulerName" && len(c.doc.config.Profiles) == 0:
		c.meant("UnknownField", e.Path, "kube-scheduler 1.19 and later does not know this field", "", "write profiles[0].schedulerName", move(e.Path, "profiles", "schedulerName"))
	case near != "" && there == nil:
		c.meant("UnknownField", e.Path, "kube-scheduler does not know this field", "", "write "+near, rename(e.Path, near))
	}
}

// rightValue returns what a value of another type probably means; "" if that is not known.
func rightValue(e *strictyaml.Error) string {
	text, quoted := strings.CutPrefix(e.Value, `"`)
	text = strings.TrimSuffix(text, `"`)
	switch {
	case strings.Contains(e.Rule, "a duration"):
		if d := durationOf(text); d != 0 {
			return d.String()
		}
	case e.Rule == "must be a whole number" && quoted && decimal.MatchString(text):
		return text
	case e.Rule == "must be true or false" && quoted && (strings.EqualFold(text, "true") || strings.EqualFold(text, "false")):
		return strings.ToLower(text)
	case e.Rule == "must be a string: put it in quotes" && e.Kind != "Invalid key" && !quoted && !strings.HasSuffix(text, "…"):
		return strconv.Quote(text)
	case strings.HasPrefix(e.Rule, "must be a mapping") && strings.HasPrefix(lastOf(e.Path), "managedResources[") && quoted:
		return "{name: " + text + "}"
	}
	return ""
}

// durationOf returns the duration that a text without a unit means: seconds if there are few, or
// the nanoseconds of a Policy. 0 is unknown.
func durationOf(text string) time.Duration {
	if d, err := time.ParseDuration(strings.ReplaceAll(text, " ", "")); err == nil {
		return d
	}
	n, err := strconv.ParseFloat(text, 64)
	switch d := time.Duration(n); {
	case err != nil:
		return 0
	case n > 0 && n <= 300:
		return time.Duration(n * float64(time.Second))
	case d >= time.Millisecond && d <= time.Hour:
		return d
	}
	return 0
}
