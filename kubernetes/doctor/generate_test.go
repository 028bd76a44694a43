package doctor

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// drawn is a generated file with what is wrong or unusual in it.
type drawn struct {
	data     string
	mistakes []string
	outboard int // which of outboards it is checked with; -1 is none
}

// author writes one file.
type author struct {
	*rand.Rand
	mistakes []string
}

func (a *author) percent(p int) bool { return a.IntN(100) < p }

func oneOf[T any](a *author, options ...T) T { return options[a.IntN(len(options))] }

// stream makes all generated files differ from those of other streams. Increase it when somebody has looked at a file that is held out,
// so that nobody has seen the files that are held out from then on.
const stream = 23

// generate returns the file of a seed, which is always the same. Files that it names are in /tls.
func generate(seed uint64) drawn {
	a := &author{Rand: rand.New(rand.NewPCG(seed, stream))}
	root := a.configuration()
	for range oneOf(a, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3) {
		m := mistakes[a.IntN(len(mistakes))]
		if m.make(a, root) {
			a.mistakes = append(a.mistakes, m.name)
		}
	}
	d := drawn{outboard: a.IntN(len(outboards)+1) - 1}
	d.data = a.write(root)
	d.mistakes = a.mistakes
	return d
}

// configuration returns a configuration that kube-scheduler accepts.
func (a *author) configuration() *value {
	root := mapping("apiVersion", text("kubescheduler.config.k8s.io/v1"), "kind", text("KubeSchedulerConfiguration"))
	if a.percent(30) {
		root.set("clientConnection", mapping("kubeconfig", text("/tls/scheduler.conf")))
	}
	if a.percent(30) {
		root.set("leaderElection", oneOf(a,
			mapping("leaderElect", raw("false")),
			mapping("resourceName", text("outboard-scheduler"), "resourceNamespace", text("outboard-system")),
			mapping("leaderElect", raw("true"), "leaseDuration", text("15s"), "renewDeadline", text("10s"))))
	}
	if a.percent(50) {
		root.set("percentageOfNodesToScore", raw(oneOf(a, "100", "100", "50", "0")))
	}
	if a.percent(50) {
		root.set("profiles", a.profiles())
	}
	extenders := list()
	for i := range oneOf(a, 1, 1, 1, 2, 2, 3) {
		extenders.items = append(extenders.items, a.extender(i))
	}
	root.set("extenders", extenders)
	if a.percent(20) { // some write the extenders first
		last := len(root.fields) - 1
		root.fields[2], root.fields[last] = root.fields[last], root.fields[2]
	}
	return root
}

func (a *author) profiles() *value {
	profiles := list()
	for i := range oneOf(a, 1, 1, 2) {
		p := mapping("schedulerName", text([]string{oneOf(a, "default-scheduler", "outboard-scheduler"), "second"}[i]))
		if a.percent(40) {
			p.set("plugins", mapping("score", mapping("disabled", list(mapping("name", text("ImageLocality"))),
				"enabled", list(mapping("name", text("NodeResourcesFit"), "weight", raw("5"))))))
		}
		if a.percent(30) {
			p.set("pluginConfig", list(mapping("name", text("NodeResourcesFit"),
				"args", mapping("scoringStrategy", mapping("type", text("MostAllocated"))))))
		}
		profiles.items = append(profiles.items, p)
	}
	return profiles
}

// extender returns the extender i. The first may bind; no resource is in two.
func (a *author) extender(i int) *value {
	https := a.percent(50)
	host := oneOf(a, "127.0.0.1:8443", "localhost:8443", "outboard.outboard-system.svc", "10.96.0.20:443", "my-extender.svc:8443", "[::1]:8443")
	path := oneOf(a, "", "/", "/gpu", "/images", "/gpushare-scheduler")
	scheme := "http://"
	if https {
		scheme = "https://"
	}
	e := mapping("urlPrefix", text(scheme+host+path), "filterVerb", text("filter"))
	if a.percent(60) {
		e.set("prioritizeVerb", text("prioritize"))
		e.set("weight", raw(oneOf(a, "1", "2", "5", "10", "100")))
	}
	if i == 0 && a.percent(60) {
		e.set("bindVerb", text("bind"))
		if a.percent(60) {
			e.set("preemptVerb", text("preempt"))
		}
	}
	e.set("nodeCacheCapable", raw(oneOf(a, "true", "true", "true", "false")))
	if a.percent(70) {
		e.set("httpTimeout", text(oneOf(a, "3s", "1s", "200ms", "30s", "1m30s")))
	}
	if a.percent(50) {
		e.set("ignorable", raw(oneOf(a, "true", "false")))
	}
	if a.percent(60) {
		resources := list()
		for j, name := range []string{"aliyun.com/gpu-mem", "aliyun.com/gpu-count", "example.com/gpu"} {
			if j%3 == i%3 || i == 0 && j == 1 && a.percent(50) {
				r := mapping("name", text(name))
				if a.percent(60) {
					r.set("ignoredByScheduler", raw(oneOf(a, "true", "false")))
				}
				resources.items = append(resources.items, r)
			}
		}
		if i == 0 || len(resources.items) == 1 && i != 1 {
			e.set("managedResources", resources)
		}
	}
	if https {
		e.set("enableHTTPS", raw("true"))
		tls := mapping("caFile", text("/tls/ca.crt"))
		if a.percent(70) {
			tls.set("certFile", text("/tls/client.crt"))
			tls.set("keyFile", text("/tls/client.key"))
		}
		if a.percent(20) {
			tls.set("serverName", text("outboard.outboard-system.svc"))
		}
		e.set("tlsConfig", tls)
	}
	return e
}

// write returns the text of the file, as people write it.
func (a *author) write(root *value) string {
	switch {
	case a.percent(10):
		a.mistakes = append(a.mistakes, "JSON")
		indent, newline := oneOf(a, "", "  ", "\t"), "\n"
		if indent == "" {
			newline = ""
		}
		out := root.json(indent, newline) + "\n"
		if a.percent(25) {
			out = a.damage(out, jsonDamages)
		}
		return a.around(out)
	case a.percent(20):
		a.share(root)
	}
	s := &style{
		Rand: a.Rand, indent: oneOf(a, "  ", "  ", "    "), dash: oneOf(a, "", "", "  "), flow: oneOf(a, 0, 20, 60),
		comments: oneOf(a, 0, 10, 30), blank: oneOf(a, 0, 0, 10), quotes: oneOf(a, 0, 20, 100),
	}
	out := s.yaml(root)
	if a.percent(5) {
		a.mistakes = append(a.mistakes, "flow style")
		out = oneOf(a, "", "# all in one line\n") + s.inFlow(root) + "\n"
	}
	if a.percent(15) {
		out = a.damage(out, yamlDamages)
	}
	return a.around(out)
}

// share writes equal parts once, with an anchor, and merges the fields of one extender into another.
func (a *author) share(root *value) {
	extenders := root.get("extenders")
	if extenders == nil || !extenders.list || len(extenders.items) < 2 {
		return
	}
	first, second := extenders.items[0], extenders.items[1]
	if !first.isMapping() || !second.isMapping() {
		return
	}
	if tls := first.get("tlsConfig"); tls != nil && a.percent(50) {
		a.mistakes = append(a.mistakes, "anchor")
		tls.anchor = "tls"
		copied := *tls
		copied.anchor, copied.alias = "", "tls"
		second.set("tlsConfig", &copied)
		return
	}
	// The second extender has the fields of the first and those of its own.
	a.mistakes = append(a.mistakes, "merge key")
	var own []field
	for _, f := range second.fields {
		if first.get(f.name) == nil || a.percent(15) {
			own = append(own, f)
		}
	}
	first.remove("bindVerb")
	first.remove("managedResources")
	first.anchor, second.merged, second.mergedCount = "first", "first", len(first.fields)
	second.fields = append(append([]field{}, first.fields...), own...)
}

// around puts the document beside others or in a ConfigMap.
func (a *author) around(doc string) string {
	configMap := func(body string) string {
		return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: scheduler\n  namespace: kube-system\ndata:\n" + body
	}
	block := func(mark string) string {
		return "  scheduler.yaml: " + mark + "\n    " + strings.ReplaceAll(strings.TrimSuffix(doc, "\n"), "\n", "\n    ") + "\n"
	}
	name := ""
	switch n := a.IntN(100); {
	case n < 10:
		name, doc = "ConfigMap", configMap(block("|"))
	case n < 12:
		name, doc = "ConfigMap with |-", configMap(block("|-"))
	case n < 14:
		name, doc = "ConfigMap with a quoted string", configMap("  scheduler.yaml: "+text(doc).scalar+"\n")
	case n < 16:
		name, doc = "ConfigMap after a namespace", "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\n"+configMap(block("|"))
	case n < 18:
		name, doc = "ConfigMap with other keys", configMap("  other.yaml: |\n    a: b\n"+block("|")+"  readme: see scheduler.yaml\n")
	case n < 21:
		name, doc = "document after it", doc+"---\napiVersion: v1\nkind: Service\nmetadata: {name: outboard}\n"
	case n < 22:
		name, doc = "broken document after it", doc+"---\nkind: [\n"
	case n < 24:
		name, doc = "document before it", "apiVersion: v1\nkind: Service\nmetadata: {name: outboard}\n---\n"+doc
	case n < 26:
		name, doc = "two configurations", doc+"---\n"+doc
	case n < 29:
		name, doc = "separator", "---\n"+doc
	case n < 30:
		name, doc = "separator and end", "# scheduler\n---\n"+doc+"...\n"
	case n < 31:
		name, doc = "empty document before it", "---\n---\n"+doc
	case n < 32:
		name, doc = "directive", "%YAML 1.1\n---\n"+doc
	}
	if name != "" {
		a.mistakes = append(a.mistakes, name)
	}
	switch n := a.IntN(100); {
	case n < 5:
		a.mistakes, doc = append(a.mistakes, "CRLF"), strings.ReplaceAll(doc, "\n", "\r\n")
	case n < 7:
		a.mistakes, doc = append(a.mistakes, "byte order mark"), "\ufeff"+doc
	case n < 9:
		a.mistakes, doc = append(a.mistakes, "no line end"), strings.TrimSuffix(doc, "\n")
	}
	return doc
}

// damage is a change of the text.
type damage struct {
	name string
	make func(a *author, lines []string) []string
}

func (a *author) damage(text string, damages []damage) string {
	d := damages[a.IntN(len(damages))]
	a.mistakes = append(a.mistakes, d.name)
	return strings.Join(d.make(a, strings.Split(strings.TrimSuffix(text, "\n"), "\n")), "\n") + "\n"
}

// anyLine returns the index of a line that satisfies is, or -1.
func (a *author) anyLine(lines []string, is func(string) bool) int {
	var all []int
	for i, line := range lines {
		if is(line) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		return -1
	}
	return oneOf(a, all...)
}

func replaceLine(is func(string) bool, with func(a *author, line string) string) func(*author, []string) []string {
	return func(a *author, lines []string) []string {
		if i := a.anyLine(lines, is); i >= 0 {
			lines[i] = with(a, lines[i])
		}
		return lines
	}
}

func indented(line string) bool { return strings.HasPrefix(line, " ") && strings.TrimSpace(line) != "" }
func isField(line string) bool {
	return strings.Contains(line, ": ") && !strings.HasPrefix(strings.TrimSpace(line), "#")
}

func replaceText(old, with string) func(*author, string) string {
	return func(_ *author, line string) string { return strings.Replace(line, old, with, 1) }
}

var yamlDamages = []damage{
	{"tab as indentation", replaceLine(indented, func(_ *author, line string) string { return "\t" + strings.TrimLeft(line, " ") })},
	{"tab after a colon", replaceLine(isField, replaceText(": ", ":\t"))},
	{"tab before a comment", replaceLine(isField, func(_ *author, line string) string { return line + "\t# tab" })},
	{"one line less indented", replaceLine(indented, func(_ *author, line string) string { return line[1:] })},
	{"one line more indented", replaceLine(isField, func(_ *author, line string) string { return "  " + line })},
	{"one line without indentation", replaceLine(indented, func(_ *author, line string) string { return strings.TrimLeft(line, " ") })},
	{"no indentation", func(a *author, lines []string) []string {
		for i := a.IntN(len(lines)); i < len(lines); i++ {
			lines[i] = strings.TrimLeft(lines[i], " ")
		}
		return lines
	}},
	{"all indented", func(_ *author, lines []string) []string {
		for i := range lines {
			lines[i] = "    " + lines[i]
		}
		return lines
	}},
	{"all but the first indented", func(_ *author, lines []string) []string {
		for i := range lines[1:] {
			lines[i+1] = "    " + lines[i+1]
		}
		return lines
	}},
	{"no space after a colon", replaceLine(isField, replaceText(": ", ":"))},
	{"no colon", replaceLine(isField, replaceText(": ", " "))},
	{"line twice", func(a *author, lines []string) []string {
		i := a.anyLine(lines, isField)
		if i < 0 {
			return lines
		}
		return append(append(append([]string{}, lines[:i+1]...), lines[i]), lines[i+1:]...)
	}},
	{"unclosed quote", replaceLine(isField, replaceText(": ", `: "`))},
	{"unclosed bracket", replaceLine(isField, replaceText(": ", ": ["))},
	{"curly quotes", replaceLine(isField, func(_ *author, line string) string { return strings.Replace(line, ": ", ": “", 1) + "”" })},
	{"cut off", func(a *author, lines []string) []string { return lines[:1+a.IntN(len(lines))] }},
	{"spaces at the end", replaceLine(isField, func(_ *author, line string) string { return line + "   " })},
	{"no dash", replaceLine(func(line string) bool { return strings.Contains(line, "- ") }, replaceText("- ", "  "))},
	{"template", replaceLine(isField, func(_ *author, line string) string {
		name, _, _ := strings.Cut(line, ": ")
		return name + ": {{ .Values.x }}"
	})},
	{"tag", replaceLine(isField, replaceText(": ", ": !!str "))},
	{"no comment sign", replaceLine(func(line string) bool { return strings.Contains(line, "# ") }, replaceText("# ", ""))},
	{"comment without a space", replaceLine(isField, func(_ *author, line string) string { return line + "#comment" })},
}

var jsonDamages = []damage{
	{"comma at the end", func(_ *author, lines []string) []string {
		last := len(lines) - 1
		lines[last] = strings.TrimSuffix(lines[last], "}") + ",}"
		return lines
	}},
	{"comment in JSON", func(_ *author, lines []string) []string { return append([]string{"// scheduler"}, lines...) }},
	{"YAML comment before JSON", func(_ *author, lines []string) []string { return append([]string{"# scheduler"}, lines...) }},
	{"unquoted key", func(_ *author, lines []string) []string {
		for i := range lines {
			lines[i] = strings.Replace(lines[i], `"kind"`, "kind", 1)
		}
		return lines
	}},
	{"single quotes", func(_ *author, lines []string) []string {
		for i := range lines {
			lines[i] = strings.ReplaceAll(lines[i], `"`, `'`)
		}
		return lines
	}},
	{"escaped slashes", func(_ *author, lines []string) []string {
		for i := range lines {
			lines[i] = strings.ReplaceAll(lines[i], `/`, `\/`)
		}
		return lines
	}},
	{"key twice in JSON", func(_ *author, lines []string) []string {
		last := len(lines) - 1
		lines[last] = strings.TrimSuffix(lines[last], "}") + `, "kind": "KubeSchedulerConfiguration"}`
		return lines
	}},
	{"text after JSON", func(_ *author, lines []string) []string { return append(lines, "EOF") }},
}

// mistake is a change of a configuration, which reports whether it was possible.
type mistake struct {
	name string
	make func(a *author, root *value) bool
}

// anyExtender changes one extender.
func anyExtender(change func(a *author, e *value) bool) func(*author, *value) bool {
	return func(a *author, root *value) bool {
		extenders := root.get("extenders")
		if extenders == nil || !extenders.list || len(extenders.items) == 0 {
			return false
		}
		e := oneOf(a, extenders.items...)
		return e.isMapping() && change(a, e)
	}
}

// setOne sets a field of one extender to one of the values.
func setOne(name string, values ...func() *value) func(*author, *value) bool {
	return anyExtender(func(a *author, e *value) bool {
		e.set(name, oneOf(a, values...)())
		return true
	})
}

func str(s string) func() *value   { return func() *value { return text(s) } }
func bare(s string) func() *value  { return func() *value { return raw(s) } }
func as(j, y string) func() *value { return func() *value { return &value{scalar: j, yaml: y} } }
func built(v *value) func() *value { return func() *value { return copyOf(v) } }
func copyOf(v *value) *value {
	c := *v
	c.fields, c.items = nil, nil
	for _, f := range v.fields {
		c.fields = append(c.fields, field{f.name, copyOf(f.value)})
	}
	for _, item := range v.items {
		c.items = append(c.items, copyOf(item))
	}
	return &c
}

// renameOne renames a field of one extender.
func renameOne(pairs ...[2]string) func(*author, *value) bool {
	return anyExtender(func(a *author, e *value) bool {
		p := oneOf(a, pairs...)
		if e.get(p[0]) == nil {
			return false
		}
		e.rename(p[0], p[1])
		return true
	})
}

// ofTLS sets a field of one tlsConfig.
func ofTLS(name string, values ...func() *value) func(*author, *value) bool {
	return anyExtender(func(a *author, e *value) bool {
		tls := e.get("tlsConfig")
		if tls == nil || !tls.isMapping() {
			tls = mapping()
			e.set("tlsConfig", tls)
		}
		tls.set(name, oneOf(a, values...)())
		return true
	})
}

func atTop(name string, values ...func() *value) func(*author, *value) bool {
	return func(a *author, root *value) bool {
		root.set(name, oneOf(a, values...)())
		return true
	}
}

func anyProfile(change func(a *author, p *value)) func(*author, *value) bool {
	return func(a *author, root *value) bool {
		profiles := root.get("profiles")
		if profiles == nil {
			profiles = list(mapping("schedulerName", text("default-scheduler")))
			root.set("profiles", profiles)
		}
		if !profiles.list {
			return false
		}
		change(a, oneOf(a, profiles.items...))
		return true
	}
}

var mistakes = []mistake{
	{"old version", atTop("apiVersion", str("kubescheduler.config.k8s.io/v1beta1"), str("kubescheduler.config.k8s.io/v1beta3"), str("kubescheduler.config.k8s.io/v1alpha1"), str("componentconfig/v1alpha1"), str("v1"), str("kubescheduler.config.k8s.io/V1"), bare("1"))},
	{"other kind", atTop("kind", str("kubeSchedulerConfiguration"), str("KubeSchedulerConfig"), str("Policy"), str("OutboardConfiguration"), str("ConfigMap"), str(""), bare("5"))},
	{"no kind or version", func(a *author, root *value) bool {
		root.remove(oneOf(a, "kind", "apiVersion"))
		return true
	}},
	{"metadata", atTop("metadata", built(mapping("name", text("scheduler-config"))), built(mapping("name", text("x"), "namespace", text("kube-system"))))},
	{"spec", func(_ *author, root *value) bool {
		spec := mapping()
		spec.fields = append(spec.fields, root.fields[min(2, len(root.fields)):]...)
		root.fields = root.fields[:min(2, len(root.fields))]
		root.set("spec", spec)
		return true
	}},
	{"extenderConfig", func(a *author, root *value) bool {
		root.rename("extenders", oneOf(a, "extenderConfig", "extenderConfigs", "extender", "Extenders", "extendersConfig"))
		return true
	}},
	{"extenders in a profile", func(a *author, root *value) bool {
		extenders := root.get("extenders")
		if extenders == nil {
			return false
		}
		name := oneOf(a, "extenders", "extenderConfig")
		if !anyProfile(func(_ *author, p *value) { p.set(name, extenders) })(a, root) {
			return false
		}
		root.remove("extenders")
		return true
	}},
	{"wrong case", renameOne([2]string{"enableHTTPS", "enableHttps"}, [2]string{"enableHTTPS", "enableHTTPs"}, [2]string{"urlPrefix", "urlprefix"}, [2]string{"urlPrefix", "URLPrefix"}, [2]string{"filterVerb", "FilterVerb"},
		[2]string{"httpTimeout", "HTTPTimeout"}, [2]string{"httpTimeout", "httptimeout"}, [2]string{"tlsConfig", "TLSConfig"}, [2]string{"tlsConfig", "tlsconfig"}, [2]string{"nodeCacheCapable", "NodeCacheCapable"})},
	{"similar name", renameOne([2]string{"urlPrefix", "url_prefix"}, [2]string{"urlPrefix", "url"}, [2]string{"ignorable", "ignoreable"}, [2]string{"managedResources", "managedResource"}, [2]string{"prioritizeVerb", "prioritiseVerb"}, [2]string{"enableHTTPS", "enableTLS"},
		[2]string{"bindVerb", "bind"}, [2]string{"httpTimeout", "timeout"}, [2]string{"preemptVerb", "preemptionVerb"}, [2]string{"managedResources", "managed.resources"})},
	{"correct and wrong name", anyExtender(func(a *author, e *value) bool {
		e.set(oneOf(a, "enableHttps", "url", "ignoreable"), raw("true"))
		return true
	})},
	{"unknown field", anyExtender(func(a *author, e *value) bool {
		e.set(oneOf(a, "name", "retries", "nodeSelector", "apiVersion"), text("x"))
		return true
	})},
	{"unknown field at the top", atTop("algorithmSource", built(mapping("provider", text("DefaultProvider"))))},
	{"schedulerName at the top", atTop("schedulerName", str("outboard-scheduler"))},
	{"unknown TLS field", ofTLS("trustedCaFile", str("/tls/ca.crt"))},
	{"unknown field of a resource", anyExtender(func(a *author, e *value) bool {
		r := e.get("managedResources")
		if r == nil || !r.list || len(r.items) == 0 || !r.items[0].isMapping() {
			return false
		}
		r.items[0].rename(oneOf(a, "name", "ignoredByScheduler"), oneOf(a, "resource", "ignoredbyScheduler", "ignoreByScheduler"))
		return true
	})},
	{"true as a string", setOne("ignorable", str("true"), str("false"), str("yes"))},
	{"true in other words", setOne("ignorable", as("true", "yes"), as("true", "True"), as("false", "off"), as("true", "on"), as("false", "no"), as("true", "TRUE"), as("true", "y"))},
	{"true in other words 2", setOne("nodeCacheCapable", as("true", "yes"), as("true", "True"), as("true", "on"))},
	{"number for a boolean", setOne("nodeCacheCapable", bare("1"), bare("0"))},
	{"weight of another type", setOne("weight", str("5"), bare("1.5"), bare("1.0"), bare("1e3"), built(list(raw("1"))), str(""), bare("99999999999999999999"))},
	{"weight in other words", setOne("weight", as("8", "010"), as("31", "0x1F"), as("1000", "1_000"), as("5", "+5"), as("8", "0o10"), as("5", "0b101"))},
	{"weight that is not positive", setOne("weight", bare("0"), bare("-1"))},
	{"prioritizeVerb without weight", anyExtender(func(_ *author, e *value) bool {
		e.set("prioritizeVerb", text("prioritize"))
		e.remove("weight")
		return true
	})},
	{"verb of another type", setOne("filterVerb", bare("true"), bare("5"), built(list(text("filter"))), built(mapping("name", text("filter"))))},
	{"null", anyExtender(func(a *author, e *value) bool {
		e.set(oneOf(a, "urlPrefix", "weight", "tlsConfig", "managedResources", "httpTimeout", "filterVerb", "bindVerb", "nodeCacheCapable"), oneOf(a, raw("null"), &value{scalar: "null", yaml: "~"}, &value{scalar: "null", yaml: " "}))
		return true
	})},
	{"null extender", func(a *author, root *value) bool {
		extenders := root.get("extenders")
		if extenders == nil || !extenders.list {
			return false
		}
		extenders.items = append(extenders.items, raw("null"))
		return true
	}},
	{"timeout as a number", setOne("httpTimeout", bare("3"), bare("3000000000"), bare("0"), bare("30"), bare("2.5"))},
	{"timeout without unit", setOne("httpTimeout", str("3"), str("3000"), str("3 s"), str("3sec"), str("three"), str(""), str("0"))},
	{"long or short timeout", setOne("httpTimeout", str("100s"), str("1ms"), str("-3s"), str("0s"), str("1h"))},
	{"other timeout of another type", atTop("leaderElection", built(mapping("leaseDuration", raw("15"))), built(mapping("leaderElect", raw("true"), "renewDeadline", text("10"))), built(mapping("leaseDuration", text("3s"))), built(mapping("resourceLock", text("endpoints"))), built(mapping("leaderElect", text("false"))))},
	{"resources as strings", setOne("managedResources", built(list(text("aliyun.com/gpu-mem"))), built(list(text("aliyun.com/gpu-mem"), text("aliyun.com/gpu-count"))), str("aliyun.com/gpu-mem"), built(mapping("name", text("aliyun.com/gpu-mem"))))},
	{"resource without domain", setOne("managedResources", built(list(mapping("name", text("gpu")))), built(list(mapping("name", text("cpu")))), built(list(mapping("name", text("kubernetes.io/x")))),
		built(list(mapping("name", text("Example.com/GPU")))), built(list(mapping("name", text("example.com/")))), built(list(mapping("name", text("requests.example.com/gpu")))), built(list(mapping("name", text("example.com/gpu mem")))),
		built(list(mapping("ignoredByScheduler", raw("true")))), built(list(mapping("name", text("example.com/a/b")))), built(list(mapping("name", text("hugepages-2Mi")))))},
	{"resource twice", anyExtender(func(a *author, e *value) bool {
		e.set("managedResources", list(mapping("name", text("example.com/x")), mapping("name", text("example.com/x"), "ignoredByScheduler", raw("true"))))
		return true
	})},
	{"resource in two extenders", func(_ *author, root *value) bool {
		extenders := root.get("extenders")
		if extenders == nil || !extenders.list || len(extenders.items) < 2 || !extenders.items[0].isMapping() || !extenders.items[1].isMapping() {
			return false
		}
		for _, e := range extenders.items[:2] {
			e.set("managedResources", list(mapping("name", text("aliyun.com/gpu-mem"))))
		}
		return true
	}},
	{"same extender twice", func(_ *author, root *value) bool {
		extenders := root.get("extenders")
		if extenders == nil || !extenders.list || len(extenders.items) == 0 || !extenders.items[0].isMapping() {
			return false
		}
		second := copyOf(extenders.items[0])
		second.remove("bindVerb")
		second.remove("managedResources")
		second.set("ignorable", raw("true"))
		extenders.items = append(extenders.items, second)
		return true
	}},
	{"bindVerb", setOne("bindVerb", str("bind"), str("bind"), str(""))},
	{"ignorable", setOne("ignorable", bare("true"))},
	{"extenders as a mapping", func(_ *author, root *value) bool {
		extenders := root.get("extenders")
		if extenders == nil || !extenders.list || len(extenders.items) == 0 {
			return false
		}
		root.set("extenders", extenders.items[0])
		return true
	}},
	{"no extenders", func(a *author, root *value) bool {
		if a.percent(50) {
			root.remove("extenders")
		} else {
			root.set("extenders", oneOf(a, list(), raw("null")))
		}
		return true
	}},
	{"URL", setOne("urlPrefix", str("127.0.0.1:8443"), str("outboard"), str("https:/127.0.0.1"), str("http://127.0.0.1:99999/x"), str("http://:8443"), str(""), str("http://127.0.0.1:8443/filter"), str("tcp://127.0.0.1:1"), str("HTTP://127.0.0.1:8443"), bare("8443"), str("http://127.0.0.1:8443 "), str("http://%zz"))},
	{"no URL", anyExtender(func(_ *author, e *value) bool { e.remove("urlPrefix"); return true })},
	{"verbs of tutorials", setOne("filterVerb", str("predicates"), str("/filter"), str("filter/"), str("predicates/always_true"), str("Filter"), str(""))},
	{"verb of prioritize", setOne("prioritizeVerb", str("priorities"), str("my_new_priorities/image_score"))},
	{"no filterVerb", anyExtender(func(_ *author, e *value) bool { e.remove("filterVerb"); return true })},
	{"no nodeCacheCapable", anyExtender(func(_ *author, e *value) bool { e.remove("nodeCacheCapable"); return true })},
	{"https without enableHTTPS", anyExtender(func(_ *author, e *value) bool {
		e.set("urlPrefix", text("https://127.0.0.1:8443/gpu"))
		e.remove("enableHTTPS")
		e.remove("tlsConfig")
		return true
	})},
	{"enableHTTPS of http", anyExtender(func(_ *author, e *value) bool {
		e.set("urlPrefix", text("http://127.0.0.1:8443/gpu"))
		e.set("enableHTTPS", raw("true"))
		return true
	})},
	{"no CA", anyExtender(func(a *author, e *value) bool {
		e.set("enableHTTPS", raw("true"))
		e.set("tlsConfig", oneOf(a, mapping("insecure", raw("true")), mapping("insecure", raw("false")), mapping("certFile", text("/tls/client.crt"), "keyFile", text("/tls/client.key")), mapping(), raw("null")))
		return true
	})},
	{"CA with insecure", anyExtender(func(_ *author, e *value) bool {
		tls := e.get("tlsConfig")
		if tls == nil || !tls.isMapping() {
			return false
		}
		tls.set("caFile", text("/tls/ca.crt"))
		tls.set("insecure", raw("true"))
		return true
	})},
	{"caData that is a path", ofTLS("caData", str("/tls/ca.crt"))},
	{"caData of garbage", ofTLS("caData", str("aGFsbG8="), str("not base64"), str("-----BEGIN CERTIFICATE-----"), str(""), bare("5"))},
	{"keyData of garbage", ofTLS("keyData", str("aGFsbG8="), str("***"))},
	{"certData of garbage", ofTLS("certData", str("aGFsbG8="))},
	{"relative path", ofTLS("certFile", str("client.crt"))},
	{"certificate without key", anyExtender(func(a *author, e *value) bool {
		tls := e.get("tlsConfig")
		if tls == nil || !tls.isMapping() || tls.get("keyFile") == nil {
			return false
		}
		tls.remove(oneOf(a, "keyFile", "certFile"))
		return true
	})},
	{"key of another certificate", ofTLS("keyFile", str("/tls/other.key"))},
	{"CA that is a key", ofTLS("caFile", str("/tls/client.key"))},
	{"file that does not exist", ofTLS("caFile", str("/tls/missing.crt"))},
	{"clientConnection of another type", atTop("clientConnection", built(mapping("qps", text("50"))), built(mapping("burst", raw("-1"))), str("/tls/scheduler.conf"), built(mapping("kubeConfig", text("/tls/scheduler.conf"))))},
	{"serverName", ofTLS("serverName", str("outboard"), bare("5"))},
	{"percentage", atTop("percentageOfNodesToScore", bare("150"), bare("-1"), str("100"), str("50%"), bare("100.5"), bare("101"))},
	{"plugins as strings", anyProfile(func(_ *author, p *value) {
		p.set("plugins", mapping("score", mapping("enabled", list(text("NodeResourcesFit")))))
	})},
	{"profiles of another type", atTop("profiles", built(mapping("schedulerName", text("default-scheduler"))), str("default"), built(list(text("default-scheduler"))))},
	{"field that is a number", func(a *author, root *value) bool {
		root.set(fmt.Sprint(a.IntN(10)), raw("1"))
		return true
	}},
	{"Policy", func(a *author, root *value) bool {
		root.set("apiVersion", text("v1"))
		root.set("kind", text("Policy"))
		if a.percent(50) {
			root.set("predicates", list(mapping("name", text("PodFitsResources"))))
		}
		for _, name := range []string{"profiles", "clientConnection", "leaderElection", "percentageOfNodesToScore"} {
			root.remove(name)
		}
		if extenders := root.get("extenders"); extenders != nil && extenders.list {
			for _, e := range extenders.items {
				if e.isMapping() {
					e.rename("enableHTTPS", "enableHttps")
					e.rename("tlsConfig", oneOf(a, "tlsConfig", "tlsConfig"))
					if e.get("httpTimeout") != nil {
						e.set("httpTimeout", raw("3000000000"))
					}
				}
			}
		}
		return true
	}},
}
