// How old the numbers are that policies read.
import { ago, empty, h, line, marked, number, plural, remark, table } from './dom.js'

export default page => ({
  source: () => '/api/signals',
  draw({ signals }) {
    const now = page.now(), age = time => time ? ago(time, now) : '–'
    return [h('p.dim', 'How old the numbers from outside the cluster are.'), table('Signals', [
      ['Signal', s => [marked('name', s.name), s.error && remark('bad', s.error)]],
      ['Values', s => [number(s.values), s.missing > 0 && remark('warn', `${plural(s.missing, 'node')} without`)], 'n'],
      ['Stale', s => marked(s.stale > 0 && 'bad', number(s.stale)), 'n'],
      ['Newest', s => age(s.newest), 'n'],
      ['Oldest', s => age(s.oldest), 'n'],
      ['Read by', s => s.readers.length ? s.readers.map(r => line(r.policy, h('span.dim.small', ` ${r.profile}${r.whenStale ? `, when stale: ${r.whenStale}` : ''}`))) : marked('dim', 'no policy')],
    ], signals, s => s.name),
    !signals.length && empty('The configuration has no signals.')]
  },
})
