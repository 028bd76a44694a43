// One node: whether it takes pods, and what they hold.
import { ago, amount, bar, empty, fact, h, marked, note, number, table } from './dom.js'
import { holding } from './held.js'
import { freeOfEach, nodesOf, sum } from './units.js'

export default (page, route) => ({
  title: () => route.rest[0],
  source: () => `/api/node?name=${encodeURIComponent(route.rest[0])}`,
  draw({ name, status, since, message, taints, resources, signals, rows }) {
    const now = page.now(), own = resources.map(r => ({ total: 0, units: [], ...r, ...nodesOf(r)[0], held: sum(r.used, x => x) }))
    if (!status) return empty(`No node is named ${name}.`)
    return [
      h('dl.fact',
        fact('Status', [marked(status === 'Ready' ? 'good' : 'bad', status), since && ` for ${ago(since, now)}`]),
        fact('Taints', taints.join(', ') || 'none'),
        signals.map(s => fact(`Signal ${s.name}`, marked(s.stale && 'bad', `${number(s.value)}, ${ago(s.at, now)} ago`))),
        status !== 'Ready' && fact('Message', message, 'wide')),
      table('Resources', [
        ['Resource', r => [r.title, note(r.resource)]],
        ...['Capacity', 'Allocatable'].map(of => [of, ({ reported, unit }, x = reported?.[of.toLowerCase()]) => reported && marked(x < reported.capacity && 'bad', amount(x, unit)), 'n']),
        ['Allocated', r => [`${number(r.held)} of ${amount(r.total, r.unit)}`, bar(r.held, r.total, true)], 'label'],
        ['Free of each', freeOfEach, 'label'],
      ], own, r => r.resource),
      h('h2', 'Pods'), holding('Pods', page, rows, { node: name, unit: route.query.unit }), !rows.length && h('p.dim', 'No pod is on the node.'),
    ]
  },
})
