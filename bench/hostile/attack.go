package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"outboard.dev/outboard/bench/trials"
)

// honest is a filter call about n nodes for a pod that Outboard has not seen in this version.
func honest(i, n int) string {
	var env, names []string
	for k := range 60 {
		env = append(env, fmt.Sprintf(`{"name":"SETTING_%d","value":"a value of some length"}`, k))
	}
	for k := range n {
		names = append(names, `"`+nodeName(i*487+k)+`"`)
	}
	return fmt.Sprintf(`{"Pod":{"metadata":{"namespace":"default","name":"web","uid":"honest-%d","resourceVersion":"1","labels":{"app":"web"}},`+
		`"spec":{"containers":[{"name":"main","image":"registry.example.com/team/service-1:1.2.3","env":[%s],"resources":{"requests":{"cpu":"1","memory":"1Gi"}}}]}},"NodeNames":[%s]}`,
		i, strings.Join(env, ","), strings.Join(names, ","))
}

func list(n int, element string) string { return strings.Repeat(element+",", n-1) + element }

func podWith(i int, spec string) string {
	return fmt.Sprintf(`{"metadata":{"namespace":"n","name":"p","uid":"hostile-%d","resourceVersion":"1"},"spec":{%s}}`, i, spec)
}

func filterOf(pod, names string) string { return `{"Pod":` + pod + `,"NodeNames":[` + names + `]}` }

// shapes are bodies that take a lot of memory or time for their size, by verb.
var shapes = []struct {
	verb    string
	callers int
	body    func(i int) string
}{
	{"preempt", 6, func(i int) string { // victims that are empty pods
		return `{"Pod":` + podWith(i, ``) + `,"NodeNameToVictims":{"` + nodeName(i) + `":{"Pods":[` + list(800_000, `{}`) + `]}}}`
	}},
	{"preempt", 4, func(i int) string { // as many as there may be
		var b strings.Builder
		for n := range 30 {
			fmt.Fprintf(&b, `"%s":{"Pods":[%s]},`, nodeName(n), list(4000, fmt.Sprintf(`{"UID":"%d"}`, i)))
		}
		return `{"Pod":` + podWith(i, ``) + `,"NodeNameToMetaVictims":{` + strings.TrimSuffix(b.String(), ",") + `}}`
	}},
	{"filter", 6, func(i int) string { // empty containers
		return filterOf(podWith(i, `"containers":[`+list(333_333, `{}`)+`]`), `"`+nodeName(i)+`"`)
	}},
	{"filter", 6, func(i int) string { // as many as there may be
		return filterOf(podWith(i, `"containers":[`+list(6_000, `{}`)+`]`), `"`+nodeName(i)+`"`)
	}},
	{"filter", 6, func(i int) string { // few enough to be ordinary
		return filterOf(podWith(i, `"containers":[`+list(1_500, `{}`)+`]`), `"`+nodeName(i)+`"`)
	}},
	{"filter", 4, func(i int) string { // slow quantities
		return filterOf(podWith(i, `"overhead":{`+list(20_000, `"x":"1e-99999"`)+`}`), `"`+nodeName(i)+`"`)
	}},
	{"filter", 6, func(i int) string { // unknown nodes
		var b strings.Builder
		for n := range 65_000 {
			fmt.Fprintf(&b, `"%x",`, n)
		}
		return filterOf(podWith(i, ``), strings.TrimSuffix(b.String(), ","))
	}},
	{"filter", 4, func(i int) string { // a long name
		return filterOf(`{"metadata":{"name":"`+strings.Repeat("x", 4<<20)+fmt.Sprint(i)+`"}}`, `"a"`)
	}},
	{"filter", 4, func(i int) string { // new nodes
		return `{"Pod":` + podWith(i, ``) + `,"Nodes":{"items":[{"metadata":{"name":"new-` + fmt.Sprint(i) + `"},"status":{"conditions":[` + list(6_000, `{}`) + `]}}]}}`
	}},
	{"filter", 3, func(i int) string { // as large as a body may be
		return filterOf(podWith(i, ``), `"a"`)[:1] + `"x":"` + strings.Repeat("x", 120<<20) + `",` + filterOf(podWith(i, ``), `"a"`)[1:]
	}},
	{"prioritize", 3, func(i int) string { // of many nodes
		return `{"Pod":` + podWith(i, ``) + `,"Nodes":{"items":[` + list(60_000, `{"metadata":{"name":"a"},"spec":{"x":"`+strings.Repeat("x", 900)+`"}}`) + `]}}`
	}},
	{"bind", 4, func(int) string {
		long := strings.Repeat("x", 1<<20)
		return `{"PodName":"` + long + `","PodNamespace":"` + long + `","PodUID":"` + long + `","Node":"` + long + `"}`
	}},
}

// attackPause is the pause of a caller between two calls, so that Outboard gets most of the
// machine's time.
const attackPause = 200 * time.Millisecond

// An attack runs in goroutines of its own until the process ends.
type attack struct {
	name string
	run  func(target) error
}

// target is what hostile callers reach.
type target struct {
	address, admin string
	caller         *caller
}

// attacks are all that hostile callers do.
var attacks = []attack{
	{"bodies that take much memory or time", largeBodies},
	{"floods of small calls", floods},
	{"floods of connections", connectionFloods},
	{"bodies at the least rate", trickle},
	{"connections that hold what they can", holdConnections},
	{"connections that never speak", neverSpeak},
	{"readers of metrics", readMetrics},
}

// attackWith runs the attacks whose names contain the text, until the process ends.
func attackWith(t target, text string) error {
	chosen, err := trials.Matching(attacks, text, func(a attack) string { return a.name })
	if err != nil {
		return err
	}
	for _, a := range chosen {
		if err := a.run(t); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	select {}
}

// largeBodies calls with all shapes.
func largeBodies(t target) error {
	for _, shape := range shapes {
		body := shape.body(0) // made once, as making it takes the machine's time
		for k := range shape.callers {
			client := t.caller.client(30 * time.Second)
			go func() {
				for i := 0; ; i++ {
					// Each about a pod of its own.
					fresh := strings.Replace(body, "hostile-0", fmt.Sprintf("hostile-%d-%d", k, i), 1)
					_, _ = post(client, t.address, shape.verb, fresh) // refused, or not
					time.Sleep(attackPause)
				}
			}()
		}
	}
	return nil
}

// floods makes small calls, one after the other without a pause, on connections that it keeps.
func floods(t target) error { return flood(t, 64) }

// connectionFloods is floods with a new connection, and so a handshake, for almost every call.
func connectionFloods(t target) error { return flood(t, 1) }

func flood(t target, kept int) error {
	client := t.caller.client(30 * time.Second)
	client.Transport.(*http.Transport).MaxIdleConnsPerHost = kept
	for k := range 64 {
		go func() {
			for i := 0; ; i++ {
				body := filterOf(podWith(i, fmt.Sprintf(`"x":"%d"`, k)), `"`+nodeName(i)+`"`)
				_, _ = post(client, t.address, "filter", body)
			}
		}()
	}
	return nil
}

// trickle sends the largest bodies at little more than a mebibyte a second.
func trickle(t target) error {
	part := []byte(strings.Repeat(" ", 110<<10))
	for range 4 {
		go t.caller.repeat(t.address, func(conn net.Conn) {
			fmt.Fprintf(conn, header+"Content-Length: %d\r\n\r\n", 120<<20)
			for {
				if _, err := conn.Write(part); err != nil {
					return
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
	return nil
}

// holdConnections opens connections that hold what they can as long as they can.
func holdConnections(t target) error {
	for range 100 {
		for _, connection := range slow {
			go t.caller.repeat(t.address, connection)
		}
	}
	return nil
}

// neverSpeak opens more connections than there may be, without TLS.
func neverSpeak(t target) error {
	for range 1200 {
		go func() {
			for {
				if conn, err := net.Dial("tcp", t.address); err == nil {
					_, _ = io.Copy(io.Discard, conn) // until the server closes it
					conn.Close()
				}
				time.Sleep(attackPause)
			}
		}()
	}
	return nil
}

// readMetrics reads the metrics, without a pause.
func readMetrics(t target) error {
	for range 64 {
		client := t.caller.client(30 * time.Second)
		go func() {
			for {
				if response, err := client.Get(t.admin + "/metrics"); err == nil {
					_, _ = io.Copy(io.Discard, response.Body)
					response.Body.Close()
				}
			}
		}()
	}
	return nil
}

const header = "POST /filter HTTP/1.1\r\nHost: x\r\n"

// drip sends a byte now and then until the connection ends.
func drip(c net.Conn) {
	for {
		if _, err := c.Write([]byte(" ")); err != nil {
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// slow are connections that hold what they can.
var slow = []func(net.Conn){
	func(c net.Conn) { // a large body that drips
		fmt.Fprintf(c, header+"Content-Length: %d\r\n\r\n{", 120<<20)
		drip(c)
	},
	func(c net.Conn) { // an ordinary body that stops before its end
		fmt.Fprintf(c, header+"Content-Length: %d\r\n\r\n%s", 64<<10, strings.Repeat(" ", 64<<10-1))
		_, _ = io.Copy(io.Discard, c)
	},
	func(c net.Conn) { // chunks without end, slowly
		fmt.Fprint(c, header+"Transfer-Encoding: chunked\r\n\r\n")
		for {
			if _, err := fmt.Fprint(c, "1000\r\n"+strings.Repeat(" ", 0x1000)+"\r\n"); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	},
	func(c net.Conn) { // responses that nobody reads
		body := honest(0, 500)
		for range 4 {
			if _, err := fmt.Fprintf(c, header+"Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
		}
		time.Sleep(10 * time.Second)
	},
	func(c net.Conn) { // a header that drips
		fmt.Fprint(c, header+"X: ")
		drip(c)
	},
	func(c net.Conn) { // headers as large as they may be, and larger
		for n := 0; ; n += 1 << 10 {
			if _, err := fmt.Fprint(c, header+"X: "+strings.Repeat("x", 8<<10+n)+"\r\nContent-Length: 2\r\n\r\n{}"); err != nil {
				return
			}
		}
	},
}
