// Why pods wait, and what would let them run.
import { ago, amount, chips, choice, choose, empty, filter, h, hash, line, link, named, note, number, ownerName, plural, podLink, search, table } from './dom.js'
import { read } from './data.js'

export default (page, route) => {
  const changes = new Changes(page.draw), most = 500 // rows of a response, see maxRows in waiting.go
  const limit = () => Number(route.query.limit) || 50
  const { owner } = route.query // another owner is another view

  // name names the owner of some pods, or one pod.
  function name(r) {
    const [namespace, pod] = r.pod.split('/')
    return r.pods === 1 || owner ? [named(podLink(namespace, pod, pod)), note(namespace)]
      : [named(link(r.owner.split('/')[2], 'waiting', { ...route.query, owner: r.owner })), note(ownerName(r.owner))]
  }
  return {
    title: () => owner && `Waiting: ${owner}`,
    source: () => `/api/waiting?${search({ ...route.query, limit: limit() })}`,
    stop: () => changes.stop(),
    draw(data) {
      const { query } = route, { rows } = data, now = page.now()
      changes.ask(rows)
      return [
        data.pods > 0 && h('p.dim', `${plural(data.pods, 'pod')} of ${plural(data.owners, 'owner')}`, data.shown < data.pods && `, ${number(data.shown)} selected`, rows.length > 0 && `; the longest wait is ${ago(data.since, now)}`),
        h('div.controls', filter(route, 'Filter by name'),
          choice('waiting-sort', 'Order', [['', 'longest wait first'], ['pods', 'most pods first'], ['reason', 'by reason']], query.sort, sort => choose(route, { sort })),
          owner && link('All owners', 'waiting', { ...query, owner: '' })),
        !owner && chips('Reasons', [{ code: '', title: 'All', pods: data.pods }, ...data.reasons].map(r => [r.title, hash('waiting', { ...query, reason: r.code }), (query.reason ?? '') === r.code, r.pods])),
        table('Waiting pods', [
          [owner ? 'Pod' : 'Owner', name, 'tight'],
          ...owner ? [] : [['Pods', r => number(r.pods), 'n']],
          ['Waits', r => [ago(r.since, now), r.requeues > 0 && note(`requeued ${r.requeues}×`)], 'n'],
          ['Requests', r => r.requests.map(x => line(x, ' ', page.unit(x.split(':')[0]))), 'wide tight'],
          ['Reason', r => [line(r.title), note(r.text)]],
          ['Nearest node', r => r.nearest?.want > 0 && [line(r.nearest.node), note(`has ${number(r.nearest.have)}, needs ${amount(r.nearest.want, r.unit)}`)], 'wide tight'],
          ['It would fit', r => h('span.clamp', { title: changes.of(r) }, changes.of(r) ?? '…'), 'fill'],
        ], rows, r => r.owner + r.pod, 'waiting'),
        rows.length < data.total && h('p.dim', `${number(rows.length)} of ${plural(data.total, owner ? 'pod' : 'owner')} are shown. `,
          limit() < most ? link('Show more', 'waiting', { ...query, limit: limit() * 4 }) : 'Select a reason or a part of a name to see the others.'),
        !rows.length && (data.pods ? empty('No waiting pod is selected.', link('Show all', 'waiting'))
          : empty('No pod waits.', 'Pods are here with the smallest change that lets each run.')),
      ]
    },
  }
}

// Changes are the smallest changes with which pods would fit. One is read at a time, as each is a search, and none while nobody sees the
// page. Each is kept for a minute.
class Changes {
  known = new Map()
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
      if (!row || document.hidden || this.ended) break
      const [namespace, pod] = row.pod.split('/')
      let text
      try {
        const { value } = await read(`/explain?${search({ namespace, pod, nodes: 0, decisions: 0 })}`)
        text = value.change || '–'
      } catch { text = this.known.get(row.pod)?.text ?? 'unknown' }
      this.known.set(row.pod, { text, at: Date.now() })
      this.timer ??= setTimeout(() => { this.timer = undefined; if (!this.ended) this.changed() }, 200) // several at a time
    }
    this.asking = false
  }
  stop() { this.ended = true }
}
