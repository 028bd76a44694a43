// Whether Outboard is called and well, replica by replica.
import { ago, clock, h, line, note, number, plural, show, table } from './dom.js'

export default function health(root, _, page) {
  const verdict = h('p'), troubles = h('ul', { class: 'plain' })
  const calls = table('Calls', [
    { title: 'Profile', of: r => r.path },
    { title: 'Verb', of: r => r.verb },
    { title: 'Calls', n: true, of: r => number(r.total) },
    { title: 'Failed', n: true, kind: r => r.failed > 0 && 'bad', of: r => number(r.failed) },
    { title: 'Last call', n: true, kind: r => r.total === 0 && 'warn', of: r => r.ago },
    { title: 'Policies', of: r => r.first && note(r.policies.map(p => p.weight ? `${p.name} × ${p.weight}` : p.name).join(', ')) },
  ])
  const replicas = table('Replicas', [
    { title: 'Replica', of: r => [h('span', { class: 'name' }, r.name), r.error && h('span', { class: 'line bad small' }, r.error),
      (r.checks ?? []).map(c => h('span', { class: `line small ${c.error ? 'bad' : 'good'}` }, `${c.name}: ${c.error || 'ok'}`))] },
    { title: 'Version', label: true, of: r => r.version },
    { title: 'Configuration', label: true, kind: r => r.odd && 'bad', of: r => [h('code', {}, r.configuration), r.odd && h('span', { class: 'line small' }, 'differs from the others')] },
    { title: 'Runs', n: true, of: r => r.runs },
    { title: 'State of the cluster', n: true, of: r => !r.error && [number(r.generation), note(`${plural(r.nodes, 'node')}, ${plural(r.pods, 'pod')}`)] },
    { title: 'Certificates end', of: r => (r.certificates ?? []).map(c => line(`${c.use}: ${clock(c.notAfter)}`)) },
  ])
  root.append(h('h1', {}, 'Health'), verdict, troubles, h('h2', {}, 'Calls of kube-scheduler'), calls.element, h('h2', {}, 'Replicas'), replicas.element)
  return {
    overview(o) {
      const up = o.replicas.filter(r => !r.error), wrong = troublesOf(o)
      verdict.className = wrong.length ? 'bad' : 'good'
      verdict.textContent = wrong.length ? `${plural(wrong.length, 'thing is', 'things are')} not well:` : `Everything is well: ${plural(up.length, 'replica')} ready.`
      show(troubles, wrong, t => t, t => h('li', {}, t))
      const rows = new Map()
      for (const r of up) for (const p of r.profiles ?? []) for (const c of p.calls) {
        const row = rows.get(p.path + c.verb) ?? { path: p.path, policies: p.policies, verb: c.verb, total: 0, failed: 0, last: undefined }
        row.total += c.total
        row.failed += c.failed
        if (c.last && (!row.last || c.last > row.last)) row.last = c.last
        rows.set(p.path + c.verb, row)
      }
      const now = page.now()
      calls.fill([...rows.values()].map((r, i, all) => ({ ...r, first: r.path !== all[i - 1]?.path, ago: r.last ? ago(r.last, now) + ' ago' : r.total ? 'not lately' : 'never', last: undefined })), r => r.path + r.verb)
      const common = up.map(r => r.configuration).sort((a, b) => up.filter(r => r.configuration === b).length - up.filter(r => r.configuration === a).length)[0]
      replicas.fill(o.replicas.map(r => ({ ...r, now: undefined, profiles: undefined, runs: r.started ? ago(r.started, r.now) : '', odd: !r.error && r.configuration !== common })), r => r.name)
    },
  }
}

// troublesOf returns sentences about what is not well.
export function troublesOf(overview) {
  const up = overview.replicas.filter(r => !r.error)
  const troubles = overview.replicas.filter(r => r.error).map(r => `Replica ${r.name} does not respond: ${r.error}`)
  for (const r of up) {
    for (const c of r.checks ?? []) if (c.error) troubles.push(`Replica ${r.name} is not ready: ${c.name}: ${c.error}`)
    for (const w of r.warnings ?? []) troubles.push(up.length > 1 ? `Replica ${r.name}: ${w}` : w)
    for (const c of r.certificates ?? []) {
      const days = (Date.parse(c.notAfter) - Date.parse(r.now)) / 86400e3
      if (days < 14) troubles.push(`Replica ${r.name}: the ${c.use} certificate ${days < 0 ? 'ended' : 'ends'} on ${clock(c.notAfter)}`)
    }
  }
  if (new Set(up.map(r => r.configuration)).size > 1) troubles.push('The replicas have different configurations: see Health.')
  return [...new Set(troubles)]
}
