// Who holds what, and where ledgers and pods disagree.
import { ago, amount, bar, chips, choice, choose, clock, empty, filter, h, hash, link, marked, named, nodeLink, note, number, ownerName, percent, plural, podLink, search, table, unitName } from './dom.js'

const held = (page, r) => r.resource && amount(r.amount, page.unit(r.resource))

// holding is a table of what pods hold, here on a node of which the unit may be chosen, or anywhere.
export const holding = (name, page, rows, here = {}) => table(name, [
  ['Pod', r => [r.pod ? named(podLink(r.namespace, r.pod, r.pod)) : marked('name', r.uid), note(ownerName(r.owner ?? r.namespace))], 'tight'],
  ['Holds', r => held(page, r), 'n'],
  ['Of', (r, unit = unitName(r.resource, r.unit)) => [here.node || !r.node ? unit : nodeLink(r.node, r.node + (unit && `, ${unit}`), r.unit), note(r.resource)], 'tight'],
  ['Annotations', r => h('span.clamp.dim.small', { title: r.annotations?.join('\n') }, r.annotations?.join(', ')), 'wide fill'],
  ['State', r => marked(r.state === 'terminating' && 'warn', r.state), 'label'],
  ['Bound', r => r.since && ago(r.since, page.now()) + ' ago', 'n'],
  ['Audit', r => marked(r.differs && 'bad', r.audit), 'label'],
], rows, r => [r.resource, r.node, r.unit, r.uid].join(' '), '', r => here.unit && here.unit === r.unit && 'at')

export default (page, route) => ({
  source: () => `/api/held?${search({ ...route.query, limit: '' })}`,
  draw(data) {
    const { query } = route, { audited, findings, groups } = data, limit = Number(query.limit) || 60, all = groups ?? data.rows
    const unallocated = data.rows.filter(r => r.unallocated).length, allocations = data.total - unallocated
    return [
      h('p.dim', audited ? marked(findings.length ? 'bad' : 'good', `The audit at ${clock(audited)} found ${findings.length ? plural(findings.length, 'difference') : 'no difference'} between ledgers and pods.`) : 'The first audit has not ended.'),
      h('div.controls', filter(route, 'Filter by pod, owner or node'),
        choice('held-by', 'Rows', [['', 'one row for each allocation'], ['owner', 'sums by owner'], ['namespace', 'sums by namespace']], query.by, by => choose(route, { by }))),
      page.resources().length > 1 && chips('Resources', [{ resource: '', title: 'All' }, ...page.resources()].map(r => [r.title, hash('held', { ...query, resource: r.resource }), (query.resource ?? '') === r.resource])),
      h('ul.plain', findings.map(f => h('li', h('b.bad', f.kind), ' ', f.text,
        f.holders?.slice(0, 8).map(p => [', ', p.name ? podLink(p.namespace, p.name) : p.uid])))),
      groups ? table('Who holds what', [
        [query.by === 'owner' ? 'Owner' : 'Namespace', r => r.name ? named(link(r.name, 'held', { find: query.by === 'owner' ? r.name : r.name + '/', resource: r.resource })) : 'pods that are gone'],
        ['Pods', r => number(r.pods), 'n'],
        ['Hold', r => held(page, r), 'n'],
        ['Of', r => r.resource],
        ['Share of the capacity', r => [percent(r.amount, r.capacity), bar(r.amount, r.capacity, true)], 'label'],
      ], all.slice(0, limit), r => [r.name, r.resource].join(' ')) : holding('Who holds what', page, all.slice(0, limit)),
      h('p.dim', [allocations && plural(allocations, 'allocation'), unallocated && `${plural(unallocated, 'pod')} without an allocation`, all.length > limit && `${limit} rows are shown. `].filter(Boolean).join(', '),
        all.length > limit && link('Show more', 'held', { ...query, limit: limit * 4 })),
      !data.total && (query.find || query.resource || query.node ? empty('Nothing is selected.', link('Show all', 'held')) : empty('No pod holds anything.')),
    ]
  },
})
