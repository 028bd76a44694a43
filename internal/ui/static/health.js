// Whether Outboard is called and well, replica by replica.
import { ago, clock, h, number, plural, show, table } from './dom.js'

export default function health(root, _, page) {
  const verdict = h('p'), troubles = h('ul', { class: 'plain' })
  const calls = table('Calls', [{ title: 'Profile' }, { title: 'Verb' }, { title: 'Calls', n: true }, { title: 'Failed', n: true }, { title: 'Last call', n: true }, { title: 'Policies' }])
  const replicas = table('Replicas', [{ title: 'Replica' }, { title: 'Version' }, { title: 'Configuration' }, { title: 'Runs', n: true }, { title: 'State of the cluster', n: true }, { title: 'Certificates end' }])
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
      show(calls.body, [...rows.values()].map((r, i, all) => ({ ...r, first: r.path !== all[i - 1]?.path, ago: r.last ? ago(r.last, now) + ' ago' : 'never', last: undefined })), r => r.path + r.verb, r => h('tr', {},
        h('th', { scope: 'row' }, r.path), h('td', {}, r.verb), h('td', { class: 'n', 'data-label': 'Calls' }, number(r.total)),
        h('td', { class: r.failed ? 'n bad' : 'n', 'data-label': 'Failed' }, number(r.failed)), h('td', { class: r.total ? 'n' : 'n warn', 'data-label': 'Last call' }, r.ago),
        h('td', { class: 'small dim' }, r.first && r.policies.map(p => p.weight ? `${p.name} × ${p.weight}` : p.name).join(', '))))
      const common = up.map(r => r.configuration).sort((a, b) => up.filter(r => r.configuration === b).length - up.filter(r => r.configuration === a).length)[0]
      show(replicas.body, o.replicas.map(r => ({ ...r, now: undefined, profiles: undefined, runs: r.started ? ago(r.started, r.now) : '', odd: !r.error && r.configuration !== common })), r => r.name, r => h('tr', {},
        h('th', { scope: 'row' }, h('span', { class: 'name' }, r.name), r.error && h('span', { class: 'line bad small' }, r.error),
          (r.checks ?? []).map(c => h('span', { class: c.error ? 'line bad small' : 'line good small' }, `${c.name}: ${c.error || 'ok'}`))),
        h('td', { 'data-label': 'Version' }, r.version), h('td', { class: r.odd ? 'bad' : '', 'data-label': 'Configuration' }, h('code', {}, r.configuration), r.odd && h('span', { class: 'line small' }, 'differs from the others')),
        h('td', { class: 'n', 'data-label': 'Runs' }, r.runs),
        h('td', { class: 'n', 'data-label': 'State' }, r.error ? '' : number(r.generation), !r.error && h('span', { class: 'line dim small' }, `${plural(r.nodes, 'node')}, ${plural(r.pods, 'pod')}`)),
        h('td', {}, (r.certificates ?? []).map(c => h('span', { class: 'line' }, `${c.use}: `, clock(c.notAfter))))))
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
