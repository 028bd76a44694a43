// Whether Outboard is called and well, replica by replica.
import { ago, clock, h, marked, number, plural, remark, svg, table } from './dom.js'
import { Poll } from './data.js'

// chart draws one number of the last 24 hours: time goes right, and the top is the largest value.
const chart = ({ title, points }, { seconds, last }) => {
  const most = Math.max(...points), day = 24 * 3600 / seconds, top = /%/.test(title) ? 100 : most || 1, value = v => v < 10 ? v.toPrecision(2).replace(/\.?0+$/, '') : number(Math.round(v))
  const at = (v, i) => `${day - points.length + i + 0.5},${(30 - 28 * v / top).toFixed(1)}`
  const lines = points.map((v, i) => v < 0 ? ' ' : at(v, i) + ';').join('').split(' ').filter(Boolean)
  return h('figure.chart', { 'data-key': title }, h('figcaption', title, h('b', value(points.at(-1)))),
    svg('svg', { viewBox: `0 0 ${day} 32`, preserveAspectRatio: 'none', role: 'img', 'aria-label': `${title}: at most ${value(most)} until ${clock(last)}` },
      lines.map(l => svg('polyline', { points: l.replaceAll(';', ' ') }))),
    h('span.dim.small', `at most ${value(most)}`))
}

export default page => {
  let past // is not needed to say that something is wrong
  const poll = new Poll('/api/history', read => { if (read) { past = read; page.draw() } })
  return { stop: () => poll.stop(), draw() {
    const { replicas, profiles, over, troubles } = page.overview, now = page.now()
    return [troubles.length ? h('p.bad', `${plural(troubles.length, 'thing is', 'things are')} not well:`)
      : page.stale ? h('p.bad', 'Nobody knows whether everything is well now.')
      : h('p.good', `Everything is well: ${plural(replicas.length, 'replica')} ready, and no call has failed ${over}.`),
    h('ul.plain', troubles.map(t => h('li', t.text, t.last && ` The latest was ${ago(t.last, now)} ago.`, t.remedy && ' ' + t.remedy))),
    past && [h('h2', 'The last 24 hours'), h('p.dim', `As replica ${past.replica} has counted since its start, every ${past.seconds / 60} minutes.`), h('div.charts', past.series.map(s => chart(s, past)))],
    h('h2', `Calls of kube-scheduler ${over}`), profiles.map(p => h('section', { 'data-key': p.path },
      h('p', [p.schedulers.join(', ') || 'no scheduler yet', `extender ${p.path}`, p.policies.map(x => x.weight ? `${x.name} × ${x.weight}` : x.name).join(', ')].join(' → ')),
      table(`Calls of profile ${p.path}`, [
        ['Verb', c => c.verb],
        ['Calls', c => number(c.calls), 'n'],
        ['Errors', c => marked(c.failed > 0 && 'bad', number(c.failed)), 'n'],
        ...['p50', 'p99'].map(p => [p, c => c[p] ?? '–', 'n']),
        ['Last call', c => c.last ? ago(c.last, now) + ' ago' : c.total ? 'not lately' : 'never', 'n'],
      ], p.calls, c => c.verb))),
    h('h2', 'Replicas'), table('Replicas', [
      ['Replica', r => [marked('name', r.name), r.error && remark('bad', r.error), r.checks?.map(c => remark(c.error ? 'bad' : page.stale ? 'dim' : 'good', `${c.name}: ${c.error || (page.stale ? 'was ok' : 'ok')}`))]],
      ['Version', r => r.version, 'label'],
      ['Configuration', r => [h('code', r.configuration), r.differs && remark('bad', 'differs from the others')], 'label'],
      ['Runs', r => r.started && ago(r.started, r.now), 'n'],
      ...['Nodes', 'Pods', 'Requeues'].map(title => [title, r => !r.error && number(r[title.toLowerCase()]), 'n']),
      ['Certificates', r => r.certificates?.map(c => h('span.line', { class: c.level, title: `until ${clock(c.notAfter)}` }, `${c.use} ${c.subject}`.trim(), ': ', c.left))],
    ], replicas, r => r.name)]
  } }
}
