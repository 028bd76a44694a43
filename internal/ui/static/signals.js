// How old the numbers are that policies read.
import { ago, empty, h, line, number, plural, remark, table } from './dom.js'

export default function signals(root, _, page) {
  const nothing = h('div'), rows = table('Signals', [
    { title: 'Signal', of: ({ s }) => [h('span', { class: 'name' }, s.name), s.error && remark('bad', s.error)] },
    { title: 'Values', n: true, of: ({ s }) => [number(s.values), s.missing > 0 && remark('warn', `${plural(s.missing, 'node')} without`)] },
    { title: 'Stale', n: true, kind: x => x.s.stale > 0 && 'bad', of: x => number(x.s.stale) },
    { title: 'Newest', n: true, of: x => x.newest },
    { title: 'Oldest', n: true, of: x => x.oldest },
    { title: 'Ages, new to old', of: ({ s }) => s.ages.some(Boolean) && histogram(s.ages) },
    { title: 'Read by', of: ({ s }) => s.readers.length ? s.readers.map(r => line(r.policy, h('span', { class: 'dim small' }, ` ${r.profile}${r.whenStale ? `, when stale: ${r.whenStale}` : ''}`))) : h('span', { class: 'dim' }, 'no policy') },
  ])
  root.append(h('h1', {}, 'Signals'), h('p', { class: 'dim' }, 'Numbers from outside the cluster, and how old they are.'), rows.element, nothing)
  let data
  function draw() {
    if (!data) return
    const now = page.now()
    nothing.replaceChildren(...data.signals.length ? [] : [empty('The configuration has no signals.', 'Policies such as Utilization and Rules can read numbers from Prometheus, files and URLs.')])
    rows.fill(data.signals.map(s => ({ s, newest: s.newest ? ago(s.newest, now) : '–', oldest: s.oldest ? ago(s.oldest, now) : '–' })), x => x.s.name)
  }
  return { source: '/api/signals', show: value => { data = value; draw() }, overview: draw }
}

function histogram(counts) {
  const most = Math.max(1, ...counts)
  return h('div', { class: 'spark', role: 'img', 'aria-label': `Values by age, from new to old: ${counts.join(', ')}` }, counts.map(n => {
    const e = h('i')
    e.style.height = `${Math.max(4, 100 * n / most)}%`
    return e
  }))
}
