// Why a pod is on its node or on none, and what would change that.
import { ago, amount, bar, clock, empty, h, line, link, nodeLink, note, number, plural, remark, sections, show, table, unitName } from './dom.js'

export default function pod(root, { rest: [namespace = '', name = ''], query }, page) {
  const facts = h('dl', { class: 'fact' }), body = h('div')
  root.append(h('h1', {}, `${namespace}/${name}`), facts, body)
  let doc
  function draw() {
    if (!doc) return
    const now = page.now(), scored = scoredIn(doc)
    const pending = (doc.now ?? []).map(p => p.pending).find(Boolean)
    show(facts, [
      doc.node ? { name: 'Node', node: doc.node } : doc.known && { name: 'Node', text: 'none yet' },
      doc.holds && { name: 'Holds', text: holdings(doc.holds, page) },
      pending && { name: 'Waits', text: `${ago(pending.since, now)}, since ${clock(pending.since)}` },
      pending?.requeues > 0 && { name: 'Requeued', text: `${pending.requeues}×, last ${ago(pending.lastRequeued, now)} ago` },
      doc.bound && { name: 'Bound', text: clock(doc.bound) + (Date.parse(doc.bound) - Date.parse(doc.created) < 1000 ? '' : `, after ${ago(doc.created, doc.bound)}`) },
      scored?.chosen && { name: 'Score', text: margin(scored) },
      doc.gates?.length > 0 && { name: 'Scheduling gates', text: doc.gates.join(', ') },
      doc.replicas?.length > 1 && doc.decisions?.length > 0 && { name: 'Decided by', text: [...new Set(doc.decisions.map(d => d.replica))].join(', ') },
      doc.unschedulable && { name: 'kube-scheduler said last', text: doc.unschedulable, wide: true },
      doc.annotation && { name: 'Annotation of the decision', text: doc.annotation, wide: true },
    ].filter(Boolean), f => f.name, f => h('div', { class: f.wide && 'wide' }, h('dt', {}, f.name), h('dd', {}, f.node ? nodeLink(f.node) : f.text)))
    sections(body, [...scores(scored, page), ...explanation(doc, page), ...history(doc)])
  }
  const q = new URLSearchParams({ namespace, pod: name, nodes: query.nodes ?? 20, decisions: 20 })
  if (query.profile) q.set('profile', query.profile)
  return { source: `/explain?${q}`, show: value => { doc = value; draw() }, overview: draw }
}

const holdings = (all, page) => all.map(x => `${amount(x.amount, page.unit(x.resource))} of ${unitName(x.resource, x.unit)}`).join(', ')
const paragraph = (key, text, kind = 'dim') => ({ key, data: text, make: () => h('p', { class: kind }, text) })
const heading = (key, text) => ({ key, data: text, make: () => h('h2', {}, text) })

// explanation returns sections with what the profiles say of the pod now.
export function explanation(doc, page) {
  const parts = []
  if (!doc.known && !doc.now && !doc.decisions?.length) {
    parts.push({ key: 'unknown', make: () => empty('Outboard does not know this pod.', 'It may have ended, or its name may be different. ', h('a', { href: link('waiting') }, 'Show all waiting pods')) })
  }
  if (doc.error) parts.push(paragraph('error', doc.error, 'bad'))
  for (const p of doc.now ?? []) parts.push(...profileNow(p, doc.now.length > 1, page).map(s => ({ ...s, key: p.profile + ' ' + s.key })))
  for (const p of doc.placed ?? []) parts.push(...placed(p, doc.placed.length > 1).map(s => ({ ...s, key: p.profile + ' ' + s.key })))
  return parts
}

function profileNow(p, several, page) {
  const name = several ? `Profile ${p.profile}: ` : ''
  if (p.unmanaged) return [heading('title', `${name}does not manage this pod`), paragraph('why', 'The pod requests none of the profile’s managedResources, so kube-scheduler does not ask this profile.')]
  const parts = [heading('title', `${name || 'It '}fits on ${p.fit > 0 ? number(p.fit) : 'none'} of ${plural(p.nodes, 'node')} now`)]
  if (p.refused) parts.push(paragraph('refused', `A bind call would be refused: ${p.refused}.`, 'bad'))
  if (p.error) parts.push(paragraph('error', p.error, 'bad'))
  for (const n of p.notes ?? []) parts.push(paragraph('note ' + n.policy, `${n.policy}: ${n.notes.join('; ')}`))
  if (p.remedies?.length) {
    parts.push(heading('fit', 'It would fit'), { key: 'remedies', data: p.remedies.map(r => [r.text, r.smallest]), make: () => h('ul', { class: 'cards' }, p.remedies.map(r => h('li', { class: 'card' },
      h('p', {}, r.text), h('p', { class: 'dim small' }, r.smallest ? 'No smaller change of this kind does.' : 'Perhaps a smaller change does, too.')))) })
  } else if (!p.fit && !p.error) parts.push(paragraph('none', 'It would not fit with any single change that Outboard has tried.'))
  if (p.fit > 1) parts.push(paragraph('margin', p.explanations[0]?.total > p.explanations[1]?.total ? `The best node is ${number(p.explanations[0].total - p.explanations[1].total)} ahead of the second.` : 'The best two nodes are equal; kube-scheduler’s own plugins decide.'))
  if (p.explanations?.length) parts.push(...matrix('Nodes', p.explanations, p.maxTotal, page), ...rest(p.nodes - p.explanations.length))
  if (p.excluded?.length) {
    parts.push(heading('excludes', 'Nodes that kube-scheduler excludes itself'), { key: 'excluded', data: p.excluded, make: () => h('ul', { class: 'plain' }, p.excluded.map(x => h('li', {}, `${number(x.nodes)}: ${x.reason} `,
      h('span', { class: 'dim' }, x.examples.join(', ') + (x.nodes > x.examples.length ? ', …' : ''))))) })
  }
  return parts
}

// matrix shows the scores and reasons of the policies for nodes, which are as in engine.Explanation. The table stays when they change.
function matrix(name, nodes, maxTotal, page, chosen) {
  const policies = new Map(nodes.flatMap(x => x.policies.map(o => [o.policy, o.weight])))
  const columns = [
    { title: 'Node', of: x => [nodeLink(x.node), x.gets?.length > 0 && note(`would get ${holdings(x.gets, page)}`), x.node === chosen && note('chosen by kube-scheduler')] },
    { title: maxTotal ? `Total of ${number(maxTotal)}` : 'Total', n: true, kind: () => 'total', of: x => x.fits ? [number(x.total), x.holdsClaim && note('holds its claim')] : '–' },
    ...[...policies].map(([name, weight]) => ({ title: `${name || 'Outboard'}${weight ? ` × ${weight}` : ''}`, n: true, kind: () => 'score', of: x => opinion(x.policies.find(o => o.policy === name)) })),
  ]
  return [heading(name, name), {
    key: name + ' table', data: columns.map(c => c.title), fill: e => e.fill(nodes, x => x.node),
    make: () => table(name, columns, { className: 'matrix', row: x => x.fits ? x.node === chosen ? 'at' : '' : 'no' }).element,
  }]
}

// opinion shows what a policy says of a node, and its notes to those who point at it.
function opinion(o) {
  if (!o) return ''
  if (o.code) return [line(h('span', { class: 'bad' }, o.code)), remark('', o.want ? `${number(o.have ?? 0)} of ${amount(o.want, o.unit)}` : o.text)]
  return h('div', { title: o.notes?.join('\n') }, o.scored ? [number(o.score), bar(o.score, 100)] : h('span', { class: 'dim' }, 'passes'))
}

function placed(p, several) {
  return [heading('placed', `If it were placed now${several ? `, by profile ${p.profile}` : ''}`),
    paragraph('rating', !p.fits ? `It would not fit on ${p.node}.` : p.best ? `${p.best} would score ${number(p.bestTotal)}, more than ${p.node} with ${number(p.total)}.`
      : p.next ? `No node would score more than ${p.node} with ${number(p.total)}; the next is ${p.next} with ${number(p.nextTotal)}.` : `It would fit on ${p.node} alone.`, ''),
    ...p.flips?.length ? [{ key: 'flips', data: p.flips, make: () => h('ul', { class: 'plain' }, p.flips.map(f => h('li', {}, f.text))) }] : []]
}

// scoredIn returns the latest call that scored nodes for a pod that is on a node.
const scoredIn = doc => doc.now ? undefined : doc.decisions?.find(d => d.top?.length)

// margin says how the chosen node compares with the others.
function margin({ chosen, top, maxTotal }) {
  const other = top.find(n => n.node !== chosen.node), text = `${number(chosen.total)} of ${number(maxTotal)}`
  if (chosen.better) return `${text}; ${plural(chosen.better, 'node')} scored more, and kube-scheduler’s own plugins decided`
  if (chosen.equal) return `${text}, as much as ${plural(chosen.equal, 'other node')}`
  return other ? `${text}, ${number(chosen.total - other.total)} more than ${other.node}` : text
}

// scores shows the best nodes of the latest call that scored, as kube-scheduler got them.
function scores(d, page) {
  if (!d) return []
  const top = d.chosen && !d.top.some(n => n.node === d.chosen.node) ? [...d.top, d.chosen] : d.top
  return [...matrix('Scores', top.map(n => ({ ...n, fits: true, policies: (n.scores ?? []).map(s => ({ ...s, scored: true })) })), d.maxTotal, page, d.chosen?.node), ...rest(d.fit - top.length)]
}

const rest = nodes => nodes > 0 ? [paragraph('rest', `${plural(nodes, 'more node')}.`)] : []

// history returns the latest decisions. A time that is that of the row above is left out.
function history(doc) {
  if (doc.tried) return []
  if (!doc.decisions?.length) return doc.known ? [heading('decisions', 'Decisions'), paragraph('lost', 'kube-scheduler has not asked about this pod lately, or Outboard has restarted since.')] : []
  const several = new Set(doc.decisions.map(d => d.replica)).size > 1, profiles = new Set(doc.decisions.map(d => d.profile)).size > 1
  const rows = doc.decisions.map((d, i, all) => ({ d, time: clock(d.time) === clock(all[i - 1]?.time ?? 0) ? '' : clock(d.time) }))
  return [heading('decisions', 'Decisions'), { key: 'history', data: [several, profiles], make() {
    return table('Decisions', [
      { title: 'Call', of: ({ d }) => [d.verb, profiles && note(d.profile)] },
      { title: 'Time', kind: () => 'tight', of: ({ d, time }) => [time, several && note(d.replica)] },
      { title: 'Nodes', n: true, of: ({ d }) => d.nodes ? `${number(d.fit)} of ${number(d.nodes)}` : '' },
      { title: 'Result', of: ({ d }) => result(d) },
    ]).element
  }, fill: e => e.fill(rows, ({ d }) => d.time + d.verb + d.profile) }]
}

function result(d) {
  if (d.error) return h('span', { class: 'bad' }, d.error)
  if (d.bound) return `bound to ${d.bound}`
  if (d.unmanaged) return h('span', { class: 'dim' }, 'not managed: all nodes pass')
  const lines = []
  if (d.chosen) lines.push(`kube-scheduler chose ${d.chosen.node}${d.chosen.better ? `; ${plural(d.chosen.better, 'node')} scored more` : ''}`)
  else if (d.top?.length) lines.push(`best ${d.top.slice(0, 3).map(n => `${n.node} ${n.holdsClaim ? 'holds its claim' : number(n.total)}`).join(', ')}`)
  for (const r of (d.rejections ?? []).slice(0, 4)) lines.push(`${number(r.nodes)} × ${r.code}${r.nearest?.[0]?.want ? `: nearest ${r.nearest[0].node} has ${number(r.nearest[0].have)} of ${amount(r.nearest[0].want, r.unit)}` : ''}`)
  for (const v of d.preemptions ?? []) lines.push(v.dropped ? `${v.node}: dropped: ${v.dropped}` : `${v.node}: ${plural(v.given, 'victim')}${v.added?.length ? ` and ${v.added.join(', ')}` : ''}`)
  return lines.length ? lines.map(l => line(l)) : h('span', { class: 'dim' }, 'all nodes pass')
}
