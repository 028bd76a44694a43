// Why a pod is on its node or on none, and what would change that.
import { ago, bar, clock, empty, h, line, link, note, number, plural, show, table, unitName } from './dom.js'

export default function pod(root, { rest: [namespace = '', name = ''], query }, page) {
  const title = h('h1', {}, `${namespace}/${name}`), facts = h('dl', { class: 'fact' }), body = h('div')
  root.append(title, facts, body)
  let doc
  function draw() {
    if (!doc) return
    const now = page.now() ?? new Date().toISOString()
    const pending = (doc.now ?? []).map(p => p.pending).find(Boolean)
    show(facts, [
      doc.node ? { name: 'Node', text: doc.node, href: link('gpus', { node: doc.node }) } : { name: 'Node', text: doc.known ? 'none yet' : 'unknown pod' },
      pending && { name: 'Waits', text: `${ago(pending.since, now)}, since ${clock(pending.since)}` },
      pending?.requeues > 0 && { name: 'Requeued', text: `${pending.requeues}×, last ${ago(pending.lastRequeued, now)} ago` },
      doc.bound && { name: 'Bound', text: `${clock(doc.bound)}, ${ago(doc.created, doc.bound)} after it was created` },
      doc.unschedulable && { name: 'kube-scheduler said last', text: doc.unschedulable },
      doc.holds && { name: 'Holds', text: holdings(doc.holds) },
      doc.gates?.length > 0 && { name: 'Scheduling gates', text: doc.gates.join(', ') },
      doc.annotation && { name: 'Annotation of the decision', text: doc.annotation },
      doc.replicas?.length > 1 && { name: 'Replicas', text: doc.replicas.join(', ') },
    ].filter(Boolean), f => f.name, f => h('div', {}, h('dt', {}, f.name), h('dd', {}, f.href ? h('a', { href: f.href }, f.text) : f.text)))
    body.replaceChildren(...explanation(doc), ...scores(doc), ...history(doc))
  }
  const q = new URLSearchParams({ namespace, pod: name, nodes: query.nodes ?? 20, decisions: 20 })
  if (query.profile) q.set('profile', query.profile)
  return { source: `/explain?${q}`, show: value => { doc = value; draw() }, overview: draw }
}

const holdings = all => all.map(x => `${number(x.amount)} of ${unitName(x.resource, x.unit)}`).join(', ')

// explanation returns what the profiles say of the pod now.
export function explanation(doc) {
  const parts = []
  if (!doc.known && !doc.now && !doc.decisions?.length) {
    parts.push(empty('Outboard does not know this pod.', 'It may have ended, or its name may be different. ', h('a', { href: link('waiting') }, 'Show all waiting pods')))
  }
  if (doc.error) parts.push(h('p', { class: 'bad' }, doc.error))
  for (const p of doc.now ?? []) parts.push(...profileNow(p, doc.now.length > 1))
  for (const p of doc.placed ?? []) parts.push(...placed(p, doc.placed.length > 1))
  return parts
}

function profileNow(p, several) {
  const heading = several ? `Profile ${p.profile}: ` : ''
  if (p.unmanaged) return [h('h2', {}, `${heading}does not manage this pod`), h('p', { class: 'dim' }, 'The pod requests none of the profile’s managedResources, so kube-scheduler does not ask this profile.')]
  const parts = [h('h2', {}, `${heading || 'It '}fits on ${p.fit > 0 ? number(p.fit) : 'none'} of ${plural(p.nodes, 'node')} now`)]
  if (p.refused) parts.push(h('p', { class: 'bad' }, `A bind call would be refused: ${p.refused}.`))
  if (p.error) parts.push(h('p', { class: 'bad' }, p.error))
  for (const n of p.notes ?? []) parts.push(h('p', { class: 'dim' }, `${n.policy}: ${n.notes.join('; ')}`))
  if (p.remedies?.length) {
    parts.push(h('h2', {}, 'It would fit'), h('ul', { class: 'cards' }, p.remedies.map(r => h('li', { class: 'card' },
      h('p', {}, r.text ?? ''), h('p', { class: 'dim small' }, r.smallest ? 'No smaller change of this kind does.' : 'Perhaps a smaller change does, too.')))))
  } else if (!p.fit && !p.error) parts.push(h('p', { class: 'dim' }, 'It would not fit with any single change that Outboard has tried.'))
  if (p.explanations?.length) parts.push(matrix(p))
  if (p.excluded?.length) {
    parts.push(h('h2', {}, 'Nodes that kube-scheduler excludes itself'), h('ul', { class: 'plain' }, p.excluded.map(x => h('li', {}, `${number(x.nodes)}: ${x.reason} `,
      h('span', { class: 'dim' }, x.examples.join(', ') + (x.nodes > x.examples.length ? ', …' : ''))))))
  }
  return parts
}

// matrix shows what each policy says of each node.
function matrix(p) {
  const policies = [...new Set(p.explanations.flatMap(x => x.policies.map(o => o.policy)))]
  const weight = name => p.explanations[0].policies.find(o => o.policy === name)?.weight
  const t = table('Nodes and policies', [
    { title: 'Node', of: x => [h('a', { href: link('gpus', { node: x.node }) }, x.node), x.gets?.length > 0 && note(`would get ${holdings(x.gets)}`)] },
    { title: p.maxTotal ? `Total of ${number(p.maxTotal)}` : 'Total', n: true, kind: () => 'total', of: x => x.fits ? number(x.total) : '–' },
    ...policies.map(name => ({ title: `${name || 'Outboard'}${weight(name) ? ` × ${weight(name)}` : ''}`, kind: () => 'score', of: x => opinion(x.policies.find(o => o.policy === name)) })),
  ], { stack: false, className: 'matrix', row: x => x.fits ? '' : 'no' })
  t.fill(p.explanations, x => x.node)
  const margin = p.fit > 1 ? p.explanations[0].total - p.explanations[1].total : undefined
  const left = p.nodes - p.explanations.length
  return h('section', {}, h('h2', {}, 'Nodes'),
    margin !== undefined && h('p', { class: 'dim' }, margin === 0 ? 'The best two nodes are equal; kube-scheduler’s own plugins decide.' : `The best node is ${number(margin)} ahead of the second.`),
    t.element, left > 0 && h('p', { class: 'dim' }, `${plural(left, 'more node')}.`))
}

function opinion(o) {
  if (!o) return ''
  if (o.code) return [h('span', { class: 'line bad' }, o.code), h('span', { class: 'line small' }, o.want ? `${number(o.have ?? 0)} of ${number(o.want)} ${o.unit ?? ''}` : o.text)]
  return [o.scored ? [number(o.score), bar(o.score, 100)] : h('span', { class: 'dim' }, 'passes'), o.notes?.length > 0 && note(o.notes.join('; '))]
}

function placed(p, several) {
  const parts = [h('h2', {}, `If it were placed now${several ? `, by profile ${p.profile}` : ''}`)]
  parts.push(h('p', {}, !p.fits ? `It would not fit on ${p.node}.` : p.best ? `${p.best} would score ${number(p.bestTotal)}, more than ${p.node} with ${number(p.total)}.`
    : p.next ? `No node would score more than ${p.node} with ${number(p.total)}; the next is ${p.next} with ${number(p.nextTotal)}.` : `It would fit on ${p.node} alone.`))
  if (p.flips?.length) parts.push(h('ul', { class: 'plain' }, p.flips.map(f => h('li', {}, f.text ?? `with weight ${f.to} of ${f.policy} instead of ${f.from}, ${f.node} would score more`))))
  return parts
}

// scores shows the best nodes of the latest call that scored, as kube-scheduler got them.
function scores(doc) {
  const d = doc.now ? undefined : doc.decisions?.find(d => d.top?.length)
  if (!d) return []
  const top = d.chosen && !d.top.some(n => n.node === d.chosen.node) ? [...d.top, d.chosen] : d.top, chosen = n => n.node === d.chosen?.node
  const t = table('Scores', [
    { title: 'Node', of: n => [h('a', { href: link('gpus', { node: n.node }) }, n.node), chosen(n) && note('chosen by kube-scheduler')] },
    { title: d.maxTotal ? `Total of ${number(d.maxTotal)}` : 'Total', n: true, kind: () => 'total', of: n => [number(n.total), n.holdsClaim && note('holds its claim')] },
    ...(d.top[0].scores ?? []).map(p => ({ title: `${p.policy} × ${p.weight}`, kind: () => 'score', of: n => {
      const s = n.scores?.find(s => s.policy === p.policy)
      return s && [number(s.score), bar(s.score, 100)]
    } })),
  ], { stack: false, className: 'matrix', row: n => chosen(n) ? 'at' : '' })
  t.fill(top, n => n.node)
  return [h('h2', {}, `Scores at ${clock(d.time)}`), t.element]
}

// history returns the latest decisions.
function history(doc) {
  if (!doc.decisions?.length) return doc.known ? [h('h2', {}, 'Decisions'), h('p', { class: 'dim' }, 'kube-scheduler has not asked about this pod lately, or Outboard has restarted since.')] : []
  const several = new Set(doc.decisions.map(d => d.replica)).size > 1, profiles = new Set(doc.decisions.map(d => d.profile)).size > 1
  const t = table('Decisions', [
    { title: 'Time', of: d => [h('span', { class: 'nowrap' }, clock(d.time)), several && note(d.replica)] },
    { title: 'Call', of: d => [d.verb, profiles && note(d.profile)] },
    { title: 'Nodes', n: true, of: d => d.nodes ? `${number(d.fit)} of ${number(d.nodes)}` : '' },
    { title: 'Result', of: result },
  ])
  t.fill(doc.decisions, d => d.time + d.verb + d.profile)
  return [h('h2', {}, 'Decisions'), t.element]
}

function result(d) {
  if (d.error) return h('span', { class: 'bad' }, d.error)
  if (d.bound) return `bound to ${d.bound}`
  if (d.unmanaged) return h('span', { class: 'dim' }, 'not managed: all nodes pass')
  const lines = []
  if (d.chosen) lines.push(`kube-scheduler chose ${d.chosen.node}${d.chosen.better ? `; ${plural(d.chosen.better, 'node')} scored more` : ''}`)
  else if (d.top?.length) lines.push(`best ${d.top.slice(0, 3).map(n => `${n.node} ${n.holdsClaim ? 'holds its claim' : number(n.total)}`).join(', ')}`)
  for (const r of (d.rejections ?? []).slice(0, 4)) lines.push(`${number(r.nodes)} × ${r.code}${r.nearest?.[0]?.want ? `: nearest ${r.nearest[0].node} has ${number(r.nearest[0].have)} of ${number(r.nearest[0].want)} ${r.unit ?? ''}` : ''}`)
  for (const v of d.preemptions ?? []) lines.push(v.dropped ? `${v.node}: dropped: ${v.dropped}` : `${v.node}: ${plural(v.given, 'victim')}${v.added?.length ? ` and ${v.added.join(', ')}` : ''}`)
  return lines.length ? lines.map(l => line(l)) : h('span', { class: 'dim' }, 'all nodes pass')
}
