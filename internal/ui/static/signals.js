// How old the numbers are that policies read.
import { ago, clock, empty, h, number, plural, show, table } from './dom.js'

const columns = [{ title: 'Signal' }, { title: 'Values', n: true }, { title: 'Stale', n: true }, { title: 'Newest', n: true }, { title: 'Oldest', n: true }, { title: 'Ages, new to old' }, { title: 'Read by' }]

export default function signals(root, _, page) {
  const rows = table('Signals', columns), nothing = h('div')
  root.append(h('h1', {}, 'Signals'), h('p', { class: 'dim' }, 'Numbers from outside the cluster, and how old they are.'), rows.element, nothing)
  let data
  function draw() {
    if (!data) return
    const now = page.now() ?? new Date().toISOString()
    rows.element.hidden = data.signals.length === 0
    nothing.replaceChildren(...data.signals.length ? [] : [empty('The configuration has no signals.', 'Policies such as Utilization and Rules can read numbers from Prometheus, files and URLs.')])
    show(rows.body, data.signals.map(s => ({ s, newest: s.newest ? ago(s.newest, now) : '–', oldest: s.oldest ? ago(s.oldest, now) : '–' })), x => x.s.name, ({ s, newest, oldest }) => h('tr', {},
      h('th', { scope: 'row' }, h('span', { class: 'name' }, s.name), s.error && h('span', { class: 'line bad small' }, s.error)),
      h('td', { class: 'n', 'data-label': 'Values' }, number(s.values), s.missing > 0 && h('span', { class: 'line warn small' }, `${plural(s.missing, 'node')} without`)),
      h('td', { class: s.stale ? 'n bad' : 'n', 'data-label': 'Stale' }, number(s.stale)),
      h('td', { class: 'n', 'data-label': 'Newest', title: s.newest && clock(s.newest) }, newest),
      h('td', { class: 'n', 'data-label': 'Oldest', title: s.oldest && clock(s.oldest) }, oldest),
      h('td', {}, s.values > 0 && histogram(s.ages ?? [])),
      h('td', {}, (s.readers ?? []).length ? s.readers.map(r => h('span', { class: 'line' }, r.policy, h('span', { class: 'dim small' }, ` ${r.profile}${r.whenStale ? `, when stale: ${r.whenStale}` : ''}`))) : h('span', { class: 'dim' }, 'no policy'))))
  }
  return { source: '/api/signals', show: value => { data = value; draw() }, overview: draw }
}

function histogram(counts) {
  const most = Math.max(1, ...counts)
  return h('div', { class: 'spark', role: 'img', 'aria-label': `Values by age, from new to old: ${counts.join(', ')}` }, counts.map(n => {
    const e = h('i', { class: n ? '' : 'zero' })
    e.style.height = `${Math.max(4, 100 * n / most)}%`
    return e
  }))
}
