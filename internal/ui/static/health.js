// Whether Outboard is called and well, replica by replica.
import { ago, clock, h, number, plural, remark, sections, show, table } from './dom.js'

export default function health(root, _, page) {
  const verdict = h('p'), troubles = h('ul', { class: 'plain' }), period = h('h2'), profiles = h('div')
  const replicas = table('Replicas', [
    { title: 'Replica', of: r => [h('span', { class: 'name' }, r.name), r.error && remark('bad', r.error),
      (r.checks ?? []).map(c => remark(c.error ? 'bad' : 'good', `${c.name}: ${c.error || 'ok'}`))] },
    { title: 'Version', label: true, of: r => r.version },
    { title: 'Configuration', label: true, kind: r => r.differs && 'bad', of: r => [h('code', {}, r.configuration), r.differs && remark('', 'differs from the others')] },
    { title: 'Runs', n: true, of: r => r.runs },
    { title: 'Nodes', n: true, of: r => !r.error && number(r.nodes) },
    { title: 'Pods', n: true, of: r => !r.error && number(r.pods) },
    { title: 'Requeues', n: true, of: r => !r.error && number(r.requeues) },
    { title: 'Certificates', of: r => r.certificates.map(c => h('span', { class: `line ${c.days < 14 ? 'bad' : c.days < 30 ? 'warn' : ''}`, title: `until ${clock(c.notAfter)}` }, `${c.name}: ${left(c.days)}`)) },
  ])
  root.append(h('h1', {}, 'Health'), verdict, troubles, period, profiles, h('h2', {}, 'Replicas'), replicas.element)
  return {
    overview(o) {
      const up = o.replicas.filter(r => !r.error), lately = page.lately(), now = page.now(), wrong = troublesOf(o, lately, now)
      const over = lately.seconds < 60 ? `in ${lately.seconds} s, since this page was opened` : 'in the last minute'
      verdict.className = wrong.length ? 'bad' : 'good'
      verdict.textContent = wrong.length ? `${plural(wrong.length, 'thing is', 'things are')} not well:` : `Everything is well: ${plural(up.length, 'replica')} ready, and no call has failed ${over}.`
      show(troubles, wrong, t => t, t => h('li', {}, t))
      period.textContent = `Calls of kube-scheduler ${over}`
      sections(profiles, lately.profiles.map(p => ({ key: p.path, data: [p.schedulers, p.policies], make() {
        const calls = table(`Calls of profile ${p.path}`, [
          { title: 'Verb', of: c => c.verb },
          { title: 'Calls', n: true, of: c => number(c.calls) },
          { title: 'Errors', n: true, kind: c => c.failed > 0 && 'bad', of: c => number(c.failed) },
          ...[50, 99].map(p => ({ title: `p${p}`, n: true, of: c => duration(quantile(c, p / 100)) })),
          { title: 'Last call', n: true, of: c => c.ago },
        ]).element
        return Object.assign(h('section', {}, h('ol', { class: 'chain', 'aria-label': 'From the caller to the policies' },
          h('li', {}, p.schedulers.join(', ') || 'no scheduler yet'), h('li', {}, 'extender ', h('code', {}, p.path)),
          h('li', {}, p.policies.map(x => x.weight ? `${x.name} × ${x.weight}` : x.name).join(', '))), calls), { fill: calls.fill })
      }, fill: e => e.fill(p.calls.map(c => ({ ...c, last: undefined, ago: c.last ? ago(c.last, now) + ' ago' : c.total ? 'not lately' : 'never' })), c => c.verb) })))
      replicas.fill(o.replicas.map(r => ({ ...r, now: undefined, generation: undefined, profiles: undefined, runs: r.started ? ago(r.started, r.now) : '',
        certificates: (r.certificates ?? []).map(c => ({ name: nameOf(c), notAfter: c.notAfter, days: daysOf(c, r.now) })) })), r => r.name)
    },
  }
}

const nameOf = c => c.subject ? `${c.use} ${c.subject}` : c.use
const daysOf = (c, now) => Math.floor((Date.parse(c.notAfter) - Date.parse(now)) / 86400e3)
const left = days => days < 0 ? 'ended' : `${plural(days, 'day')} left`
const duration = s => s === undefined ? '–' : s < 0.001 ? `${Math.round(s * 1e6)} µs` : s < 1 ? `${(s * 1e3).toPrecision(2)} ms` : `${s.toPrecision(2)} s`

// troublesOf returns sentences about what is not well now. lately is of Lately.
export const troublesOf = (overview, lately, now) => [...overview.troubles.map(t => [t.text, t.last && `The latest was ${ago(t.last, now)} ago.`, t.remedy].filter(Boolean).join(' ')),
  ...lately.profiles.flatMap(p => p.calls.filter(c => c.failed).map(c => `${number(c.failed)} of ${plural(c.calls, `${c.verb} call`)} of profile ${p.path} failed in the last ${lately.seconds} s.`))]

// Lately compares overviews of the last minute.
export class Lately {
  kept = []
  add(overview) {
    this.kept.push({ at: performance.now(), overview })
  }
  // of returns the profiles of all replicas with their calls since the first overview that is kept, at most a minute ago. The calls of a
  // replica that the first overview lacks are not among them: nobody knows when they were.
  of() {
    while (this.kept[1]?.at < performance.now() - 60000) this.kept.shift() // also when nothing new comes
    const [first, last] = [this.kept[0], this.kept.at(-1)].map(x => x.overview.replicas), profiles = []
    for (const r of last) for (const p of r.profiles ?? []) {
      const before = first.find(x => x.name === r.name && x.started === r.started)?.profiles?.find(x => x.path === p.path)
      let sum = profiles.find(x => x.path === p.path)
      if (!sum) profiles.push(sum = { path: p.path, policies: p.policies, schedulers: [], calls: p.calls.map(c => ({ verb: c.verb, total: 0, calls: 0, failed: 0, last: '', durations: [] })) })
      sum.schedulers = [...new Set([...sum.schedulers, ...p.schedulers])].sort()
      for (const s of sum.calls) {
        const c = p.calls.find(x => x.verb === s.verb), was = before?.calls.find(x => x.verb === s.verb) ?? c
        if (!c) continue
        s.total += c.total
        s.calls += c.total - was.total
        s.failed += c.failed - was.failed
        if (c.last > s.last) s.last = c.last
        c.durations.forEach((d, i) => { s.durations[i] = { seconds: d.seconds, calls: (s.durations[i]?.calls ?? 0) + d.calls - (was.durations[i]?.calls ?? 0) } })
      }
    }
    return { seconds: Math.min(60, Math.max(1, Math.round((performance.now() - this.kept[0].at) / 1000))), profiles }
  }
}

// quantile estimates a quantile of durations in seconds, as Prometheus does; undefined without calls.
function quantile({ calls, durations }, q) {
  const i = durations.findIndex(d => d.calls >= q * calls), low = durations[i - 1] ?? { seconds: 0, calls: 0 }
  if (!calls) return undefined
  if (i < 0) return durations.at(-1)?.seconds
  return low.seconds + (durations[i].seconds - low.seconds) * (q * calls - low.calls) / (durations[i].calls - low.calls || 1)
}
