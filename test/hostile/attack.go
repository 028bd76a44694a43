package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// honest is a filter call for a pod that Outboard has not seen in this version.
func honest(i int) string {
	var env, names []string
	for k := range 60 {
		env = append(env, fmt.Sprintf(`{"name":"SETTING_%d","value":"a value of some length"}`, k))
	}
	for k := range 500 {
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

// attackPause is the pause of a caller between two calls, so that Outboard gets most of the machine's time.
const attackPause = 200 * time.Millisecond

// attack calls until the process ends.
func attack(address string) {
	var running sync.WaitGroup
	for _, shape := range shapes {
		body := shape.body(0) // made once, as making it takes the machine's time
		for caller := range shape.callers {
			running.Go(func() {
				client := &http.Client{Timeout: 30 * time.Second}
				for i := 0; ; i++ {
					// Each about a pod of its own.
					fresh := strings.Replace(body, "hostile-0", fmt.Sprintf("hostile-%d-%d", caller, i), 1)
					_, _ = post(client, address, shape.verb, fresh) // refused, or not
					time.Sleep(attackPause)
				}
			})
		}
	}
	for _, connection := range slow {
		for range 100 {
			running.Go(func() {
				for {
					if c, err := net.Dial("tcp", address); err == nil {
						connection(c)
						c.Close()
					}
					time.Sleep(attackPause)
				}
			})
		}
	}
	running.Wait()
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

// slow are connections that hold their resources as long as possible.
var slow = map[string]func(net.Conn){
	"a large body that drips": func(c net.Conn) {
		fmt.Fprintf(c, header+"Content-Length: %d\r\n\r\n{", 120<<20)
		drip(c)
	},
	"an ordinary body that stops before its end": func(c net.Conn) {
		fmt.Fprintf(c, header+"Content-Length: %d\r\n\r\n%s", 64<<10, strings.Repeat(" ", 64<<10-1))
		_, _ = io.Copy(io.Discard, c)
	},
	"chunks without end, slowly": func(c net.Conn) {
		fmt.Fprint(c, header+"Transfer-Encoding: chunked\r\n\r\n")
		for {
			if _, err := fmt.Fprint(c, "1000\r\n"+strings.Repeat(" ", 0x1000)+"\r\n"); err != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	},
	"answers that are not read": func(c net.Conn) {
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		body := honest(0)
		for range 4 {
			if _, err := fmt.Fprintf(c, header+"Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
				return
			}
		}
		time.Sleep(10 * time.Second)
	},
	"a header that drips": func(c net.Conn) {
		fmt.Fprint(c, header+"X: ")
		drip(c)
	},
}
