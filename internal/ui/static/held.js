// Who holds what, and where ledgers and pods disagree.
import { ago, clock, empty, h, link, note, number, plural, podLink, show, table, unitName } from './dom.js'

export default function held(root, { query }, page) {
  const summary = h('p', { class: 'dim' }), find = h('input', { type: 'search', id: 'held-find', placeholder: 'Filter by pod, owner or node', 'aria-label': 'Filter by pod, owner or node', value: query.find ?? '', spellcheck: 'false' })
  let typing, data
  find.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => location.replace(link('held', { ...query, find: find.value.trim() })), 250) })
  const chips = h('ul', { class: 'chips', 'aria-label': 'Resources' }), findings = h('ul', { class: 'cards' }), nothing = h('div'), more = h('p', { class: 'dim' })
  const unit = r => page.overview?.resources.find(x => x.resource === r.resource)?.unit ?? ''
  const rows = table('Who holds what', [
    { title: 'Pod', of: ({ r }) => [r.pod ? h('a', { class: 'name', href: podLink(r.namespace, r.pod) }, r.pod) : h('span', { class: 'name' }, r.uid), note(r.namespace)] },
    { title: 'Holds', n: true, of: x => `${number(x.r.amount)} ${x.unit}` },
    { title: 'Of', of: ({ r }) => [r.unclaimed ? [h('a', { href: link('gpus', { resource: r.resource, node: r.node }) }, r.node), ', without a claim'] : r.node ? h('a', { href: link('gpus', { resource: r.resource, node: r.node }) }, `${r.node}, ${unitName(r.resource, r.unit)}`) : r.unit, note(r.resource)] },
    { title: 'State', label: true, kind: x => (x.r.unclaimed || x.r.state === 'terminating') && 'warn', of: x => x.r.state },
    { title: 'Bound', n: true, of: x => x.bound },
  ])
  root.append(h('h1', {}, 'Who holds what'), summary, h('div', { class: 'controls' }, find), chips, findings, rows.element, more, nothing)
  function draw() {
    const resources = page.overview?.resources ?? []
    show(chips, resources.length > 1 ? [{ resource: '', title: 'All' }, ...resources].map(r => ({ ...r, here: (query.resource ?? '') === r.resource })) : [], r => r.resource,
      r => h('li', {}, h('a', { href: link('held', { ...query, resource: r.resource }), 'aria-current': r.here && 'true' }, r.title)))
    if (!data) return
    const now = page.now() ?? new Date().toISOString(), n = data.findings?.length ?? 0
    summary.replaceChildren(data.audited ? (n ? h('span', { class: 'bad' }, `The audit at ${clock(data.audited)} found ${plural(n, 'difference')} between ledgers and pods.`)
      : h('span', { class: 'good' }, `The audit at ${clock(data.audited)} found no difference between ledgers and pods.`)) : 'The first audit has not ended.')
    show(findings, data.findings ?? [], f => JSON.stringify(f), f => h('li', { class: 'card' }, h('h2', { class: 'minor bad' }, f.kind),
      h('p', {}, [f.resource, f.node && `on ${f.node}`, f.unit && unitName(f.resource, f.unit), f.capacity ? `${number(f.used ?? 0)} of ${number(f.capacity)}` : ''].filter(Boolean).join(', ')),
      f.detail && h('p', { class: 'dim small' }, f.detail), (f.holders ?? []).slice(0, 8).map(p => h('p', { class: 'small' }, p.name ? h('a', { href: podLink(p.namespace, p.name) }, `${p.namespace}/${p.name}`) : p.uid))))
    rows.fill(data.rows.map(r => ({ r, unit: unit(r), bound: r.since ? ago(r.since, now) : '' })), x => [x.r.resource, x.r.node, x.r.unit, x.r.uid].join(' '))
    const unclaimed = data.rows.filter(r => r.unclaimed).length, claims = data.rows.length - unclaimed
    more.textContent = data.total > data.rows.length ? `${number(data.rows.length)} of ${number(data.total)} are shown. Filter to see the others.` : [claims && plural(claims, 'claim'), unclaimed && `${plural(unclaimed, 'pod')} without a claim`].filter(Boolean).join(', ')
    nothing.replaceChildren(...data.rows.length ? [] : [query.find || query.resource || query.node ? empty('Nothing is selected.', h('a', { href: link('held') }, 'Show all'))
      : empty('No pod holds anything.', 'Pods to which GPUMemory, Devices or Licenses allocate are shown here.')])
  }
  const q = new URLSearchParams()
  for (const name of ['find', 'resource', 'node']) if (query[name]) q.set(name, query[name])
  return { source: `/api/held?${q}`, show: value => { data = value; draw() }, overview: draw, stop: () => clearTimeout(typing) }
}
