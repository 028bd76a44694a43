// Why pods wait, and what would let them run.
import { ago, bar, empty, h, line, link, note, number, plural, podLink, show, table } from './dom.js'
import { read } from './data.js'

const named = code => ({ 'kube-scheduler': 'kube-scheduler itself', gated: 'Scheduling gates' })[code] ?? code.replace(/^[^.]*\./, '')

export default function waiting(root, { query }, page) {
  const title = h('h1', {}, 'Waiting'), summary = h('p', { class: 'dim' })
  const find = h('input', { type: 'search', id: 'waiting-find', placeholder: 'Filter by name', 'aria-label': 'Filter by name', value: query.find ?? '', spellcheck: 'false' })
  let typing
  find.addEventListener('input', () => { clearTimeout(typing); typing = setTimeout(() => location.replace(link('waiting', { ...query, find: find.value.trim() })), 250) })
  const chips = h('ul', { class: 'chips', 'aria-label': 'Reasons' }), more = h('p', { class: 'dim' }), nothing = h('div')

  const one = r => r.pods === 1 || query.owner !== undefined
  const rows = table('Waiting pods', [
    { title: 'Owner', kind: () => 'tight', of: ({ r }) => {
      const [namespace, name] = r.pod.split('/'), [ownerNamespace, kind, ...rest] = r.owner.split('/')
      return one(r) ? [h('a', { class: 'name', href: podLink(namespace, name) }, name), note(namespace)]
        : [h('a', { class: 'name', href: link('waiting', { ...query, owner: r.owner }) }, rest.join('/')), note(`${kind} in ${ownerNamespace}`)]
    } },
    { title: 'Pods', n: true, of: ({ r }) => number(one(r) ? 1 : r.pods) },
    { title: 'Waits', n: true, of: x => [x.waits, x.r.requeues > 0 && note(`requeued ${x.r.requeues}×`)] },
    { title: 'Requests', wide: true, kind: () => 'tight', of: ({ r }) => r.requests.map(x => line(x)) },
    { title: 'Reason', of: ({ r }) => [line(named(r.reason)), note(r.text)] },
    { title: 'Nearest node', kind: () => 'tight', of: ({ r }) => r.nearest && [line(r.nearest.node), note(`${number(r.nearest.have)} of ${number(r.nearest.want)} ${r.unit ?? ''}`), bar(r.nearest.have, r.nearest.want, 'little')] },
    { title: 'It would fit', of: x => x.change ?? h('span', { class: 'dim' }, '…') },
  ])
  root.append(title, summary, h('div', { class: 'controls' }, find, query.owner && h('a', { href: link('waiting', { ...query, owner: '' }) }, 'All owners')), chips, rows.element, more, nothing)

  const changes = new Changes(() => draw())
  let data
  const limit = Number(query.limit) || 50
  function draw() {
    if (!data) return
    const now = page.now() ?? new Date().toISOString()
    title.textContent = query.owner ? `Waiting: ${query.owner}` : 'Waiting'
    summary.textContent = data.pods === 0 ? '' : `${plural(data.pods, 'pod')} of ${plural(data.owners, 'owner')}` +
      (data.shown < data.pods ? `, ${number(data.shown)} selected` : '') + (data.rows.length ? `; the longest wait is ${ago(data.rows[0].since, now)}` : '')
    show(chips, data.pods ? [{ code: '', pods: data.pods }, ...data.reasons].map(r => ({ ...r, here: (query.reason ?? '') === r.code })) : [], r => r.code, r => h('li', {},
      h('a', { href: link('waiting', { ...query, reason: r.code }), 'aria-current': r.here && 'true' }, r.code ? named(r.code) : 'All', h('b', {}, number(r.pods)))))
    rows.fill(data.rows.map(r => ({ r, waits: ago(r.since, now), change: changes.of(r) })), x => x.r.owner + x.r.pod)
    changes.ask(data.rows)
    more.replaceChildren(...data.rows.length >= limit ? [`The ${number(data.rows.length)} longest waits are shown. `,
      h('a', { href: link('waiting', { ...query, limit: limit * 4 }) }, 'Show more')] : [])
    nothing.replaceChildren(...data.rows.length ? [] : [data.pods === 0 ? empty('No pod waits.', 'Pods that no node fits are shown here, with the smallest change that lets each of them run.')
      : empty('No waiting pod is selected.', h('a', { href: link('waiting') }, `Show all ${number(data.pods)}`))])
  }
  const q = new URLSearchParams({ limit })
  for (const name of ['find', 'reason', 'owner']) if (query[name]) q.set(name, query[name])
  return { source: `/api/waiting?${q}`, show: value => { data = value; draw() }, overview: draw, stop: () => { clearTimeout(typing); changes.stop() } }
}

// Changes are the smallest changes with which pods would fit. One is asked for at a time, because each is a search, and each is kept for a minute.
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
      if (!row || this.ended.signal.aborted) break
      const [namespace, pod] = row.pod.split('/')
      let text = '–'
      try {
        const { value } = await read(`/explain?${new URLSearchParams({ namespace, pod, nodes: 0, decisions: 0 })}`, { signal: this.ended.signal })
        const now = (value.now ?? []).filter(p => !p.unmanaged)
        text = now.some(p => p.fit > 0) ? 'now' : now.flatMap(p => p.remedies ?? [])[0]?.text ?? 'not by a single change'
      } catch { text = 'unknown' }
      this.known.set(row.pod, { text, at: Date.now() })
      if (!this.ended.signal.aborted) this.changed()
    }
    this.asking = false
  }
  stop() { this.ended.abort() }
}
