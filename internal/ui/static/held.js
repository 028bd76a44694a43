// Who holds what, and where ledgers and pods disagree.
import { ago, amount, chipList, chips, choice, clock, empty, filter, h, link, note, number, plural, podLink, search, show, table, unitName } from './dom.js'

export default function held(root, { query }, page) {
  const summary = h('p', { class: 'dim' }), find = filter('held', query, 'Filter by pod, owner or node')
  let data
  const by = choice('held-by', 'Rows', [['', 'one row for each claim'], ['owner', 'sums by owner'], ['namespace', 'sums by namespace']], query.by, by => location.replace(link('held', { ...query, by })))
  const kinds = chipList('Resources'), findings = h('ul', { class: 'plain' }), nothing = h('div'), more = h('p', { class: 'dim' })
  const place = r => h('a', { href: link('gpus', { resource: r.resource, node: r.node, unit: r.unclaimed ? '' : r.at }) }, r.unclaimed ? r.node : `${r.node}, ${unitName(r.resource, r.unit)}`)
  const rows = table('Who holds what', query.by ? [
    { title: query.by === 'owner' ? 'Owner' : 'Namespace', of: ({ r }) => r.name ? h('a', { class: 'name', href: link('held', { find: query.by === 'owner' ? r.name : r.name + '/', resource: r.resource }) }, r.name) : 'pods that are gone' },
    { title: 'Pods', n: true, of: ({ r }) => number(r.pods) },
    { title: 'Hold', n: true, of: x => amount(x.r.amount, x.unit) },
    { title: 'Of', of: ({ r }) => r.resource },
  ] : [
    { title: 'Pod', kind: () => 'tight', of: ({ r }) => [r.pod ? h('a', { class: 'name', href: podLink(r.namespace, r.pod) }, r.pod) : h('span', { class: 'name' }, r.uid), note(ownerName(r))] },
    { title: 'Holds', n: true, of: x => amount(x.r.amount, x.unit) },
    { title: 'Of', kind: () => 'tight', of: ({ r }) => [r.node ? place(r) : r.unit, note(r.resource)] },
    { title: 'Annotations', wide: true, kind: () => 'fill', of: ({ r }) => h('span', { class: 'clamp dim small', title: r.annotations?.join('\n') }, r.annotations?.join(', ')) },
    { title: 'State', label: true, kind: x => x.r.state === 'terminating' && 'warn', of: x => x.r.state },
    { title: 'Bound', n: true, of: x => x.bound && x.bound + ' ago' },
    { title: 'Audit', label: true, kind: x => x.verdict.bad, of: x => x.verdict.text },
  ])
  root.append(h('h1', {}, 'Who holds what'), summary, h('div', { class: 'controls' }, find, by), kinds, findings, rows.element, more, nothing)

  // verdictOf returns what the latest audit says of a row.
  function verdictOf(r) {
    const found = (data.findings ?? []).find(f => f.resource === r.resource && f.holders?.some(p => p.uid === r.uid))
    if (found || r.unclaimed) return { text: found?.kind ?? 'without a claim', bad: found && found.kind !== 'unclaimed' ? 'bad' : 'warn' }
    return { text: !data.audited || r.since > data.audited ? 'not yet' : 'agrees' }
  }
  function draw() {
    const resources = page.overview?.resources ?? []
    chips(kinds, resources.length > 1 ? [{ resource: '', title: 'All' }, ...resources].map(r => ({ text: r.title, here: (query.resource ?? '') === r.resource, href: link('held', { ...query, resource: r.resource }) })) : [])
    if (!data) return
    const now = page.now(), n = data.findings?.length ?? 0, limit = Number(query.limit) || 60, all = data.groups ?? data.rows
    summary.replaceChildren(data.audited ? h('span', { class: n ? 'bad' : 'good' }, `The audit at ${clock(data.audited)} found ${n ? plural(n, 'difference') : 'no difference'} between ledgers and pods.`) : 'The first audit has not ended.')
    show(findings, data.findings ?? [], f => JSON.stringify(f), f => h('li', {}, h('b', { class: 'bad' }, f.kind), ' ', [f.resource, f.node && `on ${f.node}`, f.unit && unitName(f.resource, f.unit), f.capacity && `${number(f.used ?? 0)} of ${number(f.capacity)}`, f.detail].filter(Boolean).join(', '),
      (f.holders ?? []).slice(0, 8).map(p => [', ', p.name ? h('a', { href: podLink(p.namespace, p.name) }, `${p.namespace}/${p.name}`) : p.uid])))
    rows.fill(all.slice(0, limit).map(r => ({ r, unit: page.unit(r.resource), bound: r.since ? ago(r.since, now) : '', verdict: verdictOf(r) })), ({ r }) => [r.name, r.resource, r.node, r.unit, r.uid].join(' '))
    const unclaimed = data.rows.filter(r => r.unclaimed).length, claims = data.total - unclaimed
    more.replaceChildren([claims && plural(claims, 'claim'), unclaimed && `${plural(unclaimed, 'pod')} without a claim`, all.length > limit && `${number(limit)} rows are shown. `].filter(Boolean).join(', '),
      all.length > limit ? h('a', { href: link('held', { ...query, limit: limit * 4 }) }, 'Show more') : '')
    nothing.replaceChildren(...data.total ? [] : [query.find || query.resource || query.node ? empty('Nothing is selected.', h('a', { href: link('held') }, 'Show all'))
      : empty('No pod holds anything.', 'Pods to which GPUMemory, Devices or Licenses allocate are shown here.')])
  }
  return { source: `/api/held?${search({ ...query, limit: '' })}`, show: value => { data = value; draw() }, overview: draw }
}

// ownerName is the namespace of a pod and its controller.
function ownerName({ namespace, owner }) {
  const [, kind, ...name] = (owner ?? '').split('/')
  return kind && kind !== 'Pod' ? `${kind} ${name.join('/')} in ${namespace}` : namespace
}
