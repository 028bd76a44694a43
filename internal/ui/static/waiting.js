// Why pods wait, and what would let them run.
import { ago, amount, chipList, chips, choice, empty, filter, h, line, link, note, number, plural, podLink, search, show, table } from './dom.js'
import { read } from './data.js'

const named = code => ({ 'kube-scheduler': 'kube-scheduler itself', gated: 'Scheduling gates' })[code] ?? code.replace(/^[^.]*\./, '')

export default function waiting(root, { query }, page) {
  const title = h('h1', {}, 'Waiting'), summary = h('p', { class: 'dim' })
  const find = filter('waiting', query, 'Filter by name')
  const reasons = chipList('Reasons'), more = h('p', { class: 'dim' }), nothing = h('div')

  const sort = choice('waiting-sort', 'Order', [['', 'longest wait first'], ['pods', 'most pods first'], ['reason', 'by reason']], query.sort, sort => location.replace(link('waiting', { ...query, sort })))
  const one = r => r.pods === 1 || query.owner !== undefined
  const rows = table('Waiting pods', [
    { title: query.owner ? 'Pod' : 'Owner', kind: () => 'tight', of: ({ r }) => {
      const [namespace, name] = r.pod.split('/'), [ownerNamespace, kind, ...rest] = r.owner.split('/')
      return one(r) ? [h('a', { class: 'name', href: podLink(namespace, name) }, name), note(namespace)]
        : [h('a', { class: 'name', href: link('waiting', { ...query, owner: r.owner }) }, rest.join('/')), note(`${kind} in ${ownerNamespace}`)]
    } },
    ...query.owner ? [] : [{ title: 'Pods', n: true, label: '× ', of: ({ r }) => number(r.pods) }],
    { title: 'Waits', n: true, label: '', of: x => [x.waits, x.r.requeues > 0 && note(`requeued ${x.r.requeues}×`)] },
    { title: 'Requests', wide: true, kind: () => 'tight', of: ({ r }) => r.requests.map(x => line(x, ' ', page.unit(x.split(':')[0]))) },
    { title: 'Reason', label: '', of: ({ r }) => [line(named(r.reason)), note(r.text)] },
    { title: 'Nearest node', wide: true, kind: () => 'tight', of: ({ r }) => r.nearest?.want > 0 && [line(r.nearest.node), note(`${number(r.nearest.have)} of ${amount(r.nearest.want, r.unit)}`)] },
    { title: 'It would fit', kind: () => 'fill', of: x => x.same ? h('span', { class: 'dim' }, 'as the one above') : h('span', { class: 'clamp', title: x.change }, x.change ?? '…') },
  ], { className: 'waiting' })
  root.append(title, summary, h('div', { class: 'controls' }, find, sort, query.owner && h('a', { href: link('waiting', { ...query, owner: '' }) }, 'All owners')), reasons, rows.element, more, nothing)

  const changes = new Changes(() => draw())
  let data
  const limit = Number(query.limit) || 50, most = 500 // rows of a response, see maxRows in waiting.go
  function draw() {
    if (!data) return
    const now = page.now()
    title.textContent = query.owner ? `Waiting: ${query.owner}` : 'Waiting'
    summary.textContent = data.pods === 0 ? '' : `${plural(data.pods, 'pod')} of ${plural(data.owners, 'owner')}` +
      (data.shown < data.pods ? `, ${number(data.shown)} selected` : '') + (data.rows.length ? `; the longest wait is ${ago(data.since, now)}` : '')
    chips(reasons, data.pods && !query.owner ? [{ code: '', pods: data.pods }, ...data.reasons].map(r => ({ text: r.code ? named(r.code) : 'All', count: r.pods, here: (query.reason ?? '') === r.code, href: link('waiting', { ...query, reason: r.code }) })) : [])
    rows.fill(data.rows.map((r, i) => ({ r, waits: ago(r.since, now), change: changes.of(r), same: i > 0 && changes.of(r)?.length > 30 && changes.of(r) === changes.of(data.rows[i - 1]) })), x => x.r.owner + x.r.pod)
    changes.ask(data.rows)
    more.replaceChildren(...data.rows.length < data.total ? [`${number(data.rows.length)} of ${plural(data.total, query.owner ? 'pod' : 'owner')} are shown. `,
      limit < most ? h('a', { href: link('waiting', { ...query, limit: limit * 4 }) }, 'Show more') : 'Select a reason or a part of a name to see the others.'] : [])
    nothing.replaceChildren(...data.rows.length ? [] : [data.pods === 0 ? empty('No pod waits.', 'Pods that no node fits are shown here, with the smallest change that lets each of them run.')
      : empty('No waiting pod is selected.', h('a', { href: link('waiting') }, `Show all ${number(data.pods)}`))])
  }
  return { source: `/api/waiting?${search({ ...query, limit })}`, show: value => { data = value; draw() }, overview: draw, stop: () => changes.stop() }
}

// Changes are the smallest changes with which pods would fit. One is asked for at a time, because each is a search, and none while nobody sees the
// page. Each is kept for a minute.
class Changes {
  known = new Map()
  ended = new AbortController()
  constructor(changed) { this.changed = changed }
  of(row) {
    return row.reason === 'gated' ? 'when its gates are removed' : this.known.get(row.pod)?.text
  }
  async ask(rows) {
    this.rows = rows
    if (this.asking) return
    this.asking = true
    for (;;) {
      const row = this.rows.find(r => r.reason !== 'gated' && !(Date.now() - this.known.get(r.pod)?.at < 60000))
      if (!row || document.hidden || this.ended.signal.aborted) break
      const [namespace, pod] = row.pod.split('/')
      let text = '–'
      try {
        const { value } = await read(`/explain?${new URLSearchParams({ namespace, pod, nodes: 0, decisions: 0 })}`, { signal: this.ended.signal })
        const now = (value.now ?? []).filter(p => !p.unmanaged)
        text = now.some(p => p.fit > 0 && !p.remedies?.length) ? 'now' : now.flatMap(p => p.remedies ?? [])[0]?.text ?? now.find(p => p.error)?.error ?? 'not by a single change'
      } catch { text = 'unknown' }
      this.known.set(row.pod, { text, at: Date.now() })
      if (!this.ended.signal.aborted) this.changed()
    }
    this.asking = false
  }
  stop() { this.ended.abort() }
}
