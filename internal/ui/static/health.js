// Whether Outboard is called and well, replica by replica.
import { ago, clock, h, marked, number, plural, remark, table } from './dom.js'

export default page => ({
  draw() {
    const { replicas } = page.overview, { seconds, profiles } = page.calls.lately(), now = page.now(), wrong = troublesOf(page)
    const over = seconds < 60 ? `in ${seconds} s, since this page was opened` : 'in the last minute'
    return [wrong.length ? h('p.bad', `${plural(wrong.length, 'thing is', 'things are')} not well:`)
      : h('p.good', `Everything is well: ${plural(replicas.length, 'replica')} ready, and no call has failed ${over}.`),
    h('ul.plain', wrong.map(text => h('li', text))),
    h('h2', `Calls of kube-scheduler ${over}`), profiles.map(p => h('section', { 'data-key': p.path },
      h('ol.chain', { 'aria-label': 'From the caller to the policies' }, h('li', p.schedulers.join(', ') || 'no scheduler yet'), h('li', 'extender ', h('code', p.path)),
        h('li', p.policies.map(x => x.weight ? `${x.name} × ${x.weight}` : x.name).join(', '))),
      table(`Calls of profile ${p.path}`, [
        ['Verb', c => c.verb],
        ['Calls', c => number(c.calls), 'n'],
        ['Errors', c => marked(c.failed > 0 && 'bad', number(c.failed)), 'n'],
        ...[50, 99].map(p => [`p${p}`, c => duration(quantile(c, p / 100)), 'n']),
        ['Last call', c => c.last ? ago(c.last, now) + ' ago' : c.total ? 'not lately' : 'never', 'n'],
      ], [...p.calls.values()], c => c.verb))),
    h('h2', 'Replicas'), table('Replicas', [
      ['Replica', r => [marked('name', r.name), r.error && remark('bad', r.error), r.checks?.map(c => remark(c.error ? 'bad' : 'good', `${c.name}: ${c.error || 'ok'}`))]],
      ['Version', r => r.version, 'label'],
      ['Configuration', r => [h('code', r.configuration), r.differs && remark('bad', 'differs from the others')], 'label'],
      ['Runs', r => r.started && ago(r.started, r.now), 'n'],
      ...['Nodes', 'Pods', 'Requeues'].map(title => [title, r => !r.error && number(r[title.toLowerCase()]), 'n']),
      ['Certificates', r => r.certificates?.map(c => {
        const days = Math.floor((Date.parse(c.notAfter) - Date.parse(r.now)) / 86400e3)
        return h('span.line', { class: days < 14 ? 'bad' : days < 30 && 'warn', title: `until ${clock(c.notAfter)}` }, `${c.use} ${c.subject}`.trim(), ': ', days < 0 ? 'ended' : `${plural(days, 'day')} left`)
      })],
    ], replicas, r => r.name)]
  },
})

const duration = s => s === undefined ? '–' : s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${(s * 1e3).toPrecision(2)} ms` : `${s.toPrecision(2)} s`

// troublesOf returns sentences about what is not well now.
export function troublesOf(page) {
  const { seconds, profiles } = page.calls.lately()
  return [...page.overview.troubles.map(t => [t.text, t.last && `The latest was ${ago(t.last, page.now())} ago.`, t.remedy].filter(Boolean).join(' ')),
    ...profiles.flatMap(p => [...p.calls.values()].filter(c => c.failed).map(c => `${number(c.failed)} of ${plural(c.calls, `${c.verb} call`)} of profile ${p.path} failed in the last ${seconds} s.`))]
}

// Lately compares overviews of the last minute.
export class Lately {
  kept = []
  add(overview) {
    this.kept.push({ at: performance.now(), overview })
  }
  // lately returns the profiles of all replicas with their calls, by verb, since the first overview that is kept, at most a minute ago. The calls
  // of a replica that the first overview lacks are not among them: nobody knows when they were.
  lately() {
    while (this.kept[1]?.at < performance.now() - 60000) this.kept.shift() // also when nothing new comes
    const profiles = new Map(), [first] = this.kept, before = callsOf(first.overview)
    for (const [key, { profile, ...c }] of callsOf(this.kept.at(-1).overview)) {
      const sum = profiles.get(profile.path) ?? { ...profile, schedulers: [], calls: new Map() }, was = before.get(key) ?? c
      profiles.set(profile.path, sum)
      sum.schedulers = [...new Set([...sum.schedulers, ...profile.schedulers])].sort()
      const s = sum.calls.get(c.verb) ?? { verb: c.verb, total: 0, calls: 0, failed: 0, last: '', durations: [] }
      sum.calls.set(c.verb, s)
      s.total += c.total
      s.calls += c.total - was.total
      s.failed += c.failed - was.failed
      if (c.last > s.last) s.last = c.last
      c.durations.forEach((d, i) => { s.durations[i] = { ...d, calls: (s.durations[i]?.calls ?? 0) + d.calls - (was.durations[i]?.calls ?? 0) } })
    }
    return { profiles: [...profiles.values()], seconds: Math.min(60, Math.max(1, Math.round((performance.now() - first.at) / 1000))) }
  }
}

// callsOf returns the calls in an overview by process, profile and verb, each with its profile.
const callsOf = overview => new Map(overview.replicas.flatMap(r => (r.profiles ?? []).flatMap(profile => profile.calls.map(c => [[r.name, r.started, profile.path, c.verb].join(' '), { ...c, profile }]))))

// quantile estimates a quantile of durations in seconds, as Prometheus does; undefined without calls.
function quantile({ calls, durations }, q) {
  const i = durations.findIndex(d => d.calls >= q * calls), low = durations[i - 1] ?? { seconds: 0, calls: 0 }
  if (!calls) return undefined
  if (i < 0) return durations.at(-1)?.seconds
  return low.seconds + (durations[i].seconds - low.seconds) * (q * calls - low.calls) / (durations[i].calls - low.calls || 1)
}
